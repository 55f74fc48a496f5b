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
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.assets.run_config import Refresh, SyncConfig
from elt_assets.orchestration.events.connector_log import connector_lines
from elt_assets.orchestration.events.metadata import recovery_metadata
from elt_assets.orchestration.events.reconcile import describe_lost_events, reconcile
from elt_assets.orchestration.renaming import refuse_lost_table
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.source_partitions import PartitionContexts, find_contexts
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connection_read import (
    ConnectionRead,
    RunResources,
    plan_read,
    plan_shared_read,
)
from elt_assets.pipeline.connectors import connect
from elt_assets.pipeline.stream_plan import StreamPlan, SyncRequest, plan_stream
from elt_assets.runner.connector_log import LogFunction
from elt_assets.storage.folders import make_private_lake


class ReadPlanner:
    """Plans the reads of a step from its run config.

    What a killed run left in the companion tables of a stream is undone first, and what it did not report is
    reported to Dagster.
    """

    def __init__(
        self,
        lake: LakeResource,
        spark: SparkProvider,
        config: SyncConfig,
        context: dg.AssetExecutionContext,
    ):
        self._lake = lake
        self._spark = spark
        self._config = config
        self._context = context

    def list_contexts(
        self, asset: StreamAsset, partitions: Sequence[str]
    ) -> PartitionContexts | None:
        """Return the source's contexts of partitions; None if the source does not list its partitions.

        The source lists them once for all partitions of the run.

        Raises:
            EltError: the source cannot list them; or the lake or the staging folder is not writable.
        """
        if not isinstance(asset.settings.partitions, SourcePartitions):
            return None
        self._lake.check_writable()
        log = self._context.log
        log.info(f"{asset.name}: listing the partitions of the source")
        staging = self._lake.staging_path
        with connector_lines(log) as on_log:
            connector = connect(asset.connection, staging, on_log=on_log)
            return find_contexts(connector, asset, partitions)

    def plan(
        self,
        assets: Sequence[StreamAsset],
        on_log: LogFunction,
        partition: str | None = None,
        contexts: PartitionContexts | None = None,
    ) -> ConnectionRead:
        """Return the read of streams from the current states of their tables.

        Streams that are read together start from the newest state that all their tables have had, from one
        state each, or from the beginning.

        Args:
            on_log: receives the log lines of the connectors, except those of `read`, also during the read.
            partition: the partition to read, of a single stream.
            contexts: those of the run's partitions, if the source lists its partitions itself.

        Raises:
            ConfigError: the run reads a window, or from a given state, during an unfinished refresh; the
                given state is not valid; another asset wrote a table; the source does not list the partition;
                or the lake or the staging folder is not writable.
        """
        self._lake.check_writable()
        of_source = None if contexts is None or partition is None else contexts.get(partition)
        plans = [self._plan_stream(asset, partition, of_source) for asset in assets]
        run_id, staging = self._context.run.run_id, self._lake.sync_staging
        resources = RunResources(run_id, self._spark, staging, on_log)
        if assets[0].connection.read_together:
            return plan_shared_read(plans, resources, self._config.state)
        source_config = _source_config(assets[0], self._config, partition)
        return plan_read(plans[0], resources, source_config)

    def _plan_stream(
        self, asset: StreamAsset, partition: str | None, of_source: Raw | None
    ) -> StreamPlan:
        """Return the plan of one stream. `of_source`: the source's context of the partition."""
        tables = self._recover_tables(asset, partition)
        request = SyncRequest(
            refresh=self._config.refresh.mode,
            state=self._config.state,
            is_beside=self._config.window is not None,
            intent=_intent(self._config, self._context),
        )
        plan = plan_stream(asset, tables, request, partition, of_source)
        if plan.continues:
            self._context.log.info(f"{asset.name}: resuming from the commits of an earlier attempt")
        return plan

    def _recover_tables(self, asset: StreamAsset, partition: str | None) -> StreamTables:
        """Return the tables, after the uncommitted changes of a killed run are undone; log and report
        differences between the tables and the event log."""
        context = self._context
        make_private_lake(self._lake.uri)
        tables = asset.tables(self._lake.location, partition)
        asset.refuse_foreign(tables.main)
        refuse_lost_table(context.instance, asset, self._lake.location, tables)
        start = reconcile(context.instance, asset.key, tables.main, partition)
        lost = describe_lost_events(context.instance, context.run.run_id)
        undone = tables.roll_back_companions(context.run.run_id)
        for warning in filter(None, (lost, *start.warnings, *undone)):
            context.log.warning(warning)
        if start.is_unreported:
            metadata = recovery_metadata(tables.main)
            context.log_event(
                dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
            )
            reach(Failpoint.EVENT_RECOVERED)
        return tables


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


def _source_config(
    asset: StreamAsset, config: SyncConfig, partition: str | None
) -> Mapping[str, Any]:
    """Return the config of the source, with the fields that a window or a partition sets."""
    source_config: Mapping[str, Any] = asset.connection.source.config
    settings = asset.settings
    if config.window is not None and settings.window is not None:
        start, end = partitions.parse_window(config.window.start, config.window.end)
        return partitions.config_for_window(source_config, settings.window.bind, start, end)
    if partition is not None and settings.partitions is not None and asset.partitions is not None:
        return partitions.config_for_partition(
            source_config, settings.partitions, asset.partitions, partition
        )
    return source_config
