"""Values that are taken as they stand in a line become the same column together as one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.spark.parsing.values import RawValues

RAW = RawValues()
DECIMAL = pa.decimal128(38, 9)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | st.text()
    | st.sampled_from(["1.50", "\ud800", "Infinity", "\x7f", "\uffff", "😀", "-1.5", "007"])
)
values = st.recursive(leaves, lambda each: st.lists(each) | st.dictionaries(st.text(), each))
texts = values.map(lambda value: json.dumps(value).encode()) | st.sampled_from(
    [
        *(b"null", b"-0", b"-0.0", b"1.10", b"1e5", b"[1,]", b"{} ", b"]", b"1,2", b'"1.5"', b'"5'),
        *(b"[" * 401 + b"]" * 401, b'"\xff"', b'{"b":1,"a":2,"b":3}', b'"a\\u0041\\/"'),
    ]
)


def column(raw: Sequence[bytes | None], kind: str, type_: pa.DataType) -> list[object]:
    """The values of a column; a value that is named as odd is `...`."""
    odd: set[int] = set()
    found = RAW.array(raw, kind, type_, odd.update).to_pylist()
    return [... if number in odd else value for number, value in enumerate(found)]


@pytest.mark.parametrize(
    ("kind", "type_"),
    [("JSON", pa.string()), ("JSON_OBJECT", pa.string()), ("JSON_ARRAY", pa.string())],
)
@given(raw=st.lists(st.none() | texts, max_size=80))
def test_json_values_become_the_same_text_together(
    raw: Sequence[bytes | None], kind: str, type_: pa.DataType
) -> None:
    alone = [column([each], kind, type_)[0] for each in raw]
    assert column(raw, kind, type_) == alone


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        ("BIG_NUMBER", [b"1.5", b'"-2"', None, b"null"], [Decimal("1.5"), Decimal(-2), None, None]),
        ("BIG_NUMBER", [b"1e5", b'"3', b'""', b"7"], [..., ..., ..., Decimal(7)]),
        ("BIG_INTEGER", [b"10", b"01", b"true", b'"0"', b"1.0"], [10, ..., ..., 0, ...]),
        ("BIG_NUMBER", [None, b"null"], [None, None]),
        ("BIG_NUMBER", [], []),
    ],
)
def test_numbers_of_one_form_are_converted(
    kind: str, raw: Sequence[bytes | None], expected: list[object]
) -> None:
    assert column(raw, kind, DECIMAL) == expected
