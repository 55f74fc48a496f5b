"""Values of the server as columns of Arrow.

Rows of the binary protocol are decoded without a Python object for any value; values of queries and of the
log are converted to the types of their columns.

Numbers come as the server has them, and are taken over by numpy. All other values have a length before them.

| type of the server | type of Arrow |
|---|---|
| whole numbers, FLOAT and DOUBLE | the same number |
| DATE | uint32: from the lowest bits, 16 of the year, 8 of the month and 8 of the day |
| DATETIME, TIMESTAMP | struct of such a `date`, and the `time` of the day in microseconds, int64 |
| all other | binary |

Spec: MySQL client/server protocol, Binary Protocol Value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from connectors.mysql.wire import Block
from connectors.sdk.columns.conversion import Converted, convert, find_nulled, make_batch
from connectors.sdk.columns.types import DATE32, TIMESTAMP, TIMESTAMP_UTC, ColumnType
from connectors.sql.tables import Column

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _TIMESTAMP, _LONGLONG = 1, 2, 3, 4, 5, 7, 8
_INT24, _DATE, _TIME, _DATETIME, _YEAR = 9, 10, 11, 12, 13
_UNSIGNED = 32
"""The flag of a column without negative numbers."""
_NUMBERS = {
    _TINY: "i1", _SHORT: "<i2", _YEAR: "<i2", _INT24: "<i4", _LONG: "<i4", _LONGLONG: "<i8",
    _FLOAT: "<f4", _DOUBLE: "<f8",
}  # fmt: skip
_LONG_LENGTHS = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of lengths that have more bytes, and how many."""
_CLOCK_LENGTH, _FULL_LENGTH = 7, 11
"""The lengths of a time with the time of the day, and with microseconds too."""
_FIRST_NULL_BIT = 2
_ZERO = r"^0000|-00"
"""A zero in the date of a text: `0000-00-00`, `2024-00-10`, `0000-05-01`."""
_YEARS, _MONTHS = 10_000, 16
_DAY = 86_400_000_000
"""The microseconds of a day."""


@dataclass(frozen=True)
class WireType:
    """The type of a column in a result set, and its flags, as the server numbers them."""

    code: int
    flags: int

    @property
    def number(self) -> np.dtype | None:
        """The type of its numbers; None if its values are no numbers of a fixed size."""
        name = _NUMBERS.get(self.code)
        if name is None:
            return None
        is_unsigned = self.flags & _UNSIGNED and "i" in name
        return np.dtype(name.replace("i", "u") if is_unsigned else name)


def read_columns(block: Block, types: Sequence[WireType]) -> list[pa.Array]:
    """Return the columns of a block.

    Raises:
        ValueError: the values of a row do not end where the row does.
    """
    rows = _Rows(block, len(types))
    columns = [rows.read(number, kind) for number, kind in enumerate(types)]
    if (rows.places != block.ends).any():
        raise ValueError("a row of the server has other values than its columns")
    return columns


