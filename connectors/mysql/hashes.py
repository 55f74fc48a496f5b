"""The hash of a row as an expression of the server, its order, and values of keys in conditions.

The expression has the texts of `elt_assets.protocol.row_hash`, of the values that a read gives when the lake
has stored them. What it stores as null, with a recorded change, is null here: dates and times with a zero
year, month or day, or a day that does not exist, and texts and bytes of more than `MAX_BYTES`. The server
cannot tell the bytes of a floating-point number, so these columns are left out.

Texts are compared and hashed as bytes in UTF-8: a collation takes different texts for the same, and also
blanks at their end.

`connectors.mysql.comparison` and `stream` use it. Test: `tests/connectors/mysql/test_comparison.py` has each
value of `tests/connectors/mysql/exact_types.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from connectors.mysql.dialect import TEXT, literal, quote_text
from connectors.mysql.tables import Column
from connectors.sdk.columns import types as t
from connectors.sql.bounds import decode_bound
from connectors.sql.comparison import MAX_BYTES

_DAYS = 719_528
"""The server's number of the day 1970-01-01."""
_IS_DAY = (
    "YEAR({0}) > 0 AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0 "
    "AND DAYOFMONTH({0}) <= DAYOFMONTH(LAST_DAY({0}))"
)
_DAY = f"(TO_DAYS({{0}}) - {_DAYS})"
_MOMENT = (
    f"(({_DAY} * 24 + HOUR({{0}})) * 3600 + MINUTE({{0}}) * 60 + SECOND({{0}})) * 1000000 "
    "+ MICROSECOND({0})"
)


def write_text(column: Column) -> str:
    """Return the expression of the text of a value in the hash.

    It is null for a value whose text is larger than `max_allowed_packet` alone.
    """
    text = write_plain(column)
    if column.type not in (t.STRING, t.BINARY):
        return f"COALESCE({text}, '')"
    size = f"OCTET_LENGTH({text if column.type == t.STRING else column.quoted})"
    if column.type == t.STRING:
        text = f"CONCAT({size}, ':', {text})"
    is_stored = f"{column.quoted} IS NOT NULL AND COALESCE({size} <= {MAX_BYTES}, TRUE)"
    return f"CASE WHEN {is_stored} THEN {text} ELSE '' END"


def write_plain(column: Column) -> str:
    """Return the same without the length of a text, and null for a null."""
    name = column.quoted
    if column.type == t.STRING:
        return f"CONVERT({column.select} USING utf8mb4)"
    if column.type == t.BINARY:
        return f"CONCAT('x', LOWER(HEX({name})))"
    if column.type == t.DATE32:
        return f"CASE WHEN {_IS_DAY.format(name)} THEN {_DAY.format(name)} END"
    if column.type.is_time:
        return f"CASE WHEN {_IS_DAY.format(name)} THEN {_MOMENT.format(name)} END"
    if column.type.places:
        return f"CAST({name} AS DECIMAL({column.type.digits}, {column.type.places}))"
    return f"{name} + 0"  # without the zeros of ZEROFILL


def write_hash(columns: Sequence[Column]) -> str:
    """Return the expression of the hash of a row, as a number without a sign.

    It is null for a row whose text is larger than `max_allowed_packet`.
    """
    row = ", ',', ".join(map(write_text, columns))
    return f"CAST(CONV(LEFT(MD5(CONCAT({row}, '')), 16), 16, 10) AS UNSIGNED)"


def write_order(column: Column) -> str:
    """Return the expression of a column of a key that is ordered: by values, or by bytes of texts."""
    if column.type == t.STRING:
        return f"CAST({write_plain(column)} AS BINARY)"
    return column.quoted


def write_value(column: Column, value: Any) -> str:
    """Return a value of a key or a cursor as SQL, to be compared with `write_order`.

    Raises:
        ConfigError: it is no value of the column.
    """
    decoded = decode_bound(value)
    if column.type == t.STRING and isinstance(decoded, str):
        return f"X'{decoded.encode().hex()}'"
    if isinstance(decoded, bytes):
        return f"X'{decoded.hex()}'"
    if isinstance(decoded, dt.datetime):  # the session's times are in UTC
        decoded = decoded.replace(tzinfo=None)
    text = str(int(decoded)) if isinstance(decoded, bool) else str(decoded)
    return literal(column.kind, text)


def match_value(column: Column, value: Any) -> str:
    """Return the condition that a column of a key has a value, which an index may serve.

    Raises:
        ConfigError: it is no value of the column.
    """
    exact = f"{write_order(column)} = {write_value(column, value)}"
    if column.kind.literal == TEXT and isinstance(value, str):
        # A collation may take other texts for the same, and its index finds this one too.
        return f"{column.quoted} = {quote_text(value)} AND {exact}"
    return exact
