"""Bounds in Iceberg are never narrower than the values, whatever form Delta's log gave them."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Context, Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from elt_assets.lake.publish.data_files import make_bound
from elt_assets.lake.worker.statistics import _format_bound

pytestmark = pytest.mark.unit

CONTEXT = Context(prec=60)
EPOCH = dt.datetime.fromisoformat("1970-01-01")
LOCAL = st.datetimes(max_value=dt.datetime.fromisoformat("9999-12-31T23:59:59.998"))
TYPES: list[tuple[PrimitiveType, st.SearchStrategy[Any]]] = [
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (DoubleType(), st.floats(allow_nan=False, allow_infinity=False)),
    (BooleanType(), st.booleans()),
    (DateType(), st.dates()),
    (StringType(), st.text(st.characters(exclude_categories=["Cs"]), max_size=400)),
    (StringType(), st.sampled_from(["", "\U0010ffff" * 300, "a" * 255 + "\ud7ff" * 9, "é" * 300])),
    (TimestampType(), LOCAL),
    (TimestamptzType(), LOCAL.map(lambda value: value.replace(tzinfo=dt.timezone.utc))),
    (
        DecimalType(38, 9),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-9, CONTEXT)),
    ),
]


@given(st.sampled_from(TYPES).flatmap(lambda kind: st.tuples(st.just(kind[0]), kind[1])))
def test_a_bound_holds_for_the_value_that_it_is_of(case: tuple[PrimitiveType, Any]) -> None:
    type_, value = case
    for up in (False, True):
        logged = msgspec.json.encode(_format_bound(value, up=up))
        bound = make_bound(type_, json.loads(logged, parse_float=Decimal), up=up)
        if bound is None:
            assert json.loads(logged) is None or isinstance(value, dt.datetime), value
            continue
        decoded = from_bytes(type_, bound)
        expected = comparable(value)
        assert decoded >= expected if up else decoded <= expected
        if isinstance(value, float) and value == 0:
            assert math.copysign(1, float(decoded)) == (1 if up else -1)


def comparable(value: Any) -> Any:
    """The value as Iceberg has it."""
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, dt.date) else value


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (DoubleType(), float("nan")),
        (DoubleType(), float("inf")),
        (DoubleType(), "text"),
        (LongType(), None),
        (DecimalType(5, 1), Decimal("1.25")),
        (DecimalType(3, 1), Decimal("123.1")),
        (DateType(), "10000-01-01"),
        (TimestampType(), "text"),
        (BooleanType(), "yes"),
        (StringType(), "\ud800"),
        (FixedType(2), b"ab"),
        (FloatType(), 1e300),
    ],
)
def test_what_has_no_exact_form_as_a_bound_is_none(type_: PrimitiveType, value: Any) -> None:
    assert make_bound(type_, value, up=True) is None
