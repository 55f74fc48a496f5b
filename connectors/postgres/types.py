"""Types of columns: how a value is selected, what it is in Arrow, and its JSON schema.

Values that Arrow holds exactly come in the server's binary form. All others are texts, as the server writes
them: a binary form of money, intervals, bits or arrays would change values, or end the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REAL, DOUBLE, DATE, TIMESTAMP, INTEGER, DECIMAL = (
    "real",
    "double",
    "date",
    "timestamp",
    "integer",
    "decimal",
)
"""The conversions of Arrow values: see `arrow_values`."""
_WHOLE, _FRACTION, _MOST = 29, 9, 38
"""Digits of the lake's decimal(38,9) before and after its point, and of its decimal(38,0)."""
_LONG = 18
"""Digits of a number that always fits in 64 bits."""


@dataclass(frozen=True)
class ColumnType:
    """What becomes of the values of a column.

    Attributes:
        select: the expression that selects a column; `{}` stands for its name.
        schema: the JSON schema without null.
        conversion: how values are converted in Arrow; empty if they are as they should be.
        precision, scale: those of a DECIMAL.
        orders: the type of a cursor's bookmark, if the column can be a cursor.
        greatest: the value that no bookmark may reach, since nothing is after it.
    """

    schema: Mapping[str, Any]
    select: str = "{}"
    conversion: str = ""
    precision: int = 0
    scale: int = 0
    orders: str | None = None
    greatest: str | None = None


@dataclass(frozen=True)
class ServerType:
    """A type as the catalog has it, a domain resolved.

    `name`: its name, if it is in pg_catalog; else empty. `modifier`: as in `atttypmod`; -1 for none.
    """

    name: str
    modifier: int = -1
    is_array: bool = False
    is_composite: bool = False
    version: int = field(default=140000, compare=False)


_STRING: Mapping[str, Any] = {"type": "string"}
_INTEGER: Mapping[str, Any] = {"type": "integer"}
_TEXT = ColumnType(_STRING, "{}::text")
_OUTPUT = ColumnType(_STRING, "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END")
"""Texts of types whose cast to text may give another text than the server shows: it is slower."""
_INSTANT = {"type": "string", "format": "date-time"}


def _integer(name: str, select: str = "{}") -> ColumnType:
    return ColumnType(_INTEGER, select, orders=name)


def _float(name: str, conversion: str) -> ColumnType:
    number = {"type": "number"}
    return ColumnType(number, conversion=conversion, orders=name, greatest="Infinity")


def _time(name: str, conversion: str, schema: Mapping[str, Any]) -> ColumnType:
    return ColumnType(schema, conversion=conversion, orders=name, greatest="infinity")


_TYPES: Mapping[str, ColumnType] = {
    "int2": _integer("int2"),
    "int4": _integer("int4"),
    "int8": _integer("int8"),
    "oid": _integer("int8", "{}::int8"),
    "float4": _float("float4", REAL),
    "float8": _float("float8", DOUBLE),
    "bool": ColumnType({"type": "boolean"}),
    "text": ColumnType(_STRING, orders="text"),
    "varchar": ColumnType(_STRING, orders="text"),
    "bpchar": ColumnType(_STRING, orders="bpchar"),
    "name": _TEXT,
    "inet": _OUTPUT,
    "xml": _OUTPUT,
    "": _OUTPUT,
    "date": _time("date", DATE, {"type": "string", "format": "date"}),
    "timestamp": _time(
        "timestamp", TIMESTAMP, {**_INSTANT, "airbyte_type": "timestamp_without_timezone"}
    ),
    "timestamptz": _time(
        "timestamptz", TIMESTAMP, {**_INSTANT, "airbyte_type": "timestamp_with_timezone"}
    ),
    "json": ColumnType({}),
    "jsonb": ColumnType({}),
    "bytea": ColumnType({"type": "string", "contentEncoding": "base64"}),
}


def column_type(kind: ServerType) -> ColumnType:
    """Return what becomes of the values of a type."""
    if kind.is_array:
        return ColumnType({"type": "array"}, "to_json({})::text")
    if kind.is_composite:
        return ColumnType({"type": "object"}, "to_json({})::text")
    if kind.name == "numeric":
        return _numeric(kind)
    return _TYPES.get(kind.name, _TEXT)


def json_schema(kind: ColumnType, description: str | None) -> dict[str, Any]:
    """Return the JSON schema of a column, which may always be null."""
    schema = dict(kind.schema)
    if "type" in schema:
        schema["type"] = [schema["type"], "null"]
    if description:
        schema["description"] = description
    return schema


def _numeric(kind: ServerType) -> ColumnType:
    """Return the type of a numeric: a number if the lake has a column for all its values, else a text."""
    greatest = "Infinity" if kind.version >= 140000 else "NaN"
    orders: dict[str, Any] = {"orders": "numeric", "greatest": greatest}
    if kind.modifier < 4:
        return ColumnType(_STRING, "{}::text", **orders)
    precision, scale = numeric_digits(kind.modifier)
    whole = precision - scale
    if scale <= 0 and whole <= _LONG:
        return ColumnType(_INTEGER, "{}::text", INTEGER, **orders)
    if scale <= 0 and whole <= _MOST:
        big = {"type": "integer", "airbyte_type": "big_integer"}
        return ColumnType(big, "{}::text", DECIMAL, whole, 0, **orders)
    if 0 < scale <= _FRACTION and whole <= _WHOLE:
        big = {"type": "number", "airbyte_type": "big_number"}
        return ColumnType(big, "{}::text", DECIMAL, max(precision, scale), scale, **orders)
    return ColumnType(_STRING, "{}::text", **orders)


def numeric_digits(modifier: int) -> tuple[int, int]:
    """Return the precision and the scale of a numeric. The scale is negative for rounded thousands."""
    bits = modifier - 4
    scale = bits & 0x7FF
    return (bits >> 16) & 0xFFFF, (scale ^ 0x400) - 0x400
