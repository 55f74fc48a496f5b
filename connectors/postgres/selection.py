"""The slices of a read that is narrowed to some keys or columns: in one snapshot, and without states.

Rows of a stream that is read from the log get the position of the snapshot as the number of their change
(`connectors.postgres.comparison`): changes after it have greater ones, and so win over these rows.

`connectors.postgres.stream` uses it. Tests: `tests/connectors/postgres/test_comparison.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connectors.postgres.catalog import LOG_FIELDS, Column
from connectors.postgres.comparison import read_encoding
from connectors.postgres.hashes import match_value
from connectors.postgres.reading import TableRead
from connectors.sdk.comparison import find_columns, find_keys
from connectors.sdk.items import Slice, Wait
from connectors.sdk.slices import Part
from connectors.sql.comparison import find_key, select_columns
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import Key

if TYPE_CHECKING:
    from connectors.postgres.stream import TableStream

_KEYS_AT_ONCE = 500
"""Keys in a query."""


def select_rows(stream: TableStream, configured: ConfiguredStream) -> Iterator[Part]:
    """Yield the slices of the rows with some keys, or of all rows with some columns.

    Raises:
        EltError: the table does not have the key or the columns, or cannot be read.
    """
    keys, columns = find_keys(configured), find_columns(configured)
    key = find_key(stream.table, configured)
    names = [column.name for column in stream.table.choose_columns(configured)]
    if columns is not None:
        own = [name for name in columns if stream.log_cursor is None or name not in LOG_FIELDS]
        names = select_columns(stream.table, key, own)
    needs_position = columns is None or stream.log_cursor in columns
    position = stream.find_position() if needs_position else None
    with stream.open_holder() as holder:
        read = TableRead(stream.config, stream.table, configured, holder)
        stamp: dict[str, Any] = {"columns": names}
        if position is not None and stream.log_cursor is not None:
            stamp |= {"number": position, "time": int(read.snapshot.time * 1_000_000)}
        if keys is None:
            parts = [part for part in read.read_all(None) if isinstance(part, Slice)]
            yield from (replace(part, data={**part.data, **stamp}) for part in parts)
        else:
            encoding = read_encoding(holder)
            data = {"snapshot": read.snapshot.name, "source": stream.source, **_KEYED, **stamp}
            data["is_at_replica"] = holder.is_at_replica
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[start : start + _KEYS_AT_ONCE]
                condition = _match_keys(stream, key, some, encoding)
                yield Slice(f"{len(some)} keys", {**data, "condition": condition}, len(some))
        yield Wait()


_KEYED: Mapping[str, Any] = {
    "oid": 0,
    "filenode": 0,
    "first": 0,
    "end": None,
    "is_whole": False,
}
"""What the slices of keys have in place of a range of pages."""


def _match_keys(
    stream: TableStream, key: Sequence[Column], keys: Sequence[Key], encoding: str
) -> str:
    """Return the condition of the rows with some keys."""
    alternatives = (
        " AND ".join(
            f"({match_value(column, value, encoding)})"
            for column, value in zip(key, values, strict=True)
        )
        for values in keys
    )
    condition = f"({' OR '.join(alternatives) or 'false'})"
    return f"({stream.table.condition}) AND {condition}" if stream.table.condition else condition
