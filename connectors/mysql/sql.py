"""Names and values as parts of SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from connectors.mysql.kinds import BYTES, NUMBER, QUOTED, Kind
from connectors.sql.dialect import SqlDialect
from elt_assets.errors import ConfigError

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_PLAIN = re.compile(r"[0-9A-Za-z :.\-]*")


class MySqlDialect(SqlDialect):
    """The dialect of MySQL and MariaDB: names as these quote them."""

    def quote(self, name: str) -> str:
        return quote_name(name)


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
