"""Schedules of connections and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.partitions import SourcePartitions
from elt_assets.errors import ConfigError, Problems
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.automation.source_partitions import run_requests
from elt_assets.orchestration.streams import StreamAsset, op_name


def schedules(connection: Connection, assets: Sequence[StreamAsset]) -> list[dg.ScheduleDefinition]:
    """Return the schedules of the streams, and the schedule of the connection for all other streams.

    Raises:
        ConfigError: a schedule is not a valid cron expression.
    """
    others = [one for one in assets if one.settings.schedule is None]
    wanted = [(f"{connection.name}_schedule", connection.schedule, others)]
    wanted += [
        (f"{op_name(asset.key)}_schedule", asset.settings.schedule, [asset]) for asset in assets
    ]
    problems = Problems()
    found = [
        problems.of(partial(_schedule, name, cron, targets))
        for name, cron, targets in wanted
        if cron is not None
    ]
    problems.raise_all()
    return [schedule for schedule in found if schedule is not None]


def _schedule(name: str, cron: str, assets: Sequence[StreamAsset]) -> dg.ScheduleDefinition:
    try:
        return dg.ScheduleDefinition(
            name=name,
            target=dg.AssetSelection.assets(*(one.key for one in assets)),
            cron_schedule=cron,
            execution_fn=_requests(assets),
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            f"schedule: {cron!r} is not a valid cron expression",
            guidance='write five fields, for example "0 6 * * *"',
        ) from error


def _requests(
    assets: Sequence[StreamAsset],
) -> Callable[[dg.ScheduleEvaluationContext], Iterator[dg.RunRequest]]:
    """Return a function that yields the run requests of a tick.

    There is one request for all streams without partitions. For each other stream there is one request for
    each partition that `_partitions_of_tick` returns; if the source lists the partitions itself, one for many
    of them. Dagster distinguishes requests by their `run_key`.
    """

    def requests(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        at = context.scheduled_execution_time.isoformat()
        unpartitioned = [one.key for one in assets if one.partitions is None]
        if unpartitioned:
            yield dg.RunRequest(run_key=at, asset_selection=unpartitioned)
        for asset in assets:
            yield from _partition_requests(asset, context, f"{at} {asset.key.to_user_string()}")

    return requests


def _partition_requests(
    asset: StreamAsset, context: dg.ScheduleEvaluationContext, run_key: str
) -> Iterator[dg.RunRequest]:
    """Yield the run requests of a tick for a stream with partitions, whose run keys begin with `run_key`."""
    keys, configured = _partitions_of_tick(asset, context), asset.settings.partitions
    if isinstance(configured, SourcePartitions):
        yield from run_requests(asset, configured, keys, run_key)
        return
    for key in keys:
        yield dg.RunRequest(
            run_key=f"{run_key} {key}", asset_selection=[asset.key], partition_key=key
        )


def _partitions_of_tick(asset: StreamAsset, context: dg.ScheduleEvaluationContext) -> Sequence[str]:
    """Return the partitions that a tick materialises: the newest window, and in it every key."""
    found = asset.partitions
    if found is None:
        return []
    with dg.partition_loading_context(context.scheduled_execution_time, context.instance):
        if isinstance(found, dg.TimeWindowPartitionsDefinition):
            last = found.get_last_partition_key()
            return [last] if last is not None else []
        if not isinstance(found, dg.MultiPartitionsDefinition):
            return found.get_partition_keys()
        dimensions = {each.name: each.partitions_def for each in found.partitions_defs}
        window = dimensions[partitions.WINDOW]
        assert isinstance(window, dg.TimeWindowPartitionsDefinition)
        last = window.get_last_partition_key()
        if last is None:
            return []
        keys = dimensions[partitions.KEY].get_partition_keys()
        return [
            str(dg.MultiPartitionKey({partitions.WINDOW: last, partitions.KEY: key}))
            for key in keys
        ]
