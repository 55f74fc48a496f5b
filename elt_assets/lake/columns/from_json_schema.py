"""Conversion of JSON schemas, which `protocol.json_schema` has composed, to the columns of a table.

Used by `lake.write` for the tables, and by `pipeline` and `orchestration.sensors` wherever the type of a
field matters.

Spec: Airbyte supported data types, v0 semantics; the well-known types of v1 where a schema names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from pyspark.sql import types as t

from elt_assets.lake.columns.logical_types import (
    ADDED,
    SOURCE,
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
)
from elt_assets.lake.columns.names import column_names, columns_kept
from elt_assets.protocol.json_schema import WELL_KNOWN

DEEPEST = 20
"""Levels of objects and arrays that become nested columns. Deeper objects and arrays are JSON text."""

_STRINGS: Mapping[tuple[str, str], Scalar] = {
    ("date", ""): Scalar.DATE,
    ("date-time", ""): Scalar.TIMESTAMP,
    ("date-time", "timestamp_without_timezone"): Scalar.TIMESTAMP_NTZ,
    ("time", ""): Scalar.TIME,
    ("time", "time_with_timezone"): Scalar.TIME_WITH_TIMEZONE,
    ("time", "time_without_timezone"): Scalar.TIME_WITHOUT_TIMEZONE,
}
"""Types of strings by `format` and `airbyte_type` (empty: any other)."""
_TEXTS = {Scalar.TEXT, Scalar.BINARY, *_STRINGS.values()}
"""Types of which each value is a string in JSON."""
_BIG = {"big_integer": Scalar.BIG_INTEGER, "big_number": Scalar.BIG_NUMBER}
_NUMBERS = {"integer": Scalar.INTEGER, **_BIG}
_WELL_KNOWN = {
    "String": Scalar.TEXT,
    "BinaryData": Scalar.BINARY,
    "Date": Scalar.DATE,
    "TimestampWithTimezone": Scalar.TIMESTAMP,
    "TimestampWithoutTimezone": Scalar.TIMESTAMP_NTZ,
    "TimeWithTimezone": Scalar.TIME_WITH_TIMEZONE,
    "TimeWithoutTimezone": Scalar.TIME_WITHOUT_TIMEZONE,
    "Number": Scalar.NUMBER_TEXT,
    "Integer": Scalar.INTEGER_TEXT,
    "Boolean": Scalar.BOOLEAN,
}
_TYPE_KEYS = ("type", "$ref", "oneOf", "anyOf", "properties", "items", "enum")
"""Keys of a schema that restrict the type. `required` does not; `oneOf` often has options with it alone."""


@dataclass(frozen=True)
class StoredField:
    """The column name of a field that the table has already, and the names of its nested fields."""

    name: str
    inner: Names


Names: TypeAlias = Mapping[str, StoredField]
"""Known column names of the fields of one object, by the source's field name."""
_NONE: Names = MappingProxyType({})


def columns(json_schema: Mapping[str, Any], stored: Names = _NONE) -> list[Column]:
    """Return the columns for a stream's schema, in the order of the schema.

    Args:
        stored: the names of columns that the table has already (`read_names`); they stay.
    """
    return list(_columns(_properties(json_schema), stored, 0))


def read_names(schema: t.StructType) -> Names:
    """Return the column names of a table by the source's field names, which column metadata contains."""
    return {
        field.metadata.get(SOURCE, field.name): StoredField(
            field.name, _inner_names(field.dataType)
        )
        for field in schema.fields
    }


def _inner_names(kind: t.DataType) -> Names:
    if isinstance(kind, t.ArrayType):
        return _inner_names(kind.elementType)
    return read_names(kind) if isinstance(kind, t.StructType) else _NONE


def kind_of(schema: Any, stored: Names = _NONE, depth: int = 0) -> LogicalType:
    """Return the logical type of a field. A field without a type may hold any value: it is JSON."""
    if not isinstance(schema, Mapping):
        return Scalar.JSON
    if "$ref" in schema:
        _, prefix, name = str(schema["$ref"]).rpartition(WELL_KNOWN)
        return _WELL_KNOWN.get(name, Scalar.JSON) if prefix else Scalar.JSON
    options = [o for key in ("oneOf", "anyOf") for o in _list(schema.get(key)) if _has_type(o)]
    if options:
        return _union([kind_of(o, stored, depth) for o in options if not _is_null(o)])
    return _union([_single(kind, schema, stored, depth) for kind in sorted(_kinds(schema))])


