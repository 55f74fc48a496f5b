"""Values of a column: which of them Spark's reader and casts take to the same value, and their conversion.

A value that is not provably the same is named by its row; its line then goes another way.
"""

from __future__ import annotations

import binascii
import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SAFE_INTEGER = 2.0**53
MAX_JSON = 1 << 20
"""Bytes of the longest JSON value that is converted here."""
_MAX_BRACKETS = 400
"""Brackets of such a value: readers refuse values that are nested too deeply."""

_DAY = r"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"[+-](?:0\d|1[0-7]):[0-5]\d"
_ZONE = rf"(?:Z|{_OFFSET})"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
FORMS = {
    "DATE": rf"^{_DAY}(?:[T ]00:00:00(?:\.0+)?(?:Z|{_OFFSET})?)?$",
    "TIMESTAMP": rf"^{_DAY}[T ]{_CLOCK}{_ZONE}?$",
    "TIMESTAMP_NTZ": rf"^{_DAY}[T ]{_CLOCK}$",
    "TIME": rf"^{_TIME}{_ZONE}?$",
    "TIME_WITH_TIMEZONE": rf"^{_TIME}{_ZONE}$",
    "TIME_WITHOUT_TIMEZONE": rf"^{_TIME}$",
}
"""The forms of times, as text, that have only one meaning."""
_WITH_ZONE = rf"{_ZONE}$"

_INTEGER = rb'(")?(-?(?:0|[1-9]\d{0,%d}))(?(1)")'
_NUMBERS = {
    "INTEGER_TEXT": re.compile(_INTEGER % 17),
    "BIG_INTEGER": re.compile(_INTEGER % 36),
    "BIG_NUMBER": re.compile(rb'(")?(-?(?:0|[1-9]\d{0,27})(?:\.\d{1,9})?)(?(1)")'),
    "NUMBER_TEXT": re.compile(rb'(")?(-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?)(?(1)")'),
}
_OPENING = {"JSON_OBJECT": b"{", "JSON_ARRAY": b"["}
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})+|(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=)"
)
_HUGE = re.compile(rb"\dE[3-9]")
_LONG = re.compile(rb"\d{19}")
_BEYOND_PLANE = re.compile("[\ue000-\uffff]")

Bad = Callable[[Iterable[int]], None]
"""Takes the positions of values that are not provably the same."""


class Odd(Exception):
    """A JSON value for which the text that the table stores is not known for certain."""


def checked(values: Any, kind: str, type_: pa.DataType, bad: Bad) -> Any:
    """Return an array of scalars, as pyarrow has parsed it, in the type of its column."""
    if kind in ("NUMBER", "INTEGER_IN_DOUBLE"):
        _check_doubles(values, kind, bad)
        return values
    if kind == "BINARY":
        return _binary(values, bad)
    if kind not in FORMS:
        return values
    fits = pc.fill_null(pc.match_substring_regex(values, FORMS[kind]), True)
    if not pc.all(fits, min_count=0).as_py():
        bad(np.flatnonzero(~fits.to_numpy(zero_copy_only=False)).tolist())
        values = pc.if_else(fits, values, pa.scalar(None, pa.string()))
    return _time(values, kind, type_, bad)


def _check_doubles(values: Any, kind: str, bad: Bad) -> None:
    """Name numbers that are not finite or beyond exact integers, and -0, which readers treat differently."""
    if not len(values) or values.null_count == len(values):
        return
    numbers = np.frombuffer(values.buffers()[1], np.float64)[values.offset :][: len(values)]
    is_odd = ~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers))
    if kind == "INTEGER_IN_DOUBLE":
        is_odd |= np.abs(numbers) > SAFE_INTEGER
    if is_odd.any():
        bad(np.flatnonzero(is_odd).tolist())


