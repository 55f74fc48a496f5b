"""Values of drivers: the same ones in the column's kind, or null with a change."""

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
from connectors.sql import Column
from connectors.sql.bounds import decode_bound, encode_bound
from connectors.sql.kinds import (
    BOOLEAN,
    BYTES,
    DATE,
    INTEGER,
    JSON,
    NUMBER,
    OTHER,
    SINGLE,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_TZ,
    Kind,
    decimal,
)
from connectors.sql.values import arrow_type_of, convert, make_batch

UTC = dt.timezone.utc
moment = dt.datetime.fromisoformat
KINDS = [
    INTEGER,
    NUMBER,
    SINGLE,
    BOOLEAN,
    TEXT,
    BYTES,
    DATE,
    TIMESTAMP,
    TIMESTAMP_TZ,
    JSON,
    decimal(9, 2),
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


def is_same(kind: Kind, value: Any, result: Any) -> bool:
    """Whether a converted value is the one of the driver."""
    if kind is TEXT:
        return bool(result == (value.decode() if isinstance(value, bytes) else result))
    if kind is SINGLE:
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
    if kind is NUMBER:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return exact == Decimal(repr(result))
    if kind is JSON or kind is BYTES:
        return True
    if type(value) is dt.date and isinstance(result, dt.datetime):
        return result.replace(tzinfo=None) == dt.datetime.combine(value, dt.time())
    if isinstance(value, dt.datetime) and kind is DATE:
        return value == dt.datetime.combine(result, dt.time())
    return bool(value == result)


@given(st.lists(VALUES, max_size=6), st.sampled_from(KINDS))
@example(["9010000000000001"], NUMBER)
@example([(1 << 53) + 1, Decimal("0.1"), Decimal("0.10000000000000000001")], NUMBER)
def test_each_value_is_the_same_or_null_with_a_change(values: list[Any], kind: Kind) -> None:
    batch = make_batch([Column("c", kind, "c")], [values])
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
        (INTEGER, "12", 12),
        (INTEGER, 2.0, 2),
        (INTEGER, 2.5, None),
        (INTEGER, 1 << 63, None),
        (INTEGER, Decimal("3.000"), 3),
        (INTEGER, "abc", None),
        (INTEGER, float("nan"), None),
        (decimal(38), (10**38) - 1, Decimal((10**38) - 1)),
        (decimal(38), 10**38, None),
        (decimal(9, 2), 0.1, Decimal("0.10")),
        (decimal(9, 2), 0.125, None),
        (decimal(9, 2), "1e2", Decimal("100.00")),
        (decimal(9, 2), Decimal("-1234567.89"), Decimal("-1234567.89")),
        (NUMBER, math.inf, None),
        (NUMBER, "0.1", 0.1),
        (SINGLE, 0.10000000149011612, 0.1),
        (SINGLE, 1e39, None),
        (BOOLEAN, 1, True),
        (BOOLEAN, 2, None),
        (BOOLEAN, "f", False),
        (TEXT, b"\xff", None),
        (TEXT, "\ud800", None),
        (OTHER, True, "true"),
        (OTHER, [1, 2], "[1,2]"),
        (DATE, "2024-02-29", dt.date(2024, 2, 29)),
        (DATE, "2023-02-29", None),
        (DATE, "0000-00-00", None),
        (DATE, moment("2024-01-01T05:00:00"), None),
        (TIMESTAMP, "2024-01-01 10:00", moment("2024-01-01T10:00:00")),
        (TIMESTAMP, "2024-01-01T10:00:00.123456000", moment("2024-01-01T10:00:00.123456")),
        (TIMESTAMP, "2024-01-01 10:00:00.1234567", None),
        (TIMESTAMP, "2024-01-01 10:00:00+02:00", moment("2024-01-01T08:00:00")),
        (TIMESTAMP, 1704103200, None),
        (TIMESTAMP, "yesterday", None),
        (TIMESTAMP_TZ, "2024-01-01 10:00:00+0200", dt.datetime(2024, 1, 1, 8, tzinfo=UTC)),
        (TIMESTAMP_TZ, moment("2024-01-01T00:00:00"), dt.datetime(2024, 1, 1, tzinfo=UTC)),
        (JSON, '{"a": 1.10}', '{"a": 1.10}'),
        (JSON, "{a", None),
        (JSON, "NaN", None),
        (JSON, {"a": Decimal("1.10")}, '{"a":1.10}'),
    ],
)
def test_what_a_value_becomes(kind: Kind, value: Any, expected: Any) -> None:
    array, invalid = convert(kind, [value, None])
    assert array.to_pylist() == [expected, None]
    assert (invalid is None) == (expected is not None)


def test_arrays_of_arrow_are_taken_over_or_converted() -> None:
    whole = pa.array([1, None], pa.int64())
    assert convert(INTEGER, whole)[0] is whole
    assert convert(INTEGER, pa.array([1, None], pa.int16()))[0].equals(whole)
    numbers, invalid = convert(NUMBER, pa.array([1.5, float("nan")]))
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