def _union(options: Sequence[LogicalType]) -> LogicalType:
    kinds = list(dict.fromkeys(options))
    if len(kinds) == 1:
        return kinds[0]
    if Scalar.TEXT in kinds and _TEXTS.issuperset(kinds):
        return Scalar.TEXT
    return Scalar.NUMBER if set(kinds) == {Scalar.INTEGER, Scalar.NUMBER} else Scalar.JSON


def _single(kind: str, schema: Mapping[str, Any], stored: Names, depth: int) -> LogicalType:
    special = str(schema.get("airbyte_type"))
    if kind == "string":
        return _string(schema, special)
    if kind == "integer":
        return Scalar.BIG_INTEGER if special == "big_integer" else Scalar.INTEGER
    if kind == "number":
        return _NUMBERS.get(special, Scalar.NUMBER)
    if kind == "boolean":
        return Scalar.BOOLEAN
    if kind == "array":
        # In 2020-12, `items` only describes the elements after those of a tuple.
        return _array(None if schema.get("prefixItems") else schema.get("items"), stored, depth)
    if kind == "object":
        return _object(_properties(schema), stored, depth)
    return Scalar.JSON


def _string(schema: Mapping[str, Any], special: str) -> Scalar:
    if schema.get("contentEncoding") == "base64":
        return Scalar.BINARY
    if special in _BIG:  # a string, since some JSON parsers would round the number
        return _BIG[special]
    form = str(schema.get("format"))
    return _STRINGS.get((form, special), _STRINGS.get((form, ""), Scalar.TEXT))


def _array(items: Any, stored: Names, depth: int) -> LogicalType:
    """Return the type of an array. `items` that are a list are read as a union, not as a tuple."""
    options = [o for o in _list(items) if not _is_null(o)] if isinstance(items, list) else [items]
    if len(options) != 1 or not _has_type(options[0]) or depth >= DEEPEST:
        return Scalar.JSON_ARRAY
    return Array(kind_of(options[0], stored, depth + 1))


def _object(properties: Mapping[str, Any], stored: Names, depth: int) -> LogicalType:
    if not properties or depth >= DEEPEST:
        return Scalar.JSON_OBJECT
    return Struct(_columns(properties, stored, depth + 1))


def _columns(properties: Mapping[str, Any], stored: Names, depth: int) -> tuple[Column, ...]:
    sources = columns_kept(properties, stored)
    own = {source: stored[old] for source, old in sources.items()}
    others = {old: stored[old] for old in stored.keys() - sources.values()}
    names = column_names(
        properties, {source: field.name for source, field in {**others, **own}.items()}
    )
    result = []
    for source, schema in properties.items():
        inner = own[source].inner if source in own else _NONE
        kind = kind_of(schema, inner, depth)
        is_added = isinstance(schema, Mapping) and ADDED in schema
        result.append(Column(source, names[source], kind, is_added=is_added))
    return tuple(result)


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows; without `type`, those that its other keys imply."""
    names = schema.get("type")
    kinds = {names} if isinstance(names, str) else {k for k in _list(names) if isinstance(k, str)}
    if not kinds and _properties(schema):
        kinds = {"object"}
    elif not kinds and schema.get("items"):
        kinds = {"array"}
    elif not kinds and _list(schema.get("enum")):
        kinds = {"string" if isinstance(v, str) else "any" for v in schema["enum"] if v is not None}
    return kinds - {"null"}


def _list(value: Any) -> list[Any]:
    """Return a list as it is, and [] for anything else: a malformed schema may have another value there."""
    return value if isinstance(value, list) else []


def _has_type(schema: Any) -> bool:
    return isinstance(schema, Mapping) and any(key in schema for key in _TYPE_KEYS)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}
