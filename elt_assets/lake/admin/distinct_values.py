"""The distinct values of one field of a table, read without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow.compute as pc

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema.logical_types import Column, describe_type
from elt_assets.lake.spark.task_io import read_keys
from elt_assets.lake.write.write_spec import column_at, column_path

KEY_TYPES = ("string", "bigint", "date", "decimal(38,0)")
"""The types of columns in which each value has exactly one text."""


def texts_of(table: Table, columns: Sequence[Column], field: Sequence[str]) -> list[str]:
    """Return the distinct values of a field as sorted texts, without null. Only its column is read.

    Args:
        columns: the columns of the table.
        field: its path, with the names of the source.

    Raises:
        ConfigError: as `plain_column`.
    """
    if not table.exists:
        return []
    column, distinct = plain_column(columns, field), set()
    for file in table.files:
        path = f"{table.storage.root}/{file.path}"
        (values,) = read_keys(table.storage.system, path, [column], table.arrow_schema())
        distinct.update(pc.unique(values).to_pylist())
    return sorted(
        (value.isoformat() if isinstance(value, dt.date) else str(value))
        for value in distinct
        if value is not None
    )


def plain_column(columns: Sequence[Column], field: Sequence[str]) -> list[str]:
    """Return the path of the table column of a field.

    Raises:
        ConfigError: it has no column, or its values do not have exactly one text each.
    """
    column, path = column_at(columns, field), column_path(columns, field)
    if column is None or path is None:
        names = (c.name for c in columns)
        raise ConfigError(
            f"there is no field {'.'.join(field)!r}", guidance=f"name one of {', '.join(names)}"
        )
    kind = describe_type(column.kind)
    if kind not in KEY_TYPES:
        raise ConfigError(
            f"the field {'.'.join(field)!r} has the type {kind}, whose values cannot be partition keys",
            guidance=f"name a field of one of the types {', '.join(KEY_TYPES)}",
        )
    return path
