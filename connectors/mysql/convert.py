"""Columns of the server's values as columns of Arrow: of texts, and of the types in `connectors.mysql.rows`.

A value that its type does not hold is null, and the changes of the batch say so: a date with a zero year,
month or day, a day that does not exist (31 February), bytes that are no UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.mysql import kinds
from connectors.mysql.kinds import Kind
from connectors.sdk.arrow_records import list_changes, report_changes
from elt_assets.protocol.airbyte.messages import INVALID

_ZERO = r"^0000|-00"
"""A zero in the date of a text: `0000-00-00`, `2024-00-10`, `0000-05-01`."""
_YEARS, _MONTHS = 10_000, 16
_DAY = 86_400_000_000
"""The microseconds of a day."""


def make_batch(
    names: Sequence[str], types: Sequence[Kind], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Return a batch of the server's values, cast to the types of the columns."""
    arrays = []
    nulled: dict[tuple[str, str], pa.Array] = {}
    for name, kind, column in zip(names, types, columns, strict=True):
        values = _convert(kind, column)
        arrays.append(values)
        if values.null_count != column.null_count:
            nulled[name, INVALID] = pc.and_(values.is_null(), column.is_valid())
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return report_changes(batch, list_changes(nulled, len(batch))) if nulled else batch


def _convert(kind: Kind, column: pa.Array) -> pa.Array:
    if kind.form == kinds.BYTES:
        return column
    if pa.types.is_binary(column.type):
        return _convert_texts(kind, column)
    if pa.types.is_struct(column.type):
        return _make_moments(column).cast(_type_of(kind))
    if kind.form == kinds.DATE:
        return _make_dates(column)
    return _shorten(column) if kind.form == kinds.SINGLE else column.cast(_type_of(kind))


def _convert_texts(kind: Kind, texts: pa.Array) -> pa.Array:
    if kind.is_timed:
        is_zero = pc.match_substring_regex(texts, _ZERO)
        if pc.any(is_zero).as_py():
            texts = pc.if_else(is_zero, pa.scalar(None, texts.type), texts)
    return _cast_or_null(kind, texts)


def _cast_or_null(kind: Kind, texts: pa.Array) -> pa.Array:
    """Return the values of texts; null where the cast refuses a text."""
    try:
        return _cast(kind, texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return _cast(kind, pa.nulls(1, texts.type))
    middle = len(texts) // 2
    halves = [_cast_or_null(kind, part) for part in (texts.slice(0, middle), texts.slice(middle))]
    return pa.concat_arrays(halves)


def _cast(kind: Kind, texts: pa.Array) -> pa.Array:
    values = texts.cast(pa.string()).cast(_TEXT_TYPES.get(kind.form) or _type_of(kind))
    return _shorten(values) if kind.form == kinds.SINGLE else values.cast(_type_of(kind))


def _shorten(values: pa.Array) -> pa.Array:
    """Return the numbers that have the fewest digits of those that are the same FLOAT: 0.1, not 0.1000000015.

    Such a number is the same FLOAT again if it is written back.
    """
    return values.cast(pa.float32(), safe=False).cast(pa.string()).cast(pa.float64())


def _type_of(kind: Kind) -> pa.DataType:
    if kind.form == kinds.DECIMAL:
        return pa.decimal128(kind.digits, kind.places)
    return _TYPES[kind.form]


_TYPES = {
    kinds.TEXT: pa.string(),
    kinds.INTEGER: pa.int64(),
    kinds.BOOLEAN: pa.bool_(),
    kinds.DOUBLE: pa.float64(),
    kinds.SINGLE: pa.float64(),
    kinds.DATE: pa.date32(),
    kinds.MOMENT: pa.timestamp("us"),
    kinds.UTC_MOMENT: pa.timestamp("us", "UTC"),
}
_TEXT_TYPES = {kinds.UTC_MOMENT: pa.timestamp("us")}
"""The types that texts are cast to first: those of times in UTC do not name their zone."""


def _make_dates(values: pa.Array) -> pa.Array:
    """Return the dates of the values of DATE (see `connectors.mysql.rows`)."""
    days, is_day = _find_days(values)
    return pa.array(days, mask=~is_day).view(pa.date32())


def _make_moments(values: pa.StructArray) -> pa.Array:
    """Return the timestamps of the values of DATETIME or TIMESTAMP."""
    days, is_day = _find_days(values.field("date"))
    moments = days.astype(np.int64) * _DAY + values.field("time").to_numpy()
    is_moment = is_day & values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(moments, mask=~is_moment).view(pa.timestamp("us"))


def _find_days(dates: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the days since 1970, and which of them there are."""
    fields = dates.fill_null(0).to_numpy()
    months = (fields & 0xFFFF) * _MONTHS + np.minimum(fields >> 16 & 0xFF, _MONTHS - 1)
    places = (fields >> 24).astype(np.int32) - 1
    first_days, lengths = _list_months()
    return first_days[months] + places, (places >= 0) & (places < lengths[months])


@cache
def _list_months() -> tuple[np.ndarray, np.ndarray]:
    """Return the first day of each month of each year, and how many it has: none of year 0 or month 0."""
    starts = np.arange("0000-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]")
    days = starts.astype(np.int32)
    first_days, lengths = np.zeros((2, _YEARS, _MONTHS), np.int32)
    first_days[:, 1:13] = days[:-1].reshape(_YEARS, 12)
    lengths[1:, 1:13] = np.diff(days).reshape(_YEARS, 12)[1:]
    return first_days.ravel(), lengths.ravel()
