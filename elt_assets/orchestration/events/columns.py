"""The columns of a table in the form that Dagster displays."""

from __future__ import annotations

import json
import sys
from typing import Any

import dagster as dg

from elt_assets.lake.columns import logical_types, metadata_columns
from elt_assets.lake.columns.names import columns_kept
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.sync.field_selection import properties

_COLUMN_OVERHEAD = 160
"""Approximate bytes of a column in an event, without its texts."""

_CONSTRAINTS = {
    (nullable, unique): dg.TableColumnConstraints(nullable=nullable, unique=unique)
    for nullable in (False, True)
    for unique in (False, True)
}


def column_schema(
    schema: metadata_columns.TableSchema,
    stream: ConfiguredStream | None = None,
    max_bytes: int = sys.maxsize,
) -> dg.TableSchema:
    """Return the columns of a table, with the descriptions and the key of their stream.

    Args:
        schema: the schema of the table.
        stream: the stream as it is stored.
        max_bytes: approximate maximum size. Above it descriptions are omitted, then the last columns; a
            final entry contains the number of omitted columns.
    """
    described = {} if stream is None else properties(stream.stream.json_schema)
    key = stream.key if stream and stream.deduplicates else []
    fields = {f.name: f.metadata.get(logical_types.SOURCE, f.name) for f in schema.fields}
    declared = {old: name for name, old in columns_kept(described, list(fields.values())).items()}
    columns = []
    for field in schema.fields:
        source = declared.get(fields[field.name])
        is_key = [[source]] == key  # a part of a composite key may be null
        columns.append(
            dg.TableColumn(
                field.name,
                field.dataType.simpleString(),
                description=metadata_columns.OWN.get(field.name)
                or _text(source and described[source]),
                constraints=_CONSTRAINTS[
                    not is_key and field.name not in metadata_columns.OWN,
                    is_key or field.name == metadata_columns.RAW_ID,
                ],
            )
        )
    return dg.TableSchema(_limit_columns(columns, max_bytes))


def _limit_columns(columns: list[dg.TableColumn], max_bytes: int) -> list[dg.TableColumn]:
    if max_bytes == sys.maxsize or sum(map(_size, columns)) <= max_bytes:
        return columns
    shortened, size = [], 0
    for number, column in enumerate(columns):
        plain = dg.TableColumn(column.name, column.type[:200], constraints=column.constraints)
        size += _size(plain)
        if size > max_bytes:
            shortened.append(dg.TableColumn(f"… and {len(columns) - number} more", ""))
            break
        shortened.append(plain)
    return shortened


def _size(column: dg.TableColumn) -> int:
    texts = (column.name, column.type, column.description or "")
    # Dagster stores ASCII only.
    return _COLUMN_OVERHEAD + sum(len(json.dumps(text)) for text in texts)


def _text(schema: Any) -> str | None:
    """Return the description of a field, or else its title."""
    joined = (
        [schema.get(key) for key in ("description", "title")] if isinstance(schema, dict) else []
    )
    return next((text for text in joined if isinstance(text, str)), None)