class _Rows:
    """Rows of a block, which are read column by column. `places`: of the next value in each row."""

    def __init__(self, block: Block, count: int):
        self._data, starts = block.data, block.starts
        self._bytes = np.frombuffer(self._data, np.uint8)
        size = (count + _FIRST_NULL_BIT + 7) // 8
        self._bits = self._bytes[starts[:, None] + np.arange(1, 1 + size)]
        self._bits_of_any = np.bitwise_or.reduce(self._bits, axis=0)
        self.places = starts + 1 + size

    def read(self, number: int, kind: WireType) -> pa.Array:
        """Return the values of a column. Columns are read in their order."""
        is_null = self._find_nulls(number)
        if kind.number is not None:
            return self._read_numbers(kind.number, is_null)
        if kind.code == _DATE:
            return pa.array(self._read_times(is_null)[0], mask=is_null)
        if kind.code in (_DATETIME, _TIMESTAMP):
            date, time = map(pa.array, self._read_times(is_null))
            mask = None if is_null is None else pa.array(is_null)
            return pa.StructArray.from_arrays([date, time], ["date", "time"], mask=mask)
        if kind.code == _TIME:
            raise TypeError("lengths of time are read as texts")
        return self._read_bytes(is_null)

    def _find_nulls(self, number: int) -> np.ndarray | None:
        """Return which values of a column are null; None if none is."""
        byte, bit = divmod(number + _FIRST_NULL_BIT, 8)
        if not self._bits_of_any[byte] & (1 << bit):
            return None
        nulls: np.ndarray = self._bits[:, byte] & (1 << bit) != 0
        return nulls

    def _read_numbers(self, number: np.dtype, is_null: np.ndarray | None) -> pa.Array:
        values = self._read_at(number, self.places)
        size = number.itemsize
        self.places = self.places + (size if is_null is None else np.where(is_null, 0, size))
        return pa.array(values, mask=is_null)

    def _read_at(self, number: np.dtype | str, places: np.ndarray) -> np.ndarray:
        """Return the numbers at places, which need not be multiples of their size."""
        kind = np.dtype(number)
        numbers = np.ndarray((len(self._data) - kind.itemsize + 1,), kind, self._data, strides=(1,))
        values: np.ndarray = numbers[places]
        return values

    def _read_lengths(self, is_null: np.ndarray | None) -> np.ndarray:
        """Return the lengths of one byte at the present places, and go on to what follows them."""
        lengths: np.ndarray = self._bytes[self.places].astype(np.int64)
        if is_null is not None:
            lengths[is_null] = 0
        self.places = self.places + (1 if is_null is None else ~is_null)
        return lengths

    def _read_bytes(self, is_null: np.ndarray | None) -> pa.Array:
        lengths = self._read_lengths(is_null)
        if lengths.max(initial=0) >= _LONG_LENGTHS[0][0]:
            marks = lengths.copy()
            for mark, width in _LONG_LENGTHS:
                rows = np.flatnonzero(marks == mark)
                places = self.places[rows]
                parts = [self._bytes[places + n].astype(np.int64) << (8 * n) for n in range(width)]
                lengths[rows] = np.sum(parts, axis=0)
                self.places[rows] += width
        begin = self.places
        self.places = begin + lengths
        if self.places.max(initial=0) > len(self._data):
            raise ValueError("a value of the server is longer than its row")
        return _take(self._data, begin, self.places, is_null)

    def _read_times(self, is_null: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return dates, and microseconds of the day. What a value leaves out is zero."""
        lengths, places = self._read_lengths(is_null), self.places
        dates = self._read_at("<u4", places)
        time = np.zeros(len(places), np.int64)
        shortest, longest = lengths.min(initial=_FULL_LENGTH), lengths.max(initial=0)
        if shortest == 0:
            dates[lengths == 0] = 0
        if longest >= _CLOCK_LENGTH:
            clock = self._read_at("<u4", places + 4).astype(np.int64)
            hours, minutes, seconds = clock & 0xFF, clock >> 8 & 0xFF, clock >> 16 & 0xFF
            time = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
            if shortest < _CLOCK_LENGTH:
                time[lengths < _CLOCK_LENGTH] = 0
        if longest >= _FULL_LENGTH:
            parts = self._read_at("<u4", places + 7)
            time += np.where(lengths >= _FULL_LENGTH, parts, 0)
        self.places = places + lengths
        return dates, time


def _take(
    data: bytearray, begin: np.ndarray, end: np.ndarray, is_null: np.ndarray | None
) -> pa.Array:
    """Return the values between places of a block.

    The block as an array has values at even numbers, and what is between them at odd ones.
    """
    offsets = np.empty(2 * len(begin), np.int32)
    offsets[0::2], offsets[1::2] = begin, end
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    mixed = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    numbers = np.arange(0, len(offsets), 2, dtype=np.int32)
    return mixed.take(pa.array(numbers, mask=is_null))


def convert_batch(columns: Sequence[Column], values: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch of the server's values, from a query (`read_columns`) or from the log."""
    pairs = zip(values, columns, strict=True)
    names = [column.name for column in columns]
    return make_batch(names, (convert_column(part, column.type) for part, column in pairs))


def convert_column(values: pa.Array, kind: ColumnType) -> Converted:
    """Return the server's values of a column in its type, and which were made null: a date with a zero year,
    month or day, a day that does not exist (31 February), bytes that are no UTF-8."""
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
    """Return the dates of the values of DATE."""
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
