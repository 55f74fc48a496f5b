"""The different values of one field of a table, read without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow.compute as pc

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema.logical_types import JSON_TEXT
from elt_assets.lake.schema.metadata_columns import TableSchema
from elt_assets.lake.spark.tasks import read_keys
from elt_assets.lake.write.write_spec import column_at, column_path

PLAIN = ("string", "bigint", "date", "decimal(38,0)")
"""Columns each of whose values has one text."""


def texts_of(table: Table, field: Sequence[str]) -> list[str]:
    """The different values of a field as texts, sorted; null is none. Reads that column alone.

    Args:
        field: its path, as the source calls it.

    Raises:
        ConfigError: as `plain_column`.
    """
    if not table.exists:
        return []
    column, found = plain_column(table.schema, field), set()
    for file in table.files:
        path = f"{table.storage.root}/{file.path}"
        (values,) = read_keys(table.storage.system, path, [column])
        found.update(pc.unique(values).to_pylist())
    return sorted(_text(value) for value in found if value is not None)


def plain_column(schema: TableSchema, field: Sequence[str]) -> list[str]:
    """The path of table columns that a field became.

    Raises:
        ConfigError: there is none, or its values have not one text each.
    """
    column, path = column_at(schema, field), column_path(schema, field)
    if column is None or path is None:
        known = (name for name in schema.names if not name.startswith("_airbyte_"))
        raise ConfigError(
            f"there is no field {'.'.join(field)!r}", guidance=f"there are {', '.join(known)}"
        )
    kind = "JSON text" if JSON_TEXT in column.metadata else column.dataType.simpleString()
    if kind not in PLAIN:
        raise ConfigError(
            f"the field {'.'.join(field)!r} is {kind}, whose values are no keys",
            guidance=f"name one that is {', '.join(PLAIN)}",
        )
    return path


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)
