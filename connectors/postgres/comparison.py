"""The comparison of a table: sums of the hashes of its rows by ranges of the key, which the server computes.

**One query in one snapshot** gives all ranges. It numbers the rows in the order of the key, and a range is so
many numbers: so the ranges have no gap, and all are of one state of the table. Keys are asked for in one
snapshot too.

**The position.** Of a stream that is read from the log, a row that is changed after the snapshot must get a
greater number than the position in `_ab_cdc_lsn`. That number is at least the place of the commit in the log.
The position is the end of the log before the snapshot, less one. A transaction that the snapshot does not
show may have its commit before that place already, for a moment: it still has its lock on the table then. So
those that had one when the place was read are waited for, or are known not to have committed (`waits`).

**The limit.** Of a stream that is read by a cursor column, rows above the value of the state are not counted,
as the state does not cover them. If other rows have got this value since, which `xmin` tells, those with the
value are not counted either.

The server ends a query of a client that is gone within a second (from version 14 on).

Tests: `tests/connectors/postgres/test_comparison.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connectors.postgres.catalog import Column
from connectors.postgres.dialect import NOT_FINITE, quote_name, quote_text
from connectors.postgres.hashes import UNKNOWN, write_hash, write_order, write_plain, write_value
from connectors.postgres.position import build_new_rows_condition, load_position
from connectors.postgres.session import Session
from connectors.postgres.snapshot import export_snapshot
from connectors.sdk.columns import types as t
from connectors.sdk.columns.conversion import convert
from connectors.sdk.comparison import (
    Answer,
    ComparedRange,
    ComparisonRequest,
    KeyBounds,
    Limit,
)
from connectors.sql.bounds import decode_bound, write_between
from connectors.sql.comparison import (
    ComparedColumns,
    RangeKeys,
    choose_columns,
    encode_cursor,
    incomplete_read,
    list_ranges,
    parse_key,
    refuse_key,
    settle,
)
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.protocol.messages import Key
from elt_assets.protocol.row_hash import MODULUS

if TYPE_CHECKING:
    from connectors.postgres.stream import TableStream

_LEAVE = """
SELECT set_config(name, '1s', true) FROM pg_catalog.pg_settings
WHERE name = 'client_connection_check_interval'
"""
_ENCODING = "SELECT current_setting('server_encoding') AS encoding"


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
    with stream.open_comparison() as (session, position):
        session.execute(_LEAVE)
        encoding = read_encoding(session)
        chosen = _leave_out_texts(stream, chosen, encoding)
        limit = _find_limit(stream, session, configured, state, request)
        cursor = stream.log_cursor or (None if limit is None else limit.cursor)
        yield chosen.describe(position, cursor, limit)
        query = _Query(stream, chosen, limit, encoding)
        if request.ranges is None:
            yield from query.sum_ranges(session, request.rows)
        else:
            yield from query.list_keys(session, request.ranges)


def read_encoding(session: Session) -> str:
    """Return the encoding of the database."""
    return str(session.row(_ENCODING)["encoding"])


def _leave_out_texts(
    stream: TableStream, chosen: ComparedColumns[Column], encoding: str
) -> ComparedColumns[Column]:
    """Return the columns without the texts of a database that has texts of any encoding.

    Raises:
        ConfigError: one is of the key.
    """
    if encoding != UNKNOWN:
        return chosen
    why = f"the encoding of the database is {UNKNOWN}: its texts need not be UTF-8"
    if any(column.type == t.STRING for column in chosen.key):
        raise refuse_key(stream.id, chosen.key, why)
    texts = {column.name: why for column in chosen.others if column.type == t.STRING}
    return chosen.leave_out(texts)


def _find_limit(
    stream: TableStream,
    session: Session,
    configured: ConfiguredStream,
    state: Mapping[str, Any] | None,
    request: ComparisonRequest,
) -> Limit | None:
    if configured.sync_mode != INCREMENTAL or not stream.has_cursor:
        return None
    cursor, limit = stream.table.find_cursor(configured), None
    if state:
        snapshot = export_snapshot(session)
        last = load_position(dict(state), snapshot)
        if not last.is_complete or last.cursor_field != cursor.name:
            raise incomplete_read(configured)
        until, is_open = None, True
        if last.cursor is not None:
            until = _store(last.cursor, cursor)
            is_new = build_new_rows_condition(last.least, snapshot)
            name, value = quote_name(cursor.name), quote_text(last.cursor)
            query = f"SELECT EXISTS (SELECT FROM {stream.source} WHERE {name} = {value}::{{}} AND {{}}) AS e"
            has_rows = query.format(
                cursor.kind.orders, is_new if stream.table.is_lockable else "true"
            )
            is_open = bool(session.row(has_rows)["e"])
        limit = Limit(cursor.name, until, is_open)
    return settle(limit, cursor, request.settled)


def _store(text: str, column: Column) -> Any:
    """Return a text of the server as a value of the lake, in the form of a key's value."""
    if column.type == t.STRING:
        return {"decimal": text} if column.kind.orders == "numeric" else text
    value = convert(pa.array([text]), column.type, NOT_FINITE)[0][0].as_py()
    return encode_cursor(value)


