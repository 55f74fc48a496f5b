"""Windows of partitions in every time zone: they leave no gap and do not overlap, whatever the format."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.connection.partitions import Bind, TimePartitions
from elt_assets.orchestration.partitions import (
    config_for_partition,
    config_for_window,
    definition,
    parse_window,
)

UTC = dt.timezone.utc
FIRST, LAST = dt.datetime(1996, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC)
KINDS = {
    "hourly": dt.timedelta(hours=5),
    "daily": dt.timedelta(days=3),
    "weekly": dt.timedelta(days=15),
    "monthly": dt.timedelta(days=62),
}
"""The kinds of windows, and the time before and after a change of the clock that is tested."""


class Style(NamedTuple):
    """A format, its unit, and how a source reads its values. Without `read`, the values are local times."""

    format: str
    unit: dt.timedelta
    read: Callable[[Any], dt.datetime] | None = None


def _parse(style: str) -> Callable[[Any], dt.datetime]:
    return lambda text: dt.datetime.strptime(text, style)  # noqa: DTZ007 - the styles have a zone


def _epoch(unit: str) -> Callable[[Any], dt.datetime]:
    return lambda number: dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(**{unit: number})


SECOND, DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)
ABSOLUTE = [
    Style("%s", SECOND, _epoch("seconds")),
    Style("%ms", dt.timedelta(milliseconds=1), _epoch("milliseconds")),
    Style("%Y-%m-%dT%H:%M:%S%z", SECOND, _parse("%Y-%m-%dT%H:%M:%S%z")),
    Style("%Y-%m-%dT%H:%M:%SZ", SECOND, _parse("%Y-%m-%dT%H:%M:%S%z")),
    Style("%Y%m%dT%H%M%S.%f+00:00", dt.timedelta(microseconds=1), _parse("%Y%m%dT%H%M%S.%f%z")),
    Style("%Y-%m-%d %H:%M-0830", dt.timedelta(minutes=1), _parse("%Y-%m-%d %H:%M%z")),
]
LOCAL = [
    Style("%Y-%m-%dT%H:%M:%S", SECOND),
    Style("%Y-%m-%d %H:%M", dt.timedelta(minutes=1)),
    Style("%Y-%m-%d", DAY),
]


@cache
def changes(zone: str) -> list[dt.datetime]:
    """Return the instants of thirty years at which the offset of a zone changes."""
    return list(_changes(ZoneInfo(zone)))


def _changes(zone: ZoneInfo) -> Iterator[dt.datetime]:
    moment = FIRST
    while moment < LAST:
        later = moment + dt.timedelta(days=7)
        before = moment.astimezone(zone).utcoffset()
        if later.astimezone(zone).utcoffset() != before:
            minutes = range(7 * 24 * 60)
            number = bisect.bisect_left(
                minutes,
                1,
                key=lambda n: (
                    (moment + dt.timedelta(minutes=n)).astimezone(zone).utcoffset() != before
                ),
            )
            yield moment + dt.timedelta(minutes=number)
        moment = later


class Windows:
    """The partitions around an instant, and the values that each writes into the source's config."""

    def __init__(self, zone: str, kind: str, around: dt.datetime):
        start = (around - KINDS[kind]).astimezone(ZoneInfo(zone))
        start = start.replace(tzinfo=None, minute=0, second=0, microsecond=0, fold=0)
        self._settings: dict[str, Any] = {
            "type": kind,
            "timezone": zone,
            "start": start if kind == "hourly" else start.replace(hour=0),
        }
        self.zone, self.kind = ZoneInfo(zone), kind
        windows = definition(self._partitions(Style("%s", SECOND), inclusive=False), "name")
        assert isinstance(windows, dg.TimeWindowPartitionsDefinition)
        self._definition = windows
        end = around + KINDS[kind]
        last = windows.get_prev_partition_window(end, respect_bounds=False)
        first = windows.get_next_partition_window(windows.start, respect_bounds=False)
        assert first is not None and last is not None
        self.keys = list(
            windows.get_partition_keys_in_time_window(dg.TimeWindow(first.start, last.end))
        )

    def values(self, style: Style, *, inclusive: bool) -> list[tuple[Any, Any]]:
        """Return the values for the start and the end of each partition."""
        configured = self._partitions(style, inclusive=inclusive)
        configs = [config_for_partition({}, configured, self._definition, key) for key in self.keys]
        return [(config["from"], config["to"]) for config in configs]

    def _partitions(self, style: Style, *, inclusive: bool) -> TimePartitions:
        bind = {"start": "from", "end": "to", "format": style.format, "inclusive": inclusive}
        return TimePartitions.model_validate({**self._settings, "bind": bind})


