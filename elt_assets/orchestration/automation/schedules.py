"""Schedules of connections and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.partitions import TimePartitions
from elt_assets.errors import Problems
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.automation.cron_schedules import Cron, Requests, make_schedule
from elt_assets.orchestration.automation.partition_requests import (
    newest_window,
    run_requests,
    select_newest_window,
    whole_requests,
)
from elt_assets.orchestration.names import connection_name
from elt_assets.orchestration.streams import StreamAsset, group_by_partitions


def schedules(connection: Connection, assets: Sequence[StreamAsset]) -> list[dg.ScheduleDefinition]:
    """Return the schedules of the streams, and the schedules of the connection for all other streams.

    Streams that are not enabled are in none of them; the names of the others stay the same.

    A job of Dagster has one definition of partitions, and so has a schedule. The first one of the connection
    has all streams without partitions, and those with the first definition; the streams of each other
    definition have their own schedule, which has the name of the first of them.

    Raises:
        ConfigError: a schedule is not a valid cron expression.
    """
    own = [asset for asset in assets if asset.settings.schedule is not None]
    candidates = [
        (asset.op_name, asset.settings.schedule, asset.controls.timezone, [asset]) for asset in own
    ]
    # Without such streams the connection's schedule is only checked.
    groups = group_by_partitions(
        [asset for asset in assets if asset.settings.schedule is None]
    ) or [[]]
    for number, targets in enumerate(groups):
        base = targets[0].op_name if number else connection_name(connection)
        candidates.append((base, connection.schedule, connection.timezone, targets))
    problems = Problems()
    made = [
        problems.of(partial(_schedule, f"{base}_schedule", cron, timezone, targets))
        for base, cron, timezone, targets in candidates
        if cron is not None
    ]
    problems.raise_all()
    return [schedule for schedule in made if schedule is not None]


def _schedule(
    name: str, expression: str, timezone: str | None, targets: Sequence[StreamAsset]
) -> dg.ScheduleDefinition | None:
    cron = Cron("schedule", expression, timezone, example="0 6 * * *")
    return make_schedule(name, cron, targets, _requests)


def _requests(assets: Sequence[StreamAsset]) -> Requests:
    """Return a function that yields the run requests of a tick.

    There is one request for all streams without partitions that have the same tags. For each other stream
    there are requests for the partitions that `_partitions_of_tick` returns. Dagster distinguishes requests
    by their `run_key`.
    """

    def requests(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        tick = context.scheduled_execution_time.isoformat()
        unpartitioned = [asset for asset in assets if asset.partitions is None]
        yield from whole_requests(unpartitioned, tick)
        for asset in assets:
            if asset.partitions is not None:
                keys = _partitions_of_tick(asset, context)
                yield from run_requests(asset, keys, f"{tick} {asset.key.to_user_string()}")

    return requests


def _partitions_of_tick(asset: StreamAsset, context: dg.ScheduleEvaluationContext) -> Sequence[str]:
    """Return the partitions that a tick materialises: the newest window, and in it every key."""
    configured, definition = asset.settings.partitions, asset.partitions
    if configured is None or definition is None:
        return []
    with dg.partition_loading_context(context.scheduled_execution_time, context.instance):
        if isinstance(configured, TimePartitions):
            window = newest_window(configured, definition)
            return [] if window is None else [window]
        if isinstance(definition, dg.MultiPartitionsDefinition):
            keys = definition.get_partitions_def_for_dimension(partitions.KEY).get_partition_keys()
            return select_newest_window(asset, keys)
        return definition.get_partition_keys()
