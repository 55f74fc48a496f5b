"""Runs that follow a log: until when, and which streams are materialised or compacted meanwhile.

`step` asks for the `FollowedRun` of its connection, `report` for the `Turns` of its streams, `schedules`
whether a run is in progress.

A run that follows a log is one step with one session of Spark. Its read commits window after window, as each
read commits checkpoints, so a run that is stopped or killed anywhere leaves whole windows, and the next one
goes on after them. Each commit of rows is an observation, and a stream is materialised once in a while:
freshness and downstream assets look at materialisations, and an event log has room for one a minute, not for
one of each window. A source that ends before the time is over, because its tables have changed, is read again
in the same run. Tests: `tests/orchestration/test_follow.py`.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.automation import Follow
from elt_assets.orchestration.due import DueRule
from elt_assets.orchestration.runs.liveness import has_died
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import FollowRequest
from elt_assets.sync.events import Acknowledged

_BEFORE_TICK = 8.0
"""Seconds before a tick of the schedule by which a run ends, so that this tick starts the next one."""
_IDLE = 10
"""A stream without changes is materialised this many times more rarely than one with changes."""
_COMMITS = 60
"""Commits of a stream after which its small files are combined."""


class FollowedRun:
    """A run that follows a log, for as long as its connection says, from the start of the run on.

    Args:
        started: when the run was started, in seconds since 1970.
    """

    def __init__(
        self, connection: Connection, started: float, clock: Callable[[], float] = time.time
    ):
        assert connection.follow is not None
        self._settings, self._clock = connection.follow, clock
        self._end = find_end(connection, connection.follow, started)
        self._began = clock()

    def begin_read(self) -> FollowRequest:
        """Return the request for a read that begins now."""
        self._began = self._clock()
        return FollowRequest(
            seconds=max(0.0, self._end - self._began), every=self._settings.every.total_seconds()
        )

    def await_read(self) -> bool:
        """Wait until another read is due, after one that has ended; return False if the time is over."""
        due = self._began + self._settings.every.total_seconds()
        if max(due, self._clock()) >= self._end:
            return False
        time.sleep(max(0.0, due - self._clock()))
        return True


def find_end(connection: Connection, settings: Follow, started: float) -> float:
    """Return until when a run follows, in seconds since 1970: just before a tick that starts the next one.

    Without such a tick in the second half of its time, it follows to the end of that time.
    """
    length = settings.for_.total_seconds()
    end = started + length
    if connection.schedule is None:
        return end
    zone = connection.timezone or "UTC"
    rule = DueRule("schedule", cron=connection.schedule, timezone=zone)
    last = next(rule.list_ticks(dt.datetime.fromtimestamp(end, dt.timezone.utc))).timestamp()
    return last - _BEFORE_TICK if last - _BEFORE_TICK > started + length / 2 else end


def follow_run(connection: Connection, context: dg.AssetExecutionContext) -> FollowedRun:
    """Return how long the run of a step follows the log of its connection."""
    record = context.instance.get_run_record_by_id(context.run.run_id)
    started = None if record is None else record.start_time
    return FollowedRun(connection, started or time.time())


class Turns:
    """Whose turn it is, of the streams that a read follows, to be materialised or compacted."""

    def __init__(
        self,
        streams: Sequence[StreamId],
        settings: Follow,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._report, self._clock = settings.report.total_seconds(), clock
        self._reported = dict.fromkeys(streams, clock())
        self._changed: set[StreamId] = set()
        self._commits: Counter[StreamId] = Counter()

    def note(self, event: Acknowledged) -> bool:
        """Take a commit into account; return whether it has rows, and not a state alone."""
        has_rows = bool(event.commit.records or event.commit.rejected)
        self._commits[event.stream] += 1
        if has_rows:
            self._changed.add(event.stream)
        return has_rows

    def take_changed(self) -> list[StreamId]:
        """Return the streams with rows that no materialisation has told of."""
        return self._mark([stream for stream in self._reported if stream in self._changed])

    def take_due(self) -> list[StreamId]:
        """Return the streams that are to be materialised now."""
        age = {stream: self._clock() - last for stream, last in self._reported.items()}
        return self._mark(
            [
                stream
                for stream in self._reported
                if age[stream] >= self._report * (1 if stream in self._changed else _IDLE)
            ]
        )

    def take_fragmented(self) -> list[StreamId]:
        """Return the streams whose small files are to be combined now."""
        streams = [stream for stream, count in self._commits.items() if count >= _COMMITS]
        for stream in streams:
            del self._commits[stream]
        return streams

    def _mark(self, streams: list[StreamId]) -> list[StreamId]:
        self._changed.difference_update(streams)
        self._reported |= dict.fromkeys(streams, self._clock())
        return streams


def is_in_progress(instance: dg.DagsterInstance, assets: Sequence[StreamAsset]) -> bool:
    """Return whether a run that is to materialise one of some streams is queued or in progress."""
    records = instance.get_asset_records([asset.key for asset in assets])
    names = {record.asset_entry.last_run_id for record in records} - {None}
    runs = instance.get_runs(dg.RunsFilter(run_ids=[str(name) for name in names])) if names else []
    return any(not run.is_finished and not has_died(instance, run.run_id) for run in runs)