def check_windows(zone: str, kind: str, around: dt.datetime) -> None:
    """Check the windows around an instant in all formats, with inclusive and with exclusive ends."""
    windows = Windows(zone, kind, around)
    instants = windows.values(ABSOLUTE[0], inclusive=False)
    edges = [dt.datetime.fromtimestamp(start, UTC) for start, _ in instants]
    edges.append(dt.datetime.fromtimestamp(instants[-1][1], UTC))
    assert len(set(windows.keys)) == len(windows.keys)
    assert edges[0] < around < edges[-1], "the windows begin and end where they should"
    for style in ABSOLUTE:
        exclusive = windows.values(style, inclusive=False)
        assert style.read is not None
        read = [(style.read(start), style.read(end)) for start, end in exclusive]
        assert read == list(itertools.pairwise(edges)), (style, windows.keys)
        for (start, _), (again, last), end in zip(
            exclusive, windows.values(style, inclusive=True), edges[1:], strict=True
        ):
            assert again == start
            assert style.read(last) == end - style.unit
    for style in LOCAL:
        if kind != "hourly" or style.unit != DAY:
            for inclusive in (False, True):
                _check_local(windows, style, edges, inclusive=inclusive)


def _check_local(
    windows: Windows, style: Style, edges: list[dt.datetime], *, inclusive: bool
) -> None:
    """Check what a source returns that compares local times as texts."""
    values = windows.values(style, inclusive=inclusive)
    step = max((edges[-1] - edges[0]) / 100, dt.timedelta(minutes=1))
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        samples = {low, high - SECOND, *(low + step * n for n in range(int((high - low) / step)))}
        for instant in sorted(sample for sample in samples if low <= sample < high):
            local = instant.astimezone(windows.zone)
            text = local.strftime(style.format)
            readers = [
                place
                for place, (start, end) in enumerate(values)
                if start <= text and (text <= end if inclusive else text < end)
            ]
            is_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
            assert readers, (instant, text, values)
            assert is_twice or readers == [number], (instant, text, values)
            if windows.kind == "hourly":
                assert number in readers, (instant, text, values)


@st.composite
def zones_and_instants(draw: st.DrawFn) -> tuple[str, dt.datetime]:
    zone = draw(st.sampled_from(sorted(available_timezones())))
    hours = draw(st.integers(0, int((LAST - FIRST) / dt.timedelta(hours=1))))
    instants = st.just(FIRST + dt.timedelta(hours=hours))
    if changes(zone):
        instants |= st.sampled_from(changes(zone))
    return zone, draw(instants)


@settings(max_examples=40, deadline=None)
@given(zones_and_instants(), st.sampled_from(sorted(KINDS)))
def test_windows_are_disjoint_and_complete(place: tuple[str, dt.datetime], kind: str) -> None:
    check_windows(place[0], kind, place[1])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    ("zone", "year"),
    [
        ("America/Los_Angeles", 2023),
        ("Australia/Lord_Howe", 2024),
        ("America/St_Johns", 2010),
        ("America/Havana", 2022),
        ("America/Sao_Paulo", 2018),
        ("America/Caracas", 2016),
        ("Africa/Casablanca", 2024),
        ("Antarctica/Troll", 2020),
        ("Pacific/Apia", 2011),
    ],
)
def test_windows_where_the_clock_changes(zone: str, year: int, kind: str) -> None:
    """Half hours, changes at midnight and at 00:01, two hours at once, a day that was left out."""
    for instant in changes(zone):
        if instant.year == year:
            check_windows(zone, kind, instant)


