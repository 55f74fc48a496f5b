"""Values of rows in the log, as the texts that the server makes of them in a result set.

A snapshot casts the server's texts, so a value of the log becomes the same value of a column. Each reader
takes the bytes of an event and the place of a value, and returns its text and the place after it. Of an ENUM
and a SET this is their number: `connectors.mysql.log.texts` has the texts of their members.

Spec: MySQL, Rows_event and Table_map_event; MariaDB, Rows_event_v1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import NamedTuple

from connectors.cdc.texts import RESET
from connectors.mysql.log.decimals import count_bytes, make_decoder
from connectors.mysql.log.json_text import json_text
from elt_assets.errors import ConfigError

Reader = Callable[[bytes, int], tuple[bytes, int]]
TINY, SHORT, LONG, FLOAT, DOUBLE, OLD_TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, OLD_TIME, OLD_DATETIME, YEAR, VARCHAR, BIT = 10, 11, 12, 13, 15, 16
TIMESTAMP, DATETIME, TIME = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, DECIMAL, ENUM, SET = 242, 245, 246, 247, 248
BLOB, VAR_STRING, STRING, GEOMETRY = 252, 253, 254, 255
NUMERIC = {TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE, YEAR}
"""Types of which the description of a table says whether they are unsigned."""
CHARACTER = {VARCHAR, BLOB, VAR_STRING, STRING}
"""Types of which it says the collation. MariaDB does so of `MARIADB_CHARACTER` as well."""
MARIADB_CHARACTER = {*CHARACTER, GEOMETRY, BLOB_COMPRESSED, VARCHAR_COMPRESSED}
_META_BYTES = {
    FLOAT: 1, DOUBLE: 1, BLOB: 1, GEOMETRY: 1, JSON: 1, VECTOR: 1, TIMESTAMP: 1, DATETIME: 1, TIME: 1,
    BLOB_COMPRESSED: 1, VARCHAR: 2, VARCHAR_COMPRESSED: 2, VAR_STRING: 2, STRING: 2, DECIMAL: 2, BIT: 2,
    ENUM: 2, SET: 2,
}  # fmt: skip
_BINARY = 63
"""The collation of bytes."""


class Field(NamedTuple):
    """A column as the log describes it.

    `meta`: the bytes that describe its size. `collation`: its number; 0 for none. `members`: of an ENUM or a
    SET, as bytes of that collation.
    """

    name: str
    type: int
    meta: bytes
    is_unsigned: bool
    collation: int
    members: Sequence[bytes]

    @property
    def is_padded(self) -> bool:
        """Whether zeros at the end are left out in the log: a BINARY, and MariaDB's UUID and INET6."""
        return self.type == STRING and self.collation == _BINARY


def split_meta(types: bytes, meta: bytes) -> list[tuple[int, bytes]]:
    """Return the type of each column and the bytes that describe it. An ENUM and a SET are said to be of the
    type STRING; their own type is in these bytes."""
    columns, place = [], 0
    for kind in types:
        size = _META_BYTES.get(kind, 0)
        part = meta[place : place + size]
        place += size
        columns.append((part[0] if kind == STRING and part[0] in (ENUM, SET) else kind, part))
    return columns


def make_reader(field: Field) -> Reader:
    """Return the reader of a column's values.

    Raises:
        ConfigError: the values cannot be read.
    """
    make = _READERS.get(field.type)
    if make is None:
        raise ConfigError(
            f"the column {field.name!r} has a type of an old form (number {field.type}), which the log does "
            "not describe",
            guidance="run ALTER TABLE … FORCE on its table, which writes it in the present form, and "
            f"{RESET}",
        )
    return make(field)


def _integer(size: int, field: Field) -> Reader:
    is_signed = not field.is_unsigned

    def read(data: bytes, place: int) -> tuple[bytes, int]:
        end = place + size
        return b"%d" % int.from_bytes(data[place:end], "little", signed=is_signed), end

    return read


_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _read_float(data: bytes, place: int) -> tuple[bytes, int]:
    return repr(_FLOAT.unpack_from(data, place)[0]).encode(), place + 4


def _read_double(data: bytes, place: int) -> tuple[bytes, int]:
    return repr(_DOUBLE.unpack_from(data, place)[0]).encode(), place + 8


def _read_date(data: bytes, place: int) -> tuple[bytes, int]:
    value = int.from_bytes(data[place : place + 3], "little")
    return b"%04d-%02d-%02d" % (value >> 9, value >> 5 & 15, value & 31), place + 3


def _read_year(data: bytes, place: int) -> tuple[bytes, int]:
    return b"%04d" % (data[place] and data[place] + 1900), place + 1


