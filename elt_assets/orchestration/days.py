"""The last days of a stream in short: for each day how many syncs, how large, how long and how late.

`report` adds each sync to them, and stores them in its event (`elt/days`): so the newest event of a stream
has its history, and `status` reads one event of each stream instead of thousands. `attention` compares the
last sync with them, and `elt status --html` draws them.

Days are those of UTC. Partitions of one stream that are synced at the same time may each add to the days
before both: then one of them is missing in the counts of its day. They are shown, and nothing else is decided
by them. Test: `tests/orchestration/test_days.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import islice
from typing import Any

import dagster as dg

from elt_assets.orchestration.metadata import (
    DAYS,
    RECORDS_READ,
    ROW_COUNT,
    SOURCE_LAG,
    TABLE_BYTES,
    TABLE_ROWS,
    figures_of,
    unwrap,
)
from elt_assets.orchestration.table_events import MAX_EVENTS, TableEvents

MAX_DAYS = 31
"""Number of days with syncs that are kept: thirty before the present one."""


@dataclass(frozen=True)
class Day:
    """The syncs of a stream on one day. Counts of several syncs are summed; of the others the most counts."""

    syncs: int = 0
    committed: int = 0  # sum of the records
    rejected: int = 0  # of one sync
    seconds: float = 0.0  # of one sync
    rows: int | None = None  # of the table after the last sync
    size: int | None = None  # bytes of the table after the last sync
    lag: float | None = None  # seconds from a commit in the source to that in the lake


Days = Mapping[str, Day]
"""The days with syncs, by their dates (ISO), the oldest first."""


def add_sync(days: Days, time: dt.datetime, sync: Day) -> Days:
    """Return the days with one more sync, which ended at a time; only the newest days are kept."""
    date = time.astimezone(dt.timezone.utc).date().isoformat()
    before = days.get(date, Day())
    lags = [lag for lag in (before.lag, sync.lag) if lag is not None]
    joined = replace(
        sync,
        syncs=before.syncs + sync.syncs,
        committed=before.committed + sync.committed,
        rejected=max(before.rejected, sync.rejected),
        seconds=max(before.seconds, sync.seconds),
        rows=before.rows if sync.rows is None else sync.rows,
        size=before.size if sync.size is None else sync.size,
        lag=max(lags, default=None),
    )
    newest = sorted({**days, date: joined}.items())[-MAX_DAYS:]
    return dict(newest)


def summarize_sync(metadata: Mapping[str, Any]) -> Day:
    """Return one sync as a day, from the metadata of its event."""
    figures = figures_of(metadata)
    rows = metadata.get(TABLE_ROWS, metadata.get(ROW_COUNT))
    return Day(
        1,
        figures.committed,
        figures.rejected,
        figures.seconds,
        unwrap(rows),
        unwrap(metadata.get(TABLE_BYTES)),
        unwrap(metadata.get(SOURCE_LAG)),
    )


def days_metadata(
    events: TableEvents, metadata: Mapping[str, Any], time: dt.datetime
) -> dict[str, Any]:
    """Return the metadata of the days for the event of a sync that is not logged yet.

    If no event has days yet, which is so after an upgrade, they are made of the newest events.

    Args:
        events: the events of the table, of all its partitions, before this one.
        metadata: the other metadata of the event.
        time: the end of the sync.
    """
    former = events.newest_materialization(DAYS)
    days = _collect(events) if former is None else from_json(unwrap(former.metadata[DAYS]))
    return {DAYS: dg.MetadataValue.json(to_json(add_sync(days, time, summarize_sync(metadata))))}


def _collect(events: TableEvents) -> Days:
    days: Days = {}
    for event in reversed(list(islice(events.all_materializations(), MAX_EVENTS))):
        if RECORDS_READ in event.metadata:
            time = dt.datetime.fromtimestamp(event.timestamp, dt.timezone.utc)
            days = add_sync(days, time, summarize_sync(event.metadata))
    return days


def to_json(days: Days) -> dict[str, Sequence[Any]]:
    """Return days as an event has them: of each day the values in the order of the fields of `Day`."""
    return {date: astuple(day) for date, day in days.items()}


def from_json(value: Any) -> Days:
    """Return the days of an event; those that have another form are left out."""
    if not isinstance(value, Mapping):
        return {}
    size = len(fields(Day))
    return {
        str(date): Day(*values[:size])
        for date, values in sorted(value.items())
        if isinstance(values, list | tuple) and len(values) >= 1 and _is_date(str(date))
    }


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True