@cache
def hours(zone: str) -> str:
    """Return the schedule of the hours of a zone."""
    bind = {"start": "from", "end": "to", "format": "%s"}
    configured = {"type": "hourly", "timezone": zone, "start": FIRST, "bind": bind}
    hourly = definition(TimePartitions.model_validate(configured), "name")
    assert isinstance(hourly, dg.TimeWindowPartitionsDefinition)
    return hourly.cron_schedule


def surroundings(zone: str, kind: str, around: dt.datetime) -> tuple[Any, ...]:
    """Return all of a zone that windows around an instant depend on: its offset, the changes near it, and
    which schedule its hours have."""
    reach = 2 * KINDS[kind]
    near = [instant for instant in changes(zone) if abs(instant - around) <= reach]
    offsets = [moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in (around - reach, *near)]
    return kind, around, hours(zone), tuple(near), tuple(offsets)


@pytest.mark.long
def test_windows_at_each_change_of_each_zone() -> None:
    """Zones that are alike near a change are tried once: about 90 CPU seconds."""
    trials: dict[Any, tuple[str, str, dt.datetime]] = {}
    for zone in sorted(available_timezones()):
        for kind in KINDS:
            for instant in changes(zone) or [LAST]:
                trials.setdefault(surroundings(zone, kind, instant), (zone, kind, instant))
    for trial in trials.values():
        check_windows(*trial)


def test_the_two_hours_of_one_local_time_are_both_read_by_either_partition() -> None:
    windows = Windows("America/Los_Angeles", "hourly", dt.datetime(2023, 11, 5, 9, tzinfo=UTC))
    texts = dict(zip(windows.keys, windows.values(LOCAL[1], inclusive=False), strict=True))
    assert texts["2023-11-05-01:00"] == ("2023-11-05 01:00", "2023-11-05 02:00")
    assert texts["2023-11-05-01:00-0800"] == ("2023-11-05 01:00", "2023-11-05 02:00")
    assert texts["2023-11-05-00:00"] == ("2023-11-05 00:00", "2023-11-05 01:00")


@pytest.mark.parametrize(
    ("style", "inclusive", "end", "value"),
    [
        ("%Y-%m-%d", False, "2026-01-03T12:00:00", "2026-01-04"),
        ("%Y-%m-%d", True, "2026-01-03T12:00:00", "2026-01-03"),
        ("%Y-%m-%d", True, "2026-01-03", "2026-01-02"),
        ("%Y-%m-%d", False, "2026-01-03", "2026-01-03"),
        ("%Y-%m-%dT%HZ", False, "2026-01-03T12:00:01+01:00", "2026-01-03T12Z"),
        ("%s", False, "2026-01-01T00:00:00.5Z", 1767225601),
        ("id%s", False, "2026-01-01T00:00:01Z", "id1767225601"),
    ],
)
def test_the_window_of_a_run_is_not_cut_by_its_format(
    style: str, inclusive: bool, end: str, value: Any
) -> None:
    bind = Bind.model_validate({"end": "to", "format": style, "inclusive": inclusive})
    first, last = parse_window("2025-12-31", end)
    assert config_for_window({}, bind, first, last) == {"to": value}


def test_a_format_that_cannot_tell_two_windows_apart_is_refused() -> None:
    bind = {"start": "from", "end": "to", "format": "%Y-%m-%d"}
    with pytest.raises(ValueError, match="writes the same value, '2024-01-01', for the start and"):
        TimePartitions.model_validate({"type": "hourly", "start": "2026-01-01", "bind": bind})
