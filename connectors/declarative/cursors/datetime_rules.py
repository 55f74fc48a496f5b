"""The rules of a DatetimeBasedCursor: what it reads, in which intervals, and its states.

Spec: Incremental sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.cursor import State, ValueCursor
from connectors.declarative.cursors.settings import Length
from connectors.declarative.cursors.slices import END_NAME, place_if_any
from connectors.declarative.cursors.times.formats import DatetimeFormat, DatetimeFormats
from connectors.declarative.cursors.times.intervals import (
    MAX_INTERVALS,
    Interval,
    Splitter,
    clamp_of,
)
from connectors.declarative.manifest import clock, components
from connectors.sdk.items import Context
from connectors.sdk.times import is_within
from elt_assets.errors import ConfigError

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


class DatetimeRules(ValueCursor[Period]):
    """What a DatetimeBasedCursor says: formats, limits, intervals, and how a state is read and written.

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
        least = granularity or timedelta(0)
        self._require("cursor_granularity", is_within(timedelta(0), least))
        self._require("step", step != timedelta(0) and is_within(least, step))
        granularity = None if granularity == timedelta(0) else granularity
        return Splitter(step, granularity, self.clamp.ceil if self.clamp else None)

    def _lookback(self) -> Length | None:
        lookback = self._settings.duration("lookback_window")
        self._require("lookback_window", lookback is None or is_within(timedelta(0), lookback))
        return lookback

    def _require(self, name: str, is_long_enough: bool) -> None:
        if not is_long_enough:
            raise ConfigError(
                f"{self._settings.place(name)} is {self._settings.text(name)!r}, which is too short",
                guidance="the step must be longer than 0 and not shorter than `cursor_granularity`; no "
                "length may be negative",
            )
