"""Names and values as parts of SQL, and the types of the server: how a value is selected, and what it
becomes.

Values that Arrow holds exactly come in the server's binary form. All others are texts, as the server writes
them: a binary form of money, intervals, bits or arrays would change values, or end the read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from connectors.sdk.columns import types as t

NOT_FINITE = "^-?Infinity$|^NaN$"
"""Texts of numbers that are none."""
_LONG = 18
"""Digits of a number that always fits in 64 bits."""


def quote_name(*parts: str) -> str:
    """Return the quoted name of a column, or of a table with its schema."""
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in parts)


def quote_text(text: str) -> str:
    """Return a literal, which is read in the same way whatever `standard_conforming_strings` is."""
    return "E'{}'".format(text.replace("\\", "\\\\").replace("'", "''"))


def quote_texts(texts: Iterable[str]) -> str:
    """Return an array of texts."""
    return f"ARRAY[{', '.join(map(quote_text, texts))}]::text[]"


@dataclass(frozen=True)
class Kind:
    """What a type of the server becomes."""

    type: t.ColumnType
    select: str = "{}"
    """The expression that selects a column; `{}` stands for its name."""
    orders: str | None = None
    """The type of a cursor's bookmark, if the column can be a cursor."""
    greatest: str | None = None
    """The value that no bookmark may reach, since nothing is after it."""


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


_TEXT = Kind(t.STRING, "{}::text")
_OUTPUT = Kind(t.STRING, "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END")
"""Texts of types whose cast to text may give another text than the server shows: it is slower."""
_KINDS: Mapping[str, Kind] = {
    "int2": Kind(t.INT64, orders="int2"),
    "int4": Kind(t.INT64, orders="int4"),
    "int8": Kind(t.INT64, orders="int8"),
    "oid": Kind(t.INT64, "{}::int8", "int8"),
    "float4": Kind(t.FLOAT, orders="float4", greatest="Infinity"),
    "float8": Kind(t.DOUBLE, orders="float8", greatest="Infinity"),
    "bool": Kind(t.BOOL),
    "text": Kind(t.STRING, orders="text"),
    "varchar": Kind(t.STRING, orders="text"),
    "bpchar": Kind(t.STRING, orders="bpchar"),
    "name": _TEXT,
    "inet": _OUTPUT,
    "xml": _OUTPUT,
    "": _OUTPUT,
    "date": Kind(t.DATE32, orders="date", greatest="infinity"),
    "timestamp": Kind(t.TIMESTAMP, orders="timestamp", greatest="infinity"),
    "timestamptz": Kind(t.TIMESTAMP_UTC, orders="timestamptz", greatest="infinity"),
    "json": Kind(t.JSON),
    "jsonb": Kind(t.JSON),
    "bytea": Kind(t.BINARY),
}


def kind_of(server_type: ServerType) -> Kind:
    """Return what the values of a type become."""
    if server_type.is_array or server_type.is_composite:
        return Kind(t.ARRAY if server_type.is_array else t.OBJECT, "to_json({})::text")
    if server_type.name == "numeric":
        return _numeric(server_type)
    return _KINDS.get(server_type.name, _TEXT)


def _numeric(server_type: ServerType) -> Kind:
    """Return what a numeric becomes: a number if the lake has a column for all its values, else a text."""
    greatest, exact = "Infinity" if server_type.version >= 140000 else "NaN", None
    if server_type.modifier >= 4:
        precision, scale = numeric_digits(server_type.modifier)
        is_long = scale <= 0 and precision - scale <= _LONG
        exact = t.INT64 if is_long else t.decimal128(precision, scale)
    return Kind(exact or t.STRING, "{}::text", "numeric", greatest)


def numeric_digits(modifier: int) -> tuple[int, int]:
    """Return the precision and the scale of a numeric. The scale is negative for rounded thousands."""
    bits = modifier - 4
    scale = bits & 0x7FF
    return (bits >> 16) & 0xFFFF, (scale ^ 0x400) - 0x400
