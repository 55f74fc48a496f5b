"""The entry of a Delta table in the form of Hive: columns, formats and properties as engines expect them.

Used by `glue` and `hive`, whose libraries have other names for the same fields.

- Spark, Databricks, EMR and Trino know a Delta table by `spark.sql.sources.provider`, Athena by `table_type`.
- Trino takes the place from the SerDe's `path`, Spark and Athena from the location.
- The formats are those that Spark and Trino write for tables that Hive cannot read by itself.
- All engines take the columns from the table's log. The list of columns is for people, and for rights on
  columns; Spark's form of the schema, which has the case of the names, is in the properties beside it.
- A column that partitions the table is one of the columns, and no partition key of Hive: engines that know
  only Hive would look for partitions in the catalog, find none, and read an empty table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import types as t

from elt_assets.lake.publish.registration import COMMENT, MARK, Registration

INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
EXTERNAL = "EXTERNAL_TABLE"
_PLACEHOLDER = "-__PLACEHOLDER__"
_PREFIXES = ("elt.", "spark.sql.sources.")
"""Beginnings of the names of properties that are only this project's in its entries."""
LONGEST_PROPERTY = 4000
"""The largest text in which Hive's database stores a property, in characters: Spark cuts the schema so."""
_PLAIN = (
    *(t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType),
    *(t.StringType, t.BinaryType, t.DateType, t.TimestampType),
)
"""Types whose name in Spark is the one in Hive."""


class HiveColumn(NamedTuple):
    """A column in the list of an entry. Hive keeps names in lower case."""

    name: str
    type: str
    comment: str


UNKNOWN_COLUMNS = (HiveColumn("col", "array<string>", "from deserializer"),)
"""The list of columns that Spark writes, too, if Hive has no form of one of them."""


class Limits(NamedTuple):
    """The longest texts that a catalog stores, in characters."""

    type: int
    comment: int


def columns_of(schema: t.StructType, limits: Limits) -> tuple[HiveColumn, ...]:
    """Return the list of columns; the placeholder if a column has a type that Hive lacks, or a longer one."""
    types = [hive_type(column.dataType) for column in schema]
    if any(text is None or len(text) > limits.type for text in types):
        return UNKNOWN_COLUMNS
    return tuple(
        HiveColumn(column.name.lower(), str(text), cut(comment_of(column), limits.comment))
        for column, text in zip(schema, types, strict=True)
    )


def hive_type(kind: t.DataType) -> str | None:
    """Return the text of a type in Hive, which is Spark's for most; None if Hive has no such type."""
    if isinstance(kind, t.TimestampNTZType):
        return "timestamp"  # Hive's own has no time zone
    if isinstance(kind, t.StructType):
        fields = [(field.name, hive_type(field.dataType)) for field in kind]
        if not fields or any(text is None for _, text in fields):
            return None
        return f"struct<{','.join(f'{name}:{text}' for name, text in fields)}>"
    if isinstance(kind, t.ArrayType):
        element = hive_type(kind.elementType)
        return element and f"array<{element}>"
    if isinstance(kind, t.MapType):
        key, value = hive_type(kind.keyType), hive_type(kind.valueType)
        return f"map<{key},{value}>" if key and value else None
    is_known = type(kind) in _PLAIN or isinstance(kind, t.DecimalType)
    return str(kind.simpleString()) if is_known else None


def comment_of(column: t.StructField) -> str:
    """Return the comment of a column; empty if it has none."""
    return str((column.metadata or {}).get(COMMENT) or "")


def cut(text: str, longest: int) -> str:
    """Return a text of at most so many characters, of which control characters are spaces."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def parameters_of(registration: Registration) -> dict[str, str]:
    """Return the properties of an entry that this project sets."""
    return {
        "EXTERNAL": "TRUE",
        "classification": "delta",
        "table_type": "DELTA",
        MARK: registration.path,
        "spark.sql.sources.provider": "delta",
        "spark.sql.partitionProvider": "catalog",
        **dict(_schema_parts(registration)),
    }


def _schema_parts(registration: Registration) -> Iterator[tuple[str, str]]:
    text = registration.schema.json()
    parts = [
        text[start : start + LONGEST_PROPERTY] for start in range(0, len(text), LONGEST_PROPERTY)
    ]
    yield "spark.sql.sources.schema.numParts", str(len(parts))
    for number, part in enumerate(parts):
        yield f"spark.sql.sources.schema.part.{number}", part
    if registration.partition_by:
        yield "spark.sql.sources.schema.numPartCols", str(len(registration.partition_by))
        for number, name in enumerate(registration.partition_by):
            yield f"spark.sql.sources.schema.partCol.{number}", name


def keep_others(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of an entry that others set."""
    return {name: value for name, value in parameters.items() if not name.startswith(_PREFIXES)}


def place_of(location: str, path: str) -> str:
    """Return the place of a table. In an entry that Spark made, it may be only the SerDe's path."""
    return path if location.endswith(_PLACEHOLDER) and path else location


def facts(
    columns: tuple[HiveColumn, ...], parameters: Mapping[str, str], path: str, comment: str
) -> dict[str, Any]:
    """Return what an entry shows. Properties that only others set are no facts.

    Args:
        path: the SerDe's `path`.
    """
    own = set(parameters) - set(keep_others(parameters))
    common = ("EXTERNAL", "classification", "table_type", "spark.sql.partitionProvider")
    values = {name: parameters.get(name, "") for name in (*own, *common)}
    return {"columns": columns, "path": path, "comment": comment, **values}
