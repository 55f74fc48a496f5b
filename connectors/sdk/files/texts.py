"""Conversion of the texts of a CSV file to the types of their columns.

A column is cast at once. A text that is no value of its type, or that has more digits than the type holds, is
a misfit: its row becomes a record in JSON, in which a number has the digits of the file, and any other misfit
is the text as it stands. The lake treats it as any value that does not fit, and records the change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

ARROW: Mapping[str, pa.DataType] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "decimal": pa.decimal128(38, 9),
    "big_integer": pa.decimal128(38, 0),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_without_timezone": pa.timestamp("us"),
}
"""The types to which texts are cast."""
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_BOOLEANS = pa.array([*_TRUE, *_FALSE])
_EXACT = 15
"""A double keeps the digits of a text of this length."""
_DECIMAL_LENGTH = 29
"""A decimal keeps the digits of a text of this length."""
_MAX_CASTS = 400
"""Casts of parts of a column in search of its misfits. The rows of parts that are left are misfits too, which
is slower, and gives the same values."""
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMBERS = frozenset(("integer", "big_integer", "number", "decimal"))


@dataclass
class Cast:
    """A column, and which of its texts do not fit; None if all do."""

    values: pa.Array
    misfits: np.ndarray | None = None


def cast_texts(texts: pa.Array, kind: str, nulls: Sequence[str]) -> Cast:
    """Return texts in the type of a column.

    Args:
        kind: the name of the type, of those in `schema.TYPES`.
        nulls: the texts that are null, also in quotes, unless the column is one of texts.
    """
    if kind not in ARROW and kind != "boolean":
        return Cast(texts)
    for null in nulls:
        is_null = pc.equal(texts, null)
        if pc.any(is_null).as_py():
            texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
    if kind == "boolean":
        return _cast_booleans(texts)
    search = _Search(ARROW[kind])
    values = search.cast(texts)
    misfits = _null_mask(values) & ~_null_mask(texts) if search.has_misfits else None
    check = _CHECKS.get(kind)
    if check is not None:
        more = check(texts, values)
        if more is not None:
            misfits = more if misfits is None else misfits | more
    return Cast(values, misfits)


def _cast_booleans(texts: pa.Array) -> Cast:
    numbers = pc.index_in(pc.utf8_lower(texts), _BOOLEANS)
    values = pc.less(numbers, len(_TRUE))
    misfits = _null_mask(values) & ~_null_mask(texts)
    return Cast(values, misfits if misfits.any() else None)


@dataclass
class _Search:
    """A cast of a column in which misfits become null."""

    kind: pa.DataType
    casts: int = 0
    has_misfits: bool = False

    def cast(self, texts: pa.Array) -> pa.Array:
        self.casts += 1
        try:
            return texts.cast(self.kind)
        except pa.ArrowInvalid:
            self.has_misfits = True
        if len(texts) == 1 or self.casts > _MAX_CASTS:
            return pa.nulls(len(texts), self.kind)
        middle = len(texts) // 2
        return pa.concat_arrays([self.cast(texts[:middle]), self.cast(texts[middle:])])


def _null_mask(values: pa.Array) -> np.ndarray:
    mask: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _find_hexadecimal(texts: pa.Array, _: pa.Array) -> np.ndarray | None:
    """Return which integers are written as `0x1F`, which pyarrow accepts."""
    if not _may_have(texts, b"x", b"X"):
        return None
    return _flags(pc.match_substring(texts, "x", ignore_case=True))


def _find_wide(texts: pa.Array, _: pa.Array) -> np.ndarray | None:
    """Return which numbers may have too many digits: pyarrow's cast to decimals overflows without a word."""
    is_wide = pc.greater(pc.binary_length(texts), _DECIMAL_LENGTH)
    if _may_have(texts, b"e", b"E"):
        is_wide = pc.or_(is_wide, pc.match_substring(texts, "e", ignore_case=True))
    return _flags(is_wide)


def _may_have(texts: pa.Array, *letters: bytes) -> bool:
    """Return whether one of some letters stands anywhere in the memory of texts, which may have more of them.

    Hardly a column has one, and a search of the memory costs a hundredth of a search of each text.
    """
    data = texts.buffers()[2]
    memory = b"" if data is None else data.to_pybytes()
    return any(letter in memory for letter in letters)


