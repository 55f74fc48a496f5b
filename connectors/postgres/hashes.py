"""The hash of a row as an expression of the server, its order, and values of keys in conditions.

The expression has the texts of `elt_assets.protocol.row_hash`, of the values that a read gives when the lake
has stored them. What it stores as null, with a recorded change, is null here:

| type | values that are null |
|---|---|
| date, timestamp, timestamptz | `infinity`, and what is not between the years 1 and 9999 |
| numeric that is a number in the lake | NaN |
| float4, float8 | NaN and the infinities |
| texts and bytea | more than `MAX_BYTES` |

Times are the numbers of microseconds that the server sends, since 2000; floats are the bytes that it sends. A
text is hashed in UTF-8, whatever the encoding of the database is.

`connectors.postgres.comparison` and `selection` use it. Test: `tests/connectors/postgres/test_comparison.py`
has each value of `tests/connectors/postgres/values.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from connectors.postgres.catalog import Column
from connectors.postgres.dialect import quote_name, quote_text
from connectors.sdk.columns import types as t
from connectors.sql.bounds import decode_bound
from connectors.sql.comparison import MAX_BYTES

UTF8 = "UTF8"
UNKNOWN = "SQL_ASCII"
"""The encoding of a database whose texts may be of any."""
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EPOCH = 946_684_800_000_000
"""The microseconds from 1970 to 2000."""
_SENT_TIME = f"(('x' || encode({{}}_send({{{{0}}}}), 'hex'))::bit(64)::int8 + {_EPOCH})::text"
_STORED = "CASE WHEN {{0}} BETWEEN '{}' AND '{}' THEN {} END"
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_LAST_MOMENT = f"{_LAST} 23:59:59.999999"
_TEXTS = {
    t.INT64: "{0}::int8::text",
    t.BOOL: "{0}::int4::text",
    t.DATE32: _STORED.format(_FIRST, _LAST, "({0} - date '1970-01-01')::text"),
    t.TIMESTAMP: _STORED.format(_FIRST, _LAST_MOMENT, _SENT_TIME.format("timestamp")),
    t.TIMESTAMP_UTC: _STORED.format(
        f"{_FIRST} 00:00+00", f"{_LAST_MOMENT}+00", _SENT_TIME.format("timestamptz")
    ),
    t.DOUBLE: _STORED.format(
        "-1.7976931348623157e308", "1.7976931348623157e308", "encode(float8send({0}), 'hex')"
    ),
    t.FLOAT: _STORED.format("-3.4028235e38", "3.4028235e38", "encode(float4send({0}), 'hex')"),
    t.BINARY: f"CASE WHEN octet_length({{0}}) <= {MAX_BYTES} THEN 'x' || encode({{0}}, 'hex') END",
}
_CASTS = {
    t.DATE32: "date",
    t.TIMESTAMP: "timestamp",
    t.TIMESTAMP_UTC: "timestamptz",
}


def write_text(column: Column, name: str, encoding: str) -> str:
    """Return the expression of the text of a value in the hash.

    Args:
        name: of the column, quoted.
        encoding: of the database.
    """
    if column.type != t.STRING:
        return write_plain(column, name)
    text = write_plain(column, name)
    size = f"octet_length({encode_text(text, encoding)})"
    return f"CASE WHEN {size} <= {MAX_BYTES} THEN {size} || ':' || {text} END"


def write_plain(column: Column, name: str) -> str:
    """Return the same without the length of a text."""
    if column.type == t.STRING:
        if column.kind.orders == "bpchar":  # its cast to text removes blanks, which a read gives
            return f"(CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END)"
        return f"({column.kind.select.format(name)})::text"
    if column.type.digits:
        return f"nullif({name}::text, 'NaN')"
    if column.kind.orders == "numeric":  # a whole number that has at most 18 digits
        return f"nullif({name}::text, 'NaN')"
    return _TEXTS[column.type].format(name)


def encode_text(text: str, encoding: str) -> str:
    """Return the expression of a text in UTF-8: of its bytes, if the database has another encoding."""
    return text if encoding == UTF8 else f"convert_to({text}, '{UTF8}')"


def write_hash(columns: Sequence[Column], encoding: str) -> str:
    """Return the expression of the hash of a row, as a number of 64 bits with a sign."""
    texts = (write_text(column, quote_name(column.name), encoding) for column in columns)
    row = " || ',' || ".join(f"coalesce({text}, '')" for text in texts)
    return f"('x' || left(md5({encode_text(row, encoding)}), 16))::bit(64)::int8"


def write_order(column: Column, encoding: str, table: str = "") -> str:
    """Return the expression of a column of a key that is ordered: by values, or by bytes of texts.

    Args:
        table: the alias of the table, where the query has a result of the column's name too.
    """
    name = f"{table}.{quote_name(column.name)}" if table else quote_name(column.name)
    if column.type != t.STRING or column.declared == "uuid":  # whose order is that of its texts
        return name
    text = write_plain(column, name)
    if encoding != UTF8:
        return encode_text(text, encoding)
    return f'({text}) COLLATE "C"'


def write_value(column: Column, value: Any, encoding: str) -> str:
    """Return a value of a key as SQL, to be compared with `write_order`."""
    decoded = decode_bound(value)
    if isinstance(decoded, bool):
        return "true" if decoded else "false"
    if isinstance(decoded, bytes):
        return f"'\\x{decoded.hex()}'::bytea"
    if isinstance(decoded, str):
        if column.declared == "uuid":
            return f"{quote_text(decoded)}::uuid"
        return encode_text(f"{quote_text(decoded)}::text", encoding)
    cast = _CASTS.get(column.type)
    return str(decoded) if cast is None else f"'{decoded}'::{cast}"


def match_value(column: Column, value: Any, encoding: str) -> str:
    """Return the condition that a column of a key has a value, which an index may serve."""
    if column.declared == "uuid" and not (isinstance(value, str) and _UUID.fullmatch(value)):
        return "false"
    exact = f"{write_order(column, encoding)} = {write_value(column, value, encoding)}"
    if column.type == t.STRING and column.kind.orders and isinstance(value, str):
        # A collation may take other texts for the same, and its index finds this one too.
        return f"{quote_name(column.name)} = {quote_text(value)} AND {exact}"
    return exact
