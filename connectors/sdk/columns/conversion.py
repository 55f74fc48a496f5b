"""Conversion of the values of a column to its type: of Arrow's numbers and times, and of texts.

A value that its type does not hold is null, and the batch reports the change: NaN and the infinities, dates
and times that are not between the years 1 and 9999, a text that is no value of the type, bytes that are no
UTF-8. ADBC's driver of PostgreSQL adds the days between 2000 and 1970 without a check, so infinite dates
wrap around; all of them, and those near the ends of the server's range, come to lie outside of these years.

The module is imported with the first batch: pyarrow is slow to import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.columns import types as t
from elt_assets.protocol.messages import INVALID

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days since 1970 of 0001-01-01 and 9999-12-31."""
_DAY = 86_400_000_000
_MAX_DIGITS = 38
"""The digits for which 128 bits have room, also those that a cast adds after the point."""
_TYPES = {
    t.INT64: pa.int64(),
    t.DOUBLE: pa.float64(),
    t.FLOAT: pa.float64(),
    t.BOOL: pa.bool_(),
    t.BINARY: pa.binary(),
    t.DATE32: pa.date32(),
    t.TIMESTAMP: pa.timestamp("us"),
    t.TIMESTAMP_UTC: pa.timestamp("us", "UTC"),
}
"""The types of Arrow; all others are texts."""

Converted = tuple[pa.Array, "pa.Array | None"]
"""Values, and which of them were made null; None if none was."""


def arrow_type_of(kind: t.ColumnType) -> pa.DataType:
    """Return the type of Arrow that converted values have."""
    if kind.digits:
        return pa.decimal128(kind.digits, kind.places)
    return _TYPES.get(kind, pa.string())


def make_batch(names: Sequence[str], columns: Iterable[Converted]) -> pa.RecordBatch:
    """Return a batch, with a column of the changes if there are any."""
    arrays, nulled = [], {}
    for name, (values, is_nulled) in zip(names, columns, strict=True):
        arrays.append(values)
        if is_nulled is not None:
            nulled[name, INVALID] = is_nulled
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return report_changes(batch, list_changes(nulled, len(batch))) if nulled else batch


def convert(
    values: pa.Array, kind: t.ColumnType, special: str = "", max_casts: int = sys.maxsize
) -> Converted:
    """Return the values of a column in the type of `arrow_type_of`.

    Args:
        values: numbers, dates or times of Arrow, or texts, which may be bytes.
        special: a pattern of texts that are no values, but may be many, so that they are found at once.
        max_casts: after so many casts of parts in search of other texts that are none, the parts that are
            left are null.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if kind == t.FLOAT:
        converted = shorten_singles(_keep_finite(_cast(values, pa.float32(), special, max_casts)))
    else:
        converted = _cast(values, arrow_type_of(kind), special, max_casts)
    if kind == t.DOUBLE:
        converted = _keep_finite(converted)
    if kind == t.DATE32:
        converted = _limit(converted, pa.int32(), _FIRST_DAY, _LAST_DAY)
    elif kind.is_time:
        converted = _limit(converted, pa.int64(), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
    return converted, find_nulled(values, converted)


def shorten_singles(values: pa.Array) -> pa.Array:
    """Return numbers of single precision as the doubles with the same shortest text: 0.1, and not
    0.10000000149011612."""
    return values.cast(pa.string()).cast(pa.float64())


def find_nulled(values: pa.Array, converted: pa.Array) -> pa.Array | None:
    """Return which values were made null; None if none was."""
    if converted.null_count == values.null_count:
        return None
    return pc.and_(converted.is_null(), values.is_valid())


@dataclass
class _TextCast:
    """A cast of texts in which those that are no values of a type become null. `max_casts`: as in
    `convert`."""

    target: pa.DataType
    max_casts: int
    casts: int = 0

    def cast(self, texts: pa.Array) -> pa.Array:
        """Return the values of texts, or of bytes that should be texts."""
        self.casts += 1
        try:
            return _cast_texts(texts, self.target)
        except pa.ArrowInvalid:
            if len(texts) == 1 or self.casts > self.max_casts:
                return pa.nulls(len(texts), self.target)
        middle = len(texts) // 2
        return pa.concat_arrays([self.cast(texts[:middle]), self.cast(texts[middle:])])


def _cast(values: pa.Array, target: pa.DataType, special: str, max_casts: int) -> pa.Array:
    if values.type == target:
        return values
    if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        return values.cast(target, safe=target != pa.float32())
    try:
        return _cast_texts(values, target)
    except pa.ArrowInvalid:
        if special:
            values = _null_where(pc.match_substring_regex(values, special), values)
    return _TextCast(target, max_casts).cast(values)


def _cast_texts(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the values of texts; null for those that pyarrow takes for another value than theirs.

    Its cast takes `0x1F` for 31, and gives a decimal that has too many digits, or an exponent, the last bits
    of its digits without a word: 2^128 + 5 is 5.

    Raises:
        ArrowInvalid: one is none.
    """
    plain = texts.cast(pa.string())
    values = plain.cast(target)
    if pa.types.is_integer(target) and _has_letter(plain, "x"):
        return _null_where(pc.match_substring_regex(plain, "[xX]"), values)
    if pa.types.is_decimal(target) and _has_letter(plain, "e", _MAX_DIGITS - target.scale):
        pairs = zip(plain.to_pylist(), values.to_pylist(), strict=True)
        is_wrong = [text is not None and Decimal(text) != value for text, value in pairs]
        return _null_where(pa.array(is_wrong), values)
    return values


def _has_letter(texts: pa.Array, letter: str, max_length: int = sys.maxsize) -> bool:
    """Return whether a text has a letter, in any case, or is too long."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] | 0x20
    return bool(np.diff(ends).max() > max_length or (letters == ord(letter)).any())


def _keep_finite(values: pa.Array) -> pa.Array:
    return _null_where(pc.invert(pc.is_finite(values)), values)


def _limit(values: pa.Array, numbers: pa.DataType, least: int, most: int) -> pa.Array:
    counts = values.cast(numbers)
    bounds = pc.min_max(counts).as_py()
    if bounds["min"] is None or (least <= bounds["min"] and bounds["max"] <= most):
        return values
    return _null_where(pc.or_(pc.less(counts, least), pc.greater(counts, most)), values)


def _null_where(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Return values with nulls where a mask is true."""
    if not pc.any(mask).as_py():
        return values
    return pc.if_else(mask, pa.scalar(None, values.type), values)
