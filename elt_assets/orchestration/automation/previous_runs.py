"""The earlier runs of a sensor, which decide whether it may request another one."""

from __future__ import annotations

import datetime as dt
from itertools import takewhile

import dagster as dg

MAX_PAUSE = dt.timedelta(hours=1)
"""Maximum time between a failed run and the next one, if the interval of the sensor is not longer."""
_MAX_FAILURES = 10
"""Maximum number of earlier runs that are looked at."""


def reason_to_wait(
    instance: dg.DagsterInstance, sensor: str, now: dt.datetime, every: dt.timedelta
) -> str | None:
    """Return why a sensor should not request a run now; None if it may.

    It waits while its previous run is in progress. After failures in succession it waits longer each time,
    twice `every` after the first one, so that a failure which lasts does not become a run at each tick.
    """
    runs = instance.get_run_records(
        dg.RunsFilter(tags={"dagster/sensor_name": sensor}), limit=_MAX_FAILURES
    )
    if not runs:
        return None
    if not runs[0].dagster_run.is_finished:
        return "skipped: the previous run is still in progress"
    failures = list(takewhile(lambda run: run.dagster_run.is_failure, runs))
    if not failures:
        return None
    pause = max(every, min(MAX_PAUSE, every * 2 ** len(failures)))
    due = dt.datetime.fromtimestamp(failures[0].end_time or 0, dt.timezone.utc) + pause
    if now >= due:
        return None
    return (
        f"skipped: the last runs have failed ({len(failures)} in succession); the next one is requested "
        f"after {due.isoformat(timespec='seconds')}"
    )
