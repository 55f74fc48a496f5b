"""Plan the reads of a run from its run config and the current state of the tables.

A kill at EVENT_RECOVERED leaves the event that an earlier run owed. A kill before it leaves the table ahead
of the events, so the next run reports it.
`tests/orchestration/test_crash_events.py::test_partitions_survive_a_kill_between_commit_and_event`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from msgspec import Raw

from elt_assets.connection.partitions import SourcePartitions
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.assets.run_config import Refresh, SyncConfig
from elt_assets.orchestration.events.connector_log import log_function
from elt_assets.orchestration.events.metadata import recovered_metadata
from elt_assets.orchestration.events.reconcile import reconcile
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.source_partitions import PartitionContexts, find_contexts
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect
from elt_assets.pipeline.read_plan import ReadPlan, plan_read, plan_shared_read
from elt_assets.pipeline.stream_plan import StreamPlan, SyncRequest, plan_stream
from elt_assets.storage.directories import make_private_lake


def contexts_of_run(
    asset: StreamAsset,
    lake: LakeResource,
    keys: Sequence[str | None],
    context: dg.AssetExecutionContext,
) -> PartitionContexts | None:
    """Return the contexts of the partitions of a run; None if the source does not list its partitions.

    The source lists them once for all partitions of the run.

    Raises:
        EltError: the source cannot list them; or the lake or the staging folder is not writable.
    """
    if not isinstance(asset.settings.partitions, SourcePartitions):
        return None
    lake.check_writable()
    context.log.info(f"{asset.name}: listing the partitions of the source")
    connector = connect(asset.connection, lake.staging_path, on_log=log_function(context.log))
    return find_contexts(connector, asset, [key for key in keys if key is not None])


def recover_and_plan(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
    contexts: PartitionContexts | None = None,
) -> ReadPlan:
    """Return the plan to read a stream, or one of its partitions, from the current state of its table.

    What a killed run left in the companion tables is undone first, and what it did not report is reported to
    Dagster.

    Args:
        contexts: those of the run's partitions, if the source lists its partitions itself.

    Raises:
        ConfigError: the run reads a window, or from a given state, during an unfinished refresh; the given
            state is not valid; another asset wrote the table; the source does not list the partition; or the
            lake or the staging folder is not writable.
    """
    lake.check_writable()
    of_source = None if contexts is None or partition is None else contexts.of(partition)
    read = _stream_plan(asset, lake, config, partition, context, of_source)
    source_config = _source_config(asset, config, partition)
    return plan_read(read, lake.sync_staging, source_config, on_log=log_function(context.log))


def recover_and_plan_together(
    assets: Sequence[StreamAsset],
    lake: LakeResource,
    config: SyncConfig,
    context: dg.AssetExecutionContext,
) -> ReadPlan:
    """Return the plan of one read of several streams of a connection, like `recover_and_plan`.

    The streams start from the newest state that all their tables have had, from one state each, or from the
    beginning.

    Raises:
        ConfigError: a state is given during an unfinished refresh, or is not valid; another asset wrote a
            table; or the lake or the staging folder is not writable.
    """
    lake.check_writable()
    reads = [_stream_plan(asset, lake, config, None, context) for asset in assets]
    on_log, warn = log_function(context.log), context.log.warning
    return plan_shared_read(reads, lake.sync_staging, config.state, on_log=on_log, warn=warn)


def _stream_plan(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
    of_source: Raw | None = None,
) -> StreamPlan:
    """Return the plan of one stream. `of_source`: the source's context of the partition, if it has one."""
    tables = _recovered_tables(asset, lake, partition, context)
    request = SyncRequest(
        refresh=config.refresh.mode,
        state=config.state,
        is_beside=config.window is not None,
        intent=_intent(config, context),
    )
    found = plan_stream(asset, tables, request, partition, of_source)
    if found.continues:
        context.log.info(f"{asset.name}: resuming from the commits of an earlier attempt")
    return found


def _intent(config: SyncConfig, context: dg.AssetExecutionContext) -> str | None:
    """Return the id of the request for a refresh or a given state: the id of its first run.

    All attempts have the same id: a retry of a step keeps the run id, and a run that retries or re-executes
    another run names it as its parent. The re-execution of a successful run is a new request.
    """
    if config.refresh is Refresh.none and config.state is None:
        return None
    run = context.run
    while (parent_id := run.get_parent_run_id()) is not None:
        parent = context.instance.get_run_by_id(parent_id)
        if parent is None or parent.is_success:
            break
        run = parent
    return run.run_id


def _recovered_tables(
    asset: StreamAsset,
    lake: LakeResource,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> StreamTables:
    """Return the tables, after the uncommitted changes of a killed run are undone; log and report differences
    between the tables and the event log."""
    make_private_lake(lake.uri)
    tables = asset.tables(lake.location, partition)
    asset.refuse_foreign(tables.main)
    start = reconcile(context.instance, asset.key, tables.main, partition)
    for warning in (*start.warnings, *tables.roll_back_companions(context.run.run_id)):
        context.log.warning(warning)
    if start.is_unreported:
        metadata = recovered_metadata(tables.main)
        context.log_event(dg.AssetObservation(asset.key, metadata=metadata, partition=partition))
        reach(Failpoint.EVENT_RECOVERED)
    return tables


def _source_config(
    asset: StreamAsset, config: SyncConfig, partition: str | None
) -> Mapping[str, Any]:
    """Return the config of the source, with the fields that a window or a partition sets."""
    source_config: Mapping[str, Any] = asset.connection.source.config
    wanted = asset.settings
    if config.window is not None and wanted.window is not None:
        start, end = partitions.parse_window(config.window.start, config.window.end)
        return partitions.config_for_window(source_config, wanted.window.bind, start, end)
    if partition is not None and wanted.partitions is not None and asset.partitions is not None:
        return partitions.config_for_partition(
            source_config, wanted.partitions, asset.partitions, partition
        )
    return source_config
