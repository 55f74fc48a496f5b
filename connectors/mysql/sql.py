"""Names, values and ranges of rows as parts of SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from connectors.mysql.kinds import BYTES, NUMBER, QUOTED, Kind
from elt_assets.errors import ConfigError

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_PLAIN = re.compile(r"[0-9A-Za-z :.\-]*")


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


Bound = Sequence[str]
"""The literals of a row's key."""


def is_after(expressions: Sequence[str], bound: Bound) -> str:
    """Return the condition that a key is greater than another one.

    The server finds no range of an index for a comparison of rows such as (a, b) > (1, 2).
    """
    return _compare(expressions, bound, ">", ">")


def is_until(expressions: Sequence[str], bound: Bound) -> str:
    """Return the condition that a key is at most another one."""
    return _compare(expressions, bound, "<", "<=")


def _compare(expressions: Sequence[str], bound: Bound, strict: str, last: str) -> str:
    head, first = expressions[0], bound[0]
    if len(expressions) == 1:
        return f"{head} {last} {first}"
    rest = _compare(expressions[1:], bound[1:], strict, last)
    # The first part is implied: it is the range that the server looks for.
    return f"({head} {strict}= {first} AND ({head} {strict} {first} OR {rest}))"
