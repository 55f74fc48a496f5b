"""Dates and durations of templates."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.declarative.manifest.dates import (
    UTC,
    format_datetime,
    parse_datetime,
    parse_iso,
)
from connectors.sdk.times import Duration, parse_duration

moments = st.datetimes(
    min_value=datetime(1000, 1, 1),  # noqa: DTZ001 - the zone is added
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
EXACT = ("%epoch_microseconds", "%Y-%m-%dT%H:%M:%S.%f%z")


@given(moments, st.sampled_from(EXACT))
def test_an_exact_format_is_read_as_it_was_written(moment: datetime, written: str) -> None:
    assert parse_datetime(format_datetime(moment, written), written) == moment


@given(moments)
@example(datetime(3059, 1, 1, 0, 0, 0, 999997, tzinfo=UTC))
def test_a_coarse_format_loses_what_it_does_not_show(moment: datetime) -> None:
    seconds = moment.replace(microsecond=0)
    millis = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    if moment.year >= 1970:
        assert parse_datetime(format_datetime(moment, "%s"), "%s") == seconds
        assert parse_datetime(format_datetime(moment, "%ms"), "%ms") == millis
    written = format_datetime(moment, "%Y %j %H:%M:%S.%_ms")
    assert parse_datetime(written, "%Y %j %H:%M:%S.%_ms") == millis


@given(moments, st.integers(-14 * 60, 14 * 60))
def test_iso_is_read_with_any_offset(moment: datetime, minutes: int) -> None:
    local = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert parse_iso(local.isoformat()) == moment
    assert parse_iso(moment.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)) == moment.replace(
        microsecond=0
    )
    assert parse_iso(moment.replace(tzinfo=None).isoformat(" ")) == moment
    assert parse_iso(moment.date().isoformat()) == moment.replace(
        hour=0, minute=0, second=0, microsecond=0
    )


@pytest.mark.parametrize(
    "text", ["20220114", "2022-01-14T10:00Z", "2022-01-14T100000+0200", "2022-W02-5"]
)
def test_the_other_forms_of_iso_are_read(text: str) -> None:
    assert parse_iso(text).date() == date(2022, 1, 14)


@pytest.mark.parametrize("text", ["", "yesterday", "2022-13-01", "2022-01-01T25:00:00"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_iso(text)


def test_epoch_formats_do_not_depend_on_the_zone() -> None:
    at = datetime(2022, 1, 14, 2, tzinfo=timezone(timedelta(hours=2)))
    assert format_datetime(at, "%s") == "1642118400"
    assert format_datetime(at, "%s_as_float") == "1642118400.0"
    assert format_datetime(at, "at %s, 100%%s") == "at 1642118400, 100%s"
    assert parse_datetime("1642118400.5", "%s_as_float") == datetime(
        2022, 1, 14, 0, 0, 0, 500_000, UTC
    )
    assert parse_datetime(1642118400, "%s") == datetime(2022, 1, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", timedelta(days=1)),
        ("PT30M", timedelta(minutes=30)),
        ("P1W", timedelta(weeks=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("-P1D", timedelta(days=-1)),
        ("P0D", timedelta(0)),
        ("P1M", Duration(1)),
        ("P1Y2M3D", Duration(14, timedelta(days=3))),
        ("-P1Y", Duration(-12)),
    ],
)
def test_a_duration_is_read(text: str, expected: timedelta | Duration) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "1D", "P1H", "PT1D", "P1.5M", "P-1D", "day"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_months_are_added_by_the_calendar() -> None:
    end = datetime(2024, 3, 31, 5, tzinfo=UTC)
    assert end - Duration(1) == datetime(2024, 2, 29, 5, tzinfo=UTC)
    assert end + Duration(12) == datetime(2025, 3, 31, 5, tzinfo=UTC)
    assert Duration(1, timedelta(days=1)) + date(2024, 1, 31) == date(2024, 3, 1)
    assert date(2024, 1, 31) - Duration(2) == date(2023, 11, 30)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9))
def test_durations_can_be_computed_with(one: int, other: int, factor: int) -> None:
    a, b = Duration(one, timedelta(days=other)), Duration(other, timedelta(days=one))
    assert a + b == b + a
    assert a - b == -(b - a)
    assert a * factor == factor * a
    assert (a + timedelta(1)) - timedelta(1) == a


def test_a_duration_has_a_text() -> None:
    assert str(Duration(14, timedelta(days=1))) == "1 years, 2 months, 1 day, 0:00:00"
    assert str(Duration(1)) == "1 month, 0:00:00"