def _fraction(digits: int) -> tuple[int, Callable[[int], bytes]]:
    """Return how many bytes the fraction of a second has, and the function that returns its text."""
    size = (digits + 1) // 2
    if not digits:
        return 0, lambda _: b""
    odd = 10 if digits % 2 else 1  # the last digit of the bytes is 0
    return size, lambda value: b".%0*d" % (digits, value // odd)


def _datetime(digits: int) -> Reader:
    size, fraction = _fraction(digits)

    def read(data: bytes, place: int) -> tuple[bytes, int]:
        value = int.from_bytes(data[place : place + 5], "big") - (1 << 39)
        year, month = divmod(value >> 22, 13)
        day, hour, minute = value >> 17 & 31, value >> 12 & 31, value >> 6 & 63
        text = b"%04d-%02d-%02d %02d:%02d:%02d" % (year, month, day, hour, minute, value & 63)
        end = place + 5 + size
        return text + fraction(int.from_bytes(data[place + 5 : end], "big")), end

    return read


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _timestamp(digits: int) -> Reader:
    size, fraction = _fraction(digits)

    def read(data: bytes, place: int) -> tuple[bytes, int]:
        seconds = int.from_bytes(data[place : place + 4], "big")
        end = place + 4 + size
        part = int.from_bytes(data[place + 4 : end], "big")
        if not seconds and not part:
            return b"0000-00-00 00:00:00", end
        moment = _EPOCH + timedelta(seconds=seconds)
        return f"{moment:%Y-%m-%d %H:%M:%S}".encode() + fraction(part), end

    return read


def _time(digits: int) -> Reader:
    size, fraction = _fraction(digits)
    bits = 8 * size

    def read(data: bytes, place: int) -> tuple[bytes, int]:
        end = place + 3 + size
        value = int.from_bytes(data[place:end], "big") - (1 << 23 + bits)
        sign, value = (b"-", -value) if value < 0 else (b"", value)
        whole = value >> bits
        text = b"%s%02d:%02d:%02d" % (sign, whole >> 12 & 1023, whole >> 6 & 63, whole & 63)
        return text + fraction(value & (1 << bits) - 1), end

    return read


def _decimal(precision: int, scale: int) -> Reader:
    size = count_bytes(precision, scale)
    decode = make_decoder(precision, scale)
    return lambda data, place: (decode(data[place : place + size]), place + size)


def _bits(size: int) -> Reader:
    return lambda data, place: (
        b"%d" % int.from_bytes(data[place : place + size], "big"),
        place + size,
    )


def _number_of_members(size: int) -> Reader:
    """Return the reader of an ENUM or a SET: the number of the member, or a bit for each member."""
    return lambda data, place: (
        b"%d" % int.from_bytes(data[place : place + size], "little"),
        place + size,
    )


def _bytes(size: int) -> Reader:
    def read(data: bytes, place: int) -> tuple[bytes, int]:
        begin = place + size
        end = begin + int.from_bytes(data[place:begin], "little")
        return data[begin:end], end

    return read


def _variable_text(meta: bytes) -> Reader:
    return _bytes(1 if int.from_bytes(meta, "little") < 256 else 2)


def _char(field: Field) -> Reader:
    meta = field.meta
    # The two highest bits of the length are in the byte of the type, inverted.
    length = ((meta[0] << 4 & 0x300) ^ 0x300) + meta[1]
    read = _bytes(1 if length < 256 else 2)
    if not field.is_padded:
        return read

    def read_padded(data: bytes, place: int) -> tuple[bytes, int]:
        value, end = read(data, place)
        return value.ljust(length, b"\0"), end

    return read_padded


def _decompress(read: Reader) -> Reader:
    """Return the reader of a column with the attribute COMPRESSED of MariaDB."""

    def read_compressed(data: bytes, place: int) -> tuple[bytes, int]:
        value, end = read(data, place)
        if not value or not value[0]:
            return value[1:], end
        start = 1 + (value[0] & 7)
        return zlib.decompress(value[start:], -15 if value[0] & 8 else 15), end

    return read_compressed


def _json(read: Reader) -> Reader:
    def read_json(data: bytes, place: int) -> tuple[bytes, int]:
        value, end = read(data, place)
        return json_text(value), end

    return read_json


_READERS: dict[int, Callable[[Field], Reader]] = {
    TINY: partial(_integer, 1),
    SHORT: partial(_integer, 2),
    INT24: partial(_integer, 3),
    LONG: partial(_integer, 4),
    LONGLONG: partial(_integer, 8),
    FLOAT: lambda _: _read_float,
    DOUBLE: lambda _: _read_double,
    DATE: lambda _: _read_date,
    YEAR: lambda _: _read_year,
    TIMESTAMP: lambda field: _timestamp(field.meta[0]),
    DATETIME: lambda field: _datetime(field.meta[0]),
    TIME: lambda field: _time(field.meta[0]),
    DECIMAL: lambda field: _decimal(field.meta[0], field.meta[1]),
    BIT: lambda field: _bits((field.meta[0] + 8 * field.meta[1] + 7) // 8),
    ENUM: lambda field: _number_of_members(field.meta[1]),
    SET: lambda field: _number_of_members(field.meta[1]),
    VARCHAR: lambda field: _variable_text(field.meta),
    VARCHAR_COMPRESSED: lambda field: _decompress(_variable_text(field.meta)),
    STRING: _char,
    VAR_STRING: _char,
    BLOB: lambda field: _bytes(field.meta[0]),
    GEOMETRY: lambda field: _bytes(field.meta[0]),
    VECTOR: lambda field: _bytes(field.meta[0]),
    BLOB_COMPRESSED: lambda field: _decompress(_bytes(field.meta[0])),
    JSON: lambda field: _json(_bytes(field.meta[0])),
}
"""The function that makes the reader of a column, by its type."""
