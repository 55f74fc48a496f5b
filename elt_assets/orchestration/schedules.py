"""Schedules of connections and streams, and requests for runs and new partitions, bounded in each tick.

`component` adds the schedules to a connection's definitions; `sensors` use the requests too.

First the requests; then the schedules of syncs and of refreshes.

A run costs a Spark session, so partitions share runs; a request costs Dagster a query, so a tick has limits,
and what is above them is left to the next tick. A refresh reads streams from the beginning, beside their
other syncs. The pool of a stream keeps its runs apart: a sync waits until the refresh is complete. If a
refresh fails, the next sync of the stream resumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.automation import FullRefresh
from elt_assets.connection.connection import can_refresh
from elt_assets.connection.partitions import MultiPartitions, TimePartitions
from elt_assets.errors import ConfigError, Problems
from elt_assets.orchestration import partitions
from elt_assets.orchestration.continuous import is_in_progress
from elt_assets.orchestration.streams import (
    StreamAsset,
    connection_name,
    group_by_partitions,
    group_by_run_tags,
)

MAX_PER_RUN = 1_000
"""Maximum number of partitions in a run that a sensor or a schedule requests."""
MAX_RUNS = 100
"""Maximum number of runs that a tick of a sensor requests."""
MAX_ADDED = 10_000
"""Maximum number of partitions that a tick adds without a run."""
MAX_IN_REQUEST = 1_000
"""Maximum number of partitions in one request to add them: Dagster looks them up in one query, and SQLite
limits the number of values in a query."""
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
"""Tags of a run of several partitions, as Dagster's backfills set them: the first one and the last one."""


@dataclass(frozen=True)
class NewPartitions:
    """The new partitions of a tick. `more`: number of partitions that are left to the next tick."""

    keys: Sequence[str]
    more: int
    runs: Sequence[dg.RunRequest]
    additions: Sequence[dg.AddDynamicPartitionsRequest]

    @property
    def description(self) -> str:
        if not self.keys:
            return "there are no new partitions"
        more = f"; {self.more:,} more at the next tick" if self.more else ""
        return f"added {len(self.keys):,} partitions{more}"

    def result(self, cursor: str | None) -> dg.SensorResult:
        """Return the result of the tick."""
        return dg.SensorResult(
            run_requests=self.runs,
            skip_reason=None if self.runs else self.description,
            dynamic_partitions_requests=self.additions,
            cursor=cursor,
        )


def add_partitions(
    asset: StreamAsset,
    candidates: Iterable[str],
    context: dg.SensorEvaluationContext,
    *,
    materialize: bool,
) -> NewPartitions:
    """Return the first keys that Dagster lacks, as partitions to be added, and the requests of their runs.

    Args:
        candidates: the keys that the source has, in its order. A warning names those that cannot be keys.
    """
    definition = partitions.dynamic_definition(asset.partitions)
    assert definition.name is not None
    existing = set(context.instance.get_dynamic_partitions(definition.name))
    missing = [key for key in candidates if key not in existing]
    new = [key for key in missing if partitions.is_valid_key(key, asset.settings.partitions)]
    if len(new) < len(missing):
        invalid = sorted({*missing} - {*new})[:10]
        context.log.warning(f"values that cannot be partition keys: {invalid}")
    limit = min(MAX_PER_RUN, MAX_RUNS * _per_run(asset)) if materialize else MAX_ADDED
    keys = new[:limit]
    runs: list[dg.RunRequest] = []
    if materialize:
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            runs = list(run_requests(asset, select_newest_window(asset, keys)))
    additions = [definition.build_add_request(part) for part in _parts(keys, MAX_IN_REQUEST)]
    return NewPartitions(keys, len(new) - len(keys), runs, additions)


def select_newest_window(asset: StreamAsset, keys: Sequence[str]) -> Sequence[str]:
    """Return the partitions of some keys: the keys, or for a stream with windows too, their pairs.

    The pairs are those of the newest window that is over at the time of Dagster's partition loading context.
    """
    configured, definition = asset.settings.partitions, asset.partitions
    if not isinstance(configured, MultiPartitions):
        return keys
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    windows = definition.get_partitions_def_for_dimension(partitions.WINDOW)
    window = newest_window(configured.window, windows)
    if window is None:
        return []
    return [
        str(dg.MultiPartitionKey({partitions.KEY: key, partitions.WINDOW: window})) for key in keys
    ]


def newest_window(configured: TimePartitions, windows: dg.PartitionsDefinition[Any]) -> str | None:
    """Return the newest window that is over; None if there is none, or if it would begin after the `end`.

    After the `end` of the partitions, their last window stays the newest of them for ever. It is old as soon
    as another window would be over.
    """
    endless = partitions.definition(configured.model_copy(update={"end": None}), "")
    newest = endless.get_last_partition_key()
    return newest if newest == windows.get_last_partition_key() else None


def run_requests(
    asset: StreamAsset, keys: Sequence[str], run_key: str | None = None
) -> Iterator[dg.RunRequest]:
    """Yield the requests of runs that together materialise some partitions of a stream.

    Each run has `partitions_per_run` partitions; by default, `MAX_PER_RUN`.

    Args:
        keys: partitions that follow each other in Dagster's list; with windows, all in one window.
        run_key: beginning of the run keys; None for requests without a run key.
    """
    for part in _parts(keys, _per_run(asset)):
        is_single = len(part) == 1
        ends = {} if is_single else dict(zip(_RANGE, (part[0], part[-1]), strict=True))
        yield dg.RunRequest(
            run_key=None if run_key is None else f"{run_key} {part[0]}",
            asset_selection=[asset.key],
            partition_key=part[0] if is_single else None,
            tags={**asset.controls.run_tags, **ends},
        )


def whole_requests(
    assets: Sequence[StreamAsset],
    run_key: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[dg.RunRequest]:
    """Yield the requests of runs of streams without partitions: one for all streams with the same run tags.

    Args:
        run_key: beginning of the run keys; None for requests without a run key.
        config: the run config of the op of each stream.
    """
    for number, group in enumerate(group_by_run_tags(assets)):
        further = f" {group[0].key.to_user_string()}" if number else ""
        ops = {asset.step_name: {"config": dict(config)} for asset in group} if config else {}
        yield dg.RunRequest(
            run_key=None if run_key is None else f"{run_key}{further}",
            asset_selection=[asset.key for asset in group],
            run_config={"ops": ops} if ops else {},
            tags=group[0].controls.run_tags,
        )


def _per_run(asset: StreamAsset) -> int:
    configured = asset.settings.partitions
    assert configured is not None
    inner = configured.key if isinstance(configured, MultiPartitions) else configured
    return inner.partitions_per_run or MAX_PER_RUN


def _parts(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


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

    follows = requests is _request_syncs and assets and assets[0].connection.follow is not None

    def make_requests(
        context: dg.ScheduleEvaluationContext,
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        if follows and is_in_progress(context.instance, assets):
            yield dg.SkipReason("the log is followed already: a run is in progress")
        else:
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
