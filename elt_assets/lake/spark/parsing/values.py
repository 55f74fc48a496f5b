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
_CHUNK = 64
"""JSON values that are converted together. If one of them is odd, they are converted one by one."""

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

_NUMBERS = {
    "INTEGER_TEXT": r"-?(?:0|[1-9]\d{0,17})",
    "BIG_INTEGER": r"-?(?:0|[1-9]\d{0,36})",
    "BIG_NUMBER": r"-?(?:0|[1-9]\d{0,27})(?:\.\d{1,9})?",
    "NUMBER_TEXT": r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?",
}
"""The forms of numbers, which may be in quotation marks."""
_OPENING = {"JSON_OBJECT": "{", "JSON_ARRAY": "["}
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
        self._encode = msgspec.json.Encoder(order="sorted").encode_lines

    def array(
        self, values: Sequence[bytes | None], kind: str, type_: pa.DataType, bad: Bad
    ) -> pa.Array:
        """Return the values as an array of the type of their column."""
        if kind not in _NUMBERS:
            return pa.array(self._json_texts(values, kind, bad), pa.string())
        array = _numbers(values, kind, bad).cast(type_)
        if kind == "NUMBER_TEXT":
            _check_doubles(array, "NUMBER", bad)
        return array

    def _json_texts(self, values: Sequence[bytes | None], kind: str, bad: Bad) -> list[str | None]:
        raw = [b"null" if value is None else value for value in values]
        found: list[str | None] = []
        for start in range(0, len(raw), _CHUNK):
            chunk = raw[start : start + _CHUNK]
            try:
                found += self.json_texts(chunk)
            except Odd:
                found += map(self._text_or_none, chunk)
        opening = _OPENING.get(kind, "")
        bad(
            number
            for number, text in enumerate(found)
            if not (raw[number] == b"null" if text is None else text.startswith(opening))
        )
        return found

    def _text_or_none(self, raw: bytes) -> str | None:
        try:
            return self.json_texts([raw])[0]
        except Odd:
            return None

    def json_texts(self, values: Sequence[bytes]) -> list[str | None]:
        """Return JSON values as the table stores them: without spaces, sorted names, plain numbers; None for
        JSON's null.

        They are decoded and encoded together, which takes half of the time that one by one takes.

        Raises:
            Odd: the text that the table would store for one of them may be another.
        """
        if not all(map(_is_small, values)):
            raise Odd
        try:
            lines = self._encode(self._decode(b"[%b]" % b",".join(values)))
        except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError):
            raise Odd from None
        is_escaped = b"\\u" in lines or b"\x7f" in lines
        if is_escaped or b'Infinity"' in lines or _HUGE.search(lines) or _LONG.search(lines):
            raise Odd
        found = lines.decode()
        if not found.isascii() and max(found) > "\uffff" and _BEYOND_PLANE.search(found):
            raise Odd  # names are sorted differently
        texts = found.split("\n")[:-1]
        if len(texts) != len(values):
            raise Odd
        return [None if text == "null" else text for text in texts]


def _is_small(raw: bytes) -> bool:
    """Return whether a JSON value is neither too long nor nested too deeply."""
    size = len(raw)
    if size <= _MAX_BRACKETS:
        return True
    return size <= MAX_JSON and raw.count(b"[") + raw.count(b"{") <= _MAX_BRACKETS


def _numbers(values: Sequence[bytes | None], kind: str, bad: Bad) -> Any:
    """Return the texts of numbers; null for JSON's null and for a value in another form."""
    texts = pa.array(values, pa.string())
    form = _NUMBERS[kind]
    fits = pc.fill_null(pc.match_substring_regex(texts, rf'^(?:{form}|"{form}")$'), True)
    if not pc.all(fits, min_count=0).as_py():
        is_null = pc.fill_null(pc.equal(texts, "null"), True)
        odd = pc.invert(pc.or_(fits, is_null))
        bad(np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist())
        texts = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
    return pc.utf8_trim(texts, '"') if pc.any(pc.starts_with(texts, '"')).as_py() else texts


def _plain_number(text: str) -> float:
    """Return a number with a point; its shortest text must be the one that was sent.

    Raises:
        Odd: it is not.
    """
    number = float(text)
    if len(text) > 17 or "e" in text or text.endswith(".0") or repr(number) != text:
        raise Odd
    return number
