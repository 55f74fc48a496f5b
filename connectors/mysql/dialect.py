"""Names and values as parts of SQL, and the types of the server: what they become, how they are selected, and
how a value is written in a condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.sdk.columns import types as t
from connectors.sql.dialect import SqlDialect
from elt_assets.errors import ConfigError

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_PLAIN = re.compile(r"[0-9A-Za-z :.\-]*")
NUMBER, QUOTED, TEXT, BYTES = "number", "quoted", "text", "bytes"
"""How a value is written in a condition: `literal`."""


class MySqlDialect(SqlDialect):
    """The dialect of MySQL and MariaDB: names as these quote them."""

    def quote(self, name: str) -> str:
        return quote_name(name)

    def lock_reader(self, number: int) -> str:
        return f"SELECT GET_LOCK(CONCAT('elt_reader_', MD5(CURRENT_USER()), '_{number}'), 0)"


def quote_name(*parts: str) -> str:
    """Return the quoted name of a column, or of a table with its database."""
    return ".".join("`{}`".format(part.replace("`", "``")) for part in parts)


def quote_text(text: str) -> str:
    """Return a text as a literal, which depends on no setting of the session."""
    return f"_utf8mb4 X'{text.encode('utf-8', 'surrogateescape').hex()}'"


def quote_texts(texts: Sequence[str]) -> str:
    """Return a list of literals for IN."""
    return f"({', '.join(map(quote_text, texts))})"


def literal(kind: Kind, value: str) -> str:
    """Return a value of a column as a literal.

    Args:
        value: the server's text, or the hexadecimal digits of bytes.

    Raises:
        ConfigError: it is no value of such a column.
    """
    if kind.literal == NUMBER and _NUMBER.fullmatch(value):
        return value
    if kind.literal == QUOTED and _PLAIN.fullmatch(value):
        return f"'{value}'"
    if kind.literal == BYTES and re.fullmatch("([0-9A-Fa-f]{2})*", value):
        return f"X'{value}'"
    if kind.literal not in (NUMBER, QUOTED, BYTES):
        return quote_text(value)
    raise ConfigError(
        "the state has a value that its column does not hold: the type of the column has changed",
        guidance="reset the stream, so that it is read from the beginning",
    )


@dataclass(frozen=True)
class Kind:
    """What a type of the server becomes."""

    type: t.ColumnType
    select: str = "{}"
    """The expression whose text is exact, with the column's name in place of `{}`."""
    literal: str | None = None
    """How a value is written in a condition; None if rows cannot be divided by it."""
    compared: str = "{}"
    """The expression that is compared with a literal, in the order of an index."""
    is_cursor: bool = False

    @property
    def position(self) -> str:
        """The expression for the text of a value in a literal."""
        if self.literal == BYTES:
            return "HEX({})"
        return self.select if self.compared == "{}" else self.compared


@dataclass(frozen=True)
class Declaration:
    """A column as the server declares it, in lower case: `int` and `int(10) unsigned`."""

    data_type: str
    full_type: str
    precision: int | None = None
    scale: int | None = None
    is_json: bool = False


_INTEGER = Kind(t.INT64, literal=NUMBER, is_cursor=True)
_UNSIGNED = Kind(t.decimal128(20) or t.STRING, literal=NUMBER, is_cursor=True)
_CHARACTERS = Kind(t.STRING, literal=TEXT, is_cursor=True)
_MEMBERS = Kind(t.STRING, literal=NUMBER, compared="{} + 0")
"""Their order is that of their numbers, and not that of their texts."""
_SHAPE = Kind(t.STRING, "ST_AsText({})")
_OTHER = Kind(t.STRING, "CAST({} AS CHAR)")
_KINDS = {
    **dict.fromkeys(["tinyint", "smallint", "mediumint", "int", "bigint", "year"], _INTEGER),
    "double": Kind(t.DOUBLE, literal=NUMBER, is_cursor=True),
    # The text of a FLOAT has six digits, that of the same value as a DOUBLE has all.
    "float": Kind(t.FLOAT, "{} + 0e0", NUMBER),
    "date": Kind(t.DATE32, literal=QUOTED, is_cursor=True),
    "datetime": Kind(t.TIMESTAMP, literal=QUOTED, is_cursor=True),
    "timestamp": Kind(t.TIMESTAMP_UTC, literal=QUOTED, is_cursor=True),
    # A length of time as well: up to 838 hours, and negative.
    "time": Kind(t.STRING, "CAST({} AS CHAR)", QUOTED),
    "enum": _MEMBERS,
    "set": _MEMBERS,
    **dict.fromkeys(["binary", "varbinary"], Kind(t.BINARY, literal=BYTES)),
    **dict.fromkeys(["tinyblob", "blob", "mediumblob", "longblob", "vector"], Kind(t.BINARY)),
    **dict.fromkeys(["char", "varchar"], _CHARACTERS),
    **dict.fromkeys(["tinytext", "text", "mediumtext", "longtext"], Kind(t.STRING)),
    **dict.fromkeys(["uuid", "inet4", "inet6"], Kind(t.STRING, literal=QUOTED)),
    **dict.fromkeys(["geometry", "point", "linestring", "polygon", "multipoint"], _SHAPE),
    **dict.fromkeys(["multilinestring", "multipolygon", "geometrycollection"], _SHAPE),
    "geomcollection": _SHAPE,
    "json": Kind(t.JSON),
}


def kind_of(declared: Declaration) -> Kind:
    """Return what a column becomes."""
    name = declared.data_type
    if declared.is_json:
        return Kind(t.JSON)
    if name == "decimal":
        return _decimal(declared)
    if name == "bit":
        return _bits(declared.full_type)
    if name == "bigint" and "unsigned" in declared.full_type:
        return _UNSIGNED
    return _KINDS.get(name, _OTHER)


def _decimal(declared: Declaration) -> Kind:
    size = (declared.precision or 10, declared.scale or 0)
    exact = t.decimal128(*size)
    is_padded = exact is None and "zerofill" in declared.full_type
    select = f"CAST({{}} AS DECIMAL{size})" if is_padded else "{}"
    return Kind(exact or t.STRING, select, NUMBER, is_cursor=True)


def _bits(full_type: str) -> Kind:
    match = re.search(r"\((\d+)\)", full_type)
    count = int(match[1]) if match else 1
    column_type = t.BOOL if count == 1 else t.INT64 if count < 64 else _UNSIGNED.type
    return Kind(column_type, "{} + 0", NUMBER)
