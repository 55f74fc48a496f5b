"""From a run and where its streams' tables stand to the plan of the read that is to be made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.assets.run_config import Refresh, SyncConfig
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.events.metadata import head_metadata
from elt_assets.orchestration.events.reconcile import reconcile
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.read_plan import ReadPlan, plan_read, plan_shared_read
from elt_assets.pipeline.stream_plan import StreamPlan, SyncRequest, plan_stream
from elt_assets.storage.directories import make_private_lake


def plan(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> ReadPlan:
    """The read of a stream, or of one of its partitions, from where its table stands.

    Raises:
        ConfigError: a refresh is under way that a window does not go with; lake or staging cannot be
            written to.
    """
    lake.check_writable()
    read = _stream_plan(asset, lake, config, partition, context)
    settings = _settings(asset, config, partition)
    return plan_read(read, lake.staging_path, settings, hear=hearing(context.log))


def plan_together(
    assets: Sequence[StreamAsset],
    lake: LakeResource,
    config: SyncConfig,
    context: dg.AssetExecutionContext,
) -> ReadPlan:
    """One read of several streams of a connection, from a state that holds for all of them.

    Raises:
        ConfigError: a refresh is under way that a given state does not go with; lake or staging cannot be
            written to.
    """
    lake.check_writable()
    reads = [_stream_plan(asset, lake, config, None, context) for asset in assets]
    hear, warn = hearing(context.log), context.log.warning
    return plan_shared_read(reads, lake.staging_path, config.state, hear=hear, warn=warn)


def _stream_plan(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> StreamPlan:
    tables = _settled(asset, lake, partition, context)
    request = SyncRequest(
        refresh=config.refresh.mode,
        state=config.state,
        is_beside=config.window is not None,
        intent=_intent(config, context),
    )
    found = plan_stream(asset, tables, request, partition)
    if found.continues:
        context.log.info(f"{asset.name}: continuing what an earlier attempt began")
    return found


def _intent(config: SyncConfig, context: dg.AssetExecutionContext) -> str | None:
    """Return a name for what the run asks for, the same in every attempt at it: the first run's id.

    A retry of a step has the run's own id; a run that retries or re-executes another names it as its
    parent. To re-execute a run that succeeded is a request of its own.
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


def _settled(
    asset: StreamAsset,
    lake: LakeResource,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> StreamTables:
    """The tables, what a run that died left in them undone; what they and the events say is compared."""
    make_private_lake(lake.uri)
    tables = asset.tables(lake.uri, partition)
    asset.refuse_foreign(tables.main)
    standing = reconcile(context.instance, asset.key, tables.main, partition)
    for warning in (*standing.warnings, *tables.settle(context.run.run_id)):
        context.log.warning(warning)
    if standing.unreported:
        metadata = {**head_metadata(tables.head, tables.main.version), "elt/recovered": True}
        context.log_event(dg.AssetObservation(asset.key, metadata=metadata, partition=partition))
    return tables


def _settings(asset: StreamAsset, config: SyncConfig, partition: str | None) -> Mapping[str, Any]:
    """The source's config, with what a window or a partition sets in it."""
    settings: Mapping[str, Any] = asset.connection.source.config
    wanted = asset.wanted
    if config.window is not None and wanted.window is not None:
        start, end = partitions.parse_window(config.window.start, config.window.end)
        return partitions.windowed(settings, wanted.window.bind, start, end)
    if partition is not None and wanted.partitions is not None and asset.partitions is not None:
        return partitions.bound(settings, wanted.partitions, asset.partitions, partition)
    return settings
