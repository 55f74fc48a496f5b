"""Schedules of connections and streams: of syncs, and of refreshes.

A refresh reads streams from the beginning, beside their other syncs. The pool of a stream keeps its runs
apart: a sync waits until the refresh is complete. If a refresh fails, the next sync of the stream resumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.automation import FullRefresh
from elt_assets.connection.connection import can_refresh
from elt_assets.connection.partitions import TimePartitions
from elt_assets.errors import ConfigError, Problems
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.automation.partition_requests import (
    newest_window,
    run_requests,
    select_newest_window,
    whole_requests,
)
from elt_assets.orchestration.names import connection_name
from elt_assets.orchestration.streams import StreamAsset, group_by_partitions

_EXAMPLES = {"schedule": "0 6 * * *", "full_refresh": "0 3 * * 0"}
"""The settings that have a cron expression, each with a valid one for errors."""


@dataclass(frozen=True)
class _Cron:
    """A cron expression in `defs.yaml`, and the streams that it is for."""

    key: str  # of `_EXAMPLES`
    base: str  # beginning of the name of the schedule
    expression: str
    timezone: str | None
    targets: Sequence[StreamAsset]


def schedules(connection: Connection, assets: Sequence[StreamAsset]) -> list[dg.ScheduleDefinition]:
    """Return the schedules of the streams, and the schedules of the connection for all other streams.

    Streams that are not enabled are in none of them; the names of the others stay the same.

    A job of Dagster has one definition of partitions, and so has a schedule. The first one of the connection
    has all streams without partitions, and those with the first definition; the streams of each other
    definition have their own schedule, which has the name of the first of them.

    Raises:
        ConfigError: a schedule is not a valid cron expression.
    """
    crons = [
        _Cron("schedule", asset.op_name, asset.settings.schedule, asset.controls.timezone, [asset])
        for asset in assets
        if asset.settings.schedule is not None
    ]
    if connection.schedule is not None:
        others = [asset for asset in assets if asset.settings.schedule is None]
        # Without such streams the connection's schedule is only checked.
        for number, targets in enumerate(group_by_partitions(others) or [[]]):
            base = targets[0].op_name if number else connection_name(connection)
            crons.append(_Cron("schedule", base, connection.schedule, connection.timezone, targets))
    return _make_all([(cron, _request_syncs) for cron in crons])


def refresh_schedules(
    connection: Connection, assets: Sequence[StreamAsset]
) -> list[dg.ScheduleDefinition]:
    """Return the schedules of refreshes: one for each stream that has its own, and one for all others.

    Raises:
        ConfigError: a schedule is not a valid cron expression.
    """
    refreshes = [
        (asset.settings.full_refresh, asset.op_name, asset.controls.timezone, [asset])
        for asset in assets
    ]
    others = [
        asset
        for asset in assets
        if "full_refresh" not in asset.settings.model_fields_set
        and can_refresh(connection, asset.settings)
    ]
    name = connection_name(connection)
    refreshes.append((connection.full_refresh, name, connection.timezone, others))
    return _make_all(
        [
            (
                _Cron("full_refresh", f"{base}_full_refresh", refresh.cron, timezone, targets),
                partial(_request_refreshes, refresh),
            )
            for refresh, base, timezone, targets in refreshes
            if refresh is not None
        ]
    )


_Requests = Callable[[Sequence[StreamAsset], dg.ScheduleEvaluationContext], Iterator[dg.RunRequest]]
"""Yields the requests of a tick for runs of streams. Dagster distinguishes them by their `run_key`."""


def _make_all(crons: Sequence[tuple[_Cron, _Requests]]) -> list[dg.ScheduleDefinition]:
    problems = Problems()
    made = [problems.of(partial(_make_schedule, cron, requests)) for cron, requests in crons]
    problems.raise_all()
    return [schedule for schedule in made if schedule is not None]


def _make_schedule(cron: _Cron, requests: _Requests) -> dg.ScheduleDefinition | None:
    """Return a schedule for the enabled streams among the targets; None if there are none.

    Raises:
        ConfigError: the cron expression is not valid, also if no stream is enabled.
    """
    assets = [asset for asset in cron.targets if asset.controls.enabled]

    def make_requests(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        yield from requests(assets, context)

    try:
        schedule = dg.ScheduleDefinition(
            name=f"{cron.base}_schedule",
            target=dg.AssetSelection.assets(*(asset.key for asset in assets)),
            cron_schedule=cron.expression,
            execution_timezone=cron.timezone,
            execution_fn=make_requests,
        )
    except dg.DagsterInvalidDefinitionError as error:
        own = [asset for asset in cron.targets if getattr(asset.settings, cron.key) is not None]
        where = f"stream {str(own[0].stream.id)!r}: " if own else ""
        raise ConfigError(
            f"{where}{cron.key}: {cron.expression!r} is not a valid cron expression",
            guidance=f'write five fields, for example "{_EXAMPLES[cron.key]}"',
        ) from error
    return schedule if assets else None


def _request_refreshes(
    refresh: FullRefresh, assets: Sequence[StreamAsset], context: dg.ScheduleEvaluationContext
) -> Iterator[dg.RunRequest]:
    tick = context.scheduled_execution_time.isoformat()
    yield from whole_requests(assets, tick, {"refresh": refresh.refresh})


def _request_syncs(
    assets: Sequence[StreamAsset], context: dg.ScheduleEvaluationContext
) -> Iterator[dg.RunRequest]:
    """Yield one request for all streams without partitions that have the same tags, and for each other stream
    requests for the partitions of the tick."""
    tick = context.scheduled_execution_time.isoformat()
    yield from whole_requests([asset for asset in assets if asset.partitions is None], tick)
    for asset in assets:
        if asset.partitions is not None:
            keys = _list_partitions(asset, context)
            yield from run_requests(asset, keys, f"{tick} {asset.key.to_user_string()}")


def _list_partitions(asset: StreamAsset, context: dg.ScheduleEvaluationContext) -> Sequence[str]:
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