def _binary(values: Any, bad: Bad) -> Any:
    found, odd = [], []
    for number, text in enumerate(values.to_pylist()):
        data = None if text is None else _decoded(text)
        found.append(data)
        if data is None and text is not None:
            odd.append(number)
    bad(odd)
    return pa.array(found, pa.binary())


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a base64 text; None if it is not the one text that stands for them."""
    if not _BASE64.fullmatch(text):
        return None
    data = binascii.a2b_base64(text)
    return data if binascii.b2a_base64(data, newline=False) == text.encode() else None


def _time(values: Any, kind: str, type_: pa.DataType, bad: Bad) -> Any:
    if kind.startswith("TIME_") or kind == "TIME":
        return values
    if kind == "DATE":
        values = pc.utf8_slice_codeunits(values, 0, 10)
    elif kind == "TIMESTAMP":
        zoned = pc.match_substring_regex(values, _WITH_ZONE)
        if not pc.all(zoned, min_count=0).as_py():
            values = pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", ""))
    try:
        return values.cast(type_)
    except pa.ArrowInvalid:  # a day that its month does not have
        texts = values.to_pylist()
        odd = [number for number, text in enumerate(texts) if text and not _is_day(text[:10])]
        bad(odd)
        for number in odd:
            texts[number] = None
        return pa.array(texts, pa.string()).cast(type_)


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


class RawValues:
    """Converts values that are given as they stand in their lines; JSON's null becomes null.

    (Its decoder cannot be sent to a worker, so it is made there.)
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(float_hook=_plain_number).decode
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def array(
        self, values: Sequence[bytes | None], kind: str, type_: pa.DataType, bad: Bad
    ) -> pa.Array:
        """Return the values as an array of the type of their column."""
        if kind not in _NUMBERS:
            return pa.array(self._json_texts(values, kind, bad), pa.string())
        array = pa.array(_numbers(values, kind, bad), pa.string()).cast(type_)
        if kind == "NUMBER_TEXT":
            _check_doubles(array, "NUMBER", bad)
        return array

    def _json_texts(self, values: Sequence[bytes | None], kind: str, bad: Bad) -> list[str | None]:
        opening, odd = _OPENING.get(kind, b""), []
        found: list[str | None] = []
        for number, raw in enumerate(values):
            text = None
            if raw is not None and raw != b"null":
                try:
                    text = self.json_text(raw)
                except Odd:
                    odd.append(number)
                if text is not None and not raw.startswith(opening):
                    odd.append(number)
            found.append(text)
        bad(odd)
        return found

    def json_text(self, raw: bytes) -> str:
        """Return a JSON value as the table stores it: without spaces, sorted names, plain numbers.

        Raises:
            Odd: the text that the table would store may be another.
        """
        if len(raw) > MAX_JSON or raw.count(b"[") + raw.count(b"{") > _MAX_BRACKETS:
            raise Odd
        try:
            text = self._encode(self._decode(raw))
        except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError):
            raise Odd from None
        is_escaped = b"\\u" in text or b"\x7f" in text
        if is_escaped or b'Infinity"' in text or _HUGE.search(text) or _LONG.search(text):
            raise Odd
        found = text.decode()
        if not found.isascii() and max(found) > "\uffff" and _BEYOND_PLANE.search(found):
            raise Odd  # names are sorted differently
        return found


def _numbers(values: Sequence[bytes | None], kind: str, bad: Bad) -> list[str | None]:
    match, odd = _NUMBERS[kind].fullmatch, []
    found: list[str | None] = []
    for number, raw in enumerate(values):
        text = None
        if raw is not None and raw != b"null":
            fitting = match(raw)
            if fitting is None:
                odd.append(number)
            else:
                text = fitting[2].decode()
        found.append(text)
    bad(odd)
    return found


def _plain_number(text: str) -> float:
    """Return a number with a point; its shortest text must be the one that was sent.

    Raises:
        Odd: it is not.
    """
    number = float(text)
    if len(text) > 17 or "e" in text or text.endswith(".0") or repr(number) != text:
        raise Odd
    return number
