"""A table's columns as Dagster shows them."""

from __future__ import annotations

import json
import sys
from typing import Any

import dagster as dg

from elt_assets.lake.schema import logical_types, metadata_columns
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.sync.selection.fields import properties

_COLUMN = 160
"""About how many bytes a column takes in an event besides its texts."""


def column_schema(
    schema: metadata_columns.TableSchema,
    stream: ConfiguredStream | None = None,
    most: int = sys.maxsize,
) -> dg.TableSchema:
    """A table's columns, with what their stream (as it lands) says of them.

    Args:
        most: about how many bytes they may take; beyond that their descriptions are left out, then the
            last columns, whose number the last line tells.
    """
    described = {} if stream is None else properties(stream.stream.json_schema)
    keys = [path for path in stream.key if len(path) == 1] if stream and stream.deduplicates else []
    whole = len(keys) == 1 and stream is not None and len(stream.key) == 1
    columns = []
    for field in schema.fields:
        source = field.metadata.get(logical_types.SOURCE, field.name)
        is_key = [source] in keys
        columns.append(
            dg.TableColumn(
                field.name,
                field.dataType.simpleString(),
                description=metadata_columns.OWN.get(field.name) or _text(described.get(source)),
                constraints=dg.TableColumnConstraints(
                    nullable=not is_key and field.name not in metadata_columns.OWN,
                    unique=(is_key and whole) or field.name == metadata_columns.RAW_ID,
                ),
            )
        )
    return dg.TableSchema(_fitting(columns, most))


def _fitting(columns: list[dg.TableColumn], most: int) -> list[dg.TableColumn]:
    if sum(map(_size, columns)) <= most:
        return columns
    kept, size = [], 0
    for number, column in enumerate(columns):
        plain = dg.TableColumn(column.name, column.type[:200], constraints=column.constraints)
        size += _size(plain)
        if size > most:
            kept.append(dg.TableColumn(f"… and {len(columns) - number} more", ""))
            break
        kept.append(plain)
    return kept


def _size(column: dg.TableColumn) -> int:
    texts = (column.name, column.type, column.description or "")
    return _COLUMN + sum(
        len(json.dumps(text)) for text in texts
    )  # as Dagster stores it: ASCII alone


def _text(schema: Any) -> str | None:
    """A field's description, or else its title."""
    found = (
        [schema.get(key) for key in ("description", "title")] if isinstance(schema, dict) else []
    )
    return next((text for text in found if isinstance(text, str)), None)
