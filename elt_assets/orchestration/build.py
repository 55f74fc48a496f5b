"""Build Dagster assets from the streams of a connection, and check those of all connections together.

`component` builds assets of YAML, and users those of Python; `source_jobs` and `elt` build some to check a
catalog; `project` and `elt validate` check all.
"""

# No `from __future__ import annotations`: Dagster inspects the annotations of the op.
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import dagster as dg
from dagster_shared.check import CheckError

from elt_assets.connection import Connection, collect_problems, load_catalog, load_connection
from elt_assets.connection.automation import Retry
from elt_assets.errors import ConfigError, Problems
from elt_assets.lake.session import activate_shared_session
from elt_assets.lake.write.companions import DEAD_LETTER_SUFFIX, check_claims
from elt_assets.orchestration import partitions
from elt_assets.orchestration.checks import check_specs
from elt_assets.orchestration.collector import leave_out_loaded
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.metadata import HISTORY, TABLE_PATH
from elt_assets.orchestration.planning import CONFIG_SCHEMA
from elt_assets.orchestration.resources import IO_MANAGER_KEY, LAKE_KEY, SPARK_KEY
from elt_assets.orchestration.runs.executor import STEP_TAGS, log_separate_processes
from elt_assets.orchestration.step import SyncStep
from elt_assets.orchestration.streams import StreamAsset, output_name
from elt_assets.orchestration.translator import ConnectionTranslator, companion_key, companion_specs
from elt_assets.pipeline.stream import ConnectionStream, table_path
from elt_assets.pipeline.validation import resolve_connection
from elt_assets.protocol.catalog import Catalog


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


def check_dead_letters(specs: Iterable[dg.AssetSpec], streams: Iterable[StreamAsset]) -> None:
    """Check that no asset depends on the asset of a dead letter that is only a table.

    Raises:
        ConfigError: one does. Dagster would take it for an asset of another project, and wait for its events.
    """
    tables = {
        companion_key(asset, DEAD_LETTER_SUFFIX): asset
        for asset in streams
        if not asset.has_dead_letter_asset and asset.connection.destination is None
    }
    for spec in specs:
        for dep in spec.deps:
            if (asset := tables.get(dep.asset_key)) is not None:
                raise ConfigError(
                    f"the asset {spec.key.to_user_string()} depends on {dep.asset_key.to_user_string()}, and "
                    f"the dead letter of {asset.name} is only a table",
                    guidance="write `dead_letter: asset` for this stream, or for its connection",
                )


def specs_of(definitions: dg.Definitions) -> list[dg.AssetSpec]:
    """Return the specs of all assets, executable or not."""
    specs: list[dg.AssetSpec] = []
    for asset in definitions.assets or []:
        if isinstance(asset, dg.AssetSpec):
            specs.append(asset)
        elif isinstance(asset, dg.AssetsDefinition):
            specs += asset.specs
    return specs


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
    streams: Sequence[ConnectionStream], translator: ConnectionTranslator, problems: Problems
) -> list[StreamAsset]:
    """Return streams of a connection with the specs of their assets; `problems` gets why one has none."""
    if streams:  # refuses names of tables once, not for each stream
        stream = streams[0]
        if problems.of(partial(table_path, stream.connection, stream.stream.id)) is None:
            return []
    specs = [problems.of(partial(_spec, stream, translator)) for stream in streams]
    return [
        StreamAsset(stream.connection, stream.stream, tuple(spec.key.path), spec)
        for stream, spec in zip(streams, specs, strict=True)
        if spec is not None
    ]


