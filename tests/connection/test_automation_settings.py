"""Durations and time zones of a connection's settings: what loads can be computed with later."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from elt_assets.connection.automation import Drift, Duration, Freshness, OnCron, Retry
from elt_assets.connection.partitions import TimePartitions

DURATION: TypeAdapter[dt.timedelta] = TypeAdapter(Duration)
NUMBERS = st.one_of(
    st.integers(0, 10**30), st.floats(0, 1e30, allow_nan=False), st.just("0.0000001")
)


@given(number=NUMBERS, unit=st.sampled_from("smhdw"))
def test_a_duration_is_refused_or_leads_to_a_date(number: Any, unit: str) -> None:
    text = f"{number:f}" if isinstance(number, float) else str(number)
    try:
        duration = DURATION.validate_python(f"{text}{unit}")
    except ValidationError:
        return
    assert duration > dt.timedelta()
    assert dt.datetime.now(dt.timezone.utc) + duration < dt.datetime.max.replace(
        tzinfo=dt.timezone.utc
    )
    assert duration.total_seconds() < 2**31


@pytest.mark.parametrize(
    "value", ["99999999999w", "0s", 0, -5, 1e300, float("inf"), "6", "six hours"]
)
def test_an_impossible_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="every"):
        Drift.model_validate({"every": value})


def test_a_retry_may_follow_at_once() -> None:
    assert Retry.model_validate({"delay": 0}).delay == Retry.model_validate({"delay": "0s"}).delay
    with pytest.raises(ValidationError, match="up to 10,000 days"):
        Retry.model_validate({"delay": -1})


@pytest.mark.parametrize("zone", ["Mars/Olympus", "europe/berlin", "", "CEST", "+01:00"])
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (OnCron, {"on_cron": "0 6 * * *"}),
        (Freshness, {"cron": "0 6 * * *", "within": "1h"}),
        (TimePartitions, {"type": "daily", "start": "2026-01-01", "bind": {"start": "a"}}),
    ],
)
def test_an_unknown_time_zone_is_refused(model: Any, settings: Any, zone: str) -> None:
    assert model.model_validate({**settings, "timezone": "Europe/Berlin"})
    with pytest.raises(ValidationError, match="is not a time zone"):
        model.model_validate({**settings, "timezone": zone})