def _find_inexact(texts: pa.Array, values: pa.Array) -> np.ndarray | None:
    """Return which numbers a double does not hold: those without an end, and those with more digits.

    The shortest text of a double is compared with a text that is long enough to have more.
    """
    infinite = _flags(pc.invert(pc.is_finite(values)))
    is_long = pc.greater(pc.binary_length(texts), _EXACT)
    if not pc.any(is_long).as_py():
        return infinite
    rows = np.flatnonzero(is_long.fill_null(False).to_numpy(zero_copy_only=False))
    some, doubles = texts.take(pa.array(rows)), values.take(pa.array(rows))
    differs = pc.not_equal(some, doubles.cast(pa.string())).fill_null(True)
    suspects = rows[differs.to_numpy(zero_copy_only=False)]
    result: np.ndarray = np.zeros(len(texts), bool) if infinite is None else infinite
    for row in suspects.tolist():
        result[row] |= not _is_exact(texts[row].as_py(), values[row].as_py())
    return result if bool(result.any()) else None


def _is_exact(text: str, number: float | None) -> bool:
    if number is None or not math.isfinite(number):
        return False
    return Decimal(text) == Decimal(repr(number))


def _flags(values: pa.Array) -> np.ndarray | None:
    if not pc.any(values).as_py():
        return None
    flags: np.ndarray = np.array(values.fill_null(False).to_numpy(zero_copy_only=False))
    return flags


_CHECKS: Mapping[str, Callable[[pa.Array, pa.Array], np.ndarray | None]] = {
    "integer": _find_hexadecimal,
    "number": _find_inexact,
    "decimal": _find_wide,
    "big_integer": _find_wide,
}
"""The functions that find misfits that a cast accepts, by the type."""


def json_value(text: str | None, kind: str, nulls: Sequence[str]) -> Any:
    """Return a text as a value of JSON, as `cast_texts` does where it fits; otherwise the text itself."""
    if text is None or (text in nulls and (kind in ARROW or kind == "boolean")):
        return None
    if kind == "boolean":
        lower = text.lower()
        return lower in _TRUE if lower in _TRUE or lower in _FALSE else text
    return _json_number(text) if kind in _NUMBERS else text


def _json_number(text: str) -> Any:
    plain = text.strip()
    if _JSON_NUMBER.fullmatch(plain):
        return Raw(plain.encode())
    try:
        number = Decimal(plain) if re.fullmatch(r"[-+.\deE]+", plain) else None
    except InvalidOperation:
        number = None
    return text if number is None or number.adjusted() > 400 else Raw(f"{number:f}".encode())


_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?")
_ZONE = re.compile(rf"(?:{_TIME.pattern})(?:Z|[+-]\d\d(?::?\d\d)?)")


def infer_kinds(texts: Sequence[str]) -> set[str]:
    """Return the types that texts of a sample have, which are not null; `string` alone if one is a text."""
    kinds = set()
    for text in texts:
        kind = _infer_kind(text)
        if kind == "string":
            return {"string"}
        kinds.add(kind)
    return kinds


def _infer_kind(text: str) -> str:
    if _INTEGER.fullmatch(text):  # not `007`: it is a code
        return "integer" if len(text) < 19 else "big_integer" if len(text) < 38 else "string"
    if _JSON_NUMBER.fullmatch(text):
        return _infer_number(text)
    if text.lower() in ("true", "false"):
        return "boolean"
    forms = (("date", _DATE), ("timestamp_without_timezone", _TIME), ("timestamp", _ZONE))
    for kind, pattern in forms:
        if pattern.fullmatch(text):
            fits = cast_texts(pa.array([text]), kind, ()).misfits is None
            return kind if fits else "string"
    return "string"


def _infer_number(text: str) -> str:
    if len(text) <= _EXACT or _is_exact(text, float(text)):
        return "number"
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    is_decimal = isinstance(exponent, int) and exponent >= -9 and number.adjusted() < 28
    return "decimal" if is_decimal else "number"
