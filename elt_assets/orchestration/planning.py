"""Plan the reads of a run from its run config and the current state of the tables.

`step` plans with it; `build` takes the schema of the run config, `materialize` and `elt sync` the kinds of
refresh.

First `SyncConfig`, the run config of a stream's op, with options that change how one run syncs the stream;
then `ReadPlanner`, which a step uses just before it reads.

A kill at EVENT_RECOVERED leaves the event that an earlier run owed. A kill before it leaves the table ahead
of the events, so the next run reports it.
Test: `tests/orchestration/test_crash_events.py::test_partitions_survive_a_kill_between_commit_and_event`
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from msgspec import Raw
from pydantic import Field

from elt_assets.connection import Connection
from elt_assets.connection.partitions import SourcePartitions
from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.stored_stream import RefreshMode
from elt_assets.orchestration import partitions
from elt_assets.orchestration.metadata import recovery_metadata
from elt_assets.orchestration.recovery import describe_lost_events, reconcile
from elt_assets.orchestration.renaming import refuse_lost_table
from elt_assets.orchestration.report import connector_lines
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.source_partitions import PartitionContexts, find_contexts
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline import shared_start
from elt_assets.pipeline.connection_read import (
    ConnectionRead,
    RunResources,
    plan_read,
    plan_shared_read,
)
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.stream_plan import (
    StreamPlan,
    SyncRequest,
    as_message,
    plan_stream,
    refuse_stateless,
)
from elt_assets.protocol.catalog import APPEND_DEDUP
from elt_assets.protocol.messages import FollowRequest
from elt_assets.runner.connector_log import LogFunction
from elt_assets.storage.folders import make_private_lake


class Refresh(enum.Enum):
    """Kinds of refresh: `retain` keeps the rows of the table, `truncate` replaces them at the end.

    Spec: Airbyte, Refreshes.
    """

    none = "none"
    retain = "retain"
    truncate = "truncate"

    @property
    def mode(self) -> RefreshMode:
        return self.value


class WindowConfig(dg.Config):
    """A past period of the source data; times in ISO 8601."""

    start: str = Field(
        description='Start of the period (inclusive): "2026-01-01" or "2026-01-01T06:00:00Z".'
    )
    end: str = Field(description="End of the period (exclusive).")


class SyncConfig(dg.Config):
    """Options that change how this run syncs the stream; at most one of the first three may be set."""

    refresh: Refresh = Field(
        default=Refresh.none,
        description="Read the stream from the beginning: `truncate` replaces the rows of the table at the "
        "end, `retain` keeps them and appends or merges the records.",
    )
    state: dict[str, Any] | None = Field(
        default=None,
        description="Start from this state instead of the state of the table: a STATE message, or only the "
        'state of this stream: {updated_at: "2026-01-01"}. For incremental streams, one partition at a time.',
    )
    window: WindowConfig | None = Field(
        default=None,
        description='Read this period again: {start: "2026-01-01", end: "2026-01-08"}. The cursor does not '
        "change. For append_dedup streams whose YAML has a `window`.",
    )
    follow: bool | None = Field(
        default=None,
        description="Whether the run follows the log of the source; default: if the connection has `follow`. "
        "A run with one of the other options reads up to the present end of the log.",
    )

    @property
    def is_plain(self) -> bool:
        """Whether none of the options says what is read."""
        return self.refresh is Refresh.none and self.state is None and self.window is None

    def follows(self, connection: Connection) -> bool:
        """Return whether a run follows the log of a connection."""
        asked = self.is_plain if self.follow is None else self.follow
        return asked and connection.follow is not None


CONFIG_SCHEMA = SyncConfig.to_fields_dict()
"""The config schema of every stream's op."""


def validate(asset: StreamAsset, config: SyncConfig) -> None:
    """Validate the run config of a stream before a connector starts.

    Raises:
        ConfigError: options cannot be combined, or the stream does not support an option.
    """
    name, refreshes = str(asset.stream.id), config.refresh is not Refresh.none
    options = [refreshes, config.state is not None, config.window is not None]
    if sum(options) > 1:
        raise ConfigError(
            f"stream {name!r}: `refresh`, `state` and `window` cannot be combined",
            guidance="set only one of them",
        )
    if config.follow and not config.is_plain:
        raise ConfigError(
            f"stream {name!r}: `follow` cannot be combined with `refresh`, `state` or `window`",
            guidance="run it with that option first, and then with `follow`",
        )
    if config.follow and asset.connection.follow is None:
        raise ConfigError(
            f"stream {name!r}: the run is to follow the log, and defs.yaml does not say how",
            guidance="write `follow: {for: 55m, every: 5s}` at the connection, or run `elt sync "
            f"{asset.connection.name} --follow`",
        )
    if asset.settings.partitions is not None and (refreshes or config.window is not None):
        option = "refresh" if refreshes else "window"
        raise ConfigError(
            f"stream {name!r} has partitions; `{option}` is for streams without partitions",
            guidance="materialise the partitions that you want to read again; an incremental one goes on "
            f"from its state, so reset that first: `elt state reset {asset.key.to_user_string()} --partition "
            "KEY`",
        )
    if asset.connection.read_together:
        if config.state is not None:
            shared_start.as_shared(config.state)
    elif config.state is not None:
        refuse_stateless(asset)
        as_message(config.state, asset.stream)
    if config.window is not None:
        _validate_window(asset, config.window)


def _validate_window(asset: StreamAsset, window: WindowConfig) -> None:
    name = str(asset.stream.id)
    partitions.parse_window(window.start, window.end)
    if asset.settings.window is None:
        raise ConfigError(
            f"stream {name!r}: defs.yaml does not declare which config fields of the source a window sets",
            guidance="add `window: {bind: {start: <field>, end: <field>}}` to the stream in defs.yaml",
        )
    if asset.stream.destination_sync_mode != APPEND_DEDUP:
        raise ConfigError(
            f"stream {name!r}: a window is merged into the table, which requires "
            f"`destination_sync_mode: append_dedup`; it is {asset.stream.destination_sync_mode}",
            guidance="run a `refresh` instead",
        )


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
            connector = make_source(asset.connection, staging, on_log=on_log)
            return find_contexts(connector, asset, partitions)

    def plan(
        self,
        assets: Sequence[StreamAsset],
        on_log: LogFunction,
        partition: str | None = None,
        contexts: PartitionContexts | None = None,
        follow: FollowRequest | None = None,
    ) -> ConnectionRead:
        """Return the read of streams from the current states of their tables.

        Streams that are read together start from the newest state that all their tables have had, from one
        state each, or from the beginning.

        Args:
            on_log: receives the log lines of the connectors, except those of `read`, also during the read.
            partition: the partition to read, of a single stream.
            contexts: those of the run's partitions, if the source lists its partitions itself.
            follow: how long the source follows its log, of streams that are read together.

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
            return plan_shared_read(plans, resources, self._config.state, follow)
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
