"""Values of drivers: the same ones in the column's type, or null with a change. `test_columns` has texts."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.sdk.arrow_records import changes_of
from connectors.sdk.columns import types as t
from connectors.sdk.columns.conversion import arrow_type_of, make_batch
from connectors.sql.bounds import decode_bound, encode_bound
from connectors.sql.values import convert_values

DECIMAL, BIG = t.ColumnType("decimal128", {}, 9, 2), t.ColumnType("decimal128", {}, 38)
UTC = dt.timezone.utc
moment = dt.datetime.fromisoformat
KINDS = [
    t.INT64,
    t.DOUBLE,
    t.FLOAT,
    t.BOOL,
    t.STRING,
    t.BINARY,
    t.DATE32,
    t.TIMESTAMP,
    t.TIMESTAMP_UTC,
    t.JSON,
    DECIMAL,
]
MOMENTS = st.datetimes(timezones=st.none() | st.timezones())
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(),
    st.binary(),
    st.dates(),
    MOMENTS,
    st.times(),
    st.uuids(),
    st.lists(st.integers(), max_size=3),
    st.integers().map(str),
    st.decimals(allow_nan=False).map(str),
    st.dates().map(str),
    MOMENTS.map(str),
)


def is_same(kind: t.ColumnType, value: Any, result: Any) -> bool:
    """Whether a converted value is the one of the driver."""
    if kind is t.STRING:
        return bool(result == (value.decode() if isinstance(value, bytes) else result))
    if kind is t.FLOAT:
        return bool(np.float32(float(value)) == np.float32(result))
    if isinstance(value, str):
        return (
            bool(Decimal(value) == Decimal(str(result)))
            if isinstance(result, (int, float, Decimal)) and not isinstance(result, bool)
            else True
        )
    if isinstance(result, dt.datetime) and isinstance(value, dt.datetime):
        zone = value.tzinfo or UTC
        return value.replace(tzinfo=zone) == result.replace(tzinfo=result.tzinfo or UTC)
    if isinstance(result, (int, Decimal)) and not isinstance(result, bool):
        return bool(Decimal(repr(value)) == result if isinstance(value, float) else value == result)
    if kind is t.DOUBLE:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return exact == Decimal(repr(result))
    if kind is t.JSON or kind is t.BINARY:
        return True
    if type(value) is dt.date and isinstance(result, dt.datetime):
        return result.replace(tzinfo=None) == dt.datetime.combine(value, dt.time())
    if isinstance(value, dt.datetime) and kind is t.DATE32:
        return value == dt.datetime.combine(result, dt.time())
    return bool(value == result)


@given(st.lists(VALUES, max_size=6), st.sampled_from(KINDS))
@example(["9010000000000001"], t.DOUBLE)
@example([(1 << 53) + 1, Decimal("0.1"), Decimal("0.10000000000000000001")], t.DOUBLE)
def test_each_value_is_the_same_or_null_with_a_change(
    values: list[Any], kind: t.ColumnType
) -> None:
    batch = make_batch(["c"], [convert_values(values, kind)])
    assert batch.schema.field("c").type == arrow_type_of(kind)
    rows, changed = batch.to_pylist(), changes_of(batch)
    for number, (value, row) in enumerate(zip(values, rows, strict=True)):
        changes = [change["field"] for change in changed.get(number, ())]
        assert (row["c"] is None and value is not None) == (changes == ["c"]), (value, row)
        if row["c"] is not None:
            assert is_same(kind, value, row["c"]), (value, row["c"])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (t.INT64, 2.0, 2),
        (t.INT64, 2.5, None),
        (t.INT64, 1 << 63, None),
        (t.INT64, Decimal("3.000"), 3),
        (t.INT64, float("nan"), None),
        (BIG, (10**38) - 1, Decimal((10**38) - 1)),
        (BIG, 10**38, None),
        (DECIMAL, 0.1, Decimal("0.10")),
        (DECIMAL, 0.125, None),
        (DECIMAL, Decimal("-1234567.89"), Decimal("-1234567.89")),
        (t.DOUBLE, math.inf, None),
        (t.FLOAT, 0.10000000149011612, 0.1),
        (t.FLOAT, 1e39, None),
        (t.BOOL, 1, True),
        (t.BOOL, 2, None),
        (t.STRING, b"\xff", None),
        (t.STRING, "\ud800", None),
        (t.STRING, True, "true"),
        (t.STRING, [1, 2], "[1,2]"),
        (t.DATE32, moment("2024-01-01T05:00:00"), None),
        (t.TIMESTAMP, "2024-01-01T10:00:00.123456000", moment("2024-01-01T10:00:00.123456")),
        (t.TIMESTAMP, 1704103200, None),
        (t.TIMESTAMP_UTC, moment("2024-01-01T00:00:00"), dt.datetime(2024, 1, 1, tzinfo=UTC)),
        (t.JSON, '{"a": 1.10}', '{"a": 1.10}'),
        (t.JSON, "{a", None),
        (t.JSON, "NaN", None),
        (t.JSON, {"a": Decimal("1.10")}, '{"a":1.10}'),
    ],
)
def test_what_a_value_becomes(kind: t.ColumnType, value: Any, expected: Any) -> None:
    array, invalid = convert_values([value, None], kind)
    assert array.to_pylist() == [expected, None]
    assert (invalid is None) == (expected is not None)


def test_arrays_of_arrow_are_taken_over_or_converted() -> None:
    whole = pa.array([1, None], pa.int64())
    assert convert_values(whole, t.INT64)[0] is whole
    assert convert_values(pa.array([1, None], pa.int16()), t.INT64)[0].equals(whole)
    numbers, invalid = convert_values(pa.array([1.5, float("nan")]), t.DOUBLE)
    assert numbers.to_pylist() == [1.5, None]
    assert invalid is not None


@given(
    st.one_of(
        st.integers(), st.text(), st.decimals(allow_nan=False), st.dates(), st.datetimes(), MOMENTS
    )
)
def test_a_bound_comes_back_from_a_state(value: Any) -> None:
    result = decode_bound(json.loads(json.dumps(encode_bound(value))))
    assert result == value
    assert type(result) is type(value)