@dataclass
class _Query:
    """The queries of a comparison. `limit`: which rows are counted."""

    stream: TableStream
    chosen: ComparedColumns[Column]
    limit: Limit | None
    encoding: str

    def sum_ranges(self, session: Session, size: int) -> Iterator[ComparedRange]:
        """Yield all ranges, of so many rows.

        Raises:
            ConfigError: rows have no key, or the same one.
        """
        key = self.chosen.key
        names = [f"k{number}" for number in range(len(key))]
        columns = [f"{quote_name(c.name)} AS {name}" for c, name in zip(key, names, strict=True)]
        order = ", ".join(write_order(column, self.encoding) for column in key)
        before = ", ".join(f"lag({quote_name(column.name)}) OVER w" for column in key)
        own = ", ".join(quote_name(column.name) for column in key)
        is_proven = [column.name for column in key] == list(self.stream.table.primary_key)
        repeated = "false" if is_proven else f"({own}) = ({before})"
        rows = (
            f"SELECT {', '.join(columns)}, {write_hash(self.chosen.hashed, self.encoding)} AS hash, "
            f"{repeated} AS is_repeated, row_number() OVER w AS number FROM {self.stream.source}"
            f"{self._where(self._write_limit())} WINDOW w AS (ORDER BY {order})"
        )
        texts = [write_plain(column, name) for column, name in zip(key, names, strict=True)]
        ends = ", ".join(f"min({text}) FILTER (WHERE number % {size} = 0)" for text in texts)
        has_null = " OR ".join(f"{text} IS NULL" for text in texts)
        query = (
            f"SELECT count(*)::int8, sum(hash)::text, bool_or(is_repeated), bool_or({has_null}), {ends} "
            f"FROM ({rows}) r GROUP BY (number - 1) / {size} ORDER BY (number - 1) / {size}"
        )
        yield from list_ranges(self._sums(session, query), size)

    def _sums(self, session: Session, query: str) -> Iterator[tuple[int, int, Key]]:
        """Yield the number of rows of each range, the sum of their hashes, and the key of the last one."""
        for batch in session.batches(query):
            columns = [column.to_pylist() for column in batch.columns]
            for rows, total, is_repeated, has_null, *end in zip(*columns, strict=True):
                if is_repeated:
                    raise refuse_key(self.stream.id, self.chosen.key, "several rows have one key")
                if has_null:
                    problem = "it has rows without a value of it that the lake stores"
                    raise refuse_key(self.stream.id, self.chosen.key, problem)
                pairs = zip(end, self.chosen.key, strict=True)
                yield rows, int(total), [parse_key(text, column.type) for text, column in pairs]

    def list_keys(self, session: Session, ranges: Sequence[KeyBounds]) -> Iterator[ComparedRange]:
        """Yield ranges with the keys of their rows."""
        key, limit = self.chosen.key, self.limit
        cursor = None if limit is None else self.stream.table.column(limit.cursor)
        order = ", ".join(write_order(column, self.encoding, "t") for column in key)
        values = [write_plain(column, quote_name(column.name)) for column in key]
        values.append(f"{write_hash(self.chosen.hashed, self.encoding)}::text")
        values.append(f"({self._write_limit() or 'true'})::int4::text")
        values.append("NULL::text" if cursor is None else f"{quote_name(cursor.name)}::text")
        for bounds in ranges:
            query = (
                f"SELECT {', '.join(values)} FROM {self.stream.source} AS t"
                f"{self._where(self._write_range(bounds))} ORDER BY {order}"
            )
            range_keys = RangeKeys(bounds)
            for batch in session.batches(query):
                columns = [column.to_pylist() for column in batch.columns]
                for *texts, number, is_counted, value in zip(*columns, strict=True):
                    pairs = zip(texts, key, strict=True)
                    row_hash = int(number) % MODULUS
                    own = [parse_key(text, column.type) for text, column in pairs]
                    bound = None if value is None or cursor is None else _store(value, cursor)
                    range_keys.add(own, row_hash, bound, is_counted=is_counted == "1")
            yield range_keys.finish()

    def _write_range(self, bounds: KeyBounds) -> str:
        """Return the condition of the rows of a range; empty for all."""
        key = self.chosen.key
        ends = (
            None
            if values is None
            else [
                write_value(column, value, self.encoding)
                for column, value in zip(key, values, strict=True)
            ]
            for values in (bounds.after, bounds.until)
        )
        return write_between([write_order(column, self.encoding) for column in key], *ends)

    def _write_limit(self) -> str:
        """Return the condition of the rows that are within the limit; empty for all."""
        if self.limit is None:
            return ""
        column = self.stream.table.column(self.limit.cursor)
        assert column is not None
        name = quote_name(column.name)
        if self.limit.until is None:
            return f"{name} IS NULL"
        until = decode_bound(self.limit.until)
        sign = "<" if self.limit.is_open else "<="
        # Infinity is no value in the lake, and so it is within any limit there.
        special = "" if column.kind.greatest is None else f" OR {name} = '{column.kind.greatest}'"
        value = f"{quote_text(str(until))}::{column.kind.orders}"
        return f"{name} {sign} {value} OR {name} IS NULL{special}"

    def _where(self, condition: str) -> str:
        parts = [f"({part})" for part in (self.stream.table.condition, condition) if part]
        return f" WHERE {' AND '.join(parts)}" if parts else ""
