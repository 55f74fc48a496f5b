"""Types of columns: what the catalog says of them, how they are selected, and how a literal is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Json = Mapping[str, Any]

INTEGER, DECIMAL, DOUBLE, SINGLE, BOOLEAN = "integer", "decimal", "double", "single", "boolean"
TEXT, BYTES, DATE, MOMENT, UTC_MOMENT = "text", "bytes", "date", "moment", "utc_moment"
NUMBER, QUOTED = "number", "quoted"
_BIG_WHOLE, _BIG_PLACES = 29, 9
"""The digits of the lake's decimals before and after the point: decimal(38, 9)."""
_MAX_DIGITS = 38
_NUMBERS = {
    "tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal", "double", "float", "bit",
}  # fmt: skip
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
_SHAPES = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """The type of a column.

    `form`: what its texts are cast to (`connectors.mysql.convert`). `schema`: its JSON schema, but for null.
    `select`: the expression whose text is exact, with the column's name in place of `{}`. `literal`: how a
    value is written in a condition: NUMBER, QUOTED, TEXT or BYTES; None if rows cannot be divided by it.
    `compared`: the expression that is compared with a literal, in the order of an index. `digits`, `places`:
    those of a decimal. `is_cursor`: whether the column can be a cursor.
    """

    form: str
    schema: Json
    select: str = "{}"
    literal: str | None = None
    compared: str = "{}"
    digits: int = 0
    places: int = 0
    is_cursor: bool = False

    @property
    def position(self) -> str:
        """The expression for the text of a value in a literal."""
        if self.literal == BYTES:
            return "HEX({})"
        return self.select if self.compared == "{}" else self.compared

    @property
    def is_timed(self) -> bool:
        """Whether a look-back is in seconds."""
        return self.form in (DATE, MOMENT, UTC_MOMENT)


@dataclass(frozen=True)
class Declaration:
    """A column as the server declares it, in lower case: `int` and `int(10) unsigned`."""

    data_type: str
    full_type: str
    precision: int | None = None
    scale: int | None = None
    is_json: bool = False


def kind_of(declared: Declaration) -> Kind:
    """Return the type of a column."""
    name = declared.data_type
    if declared.is_json or name == "json":
        return Kind(TEXT, {})
    if name in _NUMBERS:
        return _number(declared)
    if name in ("date", "datetime", "timestamp"):
        return _moment(name)
    if name in ("enum", "set"):
        # Their order is that of their numbers, and not that of their texts.
        return Kind(TEXT, {"type": "string"}, literal=NUMBER, compared="{} + 0")
    if name in _BYTES:
        is_short = name in ("binary", "varbinary")
        schema = {"type": "string", "contentEncoding": "base64"}
        return Kind(BYTES, schema, literal=BYTES if is_short else None)
    return _text(name)


def _number(declared: Declaration) -> Kind:
    name = declared.data_type
    if name == "decimal":
        kind = _decimal(declared.precision or 10, declared.scale or 0)
        if kind.form == TEXT and "zerofill" in declared.full_type:
            return replace(kind, select=f"CAST({{}} AS DECIMAL({kind.digits}, {kind.places}))")
        return kind
    if name == "double":
        return Kind(DOUBLE, {"type": "number"}, literal=NUMBER, is_cursor=True)
    if name == "float":
        # The text of a FLOAT has six digits, that of the same value as a DOUBLE has all.
        return Kind(SINGLE, {"type": "number"}, "{} + 0e0", NUMBER)
    if name == "bit":
        return _bits(declared.full_type)
    if name == "bigint" and "unsigned" in declared.full_type:
        return _decimal(20, 0)
    return Kind(INTEGER, {"type": "integer"}, literal=NUMBER, is_cursor=True)


def _text(name: str) -> Kind:
    schema = {"type": "string"}
    if name in _TEXTS:
        is_short = name in ("char", "varchar")
        return Kind(TEXT, schema, literal=TEXT if is_short else None, is_cursor=is_short)
    if name == "time":  # a length of time as well: up to 838 hours, and negative
        return Kind(TEXT, schema, "CAST({} AS CHAR)", QUOTED)
    if name in ("uuid", "inet4", "inet6"):
        return Kind(TEXT, schema, literal=QUOTED)
    if name in _SHAPES:
        return Kind(TEXT, schema, "ST_AsText({})")
    return Kind(TEXT, schema, "CAST({} AS CHAR)")


def _decimal(digits: int, places: int) -> Kind:
    options: dict[str, Any] = {"literal": NUMBER, "digits": digits, "places": places}
    if places == 0 and digits <= _MAX_DIGITS:
        schema = {"type": "integer", "airbyte_type": "big_integer"}
        return Kind(DECIMAL, schema, is_cursor=True, **options)
    if places <= _BIG_PLACES and digits - places <= _BIG_WHOLE:
        schema = {"type": "number", "airbyte_type": "big_number"}
        return Kind(DECIMAL, schema, is_cursor=True, **options)
    return Kind(TEXT, {"type": "string"}, is_cursor=True, **options)


def _bits(full_type: str) -> Kind:
    match = re.search(r"\((\d+)\)", full_type)
    count = int(match[1]) if match else 1
    if count == 1:
        return Kind(BOOLEAN, {"type": "boolean"}, "{} + 0", NUMBER)
    if count == 64:
        schema = {"type": "integer", "airbyte_type": "big_integer"}
        return Kind(DECIMAL, schema, "{} + 0", NUMBER, digits=20)
    return Kind(INTEGER, {"type": "integer"}, "{} + 0", NUMBER)


def _moment(name: str) -> Kind:
    schema: dict[str, Any] = {"type": "string", "format": "date"}
    if name == "date":
        return Kind(DATE, schema, literal=QUOTED, is_cursor=True)
    zone = "with" if name == "timestamp" else "without"
    schema = {**schema, "format": "date-time", "airbyte_type": f"timestamp_{zone}_timezone"}
    form = UTC_MOMENT if name == "timestamp" else MOMENT
    return Kind(form, schema, literal=QUOTED, is_cursor=True)
