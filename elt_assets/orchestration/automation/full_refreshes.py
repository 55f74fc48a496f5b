"""Schedules of refreshes: runs that read streams from the beginning, beside their other syncs.

The pool of a stream keeps its runs apart: a sync waits until the refresh is complete. If a refresh fails, the
next sync of the stream resumes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.connection_model import can_refresh
from elt_assets.connection.controls import FullRefresh
from elt_assets.errors import Problems
from elt_assets.orchestration.automation.cron_schedules import Cron, Requests, make_schedule
from elt_assets.orchestration.automation.partition_requests import whole_requests
from elt_assets.orchestration.names import connection_name
from elt_assets.orchestration.streams import StreamAsset

_SUFFIX = "_full_refresh_schedule"


def refresh_schedules(
    connection: Connection, assets: Sequence[StreamAsset]
) -> list[dg.ScheduleDefinition]:
    """Return the schedules of refreshes: one for each stream that has its own, and one for all others.

    Raises:
        ConfigError: a schedule is not a valid cron expression.
    """
    own = [asset for asset in assets if asset.settings.full_refresh is not None]
    problems = Problems()
    schedules = [problems.of(partial(_own_schedule, asset)) for asset in own]
    if connection.full_refresh is not None:
        others = [
            asset
            for asset in assets
            if "full_refresh" not in asset.settings.model_fields_set
            and can_refresh(connection, asset.settings)
        ]
        name = connection_name(connection) + _SUFFIX
        refresh, timezone = connection.full_refresh, connection.timezone
        schedules.append(problems.of(partial(_schedule, name, refresh, timezone, others)))
    problems.raise_all()
    return [schedule for schedule in schedules if schedule is not None]


def _own_schedule(asset: StreamAsset) -> dg.ScheduleDefinition | None:
    refresh = asset.settings.full_refresh
    assert refresh is not None
    return _schedule(asset.op_name + _SUFFIX, refresh, asset.controls.timezone, [asset])


def _schedule(
    name: str, refresh: FullRefresh, timezone: str | None, targets: Sequence[StreamAsset]
) -> dg.ScheduleDefinition | None:
    """Return a schedule for the enabled streams among the targets; None if there are none."""
    cron = Cron("full_refresh", refresh.cron, timezone, example="0 3 * * 0")
    return make_schedule(name, cron, targets, partial(_requests, refresh))


def _requests(refresh: FullRefresh, assets: Sequence[StreamAsset]) -> Requests:
    def requests(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        tick = context.scheduled_execution_time.isoformat()
        yield from whole_requests(assets, tick, {"refresh": refresh.refresh})

    return requests
