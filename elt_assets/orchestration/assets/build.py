"""Streams → software-defined assets."""

# No `from __future__ import annotations`: Dagster looks at the op's annotations itself.

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.check import CheckError

from elt_assets import paths
from elt_assets.connection import Connection, load_catalog, load_connection, resolve_streams
from elt_assets.connection.automation import Retry
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.write.table_ownership import check_claims
from elt_assets.lake.write.write_spec import check_columns
from elt_assets.orchestration.assets import checks, companions, partitions
from elt_assets.orchestration.assets.planning import plan, plan_together
from elt_assets.orchestration.assets.run_config import CONFIG_SCHEMA, SyncConfig, refuse
from elt_assets.orchestration.assets.translator import ConnectionTranslator, companion_specs
from elt_assets.orchestration.events.metadata import HISTORY, TABLE_PATH
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.resources import IO_MANAGER_KEY, LAKE_KEY, SPARK_KEY
from elt_assets.orchestration.stream_sync import Landed, StreamSync
from elt_assets.orchestration.streams import StreamAsset, op_name
from elt_assets.pipeline.connectors import connect
from elt_assets.protocol.airbyte.catalog import Catalog, ConfiguredStream

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
        StreamAsset.of(connection, stream, _spec(connection, stream, translator))
        for stream in streams
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
    """A connection's assets: one for each configured stream, with its history and dead letter, which its
    materialisation writes; and the source system, which nothing here writes.

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
    assets = stream_assets(connection, resolve_streams(connection, catalog), translator)
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
    connect(connection, paths.staging())
    source = translator.get_source_spec(connection)
    if connection.read_together:
        return [source, _build_together(connection, assets, source.key)]
    return [source, *(_build(asset, source.key) for asset in assets)]


def _outs(asset: StreamAsset) -> dict[str, dg.AssetOut]:
    """Return the outputs of a stream's op: the stream and its companions, any of which a selection may name.

    Not `specs`: it would name an output after its key, which may be no name of Dagster's.
    """
    return {
        op_name(spec.key): dg.AssetOut.from_spec(
            spec.replace_attributes(deps=[]), io_manager_key=IO_MANAGER_KEY, is_required=False
        )
        for spec in (asset.spec, *companion_specs(asset))
    }


def _deps(assets: Iterable[StreamAsset]) -> dict[str, set[dg.AssetKey]]:
    """Return what each output depends on: a stream on what its spec names, a companion on its stream."""
    found = {asset.op_name: {dep.asset_key for dep in asset.spec.deps} for asset in assets}
    for asset in assets:
        found |= {op_name(spec.key): {asset.key} for spec in companion_specs(asset)}
    return found


def _build_together(
    connection: Connection, assets: Sequence[StreamAsset], source: dg.AssetKey
) -> dg.AssetsDefinition:
    """One asset definition of all streams, any of which can be selected: one process reads those."""
    name = op_name(dg.AssetKey([connection.name]))

    @dg.multi_asset(
        name=name,
        outs={name: out for asset in assets for name, out in _outs(asset).items()},
        internal_asset_deps=_deps(assets),
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
        companions.log_unread([asset for asset in assets if asset not in wanted], context)
        landed, error = _read_together(wanted, context) if wanted else ({}, None)
        for done in landed.values():
            # Its rows are there by now, since the IO manager wrote them as they came.
            metadata = dict(done.done[0].metadata)
            yield dg.MaterializeResult(asset_key=done.asset.key, metadata=metadata)
            yield from companions.results(done, source, context)
        with as_dagster_failure():
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
    config = SyncConfig(**context.op_execution_context.op_config)
    with as_dagster_failure():
        for asset in assets:
            refuse(asset, config)
        plan = plan_together(assets, context.resources.elt_lake, config, context)
    of = {asset.stream.id: asset for asset in assets}
    landed: dict[dg.AssetKey, Landed] = {}
    try:
        for complete in context.resources.elt_io_manager.land(context, context.run.run_id, plan):
            asset = of[complete.read.id]
            landed[asset.key] = Landed(asset=asset)
            landed[asset.key].keep(complete)
    except EltError as failure:
        return landed, failure
    return landed, None


def _checked(asset: StreamAsset, context: dg.AssetExecutionContext) -> list[str]:
    """The checks of a stream that the run is to make."""
    return [key.name for key in context.selected_asset_check_keys if key.asset_key == asset.key]


def _build(asset: StreamAsset, source: dg.AssetKey) -> dg.AssetsDefinition:
    written = asset.wanted.partitions

    @dg.multi_asset(
        name=asset.op_name,
        outs=_outs(asset),
        internal_asset_deps=_deps([asset]),
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
            companions.log_unread([asset], context)
            with as_dagster_failure():
                yield from checks.results(_evidence(asset, context), wanted)
            return
        read = _sync(asset, context, SyncConfig(**context.op_execution_context.op_config))
        yield dg.MaterializeResult(asset_key=asset.key, value=read)
        yield from companions.results(read, source, context)
        with as_dagster_failure():
            yield from checks.results(_evidence(asset, context, read), wanted)

    return sync


def _retries(written: Retry) -> dg.RetryPolicy | None:
    if not written.attempts:
        return None
    seconds = written.delay.total_seconds()
    return dg.RetryPolicy(written.attempts, seconds, dg.Backoff.EXPONENTIAL, dg.Jitter.PLUS_MINUS)


def _sync(asset: StreamAsset, context: dg.AssetExecutionContext, config: SyncConfig) -> StreamSync:
    with as_dagster_failure():
        refuse(asset, config)

    def tell(partition: str | None, metadata: Any) -> None:
        context.add_asset_metadata(dict(metadata), asset.key, partition)

    keys = _partition_keys(asset, context)
    if config.state is not None and len(keys) > 1:
        with as_dagster_failure():
            raise ConfigError(
                f"a state is given, and {len(keys)} partitions, each of which has one of its own",
                guidance="give a state to a run of one partition",
            )
    lake = context.resources.elt_lake
    return StreamSync(
        asset=asset,
        partitions=keys,
        plan=lambda partition: plan(asset, lake, config, partition, context),
        tell=tell,
    )


def _partition_keys(
    asset: StreamAsset, context: dg.AssetExecutionContext
) -> Sequence[str] | Sequence[None]:
    """Return the partitions that the run is for; None alone for a stream without partitions."""
    if asset.partitions is None:
        return [None]
    if not (context.has_partition_key or context.has_partition_key_range):
        with as_dagster_failure():
            raise ConfigError(
                f"{asset.key.to_user_string()} has partitions, and this run names none",
                guidance="give `--partition KEY` or `--partition-range FIRST...LAST` on the command line, or "
                "choose partitions in the UI",
            )
    return list(context.partition_keys)


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
