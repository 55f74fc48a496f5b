"""The comparison of a table whose database has no expression for the hash of a row: its rows are read in the
order of their key, and hashed here.

**One snapshot.** One query gives all rows, so the ranges are of one state of the table.

**Both sides hash the same values.** They are those that `read` gives: of the same expressions, converted by
the same function. A value that the lake does not store is null there, with a recorded change, and so it is
here: one that the conversion makes null, and a text or bytes of more than `MAX_BYTES`.

**The order is the same.** A database orders texts by a collation; `SqlDialect.order_key` writes that of
bytes. Each key is compared with the one before it, so that another order, or a key that is not unique, is an
error and no difference.

Tests: `tests/connectors/sql/test_comparison.py`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.sdk.comparison import (
    Answer,
    ComparedRange,
    ComparisonRequest,
    KeyBounds,
    Limit,
)
from connectors.sql.bounds import decode_bound, encode_bound
from connectors.sql.comparison import (
    MAX_BYTES,
    ComparedColumns,
    RangeKeys,
    RangeSums,
    choose_columns,
    encode_cursor,
    find_limit,
    name_type,
    refuse_key,
)
from connectors.sql.values import convert_values
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import Key
from elt_assets.protocol.row_hash import hash_rows

if TYPE_CHECKING:
    from connectors.sql.stream import SqlStream


def compare_rows(
    stream: SqlStream,
    configured: ConfiguredStream,
    state: Mapping[str, Any] | None,
    request: ComparisonRequest,
) -> Answer:
    """Yield what a table has, from its rows.

    Raises:
        EltError: the table cannot be compared, or not be read.
    """
    chosen = choose_columns(stream.table, configured, request)
    with stream.open_comparison() as session:
        limit = find_limit(stream, session, configured, state or {}, request)
        yield chosen.describe(None, None if limit is None else limit.cursor, limit)
        rows = _OrderedRows(stream, chosen, limit)
        if request.ranges is None:
            sums = RangeSums(request.rows)
            for batch in rows.read(session, None):
                yield from sums.add(*batch.list_counted())
            yield sums.finish()
        elif request.ranges:
            yield from list_keys(rows.read(session, request.ranges), request.ranges)


@dataclass
class _Rows:
    """Rows in the order of their key. `cursors`: None if no cursor is asked for; `is_counted`: within the
    limit."""

    keys: list[Key]
    hashes: np.ndarray
    cursors: list[Any] | None
    is_counted: np.ndarray

    def list_counted(self) -> tuple[list[Key], np.ndarray]:
        """Return the keys and hashes of the rows within the limit."""
        if self.is_counted.all():
            return self.keys, self.hashes
        pairs = zip(self.keys, self.is_counted, strict=True)
        return [key for key, counts in pairs if counts], self.hashes[self.is_counted]


@dataclass
class _OrderedRows:
    """Reads the rows of a table in the order of its key."""

    stream: SqlStream
    chosen: ComparedColumns[Any]
    limit: Limit | None
    _last: list[Any] = field(default_factory=list)

    def read(self, session: Any, ranges: Sequence[KeyBounds] | None) -> Iterator[_Rows]:
        """Yield the rows; with `ranges`, at least those that are in one of them.

        Raises:
            ConfigError: the database gives them in another order, or the key is not unique.
        """
        columns, limit = list(self.chosen.hashed), self.limit
        if limit is not None:
            columns.append(self.stream.table.column(limit.cursor))
        query, values = self.stream.select_ordered(columns, self.chosen.key, ranges)
        pace = self.stream.limits.make_pace()
        for batch in session.read(query, values, len(columns)):
            pace.spend(len(batch[0]))
            arrays = [
                drop_long(convert_values(part, column.type)[0])
                for part, column in zip(batch, columns, strict=True)
            ]
            cursor = None if limit is None else arrays.pop()
            yield self._make_rows(arrays, cursor)

    def _make_rows(self, arrays: Sequence[pa.Array], cursor: pa.Array | None) -> _Rows:
        kinds = [name_type(column.type) for column in self.chosen.hashed]
        values = [array.to_pylist() for array in arrays[: len(self.chosen.key)]]
        keys = [list(key) for key in zip(*values, strict=True)]
        self._require_order(keys)
        return _Rows(
            [list(map(encode_bound, key)) for key in keys],
            hash_rows(arrays, kinds),
            None if cursor is None else list(map(encode_cursor, cursor.to_pylist())),
            count_within(cursor, self.limit, len(keys)),
        )

    def _require_order(self, keys: Sequence[Sequence[Any]]) -> None:
        for key in keys:
            if None in key:
                raise refuse_key(
                    self.stream.id, self.chosen.key, "it has rows without a value of it"
                )
            ordered = [part.encode() if isinstance(part, str) else part for part in key]
            if ordered <= self._last and self._last:
                same = ordered == self._last
                problem = (
                    f"several rows have the key {key}"
                    if same
                    else f"the database orders the key {key} by other rules than by bytes"
                )
                raise refuse_key(self.stream.id, self.chosen.key, problem)
            self._last = ordered


def drop_long(values: pa.Array) -> pa.Array:
    """Return values without those that are longer than the lake stores, which are null there."""
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)) or values.nbytes <= MAX_BYTES:
        return values
    is_long = pc.greater(pc.binary_length(values), MAX_BYTES)
    return pc.if_else(pc.fill_null(is_long, False), pa.scalar(None, kind), values)


def count_within(cursor: pa.Array | None, limit: Limit | None, rows: int) -> np.ndarray:
    """Return which rows are within a limit."""
    if cursor is None or limit is None:
        return np.ones(rows, bool)
    if limit.until is None:
        return np.asarray(cursor.is_null())
    compare = pc.less if limit.is_open else pc.less_equal
    until = pa.scalar(decode_bound(limit.until), cursor.type)
    is_within = pc.fill_null(compare(cursor, until), True)
    return np.asarray(is_within)


def list_keys(rows: Iterable[_Rows], ranges: Sequence[KeyBounds]) -> Iterator[ComparedRange]:
    """Yield the ranges that were asked for, with the keys of their rows.

    Args:
        rows: in the order of the key, at least those of the ranges, which are in this order too.
    """
    remaining = map(RangeKeys, ranges)
    range_keys = next(remaining, None)
    for batch in rows:
        for number, key in enumerate(batch.keys):
            while (
                range_keys is not None
                and range_keys.bounds.until is not None
                and _is_greater(key, range_keys.bounds.until)
            ):
                yield range_keys.finish()
                range_keys = next(remaining, None)
            if range_keys is None:
                return
            if range_keys.bounds.after is None or _is_greater(key, range_keys.bounds.after):
                cursor = None if batch.cursors is None else batch.cursors[number]
                is_counted = bool(batch.is_counted[number])
                range_keys.add(key, int(batch.hashes[number]), cursor, is_counted=is_counted)
    while range_keys is not None:
        yield range_keys.finish()
        range_keys = next(remaining, None)


def _is_greater(key: Key, other: Key) -> bool:
    return _order(key) > _order(other)


def _order(key: Key) -> list[Any]:
    values = map(decode_bound, key)
    return [value.encode() if isinstance(value, str) else value for value in values]
