"""The columns that `partition_by` and `cluster_by` of a stream name, checked against the catalog."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from elt_assets.connection import Connection, Stream
from elt_assets.connection.stream_settings import join_names
from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import JSONS, Column, Scalar, column_type, describe_type
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.sync_columns import column_at, column_path
from elt_assets.protocol.catalog import ConfiguredStream

_KINDS = frozenset(
    {
        Scalar.TEXT,
        Scalar.BOOLEAN,
        Scalar.INTEGER,
        Scalar.INTEGER_TEXT,
        Scalar.BIG_INTEGER,
        Scalar.BIG_NUMBER,
        Scalar.DATE,
    }
)


def partition_columns(
    connection: Connection, settings: Stream, landed: ConfiguredStream
) -> list[str]:
    """Return Delta's partition columns of the table of a stream.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: a field is not a stored top-level field with plain values, or each row would get a file
            of its own.
    """
    fields = connection.partition_fields(settings)
    if not fields:
        return []
    columns = from_json_schema.columns(landed.stream.json_schema)
    problems = [problem for path in fields for problem in _find_problems(path, columns)]
    names = [column.name for path in fields if (column := column_at(columns, path)) is not None]
    if len(set(map(tuple, fields))) < len(fields):
        problems.append("a field is named twice")
    elif landed.deduplicates and all(list(part) in fields for part in landed.key):
        problems.append(
            "it contains the whole primary key, so each row would get a file of its own; leave out a part of "
            "the key"
        )
    if problems:
        raise ConfigError(
            "\n".join(f"stream {str(landed.id)!r}: partition_by: {text}" for text in problems),
            guidance="name stored top-level fields with few values: text, integer, boolean or date; "
            "`partition_by: []` at a stream leaves out those of the connection",
        )
    return names


def refuse_decimals(landed: ConfiguredStream, table: Table) -> None:
    """Refuse to begin a table with decimals that have a fraction in a partition column.

    `to_pandas`, `to_pyarrow_table` and `to_pyarrow_dataset` of deltalake 1.6 fail for the whole table if one
    of them is negative: delta-rs passes `-12.5` to pyarrow as `-12.-5`. A table that has such a column is
    written as before: other readers, and deltalake without negative values, read it.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: names the column, and what to do.
    """
    for column in from_json_schema.columns(landed.stream.json_schema):
        if column.name not in table.partition_by or column.kind is not Scalar.BIG_NUMBER:
            continue
        type_ = column_type(column.kind)
        if table.exists and table.schema[column.name].dataType == type_:
            continue
        raise ConfigError(
            f"stream {str(landed.id)!r}: partition_by: {column.name!r}: its values are decimals with a "
            f"fraction ({type_.simpleString()}); readers by deltalake (to_pandas, to_pyarrow_table) fail for "
            "a table in which one of them is negative",
            guidance="remove the field from `partition_by`, and name it in `cluster_by`; if the table "
            "exists, move it and its companions away: the next sync reads the stream into a new one",
        )


def _find_problems(path: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    name, column = ".".join(path), column_at(columns, path)
    if column is None:
        yield f"there is no column {name!r}; {describe_near_names(path, columns)}"
    elif len(path) > 1:
        yield f"{name!r} is in an object; only top-level fields can be partition columns"
    elif column.kind not in _KINDS:
        yield f"{name!r}: its values ({describe_type(column.kind)}) cannot be those of a partition column"


def cluster_columns(settings: Stream, landed: ConfiguredStream) -> list[list[str]]:
    """Return the columns that maintenance sorts the table of a stream by.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: there is no such column, or its values have no order.
    """
    columns, problems = from_json_schema.columns(landed.stream.json_schema), list[str]()
    paths = settings.cluster_by or []
    for path in paths:
        name, column = ".".join(path), column_at(columns, path)
        if column is None:
            problems.append(f"there is no column {name!r}; {describe_near_names(path, columns)}")
        elif not isinstance(column.kind, Scalar) or column.kind in (*JSONS, Scalar.BINARY):
            problems.append(f"{name!r}: its values ({describe_type(column.kind)}) cannot be sorted")
    if problems:
        raise ConfigError(
            "\n".join(f"stream {str(landed.id)!r}: cluster_by: {text}" for text in problems),
            guidance="name columns of the stream with plain values",
        )
    return [column_path(columns, path) or [] for path in paths]


def describe_near_names(path: Sequence[str], columns: Sequence[Column]) -> str:
    names = [column.source for column in columns]
    if len(path) > 1 and (parent := column_at(columns, path[:-1])) is not None:
        names = [column.source for column in getattr(parent.kind, "fields", ())]
    near = difflib.get_close_matches(path[-1], names, n=1)
    return (
        f"did you mean {'.'.join([*path[:-1], *near])!r}?"
        if near
        else f"there are {join_names(names)}"
    )
