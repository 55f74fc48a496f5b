"""Types and values of MariaDB, as a table, and what the server says of each."""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import Any

from tests.support.mariadb import MariaDb

CASES: list[tuple[str, list[str]]] = [
    ("tinyint", ["-128", "127"]),
    ("tinyint unsigned", ["255", "0"]),
    ("tinyint(1)", ["2", "1"]),
    ("boolean", ["true", "false"]),
    ("smallint", ["-32768", "32767"]),
    ("smallint unsigned", ["65535"]),
    ("mediumint", ["-8388608"]),
    ("mediumint unsigned", ["16777215"]),
    ("int", ["-2147483648", "2147483647"]),
    ("int unsigned", ["4294967295"]),
    ("int(8) zerofill", ["42", "123456789"]),
    ("bigint", ["-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    ("bigint unsigned", ["18446744073709551615", "9223372036854775808", "0"]),
    ("bigint(20) zerofill", ["7"]),
    ("decimal(12,2)", ["-9999999999.99", "0.10", "-0.01"]),
    ("decimal(38,9)", ["12345678901234567890123456789.123456789"]),
    ("decimal(38,0)", ["-" + "9" * 38]),
    ("decimal(65,30)", ["9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1"]),
    ("decimal(65,0)", ["9" * 65]),
    ("decimal(30,30)", ["0.123456789012345678901234567890"]),
    ("decimal(10,2) unsigned zerofill", ["1.5"]),
    ("decimal(20,10)", ["1234567890.0123456789", "1.5"]),
    (
        "double",
        ["0.1e0 + 0.2e0", "1.7976931348623157e308", "2.2250738585072014e-308", "-0e0", "1e16"],
    ),
    ("double(10,2)", ["1.005", "12345678.91"]),
    ("double unsigned", ["123456789.123456789"]),
    ("float", ["0.1", "16777217", "3.4028234e38", "1.17549435e-38", "123456.789"]),
    ("float(7,2)", ["12345.67"]),
    ("bit(1)", ["b'1'", "b'0'"]),
    ("bit(5)", ["b'10110'"]),
    ("bit(63)", ["0x7fffffffffffffff"]),
    ("bit(64)", ["0xffffffffffffffff", "1"]),
    ("date", ["'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2024-00-10'", "'2024-02-31'"]),
    ("date", ["'0000-11-30'", "'0007-01-05'", "'0008-12-28'", "'2025-00-15'"]),
    ("date not null default '0000-00-00'", ["'2024-01-00'", "'2024-02-29'", "'0000-05-01'"]),
    ("datetime", ["'0000-00-00 00:00:00'", "'9999-12-31 23:59:59'", "'1582-10-10 00:00:00'"]),
    ("datetime(3)", ["'2024-02-29 23:59:59.999'", "'0001-01-01 00:00:00.001'"]),
    (
        "datetime(6)",
        ["'2024-02-29 23:59:59.999999'", "'2024-00-10 10:00:00'", "'2024-03-31 02:30:00'"],
    ),
    ("timestamp null", ["'1970-01-01 05:30:01'", "'2038-01-19 08:44:07'", "'0000-00-00 00:00:00'"]),
    ("timestamp(6) null", ["'2024-02-29 23:59:59.999999'", "'2024-01-01 00:00:00'"]),
    ("time", ["'838:59:59'", "'-838:59:59'", "'00:00:00'", "'24:00:00'", "'-507:48:27'"]),
    ("time(6)", ["'-12:34:56.789012'", "'100:00:00.000001'"]),
    ("year", ["1901", "2155", "0"]),
    ("char(10)", ["'ab '", "''", "'é'"]),
    ("varchar(40)", ["'😀é\\n\\t\\r\"\\\\'", "''", "'\\0nul\\0'", "'NULL'", "'  spaces  '"]),
    ("varchar(40) character set latin1", ["'ÿ€ß'"]),
    ("varchar(40) character set ucs2", ["'жé'"]),
    ("varchar(40) character set utf16", ["'😀'"]),
    ("varchar(40) character set utf8mb3 collate utf8mb3_bin", ["'日本語'"]),
    ("varchar(40) character set cp932", ["'日本'"]),
    ("varchar(40) character set koi8r", ["'привет'"]),
    ("tinytext", ["REPEAT('y', 255)"]),
    ("text", ["REPEAT('z', 250)", "REPEAT('z', 251)", "REPEAT('z', 60000)"]),
    ("mediumtext", ["REPEAT('é', 40000)", "'{not json'"]),
    ("longtext", ["REPEAT('x', 100000)"]),
    ("binary(4)", ["0x00ff", "0x61626364"]),
    ("varbinary(10)", ["0x00", "0xff0a0d", "''"]),
    ("tinyblob", ["0xfbfcfdfeff"]),
    ("blob", ["0x00010203"]),
    ("mediumblob", ["REPEAT(0xfe, 70000)"]),
    ("longblob", ["0xc328"]),
    ("enum('a','b,c','d''e')", ["'a'", "'b,c'", "'d''e'", "''"]),
    ("set('a','b','c')", ["'c,a'", "''"]),
    ("json", ['\'{"a":1.10,"b":12345678901234567890,"u":"\\\\u00e9"}\'', "'[1,null]'", "'\"x\"'"]),
    ("uuid", ["'123e4567-e89b-12d3-a456-426614174000'"]),
    ("inet6", ["'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'"]),
    ("inet4", ["'10.0.0.1'"]),
    ("point", ["POINT(1.5, -2)"]),
    ("geometry", ["ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"]),
    ("varchar(20) as (concat(id, '!')) virtual", []),
    ("varchar(20) invisible", ["'hidden'"]),
]
NULLED = {
    "date: 0000-00-00",
    "date: 2024-00-10",
    "date: 2024-02-31",
    "date: 0000-11-30",
    "date: 2025-00-15",
    "date not null default '0000-00-00': 0000-00-00",
    "date not null default '0000-00-00': 0000-05-01",
    "date not null default '0000-00-00': 2024-01-00",
    "datetime: 0000-00-00 00:00:00",
    "datetime(6): 2024-00-10 10:00:00.000000",
    "timestamp null: 0000-00-00 00:00:00",
}
"""The values that no date or time holds: they are null, with a change."""
ROWS = max(len(values) for _, values in CASES)


def column(number: int) -> str:
    return f"c{number}"


def create(server: MariaDb, table: str = "exact") -> None:
    """Make the table; times are those of a session that is ahead of UTC."""
    columns = ", ".join(f"{column(n)} {kind}" for n, (kind, _) in enumerate(CASES))
    sql = [
        "SET time_zone = '+05:30', sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE {table} (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4",
    ]
    for row in range(ROWS):
        names, values = ["id"], [str(row)]
        for number, (_, literals) in enumerate(CASES):
            if row < len(literals):
                names.append(column(number))
                values.append(literals[row])
        sql.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(values)})")
    server.execute(";\n".join(sql))


