"""From a stream's run config and standing to the read that is to be made."""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from elt_assets import paths
from elt_assets.connection import Connection
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import (
    Generations,
    RefreshMode,
    continues,
    generations,
    next_sync_id,
    starting_state,
)
from elt_assets.orchestration.assets import partitions, shared_state_start
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.events.metadata import head_metadata
from elt_assets.orchestration.events.reconcile import reconcile
from elt_assets.orchestration.reading import SourceRead, StreamRead
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.states import as_message, refuse_stateless
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.airbyte.catalog import APPEND_DEDUP
from elt_assets.protocol.airbyte.messages import State
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import Hear, ignore
from elt_assets.runner.kinds.sources import open_connector, to_install
from elt_assets.storage.directories import make_private_lake


class Refresh(enum.Enum):
    """spec: Airbyte's refreshes: `retain` keeps what the table holds, `truncate` replaces it at the end."""

    none = "none"
    retain = "retain"
    truncate = "truncate"

    @property
    def mode(self) -> RefreshMode:
        return self.value


class WindowConfig(dg.Config):
    """A period of the source's past, in ISO 8601."""

    start: str = Field(
        description='The first moment to read, as "2026-01-01" or "2026-01-01T06:00:00Z".'
    )
    end: str = Field(description="The first moment not to read any more.")


class SyncConfig(dg.Config):
    """How this run syncs the stream, where it differs from an ordinary sync; at most one of these."""

    refresh: Refresh = Field(
        default=Refresh.none,
        description="Read the whole source again: `truncate` replaces the table's rows at the end, `retain` "
        "keeps them and adds to them or merges into them.",
    )
    state: dict[str, Any] | None = Field(
        default=None,
        description="Start from this state instead of the table's own: a STATE message, or what it says of "
        'this stream, as {updated_at: "2026-01-01"}. For incremental streams; of one partition at a time.',
    )
    window: WindowConfig | None = Field(
        default=None,
        description="Read this period again and leave the cursor where it is, as "
        '{start: "2026-01-01", end: "2026-01-08"}. For append_dedup streams whose YAML has a `window`.',
    )


CONFIG_SCHEMA = SyncConfig.to_fields_dict()
"""Of every stream's op."""


def refuse(asset: StreamAsset, config: SyncConfig) -> None:
    """Look at the run config before anything runs.

    Raises:
        ConfigError: what it asks for does not go together, or not with the stream.
    """
    name, refreshes = str(asset.stream.id), config.refresh is not Refresh.none
    given = [refreshes, config.state is not None, config.window is not None]
    if sum(given) > 1:
        raise ConfigError(
            f"stream {name!r}: `refresh`, `state` and `window` are each a way of their own to begin",
            guidance="give one of them",
        )
    if asset.wanted.partitions is not None and (refreshes or config.window is not None):
        what = "refresh" if refreshes else "window"
        raise ConfigError(
            f"stream {name!r} has partitions, each of which is replaced when it is materialised; "
            f"`{what}` is for streams without",
            guidance="materialise the partitions that you want to read anew",
        )
    if asset.connection.read_together:
        if config.state is not None:
            shared_state_start.as_shared(config.state)
    elif config.state is not None:
        refuse_stateless(asset)
        as_message(config.state, asset.stream)
    if config.window is not None:
        _refuse_window(asset, config.window)


def _refuse_window(asset: StreamAsset, window: WindowConfig) -> None:
    name = str(asset.stream.id)
    partitions.parse_window(window.start, window.end)
    if asset.wanted.window is None:
        raise ConfigError(
            f"stream {name!r}: which config fields of the source a window sets is not said",
            guidance="write `window: {bind: {start: <field>, end: <field>}}` for the stream in defs.yaml",
        )
    if asset.stream.destination_sync_mode != APPEND_DEDUP:
        raise ConfigError(
            f"stream {name!r}: a window is read into what the table holds, which needs "
            f"`destination_sync_mode: append_dedup`; it is {asset.stream.destination_sync_mode}",
            guidance="run a `refresh` instead",
        )


