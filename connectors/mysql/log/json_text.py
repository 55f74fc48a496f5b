"""Values of the type JSON of MySQL, which the log has in the form in which they are stored, as JSON texts.

Spec: MySQL, json_binary.h.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from connectors.mysql.log.decimals import make_decoder

_OBJECTS, _ARRAYS, _LITERAL, _STRING, _OPAQUE = (0, 1), (2, 3), 4, 12, 15
_LITERALS = (b"null", b"true", b"false")
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE = 11
_INLINE = {_LITERAL, 5, 6}
_INLINE_LARGE = {*_INLINE, 7, 8}
"""Types whose values are in the place of their offset, if offsets have two bytes and if they have four."""
_DECIMAL, _DATE, _TIME, _MOMENTS = 246, 10, 11, (7, 12)


def json_text(data: bytes) -> bytes:
    """Return the JSON text of a stored value. A value that was never written is null."""
    return _value(data[0], data[1:]) if data else b"null"


def _value(kind: int, data: bytes) -> bytes:
    if kind in _OBJECTS or kind in _ARRAYS:
        return _container(data, is_large=kind % 2 == 1, is_object=kind in _OBJECTS)
    if kind == _LITERAL:
        return _LITERALS[data[0]]
    if kind in _NUMBERS:
        return b"%d" % int(struct.unpack_from(_NUMBERS[kind], data)[0])
    if kind == _DOUBLE:
        return repr(struct.unpack_from("<d", data)[0]).encode()
    if kind == _STRING:
        length, place = _read_length(data, 0)
        return _quote(data[place : place + length])
    if kind == _OPAQUE:
        length, place = _read_length(data, 1)
        return _opaque(data[0], data[place : place + length])
    raise ValueError(f"a JSON value of the unknown type {kind}")


def _container(data: bytes, *, is_large: bool, is_object: bool) -> bytes:
    """Return an object or an array: the number of members, the size, the places of keys, and of values."""
    size = 4 if is_large else 2
    inline = _INLINE_LARGE if is_large else _INLINE

    def number(place: int, width: int = size) -> int:
        return int.from_bytes(data[place : place + width], "little")

    count, place = number(0), 2 * size
    keys = []
    if is_object:
        for _ in range(count):
            begin = number(place)
            keys.append(_quote(data[begin : begin + number(place + size, 2)]))
            place += size + 2
    values = []
    for _ in range(count):
        kind = data[place]
        start = place + 1 if kind in inline else number(place + 1)
        values.append(_value(kind, data[start:]))
        place += 1 + size
    if is_object:
        return b"{%s}" % b", ".join(b"%s: %s" % pair for pair in zip(keys, values, strict=True))
    return b"[%s]" % b", ".join(values)


def _read_length(data: bytes, place: int) -> tuple[int, int]:
    """Return a length of seven bits a byte, and the place after it."""
    length = shift = 0
    while True:
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return length, place


def _quote(text: bytes) -> bytes:
    return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False).encode()


def _opaque(kind: int, data: bytes) -> bytes:
    """Return a value of a type that JSON does not have: decimals are numbers, and all others are texts."""
    if kind == _DECIMAL:
        return make_decoder(data[0], data[1])(data[2:])
    text = _OPAQUE_TEXTS.get(kind)
    if text is not None:
        return b'"%s"' % text(int.from_bytes(data, "little", signed=True)).encode()
    encoded = base64.encodebytes(data).strip()  # in lines, as the server writes it
    return _quote(b"base64:type%d:%b" % (kind, encoded))


def _date_text(value: int) -> str:
    days = value >> 41
    year, month = divmod(days >> 5, 13)
    return f"{year:04d}-{month:02d}-{days & 31:02d}"


def _clock_text(value: int) -> str:
    whole = value >> 24 & 0x1FFFF
    return f"{whole >> 12:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{value & 0xFFFFFF:06d}"


def _time_text(value: int) -> str:
    whole = abs(value) >> 24
    hours, minutes, seconds = whole >> 12 & 1023, whole >> 6 & 63, whole & 63
    sign = "-" if value < 0 else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}.{abs(value) & 0xFFFFFF:06d}"


_OPAQUE_TEXTS: dict[int, Callable[[int], Any]] = {
    _DATE: _date_text,
    _TIME: _time_text,
    **dict.fromkeys(_MOMENTS, lambda value: f"{_date_text(value)} {_clock_text(value)}"),
}
