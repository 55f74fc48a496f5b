"""DatetimeBasedCursor: incremental reads by the date-time of a record.

Spec: Incremental sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.cursor import (
    Page,
    State,
    ValueCursor,
    ValueProgress,
    warn_of_unused_state,
)
from connectors.declarative.cursors.settings import Length
from connectors.declarative.cursors.slices import (
    END_NAME,
    Slice,
    place_if_any,
)
from connectors.declarative.cursors.times.formats import DatetimeFormat, DatetimeFormats
from connectors.declarative.cursors.times.intervals import (
    MAX_INTERVALS,
    Coverage,
    Interval,
    Splitter,
    clamp_of,
)
from connectors.declarative.manifest import clock, components
from connectors.sdk.items import Context
from elt_assets.errors import ConfigError

_REFERENCE = datetime(2001, 1, 1)  # noqa: DTZ001 - durations are compared after this day
_LATER = timedelta(days=3_661)
"""Time after which the start of a stream is compared, to know whether it moves."""
_SLICES = "slices"
_STATE_TYPE = "state_type"


@dataclass(frozen=True)
class Period:
    """The limits of one read.

    Attributes:
        start: the earliest time to read, as the manifest or the config has it.
        end: the last time to read.
        read_start: the time at which the read began.
    """

    start: datetime
    end: datetime
    read_start: datetime


class DatetimeCursor(ValueCursor[Period]):
    """The cursor that a DatetimeBasedCursor describes.

    Args:
        component: the component.
        config: the config of the source.
        cursor_field: the cursor field of the configured stream, as for `ValueCursor`.
        sync_start: the time when the sync began: no state is later. None for the time of each read.
        sends_end: whether requests carry the end of the interval. Otherwise no state is later than the last
            record.

    Raises:
        ConfigError: the component, or a value of the config that it uses, is not valid.
    """

    def __init__(
        self,
        component: components.DatetimeBasedCursor,
        config: Mapping[str, Any],
        cursor_field: str | None = None,
        sync_start: datetime | None = None,
        *,
        sends_end: bool = True,
    ):
        super().__init__(component, config, cursor_field)
        self.sends_end = sends_end
        self._sync_start = sync_start
        format_text = self._settings.require("datetime_format")
        self.format = DatetimeFormat(format_text)
        formats = component.cursor_datetime_formats or ()
        self.formats = DatetimeFormats([*formats, format_text])
        self._written_formats = DatetimeFormats([format_text, *formats])
        self._saved_format = self.format.make_state_format()
        self._saved_formats = DatetimeFormats([self._saved_format, *formats])
        self.names = (
            self._settings.text("partition_field_start") or "start_time",
            self._settings.text("partition_field_end") or END_NAME,
        )
        self.is_feed = bool(component.is_data_feed)
        self.filters = self.is_feed or bool(component.is_client_side_incremental)
        self.is_strict = bool(component.is_compare_strictly)
        self.lookback = self._lookback()
        self.clamp = clamp_of(component.clamping, config)
        self.splitter = self._splitter()
        written_places = (component.start_time_option, component.end_time_option)
        places = [place_if_any(place, config) for place in written_places]
        self.places = dict(zip(self.names, places, strict=True))

    def bounds(self) -> Period:
        read_start = self._sync_start or clock.now()
        start, end = self._start(), self._end(read_start)
        if self.clamp is not None:
            start = self.clamp.ceil(start)
            end = self.clamp.floor(end) - (self.splitter.granularity or self.clamp.smallest)
        return Period(start, end, read_start)

    def begin_within(self, bounds: Period, state: State) -> DatetimeProgress:
        return DatetimeProgress(self, bounds, state)

    def write(self, value: datetime) -> str:
        return self._saved_format.format(value)

    def subtract(self, value: datetime, seconds: int) -> datetime:
        return value - timedelta(seconds=seconds)

    def value_in(self, state: State) -> datetime | None:
        covered = self.read_intervals(state)
        if covered:
            return covered[0].end
        value = state.get(self.field)
        return None if value is None or value == "" else self.parse_saved(value)

    def lacks_overlap(self) -> bool:
        """Return whether the state is the present time and the next read begins there, without an overlap."""
        read_start = self._sync_start or clock.now()
        is_end = self.sends_end and not self.is_feed and self.lookback is None
        return is_end and self._end(read_start) >= self.format.parse(self.format.format(read_start))

    def contexts(self) -> Iterator[Context] | None:
        """Return the intervals, by their starts; None if the stream is not read in intervals.

        They count from the start of the stream. If that moves with the clock, they count from a fixed time,
        so that the same intervals are listed again; the first one then begins before the start.
        """
        if self.splitter.step is None or self.is_feed:
            return None
        period = self.bounds()
        self.check_number([(period.start, period.end)])
        split = (
            self.splitter.list_fixed_starts if self._is_relative() else self.splitter.list_starts
        )
        starts = split(period.start, period.end)
        return ({self.names[0]: self.format.format(start)} for start in starts)

    def check_number(self, periods: Sequence[tuple[datetime, datetime]]) -> None:
        """Check that some periods, each a start and an end, have no more intervals than can be read.

        Raises:
            ConfigError: they have more.
        """
        number = sum(self.splitter.count(*period) for period in periods)
        if number > MAX_INTERVALS:
            start, end = min(map(min, periods)), max(map(max, periods))
            raise ConfigError(
                f"{self._settings.place('step')} is {self._settings.text('step')!r}: from "
                f"{start.isoformat()} to {end.isoformat()} that is {number:,} intervals, and a read has at "
                f"most {MAX_INTERVALS:,}",
                guidance="correct the start or the end, in most cases a date of the config, or write a "
                "longer `step`",
            )

    def gap_after(self, interval: Interval, latest: datetime | None) -> str | None:
        """Return a warning if a record with a value like a found one may be in no interval: after the end of
        this one, and before the start of the next one. An end that has only a day is the whole day."""
        granularity = self.splitter.granularity
        if latest is None or not (isinstance(granularity, timedelta) and self.sends_end):
            return None
        request_start = self.format.moment(self.format.format(interval.start)) or interval.start
        if (latest - request_start) % granularity == timedelta(0) or not self.format.has_time:
            return None
        return (
            f"the cursor field {self.field!r} has values between two periods: {self.place} ends a period "
            f"{self._settings.text('cursor_granularity')} before the next one begins, and a record in "
            "between is read only if the API takes the end for the whole of that time. If it does not, write "
            "`cursor_granularity: PT0S`, so that periods share their ends, and use `append_dedup`"
        )

    def read_intervals(self, state: State) -> list[Interval]:
        """Return the intervals that a state lists; none if it lists no intervals.

        Raises:
            ConfigError: an interval is not valid.
        """
        if _STATE_TYPE not in state:
            return []
        try:
            return sorted(
                Interval(self.parse_saved(interval["start"]), self.parse_saved(interval["end"]))
                for interval in state.get(_SLICES) or []
            )
        except (KeyError, TypeError):
            raise self._unusable(state.get(_SLICES)) from None

    def parse_saved(self, value: Any) -> datetime:
        """Return a value of a state.

        Raises:
            ConfigError: it is not a date-time.
        """
        try:
            return self._saved_formats.parse(value)
        except ValueError:
            raise self._unusable(value) from None

    def start_in(self, context: Context) -> datetime | None:
        """Return the start of an interval as `contexts` lists it; None if the context is not one."""
        if set(context) != {self.names[0]} or self.splitter.step is None:
            return None
        return self._written_formats.moment(context[self.names[0]])

    def _start(self) -> datetime:
        return self._settings.moment("start_datetime", self.format.text)

    def _end(self, read_start: datetime) -> datetime:
        has_end = self._component.end_datetime is not None
        return self._settings.moment("end_datetime", self.format.text) if has_end else read_start

    def _is_relative(self) -> bool:
        """Return whether the start moves with the clock, now or later."""
        read_start = clock.now()
        with clock.frozen(read_start):
            start = self._start()
        with clock.frozen(read_start + _LATER):
            return self._start() != start

    def _unusable(self, value: Any) -> ConfigError:
        return ConfigError(
            f"the state of the cursor {self.field!r} has {value!r}, which does not have the format "
            f"{self.formats} ({self.place})",
            guidance="correct the state, or reset it to read the stream from the beginning",
        )

    def _splitter(self) -> Splitter:
        step, granularity = (
            self._settings.duration("step"),
            self._settings.duration("cursor_granularity"),
        )
        has_both = (self._component.step is None) == (self._component.cursor_granularity is None)
        if not has_both:
            raise ConfigError(
                f"{self.place} has only one of `step` and `cursor_granularity`",
                guidance="set both to split the period into intervals, or none of them",
            )
        if step is None or self.is_feed:
            return Splitter(clamp=self.clamp.ceil if self.clamp else None)
        self._require("cursor_granularity", _is_within(timedelta(0), granularity))
        self._require("step", step != timedelta(0) and _is_within(granularity, step))
        granularity = None if granularity == timedelta(0) else granularity
        return Splitter(step, granularity, self.clamp.ceil if self.clamp else None)

    def _lookback(self) -> Length | None:
        lookback = self._settings.duration("lookback_window")
        self._require("lookback_window", lookback is None or _is_within(timedelta(0), lookback))
        return lookback

    def _require(self, name: str, is_long_enough: bool) -> None:
        if not is_long_enough:
            raise ConfigError(
                f"{self._settings.place(name)} is {self._settings.text(name)!r}, which is too short",
                guidance="the step must be longer than 0 and not shorter than `cursor_granularity`; no "
                "length may be negative",
            )


class DatetimeProgress(ValueProgress):
    """One read of a stream or partition with a DatetimeCursor."""

    def __init__(self, cursor: DatetimeCursor, period: Period, state: State):
        super().__init__(cursor, state)
        self._cursor: DatetimeCursor = cursor
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


def _is_within(length: Length | None, other: Length | None) -> bool:
    """Return whether a length of time is not longer than another one; None is no time."""
    try:
        least = _REFERENCE + (length or timedelta(0))
    except (OverflowError, ValueError):
        return False
    try:
        return bool(least <= _REFERENCE + (other or timedelta(0)))
    except (OverflowError, ValueError):
        return True
