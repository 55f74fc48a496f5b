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

import pyarrow as pa
import pyarrow.compute as pc

from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.columns.types import (
    BINARY,
    BOOL,
    DATE32,
    DOUBLE,
    FLOAT,
    INT64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    ColumnType,
)
from elt_assets.protocol.airbyte.messages import INVALID

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days since 1970 of 0001-01-01 and 9999-12-31."""
_DAY = 86_400_000_000
_TYPES = {
    INT64: pa.int64(),
    DOUBLE: pa.float64(),
    FLOAT: pa.float64(),
    BOOL: pa.bool_(),
    BINARY: pa.binary(),
    DATE32: pa.date32(),
    TIMESTAMP: pa.timestamp("us"),
    TIMESTAMP_UTC: pa.timestamp("us", "UTC"),
}
"""The types of Arrow; all others are texts."""

Converted = tuple[pa.Array, "pa.Array | None"]
"""Values, and which of them were made null; None if none was."""


def arrow_type_of(kind: ColumnType) -> pa.DataType:
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


def convert(values: pa.Array, kind: ColumnType, special: str = "") -> Converted:
    """Return the values of a column in the type of `arrow_type_of`.

    Args:
        values: numbers, dates or times of Arrow, or texts, which may be bytes.
        special: a pattern of texts that are no values, but may be many, so that they are found at once.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if kind == FLOAT:
        converted = shorten_singles(_keep_finite(_cast(values, pa.float32(), special)))
    else:
        converted = _cast(values, arrow_type_of(kind), special)
    if kind == DOUBLE:
        converted = _keep_finite(converted)
    if kind == DATE32:
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
class TextCast:
    """A cast of texts in which those that are no values of a type become null.

    Attributes:
        max_casts: after so many casts of parts in search of such texts, the parts that are left are null.
        has_misfits: whether there was one.
    """

    target: pa.DataType
    max_casts: int = sys.maxsize
    casts: int = 0
    has_misfits: bool = False

    def cast(self, texts: pa.Array) -> pa.Array:
        """Return the values of texts, or of bytes that should be texts."""
        self.casts += 1
        try:
            return texts.cast(pa.string()).cast(self.target)
        except pa.ArrowInvalid:
            self.has_misfits = True
        if len(texts) == 1 or self.casts > self.max_casts:
            return pa.nulls(len(texts), self.target)
        middle = len(texts) // 2
        return pa.concat_arrays([self.cast(texts[:middle]), self.cast(texts[middle:])])


def _cast(values: pa.Array, target: pa.DataType, special: str) -> pa.Array:
    if values.type == target:
        return values
    if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        return values.cast(target, safe=target != pa.float32())
    try:
        return values.cast(pa.string()).cast(target)
    except pa.ArrowInvalid:
        if special:
            values = _null_where(pc.match_substring_regex(values, special), values)
    return TextCast(target).cast(values)


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
