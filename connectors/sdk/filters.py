"""Records that are left out by the dates of a config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.sdk.intervals import RecordsBetween
from connectors.sdk.items import Context, Record, Warn
from connectors.sdk.state.replication_key import ReplicationKey, instant, moment


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
