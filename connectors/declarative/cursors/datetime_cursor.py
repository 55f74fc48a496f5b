"""DatetimeBasedCursor: incremental reads by the date-time of a record.

Spec: Incremental sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.cursor import (
    Page,
    State,
    ValueProgress,
    warn_of_unused_state,
)
from connectors.declarative.cursors.datetime_rules import DatetimeRules, Period
from connectors.declarative.cursors.slices import (
    Slice,
)
from connectors.declarative.cursors.times.intervals import (
    Coverage,
    Interval,
)
from connectors.sdk.items import Context
from elt_assets.errors import ConfigError


class DatetimeProgress(ValueProgress):
    """One read of a stream or partition with a DatetimeCursor."""

    def __init__(self, cursor: DatetimeRules, period: Period, state: State):
        super().__init__(cursor, state)
        self._cursor: DatetimeRules = cursor
        self._period = period
        self._before, self._floor = self._find_covered()
        self._start_of_new = self._first()
        # What is read again, the last time of the state included, is not covered yet.
        self._coverage = Coverage(self._before, cursor.splitter.granularity).cut_at(
            self._start_of_new
        )
        self._first_covered = self._coverage.intervals[0]
        self._has_gap = False

    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        intervals = self._intervals() if contexts is None else self._find_intervals(contexts)
        yield from map(self._slice, intervals)

    def take(self, stream_slice: Slice, page: Page) -> Page:
        values = [record.get(self._cursor.field) for record in page]
        extremes = self._cursor.formats.extremes(values)
        if self._cursor.filters and extremes.latest is not None and extremes.earliest is not None:
            low, high = self._limits(stream_slice)
            if extremes.earliest < low or extremes.latest > high:
                is_wanted = [self._is_within(value, low, high) for value in values]
                page = [record for record, is_kept in zip(page, is_wanted, strict=True) if is_kept]
                values_within = [
                    value for value, is_kept in zip(values, is_wanted, strict=True) if is_kept
                ]
                extremes = self._cursor.formats.extremes(values_within)
        self.warnings.extend(self._gap_after(stream_slice.origin, extremes.latest))
        self.see(extremes.latest, extremes.missing)
        return page

    def is_past(self, stream_slice: Slice, page: Page) -> bool:
        if not self._cursor.is_feed:
            return False
        for record in reversed(page):
            moment = self._cursor.formats.moment(record.get(self._cursor.field))
            if moment is not None:
                return moment < self._limits(stream_slice)[0]
        return False

    def close(self, stream_slice: Slice) -> None:
        self._coverage.add(stream_slice.origin)

    @property
    def value(self) -> datetime | None:
        """The time up to which everything was read. It is never later than the time of this read, unless the
        state of the read before was; and never later than the last record where requests carry no end."""
        if not self.is_advanced:
            return self._cursor.value_in(self._saved)
        is_complete = self._coverage.end >= self._period.end
        has_end = self._cursor.sends_end and not self._cursor.is_feed
        end_of_read = self._coverage.end if has_end else self._floor
        if self._highest is not None and (is_complete or not has_end):
            last = self._highest if is_complete else min(self._highest, self._coverage.end)
            end_of_read = max(end_of_read, last)
        return max(self._floor, min(end_of_read, self._period.read_start))

    @property
    def is_advanced(self) -> bool:
        """Return whether one value can record what was read: it leaves no gap after the start."""
        has_grown = self._coverage.intervals[0] != self._first_covered
        return has_grown and self._coverage.reaches(self._period.start)

    def _find_covered(self) -> tuple[list[Interval], datetime]:
        """Return the intervals that were read before, and the least value of the state after this read."""
        start = self._period.start
        covered = self._cursor.read_intervals(self._saved)
        if covered:
            before = Coverage(covered, self._cursor.splitter.granularity)
            if before.start < start:  # what is before the start is not read
                before = before.fill_until(start)
            return before.intervals, before.end if before.reaches(start) else start
        value = self._cursor.value_in(self._saved)
        if value is None:
            self.warnings.extend(warn_of_unused_state(self._cursor.field, self._saved))
        end = start if value is None else max(start, value)
        return [Interval(start, end)], end

    def _intervals(self) -> Iterator[Interval]:
        """Yield the intervals to read: the time before those that were read, the gaps between them, and the
        time after them; the lookback window is a part of it.

        Raises:
            ConfigError: there are too many of them. None was read then.
        """
        period, split = self._period, self._cursor.splitter.split
        gaps = list(self._gaps())
        self._cursor.check_number([gap[:2] for gap in gaps] + [(self._start_of_new, period.end)])
        for start, end, is_last in gaps:
            yield from split(start, end, is_last=is_last)
        if self._start_of_new > period.end:
            self._warn_of_end(self._start_of_new)
            return
        for interval in split(self._start_of_new, period.end):
            is_last = interval.end >= period.end
            if not (self._cursor.is_strict and is_last and self._is_empty(interval)):
                yield interval

    def _gaps(self) -> Iterator[tuple[datetime, datetime, bool]]:
        """Yield what was not read before and between the intervals that were read: the start, the end, and
        whether the end is a part of it. It is none if it is the start of such an interval."""
        period, granularity = self._period, self._cursor.splitter.granularity
        starts = [period.start]
        for interval in self._before[:-1]:
            lower = interval.end if granularity is None else interval.end + granularity
            starts.append(max(lower, period.start))
        for start, next_interval in zip(starts, self._before, strict=True):
            if start < next_interval.start:
                is_last = next_interval.start > period.end
                yield start, min(next_interval.start, period.end), is_last

    def _gap_after(self, interval: Interval, latest: datetime | None) -> list[str]:
        """Return a new warning about records between an interval and the next one, if there is a next one."""
        has_next = interval.end < self._period.end
        gap = self._cursor.gap_after(interval, latest) if has_next and not self._has_gap else None
        self._has_gap = self._has_gap or gap is not None
        return [] if gap is None else [gap]

    def _first(self) -> datetime:
        """Return the time after that which was read, less the lookback window. Of a day, week or month of the
        clamping that was read in part, it is the beginning."""
        period, clamp, lookback = self._period, self._cursor.clamp, self._cursor.lookback
        start = max(self._subtract_lookback(self._before[-1].end), period.start)
        if clamp is None:
            return start
        granularity = self._cursor.splitter.granularity or clamp.smallest
        try:
            next_start = start + granularity if lookback is None else start
        except (OverflowError, ValueError):  # the last day of the calendar
            next_start = start
        return max(clamp.floor(next_start), period.start)

    def _subtract_lookback(self, moment: datetime) -> datetime:
        if self._cursor.lookback is None:
            return moment
        try:
            return moment - self._cursor.lookback
        except (OverflowError, ValueError):
            return self._period.start

    def _warn_of_end(self, lower: datetime) -> None:
        clamp, read_start = self._cursor.clamp, self._period.read_start
        if clamp is not None and lower <= clamp.ceil(
            read_start
        ):  # its day, week or month is not over
            return
        format_time = self._cursor.format.format
        self.warnings.append(
            f"nothing is read: the cursor {self._cursor.field!r} begins at {format_time(lower)}, after the "
            f"end of the period to read, {format_time(self._period.end)}"
        )

    def _find_intervals(self, contexts: Iterable[Context]) -> Iterator[Interval]:
        for context in contexts:
            start = self._cursor.start_in(context)
            if start is None:
                raise ConfigError(
                    f"{context!r} is not an interval of the stream",
                    guidance="run `partitions` to see its intervals",
                )
            if start <= self._period.end:
                yield self._cursor.splitter.find_interval(start, self._period.end)

    def _slice(self, interval: Interval) -> Slice:
        ends = (interval.start, interval.end)
        times = map(self._cursor.format.format, ends)
        return Slice(interval=dict(zip(self._cursor.names, times, strict=True)), origin=interval)

    def _is_empty(self, interval: Interval) -> bool:
        format_time = self._cursor.format.format
        return format_time(interval.start) == format_time(interval.end)

    def _limits(self, stream_slice: Slice) -> tuple[datetime, datetime]:
        """Return the first and the last time of the records of a slice. The first one is that of its request:
        the format may cut off the time of a day. The last one is right before the next slice, or the end of
        the period."""
        interval: Interval = stream_slice.origin
        low = (
            self._cursor.format.moment(stream_slice.interval[self._cursor.names[0]])
            or interval.start
        )
        if interval.end >= self._period.end:
            return low, interval.end
        granularity = self._cursor.splitter.granularity or timedelta(0)
        return low, interval.end + granularity - timedelta(microseconds=1)

    def _is_within(self, value: Any, low: datetime, high: datetime) -> bool:
        moment = self._cursor.formats.moment(value)
        return moment is None or low <= moment <= high


class DatetimeCursor(DatetimeRules):
    """The cursor that a DatetimeBasedCursor describes."""

    def begin_within(self, bounds: Period, state: State) -> DatetimeProgress:
        return DatetimeProgress(self, bounds, state)
