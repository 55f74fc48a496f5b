"""Streams → software-defined assets."""

# No `from __future__ import annotations`: Dagster looks at the op's annotations itself.

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.check import CheckError

from elt_assets import home
from elt_assets.connection import Connection, configure, load_catalog, load_connection
from elt_assets.connection.automation import Retry
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.claims import check_claims
from elt_assets.lake.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.landing import check_columns
from elt_assets.lake.tables import DEAD_LETTER_SUFFIX
from elt_assets.orchestration import checks, partitions
from elt_assets.orchestration.metadata import HISTORY, TABLE_PATH, companion_metadata
from elt_assets.orchestration.reading import Landed, StreamSync
from elt_assets.orchestration.resources import IO_MANAGER_KEY, LAKE_KEY, SPARK_KEY
from elt_assets.orchestration.streams import StreamAsset, op_name
from elt_assets.orchestration.syncing import (
    CONFIG_SCHEMA,
    SyncConfig,
    connect,
    prepare,
    prepare_together,
    refuse,
)
from elt_assets.orchestration.told import told
from elt_assets.orchestration.translator import (
    ConnectionTranslator,
    companion_key,
    companion_specs,
)
from elt_assets.protocol.catalog import Catalog, ConfiguredStream

SyncEvent = dg.MaterializeResult[StreamSync] | dg.AssetCheckResult


def check_shared_tables(specs: Iterable[dg.AssetSpec]) -> None:
    """`check_claims` for the assets of several connections."""
    check_claims(
        (
            f"asset {spec.key.to_user_string()}",
            str(spec.metadata[TABLE_PATH]).split("/"),
            bool(spec.metadata[HISTORY]),
        )
        for spec in specs
        if HISTORY in spec.metadata
    )


def specs_of(definitions: dg.Definitions) -> list[dg.AssetSpec]:
    """The specs of all assets, executable or not."""
    found: list[dg.AssetSpec] = []
    for asset in definitions.assets or []:
        if isinstance(asset, dg.AssetSpec):
            found.append(asset)
        elif isinstance(asset, dg.AssetsDefinition):
            found += asset.specs
    return found


def check_together(definitions: Sequence[dg.Definitions]) -> None:
    """Check what connections that can each be loaded have in common.

    Raises:
        ConfigError: two of them write to one table, or Dagster does not take them together.
    """
    merged = dg.Definitions.merge(*definitions)
    check_shared_tables(specs_of(merged))
    try:
        dg.Definitions.validate_loadable(merged)
    except dg.DagsterError as error:
        raise ConfigError(f"the connections cannot be loaded together: {error}") from error


def stream_assets(
    connection: Connection,
    streams: Sequence[ConfiguredStream],
    translator: ConnectionTranslator | None = None,
) -> list[StreamAsset]:
    """The configured streams of a connection, with the specs of their assets."""
    translator = translator or ConnectionTranslator()
    return [
        StreamAsset(connection, stream, _spec(connection, stream, translator)) for stream in streams
    ]


def _spec(
    connection: Connection, stream: ConfiguredStream, translator: ConnectionTranslator
) -> dg.AssetSpec:
    try:
        return translator.get_asset_spec(connection, stream)
    except (dg.DagsterError, CheckError, ValueError) as error:
        raise ConfigError(
            f"stream {str(stream.id)!r} cannot be an asset as it is written: {error}"
        ) from error


