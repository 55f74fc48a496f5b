"""Splitting a period into intervals: no overlap, no gap, and what was read of it."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.times.formats import DatetimeFormat
from connectors.declarative.cursors.times.intervals import Clamp, Coverage, Interval, Splitter
from connectors.sdk.times import parse_duration
from tests.connectors.declarative.cursors.support import moment

pytestmark = pytest.mark.unit

DAY = timedelta(days=1)
GRANULARITIES = {
    "PT0.000001S": "%Y-%m-%dT%H:%M:%S.%fZ",
    "PT0.001S": "%ms",
    "PT1S": "%s",
    "PT1M": "%Y-%m-%dT%H:%MZ",
    "PT1H": "%Y-%m-%dT%H",
    "P1D": "%Y-%m-%d",
}
STEPS = ["PT0.5S", "PT1S", "PT7M", "PT1H", "P1D", "P10D", "P1W", "P1M", "P3M", "P1Y", "P1Y2M3DT4H"]


@st.composite
def periods(draw: Any) -> tuple[datetime, datetime, Any, timedelta, str]:
    """A period of at most 200 steps, whose ends are multiples of the granularity."""
    granularity, written = draw(st.sampled_from(sorted(GRANULARITIES.items())))
    length = parse_duration(granularity)
    assert isinstance(length, timedelta)
    origin = datetime(2000, 1, 1, tzinfo=timezone.utc)
    steps = [parse_duration(step) for step in STEPS]
    step = draw(
        st.sampled_from([step for step in steps if origin + length <= origin + step])
        | st.integers(1, 50).map(lambda number: number * length)
    )
    if draw(st.booleans()):  # a step that is no multiple of the granularity has no grid
        step = length * draw(st.integers(1, 50))
    start = origin + draw(st.integers(0, 9000)) * length
    longest = timedelta(days=90_000)
    spans = draw(st.integers(0, min(longest, 200 * ((start + step) - start)) // length))
    return start, start + spans * length, step, length, written


@pytest.mark.spec("builder.21")
@settings(deadline=None)
@given(periods())
def test_intervals_cover_the_period_without_overlap_or_gap(
    drawn: tuple[datetime, datetime, Any, timedelta, str],
) -> None:
    start, end, step, granularity, _ = drawn
    found = list(Splitter(step, granularity).split(start, end))
    assert found[0].start == start
    assert found[-1].end == end
    assert all(each.start <= each.end for each in found)
    for one, other in itertools.pairwise(found):
        assert one.end + granularity == other.start
        assert other.start == one.start + step


@settings(deadline=None)
@given(periods())
def test_intervals_as_they_are_sent_cover_the_period_too(
    drawn: tuple[datetime, datetime, Any, timedelta, str],
) -> None:
    start, end, step, granularity, written = drawn
    if ((start + step) - start) % granularity:
        return
    form = DatetimeFormat(written)
    sent = [
        (form.parse(form.format(each.start)), form.parse(form.format(each.end)))
        for each in Splitter(step, granularity).split(start, end)
    ]
    assert (sent[0][0], sent[-1][1]) == (start, end)
    assert all(one[1] + granularity == other[0] for one, other in itertools.pairwise(sent))


@settings(deadline=None)
@given(periods())
def test_a_period_that_another_one_follows_ends_before_it(
    drawn: tuple[datetime, datetime, Any, timedelta, str],
) -> None:
    start, end, step, granularity, _ = drawn
    found = list(Splitter(step, granularity).split(start, end, is_last=False))
    assert bool(found) == (start < end)
    if found:
        assert (found[0].start, found[-1].end) == (start, end - granularity)


def ends(found: list[Interval]) -> list[tuple[str, str]]:
    return [(f"{each.start:%Y-%m-%d}", f"{each.end:%Y-%m-%d}") for each in found]


def test_months_begin_on_the_day_of_the_one_before_if_they_have_it() -> None:
    splitter = Splitter(parse_duration("P1M"), DAY)
    found = list(splitter.split(moment("2024-01-31"), moment("2024-05-01")))
    assert ends(found) == [
        ("2024-01-31", "2024-02-28"),
        ("2024-02-29", "2024-03-28"),
        ("2024-03-29", "2024-04-28"),
        ("2024-04-29", "2024-05-01"),
    ]


def test_a_period_without_a_step_is_one_interval() -> None:
    assert ends(list(Splitter().split(moment("2020-01-01"), moment("2024-01-01")))) == [
        ("2020-01-01", "2024-01-01")
    ]


def test_a_start_that_is_the_end_is_one_interval_and_a_later_one_is_none() -> None:
    splitter = Splitter(DAY, DAY)
    assert ends(list(splitter.split(moment("2024-01-01"), moment("2024-01-01")))) == [
        ("2024-01-01", "2024-01-01")
    ]
    assert list(splitter.split(moment("2024-01-02"), moment("2024-01-01"))) == []


def test_a_step_beyond_all_dates_ends_at_the_end() -> None:
    splitter = Splitter(parse_duration("P9000Y"), DAY)
    assert len(list(splitter.split(moment("2024-01-01"), moment("2025-01-01")))) == 1
    assert (
        len(list(Splitter(timedelta.max, DAY).split(moment("2024-01-01"), moment("2025-01-01"))))
        == 1
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=30),
    st.sampled_from([1, 2, 5]),
)
def test_coverage_is_the_union_of_what_was_read(read: list[tuple[int, int]], unit: int) -> None:
    origin = moment("2024-01-01")
    pairs = [(start * unit, (start + length) * unit) for start, length in read]
    found = [Interval(origin + a * DAY, origin + b * DAY) for a, b in pairs]
    coverage = Coverage(found[:1], unit * DAY)
    for each in found[1:]:
        coverage.add(each)
    days = {day for a, b in pairs for day in range(a, b + 1, unit)}
    first = min(days)
    while first + unit in days:
        first += unit
    assert coverage.start == origin + min(days) * DAY
    assert coverage.end == origin + first * DAY
    assert coverage.intervals[-1].end == origin + max(days) * DAY
    for one, other in itertools.pairwise(coverage.intervals):
        end, start = one.end, other.start
        between = range((end - origin).days + unit, (start - origin).days, unit)
        assert between and not days & set(between)


@pytest.mark.parametrize(
    ("clamp", "at", "floor", "ceil"),
    [
        (Clamp("DAY"), "2024-02-29T05:00:00", "2024-02-29", "2024-03-01"),
        (Clamp("DAY"), "2024-02-29T00:00:00", "2024-02-29", "2024-02-29"),
        (Clamp("MONTH"), "2024-01-31T00:00:00", "2024-01-01", "2024-02-01"),
        (Clamp("MONTH"), "2024-12-02T00:00:00", "2024-12-01", "2025-01-01"),
        (Clamp("MONTH"), "2024-12-01T00:00:00", "2024-12-01", "2024-12-01"),
        (Clamp("WEEK", 0), "2024-01-31T00:00:00", "2024-01-29", "2024-02-05"),
        (Clamp("WEEK", 2), "2024-01-31T00:00:00", "2024-01-31", "2024-01-31"),
        (Clamp("WEEK", 3), "2024-01-31T00:00:00", "2024-01-25", "2024-02-01"),
    ],
)
def test_boundaries_are_the_first_moments_of_days_weeks_and_months(
    clamp: Clamp, at: str, floor: str, ceil: str
) -> None:
    assert clamp.floor(moment(at)) == moment(floor)
    assert clamp.ceil(moment(at)) == moment(ceil)
