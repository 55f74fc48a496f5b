"""Streams → software-defined assets."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import copy
import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from elt_assets import home
from elt_assets.connection import Connection
from elt_assets.errors import ConfigError
from elt_assets.lake import types
from elt_assets.lake.names import clean
from elt_assets.lake.table import Table
from elt_assets.lake.writer import DEAD_LETTER_SUFFIX, generations
from elt_assets.orchestration.ledger import Standing, reconcile
from elt_assets.orchestration.metadata import TABLE_PATH, column_schema, head_metadata
from elt_assets.orchestration.reading import StreamRead
from elt_assets.orchestration.resources import LakeResource
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.runner.connector import Connector
from elt_assets.runner.sources import open_connector
from elt_assets.sync.session import Threshold

IO_MANAGER_KEY = "io_manager"
LAKE_KEY = "lake"


@dataclass(frozen=True)
class StreamAsset:
    """One stream of a connection and where it goes: asset key, and levels under the lake's root."""

    connection: Connection
    stream: ConfiguredStream

    @property
    def key(self) -> dg.AssetKey:
        namespace = self.stream.stream.namespace
        levels = [namespace] if namespace is not None else []
        return dg.AssetKey([self.connection.name, *levels, self.stream.stream.name])

    @property
    def table_path(self) -> list[str]:
        namespace = self.stream.stream.namespace
        levels = [clean(namespace)] if namespace is not None else []
        return [self.connection.lake_namespace, *levels, clean(self.stream.stream.name)]

    @property
    def table_name(self) -> str:
        return ".".join(self.table_path)

    @property
    def app_id(self) -> str:
        """Of the table's transactions, by the public contract."""
        return "elt:" + "/".join(self.key.path)

    @property
    def op_name(self) -> str:
        """A Dagster name: ASCII alone. A hash keeps apart what cleaning made equal."""
        readable = "__".join(self.key.path)
        name = re.sub(r"[^A-Za-z0-9_]", "_", readable)[:100]
        if name == readable:
            return name
        return f"{name}_{hashlib.sha256(readable.encode()).hexdigest()[:8]}"

    @property
    def spec(self) -> dg.AssetSpec:
        schema = self.stream.stream.json_schema
        description = schema.get("description")
        return dg.AssetSpec(
            self.key,
            group_name=self.connection.name,
            description=description if isinstance(description, str) else None,
            kinds={"spark", "delta"},
            metadata={
                TABLE_PATH: "/".join(self.table_path),
                "elt/policy": self.stream.destination_sync_mode,
                "elt/sync_mode": self.stream.sync_mode,
                "dagster/table_name": self.table_name,
                "dagster/storage_kind": "delta",
                "dagster/column_schema": column_schema(types.table_schema(types.columns(schema))),
            },
        )


def check_claims(claims: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Refuse tables that two writers would share, or that would lie one within the other.

    Args:
        claims: who writes, and the table's levels under the lake's root; its dead letter is
            claimed with it. Names that differ in case alone are one.

    Raises:
        ConfigError: names both writers and the table.
    """
    owners: dict[tuple[str, ...], str] = {}
    for writer, path in claims:
        table = tuple(level.casefold() for level in path)
        for claimed in (table, (*table[:-1], table[-1] + DEAD_LETTER_SUFFIX)):
            _refuse_shared(writer, owners.setdefault(claimed, writer), claimed)
    for claimed, writer in owners.items():
        for depth in range(1, len(claimed)):
            _refuse_shared(writer, owners.get(claimed[:depth], writer), claimed[:depth])


def _refuse_shared(writer: str, other: str, table: Sequence[str]) -> None:
    if writer != other:
        raise ConfigError(
            f"{other} and {writer} would both write to the table {'/'.join(table)}, or within it",
            guidance="give one of them a `namespace` of its own, in a connection of its own",
        )


def check_shared_tables(specs: Iterable[dg.AssetSpec]) -> None:
    """`check_claims` for the assets of several connections."""
    check_claims(
        (f"asset {spec.key.to_user_string()}", str(spec.metadata[TABLE_PATH]).split("/"))
        for spec in specs
        if TABLE_PATH in spec.metadata
    )


def check_columns(stream: ConfiguredStream) -> None:
    """Refuse a schema whose columns collide, and a key or cursor that is no column.

    Raises:
        ConfigError: names the stream and the field.
    """
    label = f"stream {str(stream.id)!r}"
    try:
        schema = types.table_schema(types.columns(stream.stream.json_schema))
    except ConfigError as error:
        raise ConfigError(f"{label}: {error.message}", guidance=error.guidance) from error
    if not stream.deduplicates:
        return
    wanted = [("primary_key", path) for path in stream.key]
    for field, path in [*wanted, *([("cursor_field", stream.cursor)] if stream.cursor else [])]:
        if not types.has_path(schema, [clean(name) for name in path]):
            raise ConfigError(
                f"{label}: {field}: {'.'.join(path)!r} is no column: the schema in the catalog does "
                "not describe it",
                guidance="name another field, or describe it under `properties` in catalog.json",
            )


def build_assets(
    connection: Connection, streams: Sequence[ConfiguredStream]
) -> list[dg.AssetsDefinition]:
    """One asset for each configured stream of a connection.

    Raises:
        ConfigError: streams or columns collide, or the source is of no known kind.
    """
    assets = [StreamAsset(connection, stream) for stream in streams]
    check_claims((f"stream {str(one.stream.id)!r}", one.table_path) for one in assets)
    for stream in streams:
        check_columns(stream)
    connect(connection, home.staging())
    return [_build(asset) for asset in assets]


def connect(connection: Connection, workdir: Path) -> Connector:
    """The connection's connector; nothing runs yet."""
    source = connection.source
    return open_connector(
        source.kind, getattr(source, source.kind), source.config, workdir, home.packages()
    )


def _build(asset: StreamAsset) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=asset.op_name,
        # Not `specs`: it would name the output after the key, which may be no name of Dagster's.
        outs={asset.op_name: dg.AssetOut.from_spec(asset.spec, io_manager_key=IO_MANAGER_KEY)},
        required_resource_keys={LAKE_KEY},
        pool=asset.op_name,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[StreamRead]]:
        lake: LakeResource = context.resources.lake
        table = Table(lake.table_uri(asset.table_path), asset.app_id)
        standing = reconcile(context.instance, asset.key, table)
        _report(context, asset.key, table, standing)
        yield dg.MaterializeResult(asset_key=asset.key, value=_read(asset, lake, table, standing))

    return sync


def _read(asset: StreamAsset, lake: LakeResource, table: Table, standing: Standing) -> StreamRead:
    written = generations(asset.stream, table.head)
    stream = copy.copy(asset.stream)
    stream.generation_id = written.generation_id
    stream.minimum_generation_id = written.minimum_generation_id
    stream.sync_id = int(time.time() * 1000)
    checkpoint = asset.connection.checkpoint
    return StreamRead(
        key=asset.key,
        stream=stream,
        connector=connect(asset.connection, lake.staging_path),
        table=table,
        table_name=asset.table_name,
        standing=standing,
        staging=lake.staging_path,
        threshold=Threshold(checkpoint.rows, checkpoint.megabytes << 20, checkpoint.seconds),
    )


def _report(
    context: dg.AssetExecutionContext, key: dg.AssetKey, table: Table, standing: Standing
) -> None:
    for warning in standing.warnings:
        context.log.warning(warning)
    if standing.unreported:
        metadata = {**head_metadata(table.head, table.version), "elt/recovered": True}
        context.log_event(dg.AssetObservation(key, metadata=metadata))
