"""JSON schemas → the columns of a table.

spec: Airbyte supported data types, v0 semantics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from elt_assets.lake.names import clean_all

TableSchema = t.StructType

RAW_ID = "_airbyte_raw_id"
EXTRACTED_AT = "_airbyte_extracted_at"
GENERATION_ID = "_airbyte_generation_id"
META = "_airbyte_meta"

CHANGES = t.ArrayType(
    t.StructType([t.StructField(name, t.StringType()) for name in ("field", "change", "reason")])
)
META_TYPE = t.StructType(
    [t.StructField("sync_id", t.LongType()), t.StructField("changes", CHANGES)]
)
METADATA_FIELDS = [
    t.StructField(RAW_ID, t.StringType()),
    t.StructField(EXTRACTED_AT, t.TimestampType()),
    t.StructField(GENERATION_ID, t.LongType()),
    t.StructField(META, META_TYPE),
]

_STRINGS: Mapping[str, t.DataType] = {
    "date": t.DateType(),
    "date-time": t.TimestampType(),
}
_INTEGERS: Mapping[str, t.DataType] = {"big_integer": t.DecimalType(38, 0)}
_NUMBERS: Mapping[str, t.DataType] = {
    "integer": t.LongType(),
    "big_integer": t.DecimalType(38, 0),
    "big_number": t.DecimalType(38, 9),
}


@dataclass(frozen=True)
class Column:
    """A field of the stream and its column: `type` has cleaned names all the way down, `read_type`
    the source's own."""

    source: str
    name: str
    type: t.DataType
    read_type: t.DataType


def columns(json_schema: Mapping[str, Any]) -> list[Column]:
    """The columns for a stream's schema, in its order.

    Raises:
        ConfigError: field names collide.
    """
    properties = _properties(json_schema)
    names = clean_all(properties, "field")
    found = []
    for source, schema in properties.items():
        read_type = spark_type(schema)
        found.append(Column(source, names[source], _cleaned(read_type), read_type))
    return found


def described(schema: TableSchema) -> list[tuple[str, str]]:
    """Each column's name and type, in Spark's notation."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def table_schema(found: list[Column]) -> t.StructType:
    """The table's whole schema: the stream's columns, then this project's."""
    return t.StructType([t.StructField(c.name, c.type) for c in found] + METADATA_FIELDS)


def has_path(schema: TableSchema, path: Sequence[str]) -> bool:
    """Whether a path of column names leads to a field."""
    kind: t.DataType = schema
    for name in path:
        if not isinstance(kind, t.StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return True


def spark_type(schema: Any) -> t.DataType:
    """The type of one field, its source names kept. What has no type of its own is JSON text."""
    if not isinstance(schema, Mapping):
        return t.StringType()
    options = [o for key in ("oneOf", "anyOf") for o in _list(schema.get(key)) if not _is_null(o)]
    if options:
        return spark_type(options[0]) if len(options) == 1 else t.StringType()
    kinds = _kinds(schema)
    if kinds == {"integer", "number"}:
        return t.DoubleType()
    if len(kinds) != 1:
        return t.StringType()
    return _single(kinds.pop(), schema)


def _single(kind: str, schema: Mapping[str, Any]) -> t.DataType:
    special = str(schema.get("airbyte_type"))
    if kind == "string":
        return _string(schema, special)
    if kind == "integer":
        return _INTEGERS.get(special, t.LongType())
    if kind == "number":
        return _NUMBERS.get(special, t.DoubleType())
    if kind == "boolean":
        return t.BooleanType()
    if kind == "array" and isinstance(schema.get("items"), Mapping) and schema["items"]:
        return t.ArrayType(spark_type(schema["items"]))
    if kind == "object" and _properties(schema):
        fields = _properties(schema).items()
        return t.StructType([t.StructField(name, spark_type(value)) for name, value in fields])
    return t.StringType()


def _string(schema: Mapping[str, Any], special: str) -> t.DataType:
    if schema.get("contentEncoding") == "base64":
        return t.BinaryType()
    if schema.get("format") == "date-time" and special == "timestamp_without_timezone":
        return t.TimestampNTZType()
    return _STRINGS.get(str(schema.get("format")), t.StringType())


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    kinds = {given} if isinstance(given, str) else {k for k in _list(given) if isinstance(k, str)}
    if not kinds and _properties(schema):
        kinds = {"object"}
    return kinds - {"null"}


def _list(value: Any) -> list[Any]:
    """What a malformed schema may hold in a list's place says nothing."""
    return value if isinstance(value, list) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _cleaned(kind: t.DataType) -> t.DataType:
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_cleaned(kind.elementType))
    if isinstance(kind, t.StructType):
        names = clean_all((f.name for f in kind.fields), "field")
        return t.StructType(
            [t.StructField(names[f.name], _cleaned(f.dataType)) for f in kind.fields]
        )
    return kind
