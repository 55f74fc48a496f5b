"""The range of the replication key that a sync reads: as a whole or by intervals of one length, in descending
order, and within the dates of a config.

An interval is `[start, end)`, and begins where the one before it ends: the two have the same value, so
there is no gap between them whatever the precision of an API's values is. A record is of the interval in
which its value is, also if the API returns it for another one, so none comes twice.

The end of an interval is the bookmark after it, if a whole step comes between it and the end of the read,
which is mostly the present. Otherwise it is the greatest value of a record: a record that the API shows
late is then read as in a stream without intervals.

The read of an API that returns the newest records first ends at the start of the read. The bookmark moves
only when the read is complete, never in its middle: the greatest value comes with the first record, and a
read that is interrupted after it has not sent the older ones. So such a stream is one that is not sorted, and
its states in the middle of a partition cover nothing of it. Only the end of an interval does.

Test: `tests/connectors/test_ranges.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from connectors.sdk.items import Context, Record, Warn
from connectors.sdk.state.bookmark import InvalidStreamSortException
from connectors.sdk.state.replication_key import ReplicationKey
from connectors.sdk.times import Length, add_length, instant, match_instant, moment
from elt_assets.errors import ConfigError, SystemFailure

MAX_INTERVALS = 1_000_000
"""Largest number of intervals of one partition: each is at least one request. A start in the year 1 is a
mistake, and a read from it would not end."""
_LEAP_SECOND = "60"
_SECOND = timedelta(seconds=1)


class Interval(NamedTuple):
    """The values from `start` on and before `end`; without a start, all before `end`."""

    start: Any
    end: Any
    is_last: bool


@dataclass(frozen=True)
class IntervalEnd:
    """The records of an interval were yielded.

    Attributes:
        bookmark: the value before which nothing will be missing; None if that is only what was yielded.
    """

    bookmark: Any


RecordsBetween = Callable[[Context | None, Any, Any], Iterable[Record]]
"""Function that returns the records of a partition from a value of the replication key on and before
another."""


class Intervals:
    """The intervals in which the partitions of a stream are read.

    Args:
        key: the replication key.
        step: the length of an interval; None for one that is the whole range.
        find_end: returns the value before which a partition is read; None for no end.
        is_sorted: whether records come in the order of the key. An interval then ends at its first record
            that is after it.
    """

    def __init__(
        self,
        key: ReplicationKey,
        step: Length | None,
        find_end: Callable[[Context | None], Any],
        *,
        is_sorted: bool = False,
    ):
        self._key = key
        self._is_sorted = is_sorted
        self._step = step
        self._find_end = find_end
        self._warning: str | None = None

    def records(
        self, read: RecordsBetween
    ) -> Callable[[Context | None, Any], Iterator[Record | IntervalEnd]]:
        """Return the function that reads a partition from a start on, interval by interval."""

        def read_intervals(context: Context | None, start: Any) -> Iterator[Record | IntervalEnd]:
            previous = None
            for interval in self.split(start, self._find_end(context)):
                if previous is not None:
                    yield IntervalEnd(None if interval.is_last else previous.end)
                for record in read(context, interval.start, interval.end):
                    value = record.get(self._key.field)
                    if self.has(interval, value):
                        yield record
                    elif self._is_sorted and not self._key.is_before(value, interval.end):
                        break
                previous = interval

        return read_intervals

    def split(self, start: Any, end: Any) -> Iterator[Interval]:
        """Yield the intervals of a range, in order; none if it ends before it starts.

        Raises:
            SystemFailure: the range has no end, and is to be read by intervals.
            ConfigError: it has too many intervals.
        """
        if end is None and self._step is not None:
            raise SystemFailure(
                f"the end of what is read by the steps of {self._key.field!r} is not known",
                guidance="define `get_end_value` of the stream, such as the number after that of the "
                "newest record",
            )
        if start is not None and self._key.compare(start, end) in (0, 1):
            self._warning = f"nothing is read: it begins at {start!r}, and ends before {end!r}"
            return
        lower, number = start, 1
        while (upper := self._find_boundary(start, number)) is not None and self._key.is_before(
            upper, end
        ):
            self._check_number(number, start, end)
            yield Interval(lower, upper, is_last=False)
            lower, number = upper, number + 1
        yield Interval(lower, end, is_last=True)

    def has(self, interval: Interval, value: Any) -> bool:
        """Return whether a value is of an interval. One that cannot be compared is.

        A leap second is counted with the second after it, and an API may count it with the one before it.
        So at the end of an interval it is of both: it may come twice, and is not lost.
        """
        if self._key.is_before(value, interval.start):
            return False
        if self._key.compare(value, interval.end) not in (0, 1):
            return True
        match = match_instant(value) if isinstance(value, str) else None
        if match is None or match[6] != _LEAP_SECOND:
            return False
        return self._key.is_before(add_length(value, _SECOND, -1), interval.end)

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning if a partition was not read because its range was empty."""
        if self._warning is not None:
            yield Warn(self._warning)

    def _find_boundary(self, start: Any, number: int) -> Any:
        """Return the end of an interval. It counts from the start, so that months keep the day of the
        start."""
        if self._step is None or start is None:
            return None
        return add_length(start, self._step, number)

    def _check_number(self, number: int, start: Any, end: Any) -> None:
        if number > MAX_INTERVALS:
            raise ConfigError(
                f"from {start!r} to {end!r} there are more than {MAX_INTERVALS:,} intervals",
                guidance="correct the start or the end, in most cases a date of the config; else let the "
                "stream have a longer `step`",
            )