def _spec(stream: ConnectionStream, translator: ConnectionTranslator) -> dg.AssetSpec:
    try:
        return translator.get_asset_spec(stream.connection, stream.stream)
    except (dg.DagsterError, CheckError, ValueError) as error:
        raise ConfigError(
            f"stream {str(stream.stream.id)!r}: the configuration is not valid for a Dagster asset: {error}",
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

    There is one asset for each configured stream, and one for its history and its dead letter, if they are
    asked for, which the materialisation of the stream writes. One more asset is the source system, which is
    never materialised. The assets need the resources that `elt_assets.resources()` returns.

    Args:
        connection: the connection, or its folder (with `defs.yaml`, and `catalog.json` of `elt discover`).
        catalog: the catalog of the source; default: that in the folder.
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
    translator, problems = translator or ConnectionTranslator(), collect_problems(connection.name)
    streams = resolve_connection(connection, catalog, problems)
    assets = stream_assets(streams, translator, problems)
    problems.raise_all()
    return build_assets(connection, assets, translator)


def build_assets(
    connection: Connection, assets: Sequence[StreamAsset], translator: ConnectionTranslator
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of a connection whose streams have specs (see `build_connection_assets`)."""
    source = translator.get_source_spec(connection)
    groups = [assets] if connection.read_together else [[asset] for asset in assets]
    return [source, *(_build_op(group, source.key) for group in groups)]


_Companions = Mapping[dg.AssetKey, Sequence[dg.AssetSpec]]
"""The specs of companion tables, by the key of their stream."""


def _outs(specs: Iterable[dg.AssetSpec]) -> dict[str, dg.AssetOut]:
    """Return the outputs of an op: streams and their companions, each of which can be selected.

    `specs` is not used: it would name an output after the asset key, which may be an invalid Dagster name.
    """
    return {
        output_name(spec.key): dg.AssetOut.from_spec(
            spec.replace_attributes(deps=[]), io_manager_key=IO_MANAGER_KEY, is_required=False
        )
        for spec in specs
    }


def _deps(assets: Iterable[StreamAsset], companions: _Companions) -> dict[str, set[dg.AssetKey]]:
    """Return the dependencies of each output: of a stream those of its spec, of a companion its stream."""
    dependencies = {
        output_name(asset.key): {dep.asset_key for dep in asset.spec.deps} for asset in assets
    }
    for asset in assets:
        dependencies |= {output_name(spec.key): {asset.key} for spec in companions[asset.key]}
    return dependencies


_SIGNATURE = inspect.signature(lambda context: None)  # noqa: ARG005 - of each op
"""Dagster asks for the signature of an op fifteen times."""


def _build_op(assets: Sequence[StreamAsset], source: dg.AssetKey) -> dg.AssetsDefinition:
    """Return the assets of one op: of a stream, or of all streams that one connector process reads."""
    name, configured = assets[0].step_name, assets[0].settings.partitions
    controls = assets[0].controls
    companions = {asset.key: companion_specs(asset) for asset in assets}
    specs = [spec for asset in assets for spec in (asset.spec, *companions[asset.key])]

    make = dg.multi_asset(
        name=name,
        outs=_outs(specs),
        internal_asset_deps=_deps(assets, companions),
        deps={dep.asset_key: dep for asset in assets for dep in asset.spec.deps}.values(),
        check_specs=[spec for asset in assets for spec in check_specs(asset)],
        can_subset=True,
        partitions_def=assets[0].partitions,
        backfill_policy=None if configured is None else partitions.backfill_policy(configured),
        # Not an annotated argument: Dagster would infer the schema again for each stream.
        config_schema=CONFIG_SCHEMA,
        required_resource_keys={LAKE_KEY, SPARK_KEY, IO_MANAGER_KEY},
        retry_policy=_retries(assets[0].connection.retry),
        # Partitions of one stream may run at the same time.
        pool=controls.pool or (name if configured is None else None),
        op_tags={**controls.op_tags, **STEP_TAGS},
    )

    def sync(context):  # type: ignore[no-untyped-def] # Dagster would resolve annotations six times
        log_separate_processes(context)
        with leave_out_loaded(), as_dagster_failure():
            yield from SyncStep(assets, source, context).execute()
            activate_shared_session()  # the next step in this thread may be somebody else's

    sync.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return make(sync)


def _retries(retry: Retry) -> dg.RetryPolicy | None:
    if not retry.attempts:
        return None
    seconds = retry.delay.total_seconds()
    return dg.RetryPolicy(retry.attempts, seconds, dg.Backoff.EXPONENTIAL, dg.Jitter.PLUS_MINUS)
