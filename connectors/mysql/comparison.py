"""The comparison of a table: the server hashes its rows, in the order of their key; the sums are made here.

**One query in one snapshot.** Rows come as their key and a number, so neither the server nor this process
keeps them: where an index has the order of the key, the server needs no sort, and it ends the query as soon
as nobody reads it. A query that numbers rows would copy the table into a temporary one first.

**The limit.** Of a stream that is read by a cursor column, rows above the value of the state are not counted
(`connectors.sql.comparison`). The position of a stream of the log is in `connectors.mysql.log.numbers`.

Tests: `tests/connectors/mysql/test_comparison.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.mysql.hashes import write_hash, write_order, write_plain, write_value
from connectors.mysql.rows import convert_column
from connectors.mysql.session import Session
from connectors.mysql.tables import Column
from connectors.sdk.columns import types as t
from connectors.sdk.comparison import (
    Answer,
    ComparedRange,
    ComparisonRequest,
    KeyBounds,
    Limit,
)
from connectors.sql.bounds import write_between
from connectors.sql.comparison import (
    ComparedColumns,
    RangeKeys,
    RangeSums,
    choose_columns,
    encode_cursor,
    find_limit,
    parse_key,
    refuse_key,
)
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import Key

if TYPE_CHECKING:
    from connectors.mysql.stream import TableStream

_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SORT = "SET SESSION max_sort_length = 16384"
"""The server compares only so many bytes when it sorts; no key is longer."""
_FLOATS = "the server cannot tell the bytes of a floating-point number"


def compare_table(
    stream: TableStream,
    configured: ConfiguredStream,
    state: Mapping[str, Any] | None,
    request: ComparisonRequest,
) -> Answer:
    """Yield what a table has.

    Raises:
        EltError: the table cannot be compared, or not be read.
    """
    chosen = choose_columns(stream.table, configured, request)
    floats = {c.name: _FLOATS for c in chosen.others if c.type in (t.DOUBLE, t.FLOAT)}
    chosen = chosen.leave_out(floats)
    with stream.open_comparison() as session:
        position = stream.find_position(configured, state)
        session.execute(_SORT)
        session.execute(_SNAPSHOT)
        limit = None
        if stream.log_cursor is None:
            limit = find_limit(stream, session, configured, state or {}, request)
        cursor = stream.log_cursor or (None if limit is None else limit.cursor)
        yield chosen.describe(position, cursor, limit)
        query = _Query(stream, chosen, limit)
        if request.ranges is None:
            sums = RangeSums(request.rows)
            for keys, hashes in query.read(session):
                yield from sums.add(keys, hashes)
            yield sums.finish()
        else:
            for bounds in request.ranges:
                yield query.list_keys(session, bounds)


@dataclass(frozen=True)
class _Keys(Sequence[Key]):
    """The keys of a batch, of which few are asked for."""

    columns: Sequence[Column]
    values: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.values[0])

    def __getitem__(self, number: Any) -> Any:
        texts = (_read_text(values[number]) for values in self.values)
        return [parse_key(text, c.type) for text, c in zip(texts, self.columns, strict=True)]


def _read_text(value: pa.Scalar) -> str | None:
    plain = value.as_py()
    return plain.decode() if isinstance(plain, bytes) else None if plain is None else str(plain)


@dataclass
class _Query:
    """The queries of a comparison. `limit`: which rows are counted."""

    stream: TableStream
    chosen: ComparedColumns[Column]
    limit: Limit | None

    def read(self, session: Session) -> Iterator[tuple[_Keys, np.ndarray]]:
        """Yield the keys and hashes of the rows that are counted.

        Raises:
            ConfigError: rows have no key, or the same one; or one is too large for the server.
        """
        last: _Keys | None = None
        pace = self.stream.limits.make_pace()
        for *values, hashes in session.columns(self._write([], self._write_limit())):
            pace.spend(len(hashes))
            keys = _Keys(self.chosen.key, values)
            self._require_key(last, keys)
            self._require_hashes(hashes)
            yield keys, hashes.to_numpy(zero_copy_only=False)
            last = keys

    def list_keys(self, session: Session, bounds: KeyBounds) -> ComparedRange:
        """Return a range with the keys of its rows."""
        cursor = None if self.limit is None else self.stream.table.column(self.limit.cursor)
        others = [f"COALESCE({self._write_limit() or 'TRUE'}, TRUE) + 0"]
        if cursor is not None:
            others.append(cursor.select)
        range_keys = RangeKeys(bounds)
        for batch in session.columns(self._write(others, self._write_range(bounds))):
            count = len(self.chosen.key)
            own, hashes, is_counted = (
                _Keys(self.chosen.key, batch[:count]),
                *batch[count : count + 2],
            )
            self._require_hashes(hashes)
            cursors = [None] * len(own) if cursor is None else _encode(batch[-1], cursor)
            counts = is_counted.to_pylist()
            for number, row_hash in enumerate(hashes.to_pylist()):
                is_within = bool(int(counts[number]))
                range_keys.add(own[number], row_hash, cursors[number], is_counted=is_within)
        return range_keys.finish()

    def _write(self, others: Sequence[str], condition: str) -> str:
        """Return the query of the keys and hashes of rows, and other values, in the order of the key."""
        key, table = self.chosen.key, self.stream.table
        values = [*map(write_plain, key), write_hash(self.chosen.hashed), *others]
        order = ", ".join(f"r.{c.quoted}" if c.type != t.STRING else write_order(c) for c in key)
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT {', '.join(values)} FROM {table.quoted} AS r{where} ORDER BY {order}"

    def _write_range(self, bounds: KeyBounds) -> str:
        """Return the condition of the rows of a range; empty for all."""
        key = self.chosen.key
        ends = (
            None if values is None else list(map(write_value, key, values))
            for values in (bounds.after, bounds.until)
        )
        return write_between(list(map(write_order, key)), *ends)

    def _write_limit(self) -> str:
        """Return the condition of the rows that are within the limit; empty for all."""
        if self.limit is None:
            return ""
        column = self.stream.table.column(self.limit.cursor)
        assert column is not None
        if self.limit.until is None:
            return f"({column.quoted} IS NULL)"
        sign = "<" if self.limit.is_open else "<="
        value = write_value(column, self.limit.until)
        return f"({write_order(column)} {sign} {value} OR {column.quoted} IS NULL)"

    def _require_key(self, last: _Keys | None, keys: _Keys) -> None:
        if any(values.null_count for values in keys.values):
            problem = "it has rows without a value of it that the lake stores"
            raise refuse_key(self.stream.id, self.chosen.key, problem)
        names = tuple(column.name for column in self.chosen.key)
        if any(index.is_key and index.columns == names for index in self.stream.table.indexes):
            return
        is_same = np.ones(max(len(keys) - 1, 0), bool)
        for values in keys.values:
            is_same &= np.asarray(pc.equal(values[1:], values[:-1]))
        if is_same.any() or (last is not None and last[len(last) - 1] == keys[0]):
            raise refuse_key(self.stream.id, self.chosen.key, "several rows have one key")

    def _require_hashes(self, hashes: pa.Array) -> None:
        if hashes.null_count:
            raise ConfigError(
                f"stream {str(self.stream.id)!r} cannot be compared: it has rows that are larger than the "
                "server's max_allowed_packet",
                guidance="leave out the columns with large values: write `columns` in the check `source`",
            )


def _encode(values: pa.Array, column: Column) -> list[Any]:
    """Return values of a cursor as the lake has them, in the form of a key's values."""
    stored = convert_column(values, column.type)[0].to_pylist()
    return list(map(encode_cursor, stored))
