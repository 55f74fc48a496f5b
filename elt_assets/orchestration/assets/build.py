"""Build Dagster assets from the streams of a connection."""

# No `from __future__ import annotations`: Dagster inspects the annotations of the op.

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import dagster as dg
from dagster_shared.check import CheckError

from elt_assets import paths
from elt_assets.connection import Connection, load_catalog, load_connection, resolve_streams
from elt_assets.connection.automation import Retry
from elt_assets.errors import ConfigError, EltError, Problems
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.table_ownership import check_claims
from elt_assets.lake.write.write_spec import check_columns
from elt_assets.machine_faults import translated
from elt_assets.orchestration.assets import checks, partitions, read_events
from elt_assets.orchestration.assets.attempts import (
    EarlierAttempts,
    complete_refreshes,
    report_killed_runs,
)
from elt_assets.orchestration.assets.planning import (
    contexts_of_run,
    recover_and_plan,
    recover_and_plan_together,
)
from elt_assets.orchestration.assets.read_events import ReadReporter
from elt_assets.orchestration.assets.run_config import CONFIG_SCHEMA, SyncConfig, validate
from elt_assets.orchestration.assets.translator import ConnectionTranslator, companion_specs
from elt_assets.orchestration.events.metadata import HISTORY, RECORDS_READ, TABLE_PATH
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.names import connection_name, output_name
from elt_assets.orchestration.resources import IO_MANAGER_KEY, LAKE_KEY, SPARK_KEY
from elt_assets.orchestration.stream_sync import (
    CommittedRead,
    ReportRead,
    StreamSync,
    SyncResult,
)
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect
from elt_assets.protocol.airbyte.catalog import Catalog, ConfiguredStream

SyncEvent = dg.MaterializeResult[StreamSync] | dg.AssetCheckResult


def check_shared_tables(specs: Iterable[dg.AssetSpec]) -> None:
    """Check that no two assets of several connections write to one table (see `check_claims`)."""
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
    """Return the specs of all assets, executable or not."""
    found: list[dg.AssetSpec] = []
    for asset in definitions.assets or []:
        if isinstance(asset, dg.AssetSpec):
            found.append(asset)
        elif isinstance(asset, dg.AssetsDefinition):
            found += asset.specs
    return found


def check_together(definitions: Sequence[dg.Definitions]) -> None:
    """Check that connections, each of which can be loaded, can also be loaded together.

    Raises:
        ConfigError: two connections write to one table, or Dagster rejects the merged definitions.
    """
    merged = dg.Definitions.merge(*definitions)
    check_shared_tables(specs_of(merged))
    try:
        dg.Definitions.validate_loadable(merged)
    except dg.DagsterError as error:
        raise ConfigError(
            f"the connections cannot be loaded together: {error}",
            guidance="give one connection another `name`, or its streams another `key` in `translation`",
        ) from error


def stream_assets(
    connection: Connection,
    streams: Sequence[ConfiguredStream],
    translator: ConnectionTranslator | None = None,
) -> list[StreamAsset]:
    """Return the configured streams of a connection, with the specs of their assets."""
    translator = translator or ConnectionTranslator()
    problems = Problems()
    specs = [problems.of(partial(_spec, connection, stream, translator)) for stream in streams]
    problems.raise_all()
    return [
        StreamAsset.of(connection, stream, spec)
        for stream, spec in zip(streams, specs, strict=True)
        if spec is not None
    ]


def _spec(
    connection: Connection, stream: ConfiguredStream, translator: ConnectionTranslator
) -> dg.AssetSpec:
    try:
        return translator.get_asset_spec(connection, stream)
    except (dg.DagsterError, CheckError, ValueError) as error:
        raise ConfigError(
            f"stream {str(stream.id)!r}: the configuration is not valid for a Dagster asset: {error}",
            guidance="correct the value that the message names: `owners`, `tags`, `group`, "
            "`translation` …, of the stream or of its connection",
        ) from error


