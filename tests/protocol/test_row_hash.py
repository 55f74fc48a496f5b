"""The hash of a row, beside a second implementation of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.protocol.row_hash import add_hashes, hash_rows
from tests.connectors.row_hashes import hash_row

MOST = 10**38 - 1
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "date32": (pa.date32(), st.dates()),
    "timestamp[us]": (pa.timestamp("us"), st.datetimes()),
    "timestamp[us, tz=UTC]": (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(dt.timezone.utc)),
    ),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float64(), st.floats(width=32, allow_nan=False)),
}
for places in (0, 1, 9):
    numbers = st.integers(-(10**18), 10**18) | st.integers(-(2**63) - 1, 2**63)
    digits = (numbers | st.integers(-MOST, MOST)).map(str)
    exponent = f"E-{places}" if places else ""
    VALUES[f"decimal128(38, {places})"] = (
        pa.decimal128(38, places),
        digits.map(lambda text, exponent=exponent: Decimal(text + exponent)),  # type: ignore[misc]
    )


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_rows_have_the_hash_of_their_texts(kind: str, data: st.DataObject) -> None:
    arrow_type, values = VALUES[kind]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=9))
    array = pa.array([None, *column], arrow_type)
    numbers = pa.array(range(len(array)), pa.int64())
    expected = [
        hash_row([number, value], ["int64", kind]) for number, value in enumerate([None, *column])
    ]
    assert hash_rows([numbers, array], ["int64", kind]).tolist() == expected
    # A part of a column begins in the middle of its buffers.
    hashes = hash_rows([numbers[1:], array[1:]], ["int64", kind])
    assert hashes.tolist() == expected[1:]
    assert add_hashes(hashes) == sum(expected[1:]) % 2**64


def test_a_decimal_of_another_scale_has_the_text_of_its_type() -> None:
    values = pa.array([Decimal("-1.5"), Decimal("0.250000000")], pa.decimal128(38, 9))
    expected = [hash_row([value], ["decimal128(9, 2)"]) for value in values.to_pylist()]
    assert hash_rows([values], ["decimal128(9, 2)"]).tolist() == expected
    with pytest.raises(pa.ArrowInvalid):
        hash_rows([pa.array([Decimal("0.125")])], ["decimal128(9, 2)"])
