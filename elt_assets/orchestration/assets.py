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
from elt_assets.connection import Connection, Stream, field_selection
from elt_assets.errors import ConfigError
from elt_assets.lake.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.landing import check_columns, declared_schema, generations
from elt_assets.lake.names import table_name
from elt_assets.lake.tables import DEAD_LETTER_SUFFIX, StreamTables, app_id
from elt_assets.orchestration.ledger import Standing, reconcile
from elt_assets.orchestration.metadata import HISTORY, TABLE_PATH, column_schema, head_metadata
from elt_assets.orchestration.reading import StreamRead
from elt_assets.orchestration.resources import LakeResource
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.runner.connector import Connector
from elt_assets.runner.sources import open_connector
from elt_assets.sync.fields import FieldSelection, landed
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
        levels = [table_name(namespace)] if namespace is not None else []
        return [self.connection.lake_namespace, *levels, table_name(self.stream.stream.name)]

    @property
    def table_name(self) -> str:
        return ".".join(self.table_path)

    @property
    def wanted(self) -> Stream:
        """What the connection says of the stream."""
        return next(one for one in self.connection.streams if one.id == self.stream.id)

    @property
    def fields(self) -> FieldSelection | None:
        """Which of its fields are stored."""
        return field_selection(self.connection, self.stream)

    @property
    def salt(self) -> str | None:
        """The fingerprint of what its fields are hashed with; read when a sync starts, never at load."""
        hashes = self.fields is not None and self.fields.hashed
        return home.fingerprint(home.hash_salt()) if hashes else None

    @property
    def selection(self) -> str | None:
        """The fingerprint of which fields are stored, and how."""
        if self.fields is None:
            return None
        return hashlib.sha256(f"{self.fields} {self.salt}".encode()).hexdigest()[:16]

    @property
    def app_id(self) -> str:
        """Of the table's transactions, by the public contract."""
        return app_id(self.key.path)

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
                HISTORY: self.wanted.history,
                "elt/policy": self.stream.destination_sync_mode,
                "elt/sync_mode": self.stream.sync_mode,
                "dagster/table_name": self.table_name,
                "dagster/storage_kind": "delta",
                "dagster/column_schema": column_schema(
                    declared_schema(landed(self.stream, self.fields))
                ),
            },
        )


def check_claims(claims: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Refuse tables that two writers would share, or that would lie one within the other.

    Args:
        claims: who writes, the table's levels under the lake's root, and whether it has a history; its
            companions are claimed with it. Names that differ in case alone are one.

    Raises:
        ConfigError: names both writers and the table.
    """
    owners: dict[tuple[str, ...], str] = {}
    for writer, path, has_history in claims:
        *above, name = (level.casefold() for level in path)
        suffixes = ["", DEAD_LETTER_SUFFIX, *([HISTORY_SUFFIX] if has_history else [])]
        for suffix in suffixes:
            claimed = (*above, name + suffix)
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
        (
            f"asset {spec.key.to_user_string()}",
            str(spec.metadata[TABLE_PATH]).split("/"),
            bool(spec.metadata.get(HISTORY)),
        )
        for spec in specs
        if TABLE_PATH in spec.metadata
    )


def build_assets(
    connection: Connection, streams: Sequence[ConfiguredStream]
) -> list[dg.AssetsDefinition]:
    """One asset for each configured stream of a connection.

    Raises:
        ConfigError: streams or columns collide, or the source is of no known kind.
    """
    assets = [StreamAsset(connection, stream) for stream in streams]
    check_claims(
        (f"stream {str(one.stream.id)!r}", one.table_path, one.wanted.history) for one in assets
    )
    for asset in assets:
        check_columns(landed(asset.stream, asset.fields))
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
        tables = StreamTables(
            lake.table_uri(asset.table_path), asset.app_id, history=asset.wanted.history
        )
        standing = reconcile(context.instance, asset.key, tables.main)
        _report(context, asset.key, tables, standing)
        yield dg.MaterializeResult(asset_key=asset.key, value=_read(asset, lake, tables, standing))

    return sync


def _read(
    asset: StreamAsset, lake: LakeResource, tables: StreamTables, standing: Standing
) -> StreamRead:
    salt = asset.salt
    written = generations(landed(asset.stream, asset.fields), tables.head, salt=salt)
    stream = copy.copy(asset.stream)
    stream.generation_id = written.generation_id
    stream.minimum_generation_id = written.minimum_generation_id
    stream.sync_id = max(int(time.time() * 1000), tables.head.sync_id + 1)
    checkpoint, every = asset.connection.checkpoint, asset.connection.streams
    return StreamRead(
        key=asset.key,
        stream=stream,
        wanted=asset.wanted,
        connector=connect(asset.connection, lake.staging_path),
        tables=tables,
        table_name=asset.table_name,
        standing=standing,
        staging=lake.staging_path,
        threshold=Threshold(checkpoint.rows, checkpoint.megabytes << 20, checkpoint.seconds),
        fields=asset.fields,
        selection=asset.selection,
        withhold=any(one.fields is not None for one in every),
    )


def _report(
    context: dg.AssetExecutionContext, key: dg.AssetKey, tables: StreamTables, standing: Standing
) -> None:
    for warning in (*standing.warnings, *tables.settle(context.run.run_id)):
        context.log.warning(warning)
    if standing.unreported:
        metadata = {**head_metadata(tables.head, tables.main.version), "elt/recovered": True}
        context.log_event(dg.AssetObservation(key, metadata=metadata))