def build_connection_assets(
    connection: Connection | Path | str,
    *,
    catalog: Catalog | None = None,
    translator: ConnectionTranslator | None = None,
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of a connection.

    There is one asset for each configured stream, and one for each of its companion tables (history, dead
    letter), which the materialisation of the stream writes. One more asset is the source system, which is
    never materialised. The assets need the resources that `elt_assets.resources()` returns.

    Args:
        connection: the connection, or its folder (with `defs.yaml`, and `catalog.json` of `elt discover`).
        catalog: the catalog of the source; default: `catalog.json` in the folder.
        translator: creates the specs of the assets; default: `ConnectionTranslator()`.

    Raises:
        ConfigError: the connection is not valid; streams or columns collide; the kind of source is unknown.
    """
    if not isinstance(connection, Connection):
        folder = Path(connection)
        connection, catalog = load_connection(folder), catalog or load_catalog(folder)
    if catalog is None:
        raise ConfigError(
            f"the catalog of connection {connection.name!r} is missing",
            guidance="pass the folder of the connection, or a `catalog`",
        )
    translator = translator or ConnectionTranslator()
    assets = stream_assets(connection, resolve_streams(connection, catalog), translator)
    return build_assets(connection, assets, translator)


def build_assets(
    connection: Connection, assets: Sequence[StreamAsset], translator: ConnectionTranslator
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of a connection whose streams already have specs (see `build_connection_assets`).

    Raises:
        ConfigError: streams or columns collide, or the kind of source is unknown.
    """
    problems = Problems()
    for asset in assets:
        problems.of(partial(check_columns, asset.landed()))
    problems.of(partial(connect, connection, paths.staging()))
    problems.raise_all()
    source = translator.get_source_spec(connection)
    if connection.read_together:
        return [source, _build_together(connection, assets, source.key)]
    return [source, *(_build(asset, source.key) for asset in assets)]


def _outs(asset: StreamAsset) -> dict[str, dg.AssetOut]:
    """Return the outputs of a stream's op: the stream and its companions, each of which can be selected.

    `specs` is not used: it would name an output after the asset key, which may be an invalid Dagster name.
    """
    return {
        output_name(spec.key): dg.AssetOut.from_spec(
            spec.replace_attributes(deps=[]), io_manager_key=IO_MANAGER_KEY, is_required=False
        )
        for spec in (asset.spec, *companion_specs(asset))
    }


def _deps(assets: Iterable[StreamAsset]) -> dict[str, set[dg.AssetKey]]:
    """Return the dependencies of each output: of a stream those of its spec, of a companion its stream."""
    found = {output_name(asset.key): {dep.asset_key for dep in asset.spec.deps} for asset in assets}
    for asset in assets:
        found |= {output_name(spec.key): {asset.key} for spec in companion_specs(asset)}
    return found


def _build_together(
    connection: Connection, assets: Sequence[StreamAsset], source: dg.AssetKey
) -> dg.AssetsDefinition:
    """Return one asset definition of all streams; one connector process reads the selected streams."""
    name = connection_name(connection)

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
        selected = [asset for asset in assets if asset.key in context.selected_asset_keys]
        read_events.log_unread([asset for asset in assets if asset not in selected], context)
        earlier = complete_refreshes(selected, context)
        unread = [asset for asset in selected if asset.key not in earlier]
        complete, error = _read_together(unread, source, context) if unread else ({}, None)
        for key in complete:
            # The rows are already committed: the IO manager wrote them during the read.
            yield dg.MaterializeResult(asset_key=key, metadata=read_events.REPORTED)
            yield from read_events.companion_results(complete[key].asset, context)
        with as_dagster_failure():
            for asset in assets:
                if asset in unread and asset.key not in complete:
                    continue
                names = _selected_checks(asset, context)
                evidence = _evidence(asset, context, complete.get(asset.key))
                yield from checks.results(evidence, names)
            if error is not None:
                raise error

    return sync


def _read_together(
    assets: Sequence[StreamAsset], source: dg.AssetKey, context: dg.AssetExecutionContext
) -> tuple[dict[dg.AssetKey, SyncResult], EltError | None]:
    """Read streams in one process; return the complete streams, and the error that the others failed with."""
    config = SyncConfig(**context.op_execution_context.op_config)
    with as_dagster_failure():
        for asset in assets:
            validate(asset, config)
        plan = recover_and_plan_together(assets, context.resources.elt_lake, config, context)
    by_id = {asset.stream.id: asset for asset in assets}
    results: dict[dg.AssetKey, SyncResult] = {}
    try:
        with translated():
            for stream in context.resources.elt_io_manager.land(context, context.run.run_id, plan):
                asset = by_id[stream.read.id]
                reporter = ReadReporter(asset, source, context, logs_stream=True)
                results[asset.key] = SyncResult(asset=asset, report=reporter.report)
                results[asset.key].add(stream)
    except EltError as failure:
        return results, failure
    return results, None


def _selected_checks(asset: StreamAsset, context: dg.AssetExecutionContext) -> list[str]:
    """Return the names of the stream's checks that the run selected."""
    return [key.name for key in context.selected_asset_check_keys if key.asset_key == asset.key]


def _build(asset: StreamAsset, source: dg.AssetKey) -> dg.AssetsDefinition:
    configured = asset.settings.partitions

    @dg.multi_asset(
        name=asset.op_name,
        outs=_outs(asset),
        internal_asset_deps=_deps([asset]),
        deps=asset.spec.deps,
        check_specs=checks.check_specs(asset),
        can_subset=True,
        partitions_def=asset.partitions,
        backfill_policy=None if configured is None else partitions.backfill_policy(configured),
        # Not an annotated argument: Dagster would infer the schema again for each stream.
        config_schema=CONFIG_SCHEMA,
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        retry_policy=_retries(asset.connection.retry),
        # Partitions of one stream may run at the same time.
        pool=asset.op_name if configured is None else None,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[SyncEvent]:
        names = _selected_checks(asset, context)
        if asset.key not in context.selected_asset_keys:
            read_events.log_unread([asset], context)
            with as_dagster_failure():
                yield from checks.results(_evidence(asset, context), names)
            return
        result = _sync(asset, source, context)
        is_reported = asset.partitions is not None
        metadata = read_events.REPORTED if is_reported else None
        yield dg.MaterializeResult(asset_key=asset.key, value=result, metadata=metadata)
        yield from read_events.companion_results(asset, context)
        with as_dagster_failure():
            yield from checks.results(_evidence(asset, context, result), names)

    return sync


def _retries(retry: Retry) -> dg.RetryPolicy | None:
    if not retry.attempts:
        return None
    seconds = retry.delay.total_seconds()
    return dg.RetryPolicy(retry.attempts, seconds, dg.Backoff.EXPONENTIAL, dg.Jitter.PLUS_MINUS)


def _sync(asset: StreamAsset, source: dg.AssetKey, context: dg.AssetExecutionContext) -> StreamSync:
    config = SyncConfig(**context.op_execution_context.op_config)
    with as_dagster_failure():
        validate(asset, config)
    keys = _partition_keys(asset, context)
    if config.state is not None and len(keys) > 1:
        with as_dagster_failure():
            raise ConfigError(
                f"`state` is set, but the run has {len(keys)} partitions, and each partition has "
                "a separate state",
                guidance="start a run of one partition, and set `state` for that partition",
            )
    lake = context.resources.elt_lake
    with as_dagster_failure():
        contexts = contexts_of_run(asset, lake, keys, context)
    reporter = ReadReporter(asset, source, context, logs_stream=asset.partitions is not None)
    if asset.partitions is not None:
        with as_dagster_failure():
            report_killed_runs(asset, lake, reporter, context)
    attempts = EarlierAttempts(asset, lake, reporter, context)
    return StreamSync(
        asset=asset,
        report=_report_function(asset, reporter, context),
        partitions=keys,
        completed_read=attempts.completed_read,
        plan=lambda partition: recover_and_plan(asset, lake, config, partition, context, contexts),
    )


def _report_function(
    asset: StreamAsset, reporter: ReadReporter, context: dg.AssetExecutionContext
) -> ReportRead:
    """Return the function that reports the reads of a stream: Dagster creates the event of a whole stream."""
    if asset.partitions is not None:
        return reporter.report

    def report(read: CommittedRead, tables: StreamTables) -> None:
        reporter.report(read, tables)
        context.add_asset_metadata(dict(read.metadata), asset.key)

    return report


def _partition_keys(
    asset: StreamAsset, context: dg.AssetExecutionContext
) -> Sequence[str] | Sequence[None]:
    """Return the partitions of the run; a single None for a stream without partitions."""
    if asset.partitions is None:
        return [None]
    if not (context.has_partition_key or context.has_partition_key_range):
        with as_dagster_failure():
            raise ConfigError(
                f"{asset.key.to_user_string()} has partitions, and this run selects no partition",
                guidance="use `--partition KEY` or `--partition-range FIRST...LAST` on the command line, or "
                "select partitions in the UI",
            )
    return list(context.partition_keys)


def _evidence(
    asset: StreamAsset, context: dg.AssetExecutionContext, sync: SyncResult | None = None
) -> checks.Evidence:
    """Return the evidence for the checks: of the given sync, or of the last sync of the stream."""
    resources = context.resources
    if sync is not None and sync.reads:
        tables = sync.tables or asset.tables(resources.elt_lake.location)
        files = tables.main.files_since(sync.version_before)
        # The event that a killed run owed does not have the figures of its read.
        syncs = [read.metadata for read in sync.reads if RECORDS_READ in read.metadata]
        return checks.Evidence(asset, syncs, tables, files, resources.elt_spark.provider)
    tables = asset.tables(resources.elt_lake.location)
    event = context.instance.get_latest_materialization_event(asset.key)
    last = event.asset_materialization if event else None
    syncs = [last.metadata] if last is not None else []
    return checks.Evidence(asset, syncs, tables, tables.main.files, resources.elt_spark.provider)
