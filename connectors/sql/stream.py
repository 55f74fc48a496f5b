"""The stream of a table or a view: in full, or by a cursor column, by ranges of the primary key.

Each range is a SELECT of its own, at a time of its own. A row that is there during the whole read, with the
same key, is read exactly once. Ranges meet without a gap, and the last one has no end.

**A cursor.** The upper bound is the greatest value when the read begins; rows that come later are read the
next time. Others may get the value of the bound itself: so the state has the number of rows with that value,
and the next read has them again if it has changed, or if the value is of the present time. The first read has
the rows without a value as well.

Tests: `tests/connectors/sql/test_reads.py`
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.sdk.items import Checkpoint, Slice
from connectors.sdk.slices import Part, SlicedStream
from connectors.sdk.times import parse_moment
from connectors.sql.bounds import Condition, decode_bound, encode_bound
from connectors.sql.connection import Access, Connection
from connectors.sql.tables import Column, Table
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

if TYPE_CHECKING:
    import pyarrow as pa

_VALUES = "connectors.sql.values"
"""The module is imported with the first batch: pyarrow is slow to import."""
_PRESENT = dt.timedelta(days=2)
"""A value that is younger, in some time zone, may come again."""


class SqlStream(SlicedStream):
    """The rows of a table. `access`: opens connections."""

    def __init__(self, access: Access, table: Table):
        self._access, self._table, self._dialect = access, table, access.dialect
        self.name, self.namespace = table.name, table.schema_name
        self.primary_key = tuple(table.primary_key)
        properties = {column.name: column.schema() for column in table.columns}
        self.json_schema = {"type": "object", "properties": properties}
        self.is_resumable = bool(table.list_key_columns())
        if any(column.kind.is_ordered for column in table.columns):
            self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        state = dict(state or {})
        with self._open() as connection:
            if configured.sync_mode != INCREMENTAL:
                if not state.get("is_complete"):
                    yield from self._divide(connection, {}, state.get("after"))
                    yield Checkpoint({"is_complete": True})
                return
            read = self._begin(connection, self._find_cursor(configured), state)
            is_first = read["low"] is None
            yield from self._divide(connection, read, state.get("after"), is_whole=not is_first)
            value = read["low"] if read["high"] is None else read["high"]
            yield Checkpoint({"cursor": read["cursor"], "value": value, "rows": read["rows"]})

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        make_batch = import_module(_VALUES).make_batch
        columns = self._table.columns
        where = self._make_condition(data)
        names = ", ".join(column.select for column in columns)
        query = f"SELECT {names} FROM {self._dialect.quote_table(self._table)}{where}"
        with self._open() as connection:
            for values in connection.read(query, where.values, len(columns)):
                yield make_batch(columns, values)

    def has_new_data(
        self, configured: ConfiguredStream, state: dict[str, Any] | None
    ) -> bool | None:
        if configured.sync_mode != INCREMENTAL or not state or state.get("rows") is None:
            return None
        name = self._dialect.quote(state["cursor"])
        where = Condition(self._dialect.mark)
        where.require(f"{name} > {where.add(decode_bound(state['value']))}")
        with self._open() as connection:
            return bool(self._ask(connection, f"COUNT({name})", where)[0][0])

    def _divide(
        self,
        connection: Connection,
        read: Mapping[str, Any],
        after: Sequence[Any] | None,
        *,
        is_whole: bool = False,
    ) -> Iterator[Part]:
        """Yield ranges of the key, and the states after them.

        Args:
            read: the bounds of the cursor, if there are any.
            after: the end of the last range that was read.
            is_whole: whether all rows are one slice.
        """
        rows = self._access.slice_rows
        while True:
            bounds = {"read": dict(read), "after": after}
            until = None if is_whole else self._find_end(connection, bounds, rows)
            end = "the end" if until is None else ", ".join(map(str, until))
            yield Slice(f"up to {end}", {**bounds, "until": until}, None if until is None else rows)
            if until is None:
                return
            after = until
            yield Checkpoint({**read, "after": after})

    def _find_end(
        self, connection: Connection, bounds: Mapping[str, Any], rows: int
    ) -> list[Any] | None:
        """Return the key with which a range ends; None for the last range."""
        key = self._table.list_key_columns()
        if not key:
            return None
        names = ", ".join(self._dialect.quote(column.name) for column in key)
        where = self._make_condition({"after": bounds["after"]})
        table = self._dialect.quote_table(self._table)
        query = f"SELECT {names} FROM {table}{where} ORDER BY {names}"
        ends = connection.ask(self._dialect.skip(query, rows - 1), where.values)
        return [encode_bound(value) for value in ends[0]] if ends else None

    def _make_condition(self, data: Mapping[str, Any]) -> Condition:
        """Return the condition of a slice."""
        where = Condition(self._dialect.mark)
        key = [self._dialect.quote(column.name) for column in self._table.list_key_columns()]
        if data.get("after") is not None:
            where.require(where.compare(key, list(map(decode_bound, data["after"])), ">", ">"))
        if data.get("until") is not None:
            where.require(where.compare(key, list(map(decode_bound, data["until"])), "<", "<="))
        read = data.get("read")
        if not read:
            return where
        name = self._dialect.quote(read["cursor"])
        if read["low"] is None:
            until = (
                ""
                if read["high"] is None
                else f"{name} <= {where.add(decode_bound(read['high']))} OR "
            )
            where.require(f"{until}{name} IS NULL")
            return where
        sign = ">" if read["is_closed"] else ">="
        where.require(f"{name} {sign} {where.add(decode_bound(read['from']))}")
        if read["high"] is not None:
            where.require(f"{name} <= {where.add(decode_bound(read['high']))}")
        return where

    def _begin(
        self, connection: Connection, cursor: Column, state: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the bounds of a read that follows a state, which is in the midst of one or after one."""
        if state and state.get("cursor") != cursor.name:
            raise ConfigError(
                f"stream {str(self.id)!r}: the state is that of the cursor {state.get('cursor')!r}, and not "
                f"of {cursor.name!r}",
                guidance="write the earlier `cursor_field`, or reset the stream (`elt reset`)",
            )
        if "after" in state:
            return {key: value for key, value in state.items() if key != "after"}
        low = state.get("value")
        high = self._find_high(connection, cursor, low)
        bound = low if high is None else high
        lookback = self._access.lookback
        is_same = state.get("rows") is not None
        is_same = is_same and self._count(connection, cursor, low) == state["rows"]
        return {
            "cursor": cursor.name,
            "low": low,
            "from": None if low is None else _look_back(decode_bound(low), lookback),
            "high": high,
            "rows": self._count(connection, cursor, bound),
            "is_closed": is_same and not lookback,
        }

    def _find_high(self, connection: Connection, cursor: Column, low: Any) -> Any:
        """Return the greatest value; None if there is none that is greater than another one."""
        name = self._dialect.quote(cursor.name)
        where = Condition(self._dialect.mark)
        if low is not None:
            where.require(f"{name} > {where.add(decode_bound(low))}")
        value = self._ask(connection, f"MAX({name})", where)[0][0]
        return None if value is None else encode_bound(value)

    def _count(self, connection: Connection, cursor: Column, bound: Any) -> int | None:
        """Return how many rows have a value of the cursor; None if it is of the present time."""
        value = decode_bound(bound)
        if value is None or (cursor.kind.is_timed and not _is_past(value)):
            return None
        where = Condition(self._dialect.mark)
        where.require(f"{self._dialect.quote(cursor.name)} = {where.add(value)}")
        return int(self._ask(connection, "COUNT(*)", where)[0][0])

    def _ask(
        self, connection: Connection, expression: str, where: Condition
    ) -> Sequence[Sequence[Any]]:
        table = self._dialect.quote_table(self._table)
        return connection.ask(f"SELECT {expression} FROM {table}{where}", where.values)

    def _find_cursor(self, configured: ConfiguredStream) -> Column:
        path = configured.cursor_field or []
        column = self._table.column(path[0]) if len(path) == 1 else None
        if column is None or not column.kind.is_ordered:
            usable = [column.name for column in self._table.columns if column.kind.is_ordered]
            problem = f"{'.'.join(path)!r} cannot be its cursor" if path else "it has no cursor"
            raise ConfigError(
                f"stream {str(self.id)!r} cannot be read incrementally: {problem}",
                guidance=f"set `cursor_field` to a column that grows, of: {', '.join(usable)}",
            )
        return column

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        with self._access.open(f"{self.id} cannot be read") as connection:
            yield connection


def _is_past(value: Any) -> bool:
    """Return whether a time is past in each time zone. A text that is no time may be of the present."""
    present = dt.datetime.now(dt.timezone.utc)
    if isinstance(value, str):
        value = parse_moment(value)
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return moment < present - _PRESENT
    return isinstance(value, dt.date) and value < (present - _PRESENT).date()


def _look_back(value: Any, lookback: int) -> Any:
    """Return the bound below a value: so many seconds, days or units."""
    if not lookback:
        return encode_bound(value)
    if isinstance(value, (dt.datetime, dt.date)):
        return encode_bound(value - dt.timedelta(seconds=lookback))
    if isinstance(value, (int, Decimal)):
        return encode_bound(value - lookback)
    raise ConfigError(
        "the driver gives the cursor as a text, below which nothing can be looked for",
        guidance="leave out the look-back, or let the driver give times",
    )