def stop_at_start(read: RecordsBetween, key: ReplicationKey) -> RecordsBetween:
    """Return the function that reads a partition down to the start, this value included."""

    def records(context: Context | None, start: Any, end: Any) -> Iterator[Record]:
        for record in read(context, start, end):
            if key.is_before(record.get(key.field), start):
                return
            yield record

    return records


def is_past(records: Sequence[Record], key: ReplicationKey, start: Any) -> bool:
    """Return whether a page has records before the start, so that no later page has others.

    Raises:
        InvalidStreamSortException: a newer record comes after one of these: the read would end too early.
    """
    past: Any = None
    for value in (record.get(key.field) for record in records):
        if key.is_before(value, start):
            past = value
        elif past is not None and key.compare(value, start) in (0, 1):
            raise InvalidStreamSortException(
                f"the records are not in descending order of {key.field!r}: {value!r} comes after "
                f"{past!r}, which is before the start, {start!r}",
                guidance="request the records in descending order, or leave out `order`",
            )
    return past is not None


class DateLimits:
    """The dates from which and before which a stream is read whose key is not declared as a time: its
    values tell whether they are times. The records outside of the dates are left out; those with other
    values are kept.

    Args:
        key: the replication key.
        first: the date or date-time from which to read; None for no limit.
        end: the date or date-time before which to read; None for no limit.
    """

    def __init__(self, key: ReplicationKey, first: str | None, end: str | None):
        self._field = key.field
        self._first = None if first is None else instant(first)
        self._end = None if end is None else instant(end)
        self._names = " and ".join(
            f"`{name}`" for name, date in (("start_date", first), ("end_date", end)) if date
        )
        self._other: Any = None

    def records(self, records: RecordsBetween) -> RecordsBetween:
        """Return the function that reads a partition within the dates."""

        def filtered(context: Context | None, start: Any, end: Any) -> Iterator[Record]:
            for record in records(context, start, end):
                if self._has(record.get(self._field)):
                    yield record

        return filtered

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning if there were values that are no times."""
        if self._other is not None:
            yield Warn(
                f"the {self._names} of the config has no effect on records whose {self._field!r} is no time, "
                f"such as {self._other!r}: declare `format: date-time` in the schema, or set the date of the "
                "stream itself"
            )

    def _has(self, value: Any) -> bool:
        time = moment(value)
        if time is None:
            if self._other is None:
                self._other = value
            return True
        is_early = self._first is not None and time < self._first
        return not is_early and (self._end is None or time < self._end)
