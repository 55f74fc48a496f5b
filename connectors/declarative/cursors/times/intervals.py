"""The intervals of a date-time cursor: how the period of a read is split, and which intervals were read.

Spec: Incremental sync, "Split up interval".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from connectors.declarative.cursors.settings import Length, text_of
from connectors.declarative.manifest import components, dates
from elt_assets.errors import ConfigError

MAX_INTERVALS = 1_000_000
"""Largest number of intervals of one read: each is at least one request. Steps of a minute are 525,600 in a
year; many more are a mistake, such as a start in the year 1, and a read of them would not end."""
_ADJACENT = timedelta(milliseconds=1)
"""Distance of adjacent intervals where there is no granularity."""


@dataclass(frozen=True, order=True)
class Interval:
    """A period of time; both ends are part of it."""

    start: datetime
    end: datetime


@dataclass(frozen=True)
class Splitter:
    """Rule by which a period is split.

    Attributes:
        step: the length of an interval; None to leave the period whole.
        granularity: the distance between the end of an interval and the start of the next one; with `step`
            only.
        clamp: returns the first boundary at or after a time, where intervals begin at boundaries only.
    """

    step: Length | None = None
    granularity: Length | None = None
    clamp: Callable[[datetime], datetime] | None = None

    def split(self, start: datetime, end: datetime, *, is_last: bool = True) -> Iterator[Interval]:
        """Yield the intervals of a period, in order, without overlap or gap.

        Args:
            start: the first time of the period.
            end: the last time of the period.
            is_last: whether `end` is part of the period; without it the last interval ends before `end`.
        """
        lower = self._clamp(start)
        while lower <= end if is_last else lower < end:
            upper = self.after(lower)
            if upper is None or upper >= end:
                yield Interval(lower, end if is_last else self._subtract_granularity(end))
                return
            yield Interval(lower, self._subtract_granularity(upper))
            lower = upper

    def count(self, start: datetime, end: datetime) -> int:
        """Return the number of intervals of a period; about that number if they differ in length."""
        if start > end:
            return 0
        try:
            return 1 if self.step is None else (end - start) // (start + self.step - start) + 1
        except (OverflowError, ValueError):
            return 1

    def list_starts(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the starts of the intervals of a period. They depend on the start alone, so the intervals
        keep their starts as the period grows."""
        boundary: datetime | None = self._clamp(start)
        while boundary is not None and boundary <= end:
            yield boundary
            boundary = self.after(boundary)

    def list_fixed_starts(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the starts of the intervals of a period whose start moves with the clock. They are multiples
        of the step, counted from 1970 in UTC, or from January of the year 1 for months and years: each
        period that has an interval has it with the same start. The first one begins at or before the
        period."""
        if self.step is not None:
            starts = Splitter(self.step).list_starts(_multiple(self.step, start), end)
            yield from dict.fromkeys(
                start_of_interval
                for start_of_interval in map(self._clamp, starts)
                if start_of_interval <= end
            )

    def find_interval(self, start: datetime, end: datetime) -> Interval:
        """Return the interval that begins at a time, in a period with this end."""
        upper = self.after(start)
        return Interval(
            start, end if upper is None else min(end, self._subtract_granularity(upper))
        )

    def after(self, lower: datetime) -> datetime | None:
        """Return the start of the interval after the one that begins at a time; None if it is the last."""
        if self.step is None:
            return None
        try:
            return self._clamp(lower + self.step)
        except (OverflowError, ValueError):
            return None

    def _clamp(self, moment: datetime) -> datetime:
        return moment if self.clamp is None else self.clamp(moment)

    def _subtract_granularity(self, moment: datetime) -> datetime:
        return moment if self.granularity is None else moment - self.granularity


class Coverage:
    """The intervals that were read, of one stream or partition; adjacent ones are merged.

    Args:
        intervals: the intervals that were read before; at least one.
        granularity: the distance of adjacent intervals.

    Attributes:
        intervals: the intervals that were read.
    """

    def __init__(self, intervals: Iterable[Interval], granularity: Length | None = None):
        self._distance = granularity or _ADJACENT
        self.intervals: list[Interval] = []
        for interval in sorted(intervals):
            self.add(interval)

    @property
    def end(self) -> datetime:
        """End of the first interval: everything before it was read."""
        return self.intervals[0].end

    @property
    def start(self) -> datetime:
        """Start of the first interval."""
        return self.intervals[0].start

    def reaches(self, start: datetime) -> bool:
        """Return whether the first interval leaves no gap after a time."""
        return start + self._distance >= self.start

    def cut_at(self, moment: datetime) -> Coverage:
        """Return the coverage of what is before a time. It has at least the time right before it."""
        try:
            last = moment - self._distance
        except (OverflowError, ValueError):
            return Coverage([Interval(moment, moment)], self._distance)
        earlier = [Interval(interval.start, min(interval.end, last)) for interval in self.intervals]
        return Coverage(
            [*(interval for interval in earlier if interval.start <= last), Interval(last, last)],
            self._distance,
        )

    def fill_until(self, moment: datetime) -> Coverage:
        """Return the coverage with all the time from its start until right before a later time."""
        last = moment - self._distance
        return Coverage([Interval(min(self.start, last), last), *self.intervals], self._distance)

    def add(self, interval: Interval) -> None:
        """Add an interval that was read."""
        intervals = self.intervals
        low = bisect_left(intervals, interval.start, key=_end)
        while low > 0 and self._touch(intervals[low - 1], interval):
            low -= 1
        high = low
        while high < len(intervals) and self._touch(interval, intervals[high]):
            high += 1
        joined = [interval, *intervals[low:high]]
        merged = Interval(min(part.start for part in joined), max(map(_end, joined)))
        intervals[low:high] = [merged]

    def _touch(self, interval: Interval, other: Interval) -> bool:
        """Return whether nothing is between an interval and one that does not begin before it."""
        return interval.end >= other.start or interval.end + self._distance >= other.start


def _multiple(step: Length, moment: datetime) -> datetime:
    """Return the last multiple of a length of time that is not after a moment."""
    if isinstance(step, timedelta):
        return dates.EPOCH + (moment - dates.EPOCH) // step * step
    multiple = datetime.min.replace(tzinfo=timezone.utc)
    while (next_multiple := multiple + step) <= moment:
        multiple = next_multiple
    return multiple


def _end(interval: Interval) -> datetime:
    return interval.end


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_TARGETS = ("DAY", "WEEK", "MONTH")


class Clamp:
    """Rounds times to the begin of a day, week or month.

    Args:
        target: DAY, WEEK or MONTH.
        weekday: the first day of a week, from 0 for Monday.
    """

    def __init__(self, target: str, weekday: int = 0):
        self._target = target
        self._weekday = weekday

    @property
    def smallest(self) -> timedelta:
        """Smallest unit of time where the cursor has no granularity."""
        return timedelta(seconds=1) if self._target == "DAY" else timedelta(days=1)

    def floor(self, moment: datetime) -> datetime:
        """Return the last boundary at or before a time."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        if self._target == "MONTH":
            return day.replace(day=1)
        if self._target == "WEEK":
            return day - timedelta(days=(day.weekday() - self._weekday) % 7)
        return day

    def ceil(self, moment: datetime) -> datetime:
        """Return the first boundary at or after a time."""
        floor = self.floor(moment)
        if floor == moment:
            return moment
        if self._target == "MONTH":
            return self.floor(floor + timedelta(days=31))
        return floor + timedelta(days=7 if self._target == "WEEK" else 1)


def clamp_of(component: components.Clamping | None, config: Mapping[str, Any]) -> Clamp | None:
    """Return the boundaries that a component describes; None if there is no component.

    Raises:
        ConfigError: the boundaries are unknown.
    """
    if component is None:
        return None
    target = text_of(component.target, config)
    weekday = text_of((component.target_details or {}).get("weekday"), config)
    if target not in _TARGETS or (target == "WEEK" and weekday not in _WEEKDAYS):
        raise ConfigError(
            f"{component.place} does not name known boundaries",
            guidance="write DAY, MONTH, or WEEK with `target_details: {weekday: MONDAY}`",
        )
    return Clamp(target, _WEEKDAYS.index(weekday) if target == "WEEK" else 0)
