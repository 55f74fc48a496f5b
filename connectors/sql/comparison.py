"""What the comparisons of all databases share: the columns, the limit by the cursor, and sums by ranges.

A comparison is by ranges of the key, so both sides must order keys alike: numbers, dates and times by their
values, texts and bytes by their bytes (of UTF-8). Types without such an order are in no key.

Used by `connectors.sql.ordered_rows`, and by the comparisons of PostgreSQL and MySQL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from connectors.sdk.columns import types as t
from connectors.sdk.comparison import (
    ComparedRange,
    ComparedTable,
    ComparisonRequest,
    KeyBounds,
    Limit,
)
from connectors.sql.bounds import decode_bound, encode_bound
from connectors.sql.tables import Table, TableColumn
from connectors.sql.values import convert_values
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import DELETED_AT, INCREMENTAL, ConfiguredStream
from elt_assets.protocol.messages import Key
from elt_assets.protocol.row_hash import MODULUS, add_hashes

if TYPE_CHECKING:
    from connectors.sql.stream import SqlStream

MAX_BYTES = 16 << 20
"""Texts and bytes that are longer are null in the lake, with a recorded change."""
_KEY_TYPES = (t.INT64, t.BOOL, t.DATE32, t.TIMESTAMP, t.TIMESTAMP_UTC, t.STRING, t.BINARY)
"""Types of keys that both sides order alike, with decimals."""
_HASHED_TYPES = (*_KEY_TYPES, t.DOUBLE, t.FLOAT)
_NO_TEXT = "values of the type {} have no text that both sides write alike"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_RESET = "reset the stream (`elt reset`), so that it is read from the beginning"


@dataclass(frozen=True)
class ComparedColumns(Generic[TableColumn]):
    """The columns of a comparison: those of the key, the others, and why others are left out."""

    key: Sequence[TableColumn]
    others: Sequence[TableColumn]
    left_out: Mapping[str, str]

    @property
    def hashed(self) -> Sequence[TableColumn]:
        """The columns in the order of the hash."""
        return [*self.key, *self.others]

    def leave_out(self, reasons: Mapping[str, str]) -> ComparedColumns[TableColumn]:
        """Return the columns without some, but not of the key. `reasons`: why, by name."""
        others = [column for column in self.others if column.name not in reasons]
        return ComparedColumns(self.key, others, {**self.left_out, **reasons})

    def describe(self, position: Any, cursor: str | None, limit: Limit | None) -> ComparedTable:
        """Return what is said of them before the ranges."""
        key, others = (
            {column.name: name_type(column.type) for column in columns}
            for columns in (self.key, self.others)
        )
        return ComparedTable(key, others, self.left_out, position, cursor, limit)


def name_type(kind: t.ColumnType) -> str:
    """Return the name that a type has in `elt_assets.protocol.row_hash`."""
    return f"{kind.name}({kind.digits}, {kind.places})" if kind.digits else kind.name


def choose_columns(
    table: Table[TableColumn], configured: ConfiguredStream, request: ComparisonRequest
) -> ComparedColumns[TableColumn]:
    """Return the columns of a comparison: of those that the catalog has, the ones that are asked for.

    Raises:
        ConfigError: the table has no key by which it can be compared, or not the columns that are asked for.
    """
    key = find_key(table, configured)
    declared = configured.stream.json_schema.get("properties") or {}
    names = [name for name in declared if name not in _log_fields(configured)]
    if not names:
        names = [column.name for column in table.columns]
    if request.columns is not None:
        unknown = sorted(set(request.columns) - {column.name for column in table.columns})
        if unknown:
            raise ConfigError(
                f"stream {str(configured.id)!r} cannot be compared by {', '.join(unknown)}: the table has no "
                "such column, or the user may not read it",
                guidance="correct `columns` of the check `source`",
            )
        names = [name for name in request.columns if name in names] or []
    left_out: dict[str, str] = {}
    others = []
    for name in names:
        column = table.column(name)
        if column is None:
            left_out[name] = "the table has no such column any more"
        elif not _is_of(column.type, _HASHED_TYPES):
            left_out[name] = _NO_TEXT.format(column.type.name)
        elif column not in key:
            others.append(column)
    return ComparedColumns(key, others, left_out)


def find_key(table: Table[TableColumn], configured: ConfiguredStream) -> list[TableColumn]:
    """Return the columns of the key of a stream.

    Raises:
        ConfigError: it has none, or one by which rows cannot be divided alike on both sides.
    """
    problem, key = "it has no key", []
    for path in configured.key:
        column = table.column(path[0]) if len(path) == 1 else None
        if column is None:
            problem = f"the table has no column {'.'.join(path)!r}, which is of its key"
            break
        if not _is_of(column.type, _KEY_TYPES):
            problem = f"{column.name!r} of its key has the type {column.type.name}"
            break
        key.append(column)
    if not key or len(key) < len(configured.key):
        raise ConfigError(
            f"stream {str(configured.id)!r} cannot be compared or read by keys: {problem}",
            guidance="give the table a key of numbers, texts, dates or times, or write `primary_key` for the "
            "stream",
        )
    return key


def select_columns(
    table: Table[TableColumn], key: Sequence[TableColumn], names: Sequence[str]
) -> list[str]:
    """Return the names of the columns of a read that is narrowed to some, with the key, as the table has
    them.

    Raises:
        ConfigError: the table does not have one.
    """
    absent = [name for name in names if table.column(name) is None]
    if absent:
        raise ConfigError(
            f"{table.name} has no columns {', '.join(absent)}, or the user may not read them",
            guidance="run `elt discover` to see the columns of the table",
        )
    selected = {*names, *(column.name for column in key)}
    return [column.name for column in table.columns if column.name in selected]


def _is_of(kind: t.ColumnType, types: Iterable[t.ColumnType]) -> bool:
    return kind.digits > 0 or kind in types


def _log_fields(configured: ConfiguredStream) -> set[str]:
    """Return the fields that a log adds to the columns of a table."""
    fields = set(configured.stream.json_schema.get("properties") or {})
    cursor = set(configured.stream.default_cursor_field or ())
    return {"_ab_cdc_updated_at", DELETED_AT, *cursor} if DELETED_AT in fields else set()


@dataclass
class RangeSums:
    """Adds up rows, which come in the order of their key, in ranges of so many rows."""

    size: int
    _after: Key | None = None
    _rows: int = 0
    _sum: int = 0

    def add(self, keys: Sequence[Key], hashes: np.ndarray) -> Iterator[ComparedRange]:
        """Add rows, and yield the ranges that are complete."""
        start = 0
        while start < len(keys):
            end = min(len(keys), start + self.size - self._rows)
            self._rows += end - start
            self._sum += add_hashes(hashes[start:end])
            if self._rows == self.size:
                yield self._close(keys[end - 1])
            start = end

    def finish(self) -> ComparedRange:
        """Return the last range, which has no end."""
        return self._close(None)

    def _close(self, until: Key | None) -> ComparedRange:
        bounds = KeyBounds(self._after, until)
        closed = ComparedRange(bounds, self._rows, self._sum % MODULUS)
        self._after, self._rows, self._sum = until, 0, 0
        return closed


class RangeKeys:
    """Collects the keys of the rows of one range, and adds up those that are counted."""

    def __init__(self, bounds: KeyBounds):
        self.bounds = bounds
        self._keys: list[tuple[Key, str, Any]] = []
        self._rows = self._sum = 0

    def add(self, key: Key, row_hash: int, cursor: Any, *, is_counted: bool) -> None:
        """Add a row. `cursor`: the value of its cursor as a bound; `is_counted`: it is within the limit."""
        self._keys.append((key, str(row_hash), cursor))
        if is_counted:
            self._rows, self._sum = self._rows + 1, self._sum + row_hash

    def finish(self) -> ComparedRange:
        """Return the range."""
        return ComparedRange(self.bounds, self._rows, self._sum % MODULUS, self._keys)


def list_ranges(sums: Iterable[tuple[int, int, Key]], size: int) -> Iterator[ComparedRange]:
    """Yield the ranges of a query that numbers rows: after the last one that is full, one without an end.

    Args:
        sums: of each range the number of its rows, the sum of their hashes, and the key of its last row.
        size: the number of rows in a full range.
    """
    after: Key | None = None
    for rows, total, end in sums:
        until = end if rows == size else None
        yield ComparedRange(KeyBounds(after, until), rows, total % MODULUS)
        if until is None:
            return
        after = until
    yield ComparedRange(KeyBounds(after, None), 0, 0)


def parse_key(text: str | None, kind: t.ColumnType) -> Any:
    """Return a value of a key from its text in the hash, but without the length of a text."""
    if text is None or kind == t.STRING:
        return text
    if kind.digits:
        return {"decimal": text}
    if kind == t.BINARY:
        return {"hex": text[1:]}
    number = int(text)
    if kind == t.BOOL:
        return bool(number)
    if kind == t.DATE32:
        return encode_bound(_EPOCH.date() + dt.timedelta(days=number))
    if kind in (t.TIMESTAMP, t.TIMESTAMP_UTC):
        moment = _EPOCH + dt.timedelta(microseconds=number)
        return encode_bound(moment if kind == t.TIMESTAMP_UTC else moment.replace(tzinfo=None))
    return number


def find_limit(
    stream: SqlStream,
    session: Any,
    configured: ConfiguredStream,
    state: Mapping[str, Any],
    request: ComparisonRequest,
) -> Limit | None:
    """Return which rows a state covers, as values of the lake; None for all.

    Raises:
        ConfigError: the first read is not complete, or the state is of another cursor.
    """
    if configured.sync_mode != INCREMENTAL:
        return None
    cursor, limit = stream.table.find_cursor(configured), None
    if state:
        if state.get("cursor") != cursor.name:
            raise ConfigError(
                f"stream {str(configured.id)!r} cannot be compared: the state is that of the cursor "
                f"{state.get('cursor')!r}, and not of {cursor.name!r}",
                guidance=f"write the earlier `cursor_field`, or {_RESET}",
            )
        is_within = "after" in state
        value = state["low"] if is_within else state.get("value")
        if is_within and value is None:
            raise incomplete_read(configured)
        is_open = is_within or value is None or not stream.is_closed(session, cursor, state)
        limit = Limit(cursor.name, _store(value, cursor.type), is_open)
    return settle(limit, cursor, request.settled)


def incomplete_read(configured: ConfiguredStream) -> ConfigError:
    """Return the error for a stream of which not all rows were read yet."""
    return ConfigError(
        f"stream {str(configured.id)!r} cannot be compared: its first read is not complete",
        guidance="sync the stream, and compare it then",
    )


def settle(limit: Limit | None, cursor: Any, seconds: float) -> Limit | None:
    """Return a limit, or that of the rows that were not changed in the last seconds, if it is less."""
    if not seconds or not cursor.type.is_time:
        return limit
    moment = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    value: Any = moment if cursor.type == t.TIMESTAMP_UTC else moment.replace(tzinfo=None)
    if cursor.type == t.DATE32:
        value = moment.date()
    if limit is not None and (limit.until is None or decode_bound(limit.until) <= value):
        return limit
    return Limit(cursor.name, encode_bound(value), is_open=True)


def _store(bound: Any, kind: t.ColumnType) -> Any:
    """Return the value of a state as the lake has it, as a bound."""
    if bound is None:
        return None
    values, _ = convert_values([decode_bound(bound)], kind)
    return encode_cursor(values[0].as_py())


def encode_cursor(value: Any) -> Any:
    """Return the value of a cursor as the lake has it as a bound; a float is one itself."""
    return value if value is None or isinstance(value, float) else encode_bound(value)


def refuse_key(stream: Any, key: Sequence[Any], problem: str) -> ConfigError:
    """Return the error for a key by which rows cannot be compared."""
    names = ", ".join(column.name for column in key)
    return ConfigError(
        f"stream {str(stream)!r} cannot be compared by its key ({names}): {problem}",
        guidance="write a `primary_key` for the stream that is unique and never null; for texts, let the "
        "dialect of the source define `order_key`",
    )