def prepare(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> SourceRead:
    """The read of a stream, or of one of its partitions, from where its table stands.

    Raises:
        ConfigError: a refresh is under way that a window does not go with; lake or staging cannot be
            written to.
    """
    lake.check_writable()
    read = _stream_read(asset, lake, config, partition, context)
    if config.state is not None and not read.continues:
        read.state = json.dumps(as_message(config.state, asset.stream))
    states = [State.from_json(read.state)] if read.state is not None else []
    settings = _settings(asset, config, partition)
    hear = hearing(context.log)
    connector = connect(asset.connection, lake.staging_path, settings, hear=hear)
    destination = connect_destination(asset.connection, lake.staging_path, hear=hear)
    staging, connection = lake.staging_path, asset.connection
    return SourceRead(connection, connector, staging, [read], states, destination=destination)


def prepare_together(
    assets: Sequence[StreamAsset],
    lake: LakeResource,
    config: SyncConfig,
    context: dg.AssetExecutionContext,
) -> SourceRead:
    """One read of several streams of a connection, from a state that holds for all of them.

    Raises:
        ConfigError: a refresh is under way that a given state does not go with; lake or staging cannot be
            written to.
    """
    lake.check_writable()
    connection = assets[0].connection
    reads = [_stream_read(asset, lake, config, None, context) for asset in assets]
    sync_id = max(read.stream.sync_id or 0 for read in reads)
    for read in reads:
        read.stream.sync_id = sync_id
    if config.state is None or all(read.continues for read in reads):
        states = shared_state_start.starting_states(reads, context.log.warning)
    else:
        states = [shared_state_start.as_shared(config.state)]
    hear = hearing(context.log)
    connector = connect(connection, lake.staging_path, hear=hear)
    return SourceRead(
        connection,
        connector,
        lake.staging_path,
        reads,
        states,
        together=True,
        destination=connect_destination(connection, lake.staging_path, hear=hear),
    )


def _stream_read(
    asset: StreamAsset,
    lake: LakeResource,
    config: SyncConfig,
    partition: str | None,
    context: dg.AssetExecutionContext,
) -> StreamRead:
    tables = _settled(asset, lake, partition, context)
    as_landed, head, mode = asset.landed(), tables.head, config.refresh.mode
    salt, intent = asset.salt_fingerprint, _intent(config, context)
    is_continued = continues(as_landed, head, intent, salt)
    if is_continued:
        context.log.info(f"{asset.key.to_user_string()}: continuing what an earlier attempt began")
        mode = "none"
    written = generations(as_landed, head, mode, salt)
    if config.window is not None or (config.state is not None and not is_continued):
        _refuse_refreshing(asset, head)
    if config.window is not None:
        written = Generations(max(head.generation, 1), 0)
    stream = copy.copy(asset.stream)
    stream.generation_id = written.generation_id
    stream.minimum_generation_id = written.minimum_generation_id
    stream.sync_id = next_sync_id(head)
    return StreamRead(
        asset=asset,
        stream=stream,
        tables=tables,
        state=None if config.window else starting_state(as_landed, head, mode, salt),
        partition=partition,
        keeps_state=config.window is not None,
        intent=intent,
        continues=is_continued,
        files_before=frozenset(file.path for file in tables.main.files),
    )


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


def _refuse_refreshing(asset: StreamAsset, head: CommitMetadata) -> None:
    """What is read beside a refresh, or from elsewhere, would be a hole in it."""
    if head.refresh is not None:
        raise ConfigError(
            f"stream {str(asset.stream.id)!r} is in the middle of a refresh",
            guidance="let it finish (materialise the stream as ever); then read a window, or from a state",
        )


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


def connect(
    connection: Connection,
    workdir: Path,
    config: Mapping[str, Any] | None = None,
    *,
    hear: Hear = ignore,
) -> Connector:
    """The connection's connector; nothing runs yet.

    Args:
        config: in place of the connection's.
        hear: takes what the connector says in other verbs than `read`.
    """
    source = connection.source
    return open_connector(
        source.kind,
        getattr(source, source.kind),
        source.config if config is None else config,
        workdir,
        paths.packages(),
        heartbeat=connection.heartbeat.total_seconds(),
        store=paths.config_store() / f"{connection.name}.json",
        environment=source.environment,
        installation=source.install,
        container=source.container,
        user=source.user,
        hear=hear,
        deadlines=connection.deadlines.seconds(),
    )


def package_to_install(connection: Connection) -> str | None:
    """The package that must be installed before the connection's connectors can run; None if none must."""
    for end in filter(None, (connection.source, connection.destination)):
        found = to_install(end.kind, getattr(end, end.kind), paths.packages(), end.install)
        if found is not None:
            return found
    return None


def connect_destination(
    connection: Connection, workdir: Path, *, hear: Hear = ignore
) -> Connector | None:
    """The connector that the connection's records go to, if that is not the lake; nothing runs yet."""
    written = connection.destination
    if written is None:
        return None
    return open_connector(
        written.kind,
        getattr(written, written.kind),
        written.config,
        workdir,
        paths.packages(),
        heartbeat=connection.heartbeat.total_seconds(),
        store=paths.config_store() / f"{connection.name}.destination.json",
        environment=written.environment,
        installation=written.install,
        container=written.container,
        user=written.user,
        hear=hear,
        deadlines=connection.deadlines.seconds(),
    )
