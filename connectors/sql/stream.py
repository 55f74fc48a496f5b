"""The stream of a table or a view: in full, or by a cursor column, by ranges of a key.

**Ranges.** Each is a SELECT of its own, which sees the table at a time of its own. They meet without a gap,
and the last one has no end, so

- a row that is there during the whole read, with the same key, is read exactly once;
- a row that is inserted, changed or deleted meanwhile is read as it was before or after that;
- a row whose key is changed meanwhile may be read twice, or not at all;
- rows of different tables, and of different ranges, may be of different times.

They are read in the order of a key, and the state has the end of the last one that is complete, so a read
goes on after it.

**A cursor.** The upper bound is the greatest value when the read begins: rows that come later are read the
next time, and so is what changes after that. A row below it that is committed later is lost without a
look-back: the value of a column does not say when its row was committed.

Others may get the value of the bound itself after the read: rows of the same second, say. The state has their
number, and the next read has all rows of that value again if there are more or fewer of them. It has them
also if the value was not older than the present time, in any time zone, since a row may change and get it
again. So a row may be read twice, and none is lost. The first read has the rows without a value as well.

Two forms of state: `{"cursor", "value", "rows"}` after a read, and in the middle of one its bounds (`low`,
`high`, `rows`, `is_closed`) and the end of the last range (`after`).

Tests: `tests/connectors/sql/test_reads.py`, `tests/connectors/mysql/test_ranges.py` and `test_cursor.py`
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.sdk.columns.types import STRING
from connectors.sdk.comparison import (
    Answer,
    ComparisonRequest,
    KeyBounds,
    find_columns,
    find_keys,
)
from connectors.sdk.items import Checkpoint, Estimate, Slice
from connectors.sdk.slices import Part, SlicedStream
from connectors.sdk.times import parse_moment
from connectors.sql.bounds import decode_bound, encode_bound, is_after, is_until, look_back
from connectors.sql.dialect import SqlDialect
from connectors.sql.limits import ReadLimits, StatementLimit
from connectors.sql.tables import Table
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from elt_assets.protocol.messages import Key

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARISON = "connectors.sql.comparison"
_CONVERSION, _VALUES = "connectors.sdk.columns.conversion", "connectors.sql.values"
_ROWS = "connectors.sql.ordered_rows"
"""The modules are imported with the first batch: pyarrow is slow to import."""
_KEYS_AT_ONCE = 200
"""Keys in a query: SQLite takes 999 parameters."""
_TRUE = ("1", "True", "t")
"""How drivers write that a lock was taken."""
_PRESENT = dt.timedelta(days=2)
"""A value that is younger, in some time zone, may come again."""


@dataclass(frozen=True)
class Access:
    """What the streams of a source share."""

    open: Callable[[str, StatementLimit | None], AbstractContextManager[Any]]
    """Opens a connection. Its arguments: what fails if an error comes, and how long each query may take."""
    dialect: SqlDialect
    slice_rows: int
    """Rows of a table in a slice."""
    lookback: int
    """How far below the last value of a cursor late rows are read: seconds, or a number."""
    limits: ReadLimits = field(default_factory=ReadLimits)


@dataclass
class Where:
    """The condition of a query. `values`: of its parameters, as bounds."""

    parts: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts)


class SqlStream(SlicedStream):
    """The rows of a table. A database may write bounds, count rows and divide a read in a way of its own:
    these methods take and return SQL."""

    selects_rows = True
    ends_with_state = True
    """Whether a full refresh has a state at its end."""

    def __init__(self, access: Access, table: Table[Any]):
        self._access, self.table, self._dialect = access, table, access.dialect
        self.name, self.namespace = table.name, table.schema_name
        self.primary_key = tuple(table.primary_key)
        self.json_schema = table.schema()
        self.is_resumable = bool(table.key_columns)
        if any(column.is_ordered for column in table.columns):
            self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        keys, columns = find_keys(configured), find_columns(configured)
        if keys is not None or columns is not None:
            yield from self.select_rows(configured, state, keys, columns)
            return
        state = state or {}
        with self.open() as session:
            stamp = self.find_stamp(session, state)
            if configured.sync_mode == INCREMENTAL:
                read = self._begin(session, self.table.find_cursor(configured), state)
                key = self.choose_key(read)
                yield from self._divide(session, key, read, state, stamp)
                value = read["low"] if read["high"] is None else read["high"]
                yield Checkpoint({"cursor": read["cursor"], "value": value, "rows": read["rows"]})
            elif not state.get("is_complete"):
                yield from self.read_all(session, state, stamp)
                if self.ends_with_state:
                    yield Checkpoint({"is_complete": True})

    def select_rows(
        self,
        configured: ConfiguredStream,
        state: Mapping[str, Any] | None,
        keys: Sequence[Key] | None,
        columns: Sequence[str] | None,
    ) -> Iterator[Part]:
        """Yield the slices of a read that is narrowed to keys or columns. It has no states.

        Raises:
            ConfigError: the table does not have the columns, or rows cannot be found by its key.
        """
        comparison = import_module(_COMPARISON)
        key = comparison.find_key(self.table, configured)
        narrowed = self.stamp_rows(configured, state, columns)
        if columns is not None:
            own = self.list_own(columns)
            narrowed["columns"] = comparison.select_columns(self.table, key, own)
        if keys is None:
            with self.open() as session:
                for part in self.read_all(session, {}, self.find_stamp(session, {})):
                    if isinstance(part, Slice):
                        yield replace(part, data={**part.data, **narrowed})
            return
        with self.open() as session:
            stamp = self.find_stamp(session, {})
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            where = self.write_keys(key, some)
            names = [column.name for column in key]
            data = {"where": str(where), "values": where.values, **stamp, **narrowed}
            yield Slice(f"{len(some)} keys", {**data, "key": names, "keys": some}, len(some))

    def stamp_rows(
        self,
        configured: ConfiguredStream,
        state: Mapping[str, Any] | None,
        columns: Sequence[str] | None,
    ) -> dict[str, Any]:
        """Return what the slices of a narrowed read have besides, such as the number of its rows in a log.

        Args:
            columns: those that are read; None for all.
        """
        del configured, state, columns
        return {}

    def list_own(self, columns: Sequence[str]) -> Sequence[str]:
        """Return the columns of some that are of the table, and not added by a log."""
        return columns

    def write_keys(self, key: Sequence[Any], keys: Sequence[Key]) -> Where:
        """Return the condition of rows that have one of some keys; others may fulfil it too, such as one
        whose text the collation of the column takes for the same.

        Raises:
            ConfigError: the database compares values of the key otherwise than the lake.
        """
        where = Where()
        conditions = [
            " AND ".join(map(partial(self.match_value, where), key, values)) for values in keys
        ]
        where.parts.append(" OR ".join(conditions) or "1 = 0")
        return where

    def match_value(self, where: Where, column: Any, value: Any) -> str:
        """Return the condition that a column of the key has a value.

        Raises:
            ConfigError: the database compares values of the column otherwise than the lake.
        """
        if column.type != STRING and not self._dialect.order_key(column.name, column.type):
            raise ConfigError(
                f"{self.id} cannot be read by keys: {column.name!r} of its key has values of several forms",
                guidance="read the stream as a whole (`elt sync --refresh merge`)",
            )
        return f"{self.quote_compared(column)} = {self.write_bound(where, column, value)}"

    def read_all(
        self, session: Any, state: Mapping[str, Any], stamp: Mapping[str, Any]
    ) -> Iterator[Part]:
        """Yield the slices of all rows that follow a state, and the states after which another read can go
        on."""
        if self.table.rows is not None and "after" not in state:
            yield Estimate(self.table.rows)
        yield from self._divide(session, self.table.key_columns, {}, state, stamp)

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        convert = import_module(_VALUES).convert_values
        make_batch = import_module(_CONVERSION).make_batch
        columns = self.choose_columns(data)
        names = [column.name for column in columns]
        values = list(map(decode_bound, data["values"]))
        query = self.make_select(data["where"], columns)
        with self.open_reader(data) as session:
            batches = (
                make_batch(
                    names,
                    (
                        convert(part, column.type)
                        for part, column in zip(batch, columns, strict=True)
                    ),
                )
                for batch in session.read(query, values, len(columns))
            )
            for batch in self.limits.pace(batches):
                yield keep_keys(batch, data)

    def choose_columns(self, data: Mapping[str, Any]) -> Sequence[Any]:
        """Return the columns of a slice: all but in a narrowed read."""
        names = data.get("columns")
        columns = self.table.columns
        return [c for c in columns if names is None or c.name in names]

    def compare(
        self, configured: ConfiguredStream, state: dict[str, Any] | None, request: ComparisonRequest
    ) -> Answer:
        answer: Answer = import_module(_ROWS).compare_rows(self, configured, state, request)
        return answer

    def select_ordered(
        self, columns: Sequence[Any], key: Sequence[Any], ranges: Sequence[KeyBounds] | None
    ) -> tuple[str, list[Any]]:
        """Return the query of rows in the order of a key, and the values of its parameters.

        Args:
            ranges: of the key, in their order, at least one: the rows that are in one are read; None for all.
        """
        names = [self._dialect.order_key(column.name, column.type) for column in key]
        where = Where()
        if ranges is not None and None not in names:
            ordered = [name or "" for name in names]
            self._add_bounds(where, key, ordered, ranges[0].after, is_after)
            self._add_bounds(where, key, ordered, ranges[-1].until, is_until)
        selected = ", ".join(column.select for column in columns)
        order = ", ".join(
            name or self._dialect.quote(column.name)
            for name, column in zip(names, key, strict=True)
        )
        query = f"SELECT {selected} FROM {self._from(where)} ORDER BY {order}"
        return query, list(map(decode_bound, where.values))

    def has_new_data(
        self, configured: ConfiguredStream, state: dict[str, Any] | None
    ) -> bool | None:
        if configured.sync_mode != INCREMENTAL or not state or state.get("rows") is None:
            return None
        cursor = self.table.find_cursor(configured)
        if state["cursor"] != cursor.name or not self.is_quick(cursor):
            return None
        with self.open() as session:
            return self._find_high(session, cursor, state["value"]) is not None

    @property
    def limits(self) -> ReadLimits:
        """What is asked of the server at most."""
        return self._access.limits

    @property
    def purpose(self) -> str:
        """What fails if the server refuses something, for errors."""
        return f"{self.id} cannot be read"

    def open(self, limit: StatementLimit | None = None) -> AbstractContextManager[Any]:
        """Open a connection.

        Args:
            limit: how long a query may take; None for that of the queries of a read.
        """
        return self._access.open(self.purpose, limit or self.find_limit())

    def find_limit(self) -> StatementLimit | None:
        """Return how long a query may take."""
        return self.limits.limit_statements("make slices smaller (`slice_rows`)")

    def open_slice(self, data: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Open a connection for a slice. `data`: that of the slice."""
        del data
        return self.open()

    def open_reader(self, data: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Open the connection that reads a slice, within the limits. `data`: that of the slice."""
        check = self.require_hours if data.get("is_whole") else _pass
        return self.limits.open_reader(partial(self.open_slice, data), self.take_lock, check)

    def open_comparison(self) -> AbstractContextManager[Any]:
        """Open the connection of a comparison, within the limits."""

        def open_session() -> AbstractContextManager[Any]:
            advice = "name fewer `columns` in the check `source`"
            return self.open(self.limits.limit_statements(advice, ends_with_hours=True))

        return self.limits.open_reader(open_session, self.take_lock, self.require_hours)

    def require_hours(self) -> None:
        """Check that the whole table may be read now.

        Raises:
            TransientError: it is outside of the hours of the limits.
        """
        self.limits.require_hours(self.purpose)

    def take_lock(self, session: Any, count: int) -> bool:
        """Take one of so many locks of connections that read rows; return whether one was free."""
        locks = map(self._dialect.lock_reader, range(1, count + 1))
        return any(str(self.ask(session, lock, Where())[0][0]) in _TRUE for lock in locks)

    def make_select(self, where: str, columns: Sequence[Any]) -> str:
        """Return the query of the rows for which a condition holds; of all if it is empty."""
        names = ", ".join(column.select for column in columns)
        return f"SELECT {names} FROM {self._from(where)}"

    def find_stamp(self, session: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what slices have besides their condition, to know the table again; nothing here."""
        del session, state
        return {}

    def make_progress(
        self, key: Sequence[Any], after: Sequence[Any], stamp: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what a state has of the last range that is complete."""
        del key, stamp
        return {"after": after}

    def choose_key(self, read: Mapping[str, Any]) -> Sequence[Any]:
        """Return the columns by which an incremental read is divided: no column for one slice, because the
        first read alone has many rows of each range of the key."""
        return self.table.key_columns if read["low"] is None else []

    def is_quick(self, cursor: Any) -> bool:
        """Return whether the server finds the greatest value of a cursor at once."""
        del cursor
        return True

    def quote_compared(self, column: Any) -> str:
        """Return the expression that is compared with an operand, in the order of a key."""
        return self._dialect.quote(column.name)

    def select_bound(self, column: Any) -> str:
        """Return the expression whose value becomes a bound."""
        return self._dialect.quote(column.name)

    def encode_value(self, value: Any) -> Any:
        """Return a value of `select_bound` as a bound."""
        return encode_bound(value)

    def write_bound(self, where: Where, column: Any, bound: Any) -> str:
        """Return the SQL of a bound; it may be a parameter of a condition."""
        del column
        where.values.append(bound)
        return self._dialect.mark(len(where.values))

    def write_start(self, where: Where, column: Any, read: Mapping[str, Any]) -> str:
        """Return the condition of rows that are new, or that a look-back reads."""
        sign = ">" if read["is_closed"] else ">="
        return (
            f"{self.quote_compared(column)} {sign} {self.write_bound(where, column, read['from'])}"
        )

    def list_bounds(self, low: Any) -> dict[str, Any]:
        """Return the bounds of a read that follows the value of a state: where late rows begin."""
        return {"low": low, "from": look_back(low, self._access.lookback)}

    def is_closed(self, session: Any, cursor: Any, state: Mapping[str, Any]) -> bool:
        """Return whether the rows with the value of a state are those that were read."""
        if state.get("rows") is None or self._access.lookback:
            return False
        return bool(self.count_rows(session, cursor, state["value"]) == state["rows"])

    def count_rows(self, session: Any, cursor: Any, bound: Any) -> int | None:
        """Return how many rows have a value of the cursor; None if a row may get it yet, because it is of the
        present time."""
        if bound is None or (cursor.type.is_time and not _is_past(decode_bound(bound))):
            return None
        where = Where()
        where.parts.append(
            f"{self.quote_compared(cursor)} = {self.write_bound(where, cursor, bound)}"
        )
        return int(self.ask(session, f"SELECT COUNT(*) FROM {self._from(where)}", where)[0][0])

    def find_hint(self, key: Sequence[Any]) -> str:
        """Return the hint with which the ends of ranges of a key are looked for."""
        del key
        return ""

    def ask(self, session: Any, query: str, where: Where) -> Sequence[Sequence[Any]]:
        """Return the few rows of a query."""
        answer: Sequence[Sequence[Any]] = session.ask(query, list(map(decode_bound, where.values)))
        return answer

    def _from(self, where: Where | str, hint: str = "") -> str:
        condition = str(where)
        table = f"{self._dialect.quote_table(self.table)}{hint}"
        return f"{table} WHERE {condition}" if condition else table

    def _begin(self, session: Any, cursor: Any, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the bounds of a read that follows a state, which is in the middle of one or after one."""
        if state and state.get("cursor") != cursor.name:
            raise ConfigError(
                f"{self.id} cannot be read: the state is that of the cursor {state.get('cursor')!r}, and not "
                f"of {cursor.name!r}",
                guidance="write the earlier `cursor_field`, or reset the stream (`elt reset`)",
            )
        low = state["low"] if "after" in state else state.get("value")
        bounds = self.list_bounds(low)
        names = ("high", "rows", "is_closed")
        if "after" in state:
            read = {name: state[name] for name in (*bounds, *names)}
            return {"cursor": cursor.name, **read}
        high = self._find_high(session, cursor, low)
        rows = self.count_rows(session, cursor, low if high is None else high)
        values = (high, rows, self.is_closed(session, cursor, state))
        return {"cursor": cursor.name, **bounds, **dict(zip(names, values, strict=True))}

    def _find_high(self, session: Any, cursor: Any, low: Any) -> Any:
        """Return the greatest value that is greater than another one; None if there is none."""
        where = Where()
        if low is not None:
            where.parts.append(
                f"{self.quote_compared(cursor)} > {self.write_bound(where, cursor, low)}"
            )
        query = f"SELECT MAX({self.select_bound(cursor)}) FROM {self._from(where)}"
        value = self.ask(session, query, where)[0][0]
        return None if value is None else self.encode_value(value)

    def _divide(
        self,
        session: Any,
        key: Sequence[Any],
        read: Mapping[str, Any],
        state: Mapping[str, Any],
        stamp: Mapping[str, Any],
    ) -> Iterator[Part]:
        """Yield ranges of a key, and the states after them.

        Args:
            key: its columns; none if all rows are one slice.
            read: the bounds of the cursor, if there are any.
        """
        is_whole = not read or read["low"] is None
        if is_whole:
            self.require_hours()
        rows, after = self._access.slice_rows, state.get("after")
        names = [column.name for column in key]
        if after is not None and (len(after) != len(names) or state.get("by", names) != names):
            raise ConfigError(
                f"{self.id} cannot be read: the key or the index has changed since the read that was "
                "interrupted",
                guidance="reset the stream (`elt reset`), so that it is read from the beginning",
            )
        while True:
            until = self._find_end(session, key, read, after) if key else None
            where = Where()
            self._add_key(where, key, after, is_after)
            self._add_key(where, key, until, is_until)
            self._add_read(where, read)
            end = "the end" if until is None else ", ".join(map(str, until))
            data = {"where": str(where), "values": where.values, "is_whole": is_whole, **stamp}
            yield Slice(f"up to {end}", data, None if until is None else rows)
            if until is None:
                return
            after = until
            yield Checkpoint({**read, **self.make_progress(key, after, stamp)})

    def _find_end(
        self, session: Any, key: Sequence[Any], read: Mapping[str, Any], after: Any
    ) -> list[Any] | None:
        """Return the key with which a range ends; None for the last range. The server looks for it in the
        index alone, while the ranges before it are read."""
        where = Where()
        self._add_key(where, key, after, is_after)
        if [column.name for column in key] == [read.get("cursor")]:
            self._add_read(where, read)
        names = ", ".join(map(self.select_bound, key))
        order = ", ".join(self._dialect.quote(column.name) for column in key)
        table = self._from(where, self.find_hint(key))
        query = f"SELECT {names} FROM {table} ORDER BY {order}"
        ends = self.ask(session, self._dialect.skip(query, self._access.slice_rows - 1), where)
        return list(map(self.encode_value, ends[0])) if ends else None

    def _add_key(
        self,
        where: Where,
        key: Sequence[Any],
        bounds: Sequence[Any] | None,
        compare: Callable[[Sequence[str], Callable[[int], str]], str],
    ) -> None:
        """Add the comparison of a key with the end of a range, if there is one."""
        self._add_bounds(where, key, list(map(self.quote_compared, key)), bounds, compare)

    def _add_bounds(
        self,
        where: Where,
        key: Sequence[Any],
        names: Sequence[str],
        bounds: Sequence[Any] | None,
        compare: Callable[[Sequence[str], Callable[[int], str]], str],
    ) -> None:
        if bounds is not None:
            where.parts.append(compare(names, lambda n: self.write_bound(where, key[n], bounds[n])))

    def _add_read(self, where: Where, read: Mapping[str, Any]) -> None:
        """Add the condition of the rows between the bounds of a cursor."""
        if not read:
            return
        column = self.table.column(read["cursor"])
        name, until = self.quote_compared(column), ""
        if read["low"] is not None:
            where.parts.append(self.write_start(where, column, read))
        if read["high"] is not None:
            until = f"{name} <= {self.write_bound(where, column, read['high'])}"
        if read["low"] is None:
            until = f"{until} OR {name} IS NULL" if until else f"{name} IS NULL"
        if until:
            where.parts.append(until)


def keep_keys(batch: pa.RecordBatch, data: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the rows of a batch that have one of the keys of a slice; all if it has no keys."""
    if "keys" not in data:
        return batch
    keys = {tuple(map(decode_bound, key)) for key in data["keys"]}
    rows = zip(*(batch.column(name).to_pylist() for name in data["key"]), strict=True)
    return batch.filter(import_module("pyarrow").array([row in keys for row in rows]))


def _pass() -> None:
    """Check nothing."""


def _is_past(value: Any) -> bool:
    """Return whether a time is past in each time zone. A text that is no time may be of the present."""
    present = dt.datetime.now(dt.timezone.utc)
    if isinstance(value, str):
        value = parse_moment(value)
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return moment < present - _PRESENT
    return isinstance(value, dt.date) and value < (present - _PRESENT).date()