def server_texts(server: MariaDb, table: str = "exact") -> list[dict[str, str | None]]:
    """What the server says of each value: its text, of binary values the hexadecimal digits."""
    expressions = []
    for number, (kind, _) in enumerate(CASES):
        name = column(number)
        if kind.startswith("bit"):
            name += " + 0"
        elif kind.startswith("float"):
            name += " + 0e0"
        elif kind in ("point", "geometry"):
            name = f"ST_AsText({name})"
        if "binary" not in kind and "blob" not in kind:
            name = f"CONVERT(CAST({name} AS CHAR) USING utf8mb4)"
        expressions.append(f"HEX({name})")
    result = []
    for row in server.texts(f"SELECT {', '.join(expressions)} FROM {table} ORDER BY id"):
        texts: dict[str, str | None] = {}
        for number, (digits, (kind, _)) in enumerate(zip(row, CASES, strict=True)):
            is_binary = "binary" in kind or "blob" in kind
            text = (
                digits if is_binary else bytes.fromhex(digits).decode() if digits != "NULL" else ""
            )
            texts[column(number)] = None if digits == "NULL" else text
        result.append(texts)
    return result


def is_equal(kind: str, value: Any, text: str | None) -> bool:
    """Whether a value of a record is what the server's text says."""
    if text is None or value is None:
        return text is None and value is None
    if kind.startswith(("date", "timestamp")):
        return _shorten(str(value).replace("T", " ").removesuffix("Z")) == _shorten(text)
    if kind.startswith("float"):
        return _single(value) == float(text)
    if kind == "json":
        return bool(value == json.loads(text, parse_float=Decimal))
    if kind.startswith("double"):
        return struct.pack("<d", value) == struct.pack("<d", float(text))
    if kind == "bit(1)":
        return bool(value == (text == "1"))
    if kind.startswith(("decimal", "bit", "bigint unsigned")):
        return Decimal(value) == Decimal(text)
    if "int" in kind.replace("point", "") or kind in ("year", "boolean"):
        return bool(value == int(text))
    if "binary" in kind or "blob" in kind:
        return base64.b64decode(value).hex().upper() == text
    return bool(value == text)


def _single(value: float) -> float:
    single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return single


def _shorten(text: str) -> str:
    """The text of a date or time without zeros at the end of its fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