def build_connection_assets(
    connection: Connection | Path | str,
    *,
    catalog: Catalog | None = None,
    translator: ConnectionTranslator | None = None,
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """A connection's assets: one for each configured stream, and, written or read by others, the source
    system and each stream's history and dead letter.

    They need the resources that `elt_assets.resources()` gives.

    Args:
        connection: its folder (with `defs.yaml`, and the `catalog.json` of `elt discover`), or itself.
        catalog: what the source has; default the folder's.
        translator: how the assets look; default `ConnectionTranslator()`.

    Raises:
        ConfigError: the connection is not valid; streams or columns collide; the source is of no known kind.
    """
    if not isinstance(connection, Connection):
        folder = Path(connection)
        connection, catalog = load_connection(folder), catalog or load_catalog(folder)
    if catalog is None:
        raise ConfigError(
            f"the catalog of connection {connection.name!r} is missing",
            guidance="give its folder, or a `catalog`",
        )
    translator = translator or ConnectionTranslator()
    assets = stream_assets(connection, configure(connection, catalog), translator)
    return build_assets(connection, assets, translator)


def build_assets(
    connection: Connection, assets: Sequence[StreamAsset], translator: ConnectionTranslator
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """As `build_connection_assets`, of streams whose specs are there.

    Raises:
        ConfigError: streams or columns collide; the source is of no known kind.
    """
    check_claims(
        (f"stream {str(one.stream.id)!r}", one.table_path, one.wanted.history) for one in assets
    )
    for asset in assets:
        check_columns(asset.landed())
    connect(connection, home.staging())
    companions = [spec for asset in assets for spec in companion_specs(asset)]
    together = connection.read_together
    streams = [_build_together(connection, assets)] if together else list(map(_build, assets))
    return [translator.get_source_spec(connection), *streams, *companions]


def _out(asset: StreamAsset) -> dict[str, dg.AssetOut]:
    """Of an op. Not `specs`: it would name the output after the key, which may be no name of Dagster's."""
    spec = asset.spec.replace_attributes(deps=[])
    out = dg.AssetOut.from_spec(spec, io_manager_key=IO_MANAGER_KEY, is_required=False)
    return {asset.op_name: out}


def _build_together(connection: Connection, assets: Sequence[StreamAsset]) -> dg.AssetsDefinition:
    """One asset definition of all streams, any of which can be selected: one process reads those."""
    name = op_name(dg.AssetKey([connection.name]))

    @dg.multi_asset(
        name=name,
        outs={name: out for asset in assets for name, out in _out(asset).items()},
        deps={dep.asset_key: dep for asset in assets for dep in asset.spec.deps}.values(),
        check_specs=[spec for asset in assets for spec in checks.check_specs(asset)],
        can_subset=True,
        config_schema=CONFIG_SCHEMA,
        required_resource_keys={LAKE_KEY, SPARK_KEY, IO_MANAGER_KEY},
        retry_policy=_retries(connection.retry),
        pool=name,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[SyncEvent]:
        wanted = [asset for asset in assets if asset.key in context.selected_asset_keys]
        landed, error = _read_together(wanted, context) if wanted else ({}, None)
        for done in landed.values():
            # Its rows are there by now, since the IO manager wrote them as they came.
            metadata = dict(done.done[0].metadata)
            yield dg.MaterializeResult(asset_key=done.asset.key, metadata=metadata)
            for event in _companion_events(done):
                context.log_event(event)
        with told():
            for asset in assets:
                if asset in wanted and asset.key not in landed:
                    continue
                names = _checked(asset, context)
                evidence = _evidence(asset, context, landed.get(asset.key))
                yield from checks.results(evidence, names)
            if error is not None:
                raise error

    return sync


def _read_together(
    assets: Sequence[StreamAsset], context: dg.AssetExecutionContext
) -> tuple[dict[dg.AssetKey, Landed], EltError | None]:
    """The streams that are complete, and what the others failed for."""
    config, error = SyncConfig(**context.op_execution_context.op_config), None
    with told():
        for asset in assets:
            refuse(asset, config)
        source = prepare_together(assets, context.resources.elt_lake, config, context)
    try:
        context.resources.elt_io_manager.land(context, context.run.run_id, source)
    except EltError as failure:
        error = failure
    landed = {}
    for read in source.streams:
        if read.metadata:
            landed[read.asset.key] = Landed(asset=read.asset)
            landed[read.asset.key].keep(read)
    return landed, error


def _checked(asset: StreamAsset, context: dg.AssetExecutionContext) -> list[str]:
    """The checks of a stream that the run is to make."""
    return [key.name for key in context.selected_asset_check_keys if key.asset_key == asset.key]


def _build(asset: StreamAsset) -> dg.AssetsDefinition:
    written = asset.wanted.partitions

    @dg.multi_asset(
        name=asset.op_name,
        outs=_out(asset),
        deps=asset.spec.deps,
        check_specs=checks.check_specs(asset),
        can_subset=True,
        partitions_def=asset.partitions,
        backfill_policy=None if written is None else partitions.backfill_policy(written),
        # Not as an annotated argument: a schema would be inferred anew for each of many streams.
        config_schema=CONFIG_SCHEMA,
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        retry_policy=_retries(asset.connection.retry),
        # Partitions of one stream may run side by side.
        pool=asset.op_name if written is None else None,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[SyncEvent]:
        wanted = _checked(asset, context)
        if asset.key not in context.selected_asset_keys:
            with told():
                yield from checks.results(_evidence(asset, context), wanted)
            return
        read = _sync(asset, context, SyncConfig(**context.op_execution_context.op_config))
        yield dg.MaterializeResult(asset_key=asset.key, value=read)
        for event in _companion_events(read):
            context.log_event(event)
        with told():
            yield from checks.results(_evidence(asset, context, read), wanted)

    return sync


def _retries(written: Retry) -> dg.RetryPolicy | None:
    if not written.attempts:
        return None
    seconds = written.delay.total_seconds()
    return dg.RetryPolicy(written.attempts, seconds, dg.Backoff.EXPONENTIAL, dg.Jitter.PLUS_MINUS)


def _sync(asset: StreamAsset, context: dg.AssetExecutionContext, config: SyncConfig) -> StreamSync:
    with told():
        refuse(asset, config)

    def tell(partition: str | None, metadata: Any) -> None:
        context.add_asset_metadata(dict(metadata), asset.key, partition)

    keys = list(context.partition_keys) if asset.partitions is not None else [None]
    if config.state is not None and len(keys) > 1:
        with told():
            raise ConfigError(
                f"a state is given, and {len(keys)} partitions, each of which has one of its own",
                guidance="give a state to a run of one partition",
            )
    lake = context.resources.elt_lake
    return StreamSync(
        asset=asset,
        partitions=keys,
        prepare=lambda partition: prepare(asset, lake, config, partition, context),
        tell=tell,
    )


def _evidence(
    asset: StreamAsset, context: dg.AssetExecutionContext, sync: Landed | None = None
) -> checks.Evidence:
    """Of a sync that was just made, or of the last one."""
    resources = context.resources
    if sync is not None and sync.tables is not None:
        tables = sync.tables
        files = [file for file in tables.main.files if file.path not in sync.files_before]
        syncs = [done.metadata for done in sync.done]
        return checks.Evidence(asset, syncs, tables, files, resources.elt_spark.provider)
    tables = asset.tables(resources.elt_lake.uri)
    event = context.instance.get_latest_materialization_event(asset.key)
    last = event.asset_materialization if event else None
    syncs = [last.metadata] if last is not None else []
    return checks.Evidence(asset, syncs, tables, tables.main.files, resources.elt_spark.provider)


def _companion_events(sync: Landed) -> Iterator[dg.AssetMaterialization]:
    """Of the history and the dead letter, where the sync wrote to them."""
    if sync.tables is None:
        return
    asset, tables = sync.asset, sync.tables
    companions = {DEAD_LETTER_SUFFIX: tables.dead_letter, HISTORY_SUFFIX: tables.history}
    rejected = sum(done.rejected for done in sync.done)
    for suffix, table in companions.items():
        if table is None or not table.exists or (suffix == DEAD_LETTER_SUFFIX and not rejected):
            continue
        metadata = companion_metadata(table, asset.table_name + suffix)
        yield dg.AssetMaterialization(companion_key(asset.key, suffix), metadata=metadata)
