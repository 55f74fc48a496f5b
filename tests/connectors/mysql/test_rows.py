"""Rows of the binary protocol as columns: any values, however the bytes come in and blocks end."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from connectors.mysql.rows import WireType, convert_column, read_columns
from connectors.mysql.wire import Cut, Packets, RefusedRead
from connectors.sdk.arrow_records import changes_of
from connectors.sdk.columns.conversion import make_batch
from connectors.sdk.columns.types import DATE32, DOUBLE, INT64, STRING, TIMESTAMP, ColumnType

UNSIGNED = 32
END, REFUSAL = b"\xfe\0\0\2\0", b"\xff\x15\x04#08S01gone"
INTEGERS = {1: "b", 2: "h", 13: "h", 9: "i", 3: "i", 8: "q"}
"""The letters of `struct` for the types of whole numbers."""
DATE, DATETIME, TEXT = 10, 12, 253
Day = tuple[int, int, int]
Clock = tuple[int, int, int, int]


@dataclass(frozen=True)
class Field:
    """A column. `values`: its values, each with its bytes and as the batch has it; None for a null."""

    type: WireType
    kind: ColumnType
    values: st.SearchStrategy[tuple[bytes, Any] | None]


def length_of(size: int) -> bytes:
    """The length of a text before it (a length-encoded integer)."""
    if size < 0xFB:
        return bytes([size])
    if size < 1 << 16:
        return b"\xfc" + struct.pack("<H", size)
    return b"\xfd" + struct.pack("<I", size)[:3]


def integers(code: int, flags: int) -> Field:
    letter = INTEGERS[code].upper() if flags else INTEGERS[code]
    bits = 8 * struct.calcsize(letter)
    least, most = (0, (1 << bits) - 1) if flags else (-(1 << bits - 1), (1 << bits - 1) - 1)
    values = st.integers(least, most).map(lambda n: (struct.pack(f"<{letter}", n), n))
    is_wide = flags and code == 8
    kind = ColumnType("decimal128", {}, 20) if is_wide else INT64
    return Field(WireType(code, flags), kind, values)


def read_day(day: Day) -> dt.date | None:
    with suppress(ValueError):
        return dt.date(*day)
    return None


def encode_date(day: Day) -> tuple[bytes, Any]:
    return (b"\x04" + struct.pack("<HBB", *day) if any(day) else b"\0"), read_day(day)


def encode_moment(day: Day, clock: Clock) -> tuple[bytes, Any]:
    """A time; the protocol leaves out zeros at its end."""
    size = 11 if clock[3] else 7 if any(clock) else 4 if any(day) else 0
    encoded = bytes([size]) + struct.pack("<HBBBBBI", *day, *clock)[:size]
    date = read_day(day)
    return encoded, date and dt.datetime.combine(date, dt.time(*clock))


DAYS = st.tuples(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
CLOCKS = st.just((0, 0, 0, 0)) | st.tuples(
    st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999)
)
SIZES_OF_TEXTS = st.integers(249, 257) | st.sampled_from([65_535, 65_536])
"""Around those from which a length takes more bytes."""
TEXTS = (st.text(max_size=40) | SIZES_OF_TEXTS.map(lambda n: "x" * n)).map(
    lambda text: (length_of(len(text.encode())) + text.encode(), text)
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False).map(lambda n: (struct.pack("<d", n), n))
FIELDS = [
    *(integers(code, flags) for code in INTEGERS for flags in (0, UNSIGNED)),
    Field(WireType(5, 0), DOUBLE, DOUBLES),
    Field(WireType(DATE, 0), DATE32, DAYS.map(encode_date)),
    Field(
        WireType(DATETIME, 0),
        TIMESTAMP,
        st.tuples(DAYS, CLOCKS).map(lambda v: encode_moment(*v)),
    ),
    Field(WireType(TEXT, 0), STRING, TEXTS),
]
Row = tuple["tuple[bytes, Any] | None", ...]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Field], list[Row]]:
    columns = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=12))
    row = st.tuples(*(st.none() | column.values for column in columns))
    return columns, draw(st.lists(row, max_size=30))


def encode_row(row: Row) -> bytes:
    bits = sum(1 << n for n, value in enumerate(row, start=2) if value is None)
    size = (len(row) + 9) // 8
    return b"\0" + bits.to_bytes(size, "little") + b"".join(v[0] for v in row if v is not None)


def encode_packets(payloads: list[bytes]) -> bytes:
    numbers = cycle(range(256))
    parts = [struct.pack("<I", len(p) | next(numbers) << 24) + p for p in payloads]
    return b"".join(parts)


def read(
    columns: list[Field], data: bytes, sizes: list[int], first: int, block: int
) -> Iterator[pa.RecordBatch]:
    """Read rows whose bytes come in pieces of some sizes."""
    rest, pieces = memoryview(data)[first:], cycle(sizes)

    def read_into(place: memoryview) -> int:
        nonlocal rest
        count = min(next(pieces), len(place), len(rest))
        place[:count], rest = rest[:count], rest[count:]
        return count

    types = [column.type for column in columns]
    names, forms = [str(n) for n in range(len(columns))], [column.kind for column in columns]
    for rows in Packets(data[:first], read_into, block).blocks():
        yield make_batch(names, map(convert_column, read_columns(rows, types), forms))


SIZES = st.lists(st.integers(1, 5_000), min_size=1, max_size=5)


@given(table=tables(), sizes=SIZES, share=st.floats(0, 1), block=st.integers(64, 100_000))
def test_each_value_arrives(
    table: tuple[list[Field], list[Row]], sizes: list[int], share: float, block: int
) -> None:
    columns, rows = table
    data = encode_packets([*map(encode_row, rows), END])
    batches = list(read(columns, data, sizes, int(share * min(block, len(data))), block))
    names = [str(n) for n in range(len(columns))]
    values = [row for batch in batches for row in batch.select(names).to_pylist()]
    assert values == [
        {name: v and v[1] for name, v in zip(names, row, strict=True)} for row in rows
    ]
    nulled = [
        [name for name, v in zip(names, row, strict=True) if v is not None and v[1] is None]
        for row in rows
    ]
    assert list(chain.from_iterable(map(list_nulled, batches))) == nulled


def list_nulled(batch: pa.RecordBatch) -> list[list[str]]:
    """The fields of each row that are null with a change."""
    changes = changes_of(batch)
    return [[change["field"] for change in changes.get(row, ())] for row in range(len(batch))]


@given(table=tables(), sizes=SIZES, share=st.floats(0, 1, exclude_max=True))
def test_a_result_set_that_is_cut_or_refused(
    table: tuple[list[Field], list[Row]], sizes: list[int], share: float
) -> None:
    columns, rows = table
    data = encode_packets([*map(encode_row, rows), END])
    with pytest.raises(Cut):
        list(read(columns, data[: int(share * len(data))], sizes, 0, 4096))
    refused = encode_packets([*map(encode_row, rows), REFUSAL])
    with pytest.raises(RefusedRead) as error:
        list(read(columns, refused, sizes, 0, 4096))
    assert error.value.payload == REFUSAL


@given(table=tables(), data=st.data())
def test_rows_of_other_columns(table: tuple[list[Field], list[Row]], data: st.DataObject) -> None:
    """A row that has more bytes than its values is an error."""
    columns, rows = table
    assume(rows)
    row = encode_row(data.draw(st.sampled_from(rows)))
    extra = data.draw(st.binary(min_size=1, max_size=300))
    with pytest.raises(ValueError, match="of the server"):
        list(read(columns, encode_packets([row + extra, END]), [4096], 0, 4096))
