"""Conversion of the server's values: of texts, and of the types in `connectors.mysql.rows`.

A value that its type does not hold is null, and the changes of the batch say so: a date with a zero year,
month or day, a day that does not exist (31 February), bytes that are no UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from connectors.mysql.tables import Column
from connectors.sdk.columns.conversion import Converted, convert, find_nulled, make_batch
from connectors.sdk.columns.types import DATE32, TIMESTAMP, TIMESTAMP_UTC, ColumnType

_ZERO = r"^0000|-00"
"""A zero in the date of a text: `0000-00-00`, `2024-00-10`, `0000-05-01`."""
_YEARS, _MONTHS = 10_000, 16
_DAY = 86_400_000_000
"""The microseconds of a day."""


def convert_batch(columns: Sequence[Column], values: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch of the server's values."""
    pairs = zip(values, columns, strict=True)
    names = [column.name for column in columns]
    return make_batch(names, (convert_column(part, column.type) for part, column in pairs))


def convert_column(values: pa.Array, kind: ColumnType) -> Converted:
    """Return the server's values of a column in its type."""
    if pa.types.is_struct(values.type):
        converted = _make_moments(values)
    elif kind == DATE32 and not pa.types.is_binary(values.type):
        converted = _make_dates(values)
    elif kind == TIMESTAMP_UTC:  # the texts do not name their zone
        converted, _ = convert(values, TIMESTAMP, _ZERO)
    else:
        return convert(values, kind, _ZERO if kind.is_time else "")
    converted, _ = convert(converted, kind)
    return converted, find_nulled(values, converted)


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
