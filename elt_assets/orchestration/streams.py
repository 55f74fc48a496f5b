"""A stream of a connection, and what follows from the two: tables, names, fields, partitions."""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets import paths
from elt_assets.connection import Connection, Stream, as_landed, field_selection
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema.names import table_path as path_of
from elt_assets.lake.write.stream_tables import StreamTables, app_id
from elt_assets.lake.write.table_ownership import refuse_foreign
from elt_assets.orchestration.assets import partitions
from elt_assets.protocol.airbyte.catalog import (
    APPEND_DEDUP,
    INCREMENTAL,
    OVERWRITE,
    OVERWRITE_DEDUP,
    AirbyteStream,
    ConfiguredStream,
)
from elt_assets.sync.selection.fields import FieldSelection

STATES = "_elt_states"
"""The first level of what keeps the states of streams whose rows are in another destination."""
OVERWRITING = {APPEND_DEDUP: OVERWRITE_DEDUP, OVERWRITE_DEDUP: OVERWRITE_DEDUP}


def default_key(connection: Connection, stream: ConfiguredStream) -> dg.AssetKey:
    """By the public contract: the connection, the stream's namespace if it has one, the stream."""
    namespace = stream.stream.namespace
    levels = [namespace] if namespace is not None else []
    return dg.AssetKey([connection.name, *levels, stream.stream.name])


def table_path(connection: Connection, stream: ConfiguredStream) -> list[str]:
    """The levels of its table under the lake's root."""
    path = path_of(connection.lake_namespace, stream.id)
    return path if connection.destination is None else [STATES, *path]


def wanted(connection: Connection, stream: ConfiguredStream) -> Stream:
    """What the connection says of a stream."""
    return next(one for one in connection.streams if one.id == stream.id)


def partitions_definition(
    connection: Connection, stream: ConfiguredStream
) -> dg.PartitionsDefinition[Any] | None:
    written = wanted(connection, stream).partitions
    if written is None:
        return None
    return partitions.definition(written, op_name(default_key(connection, stream)))


def op_name(key: dg.AssetKey) -> str:
    """A Dagster name: ASCII alone. A hash keeps apart what cleaning made equal."""
    readable = "__".join(key.path)
    name = re.sub(r"[^A-Za-z0-9_]", "_", readable)[:100]
    if name == readable:
        return name
    return f"{name}_{hashlib.sha256(readable.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class StreamAsset:
    """One stream of a connection, and the asset that it is: `spec`, as its translator says."""

    connection: Connection
    stream: ConfiguredStream
    spec: dg.AssetSpec

    @property
    def key(self) -> dg.AssetKey:
        return self.spec.key

    @property
    def table_path(self) -> list[str]:
        return table_path(self.connection, self.stream)

    @property
    def table_name(self) -> str:
        return ".".join(self.table_path)

    @cached_property
    def wanted(self) -> Stream:
        return wanted(self.connection, self.stream)

    @property
    def op_name(self) -> str:
        return op_name(self.key)

    @cached_property
    def partitions(self) -> dg.PartitionsDefinition[Any] | None:
        return partitions_definition(self.connection, self.stream)

    @property
    def fields(self) -> FieldSelection | None:
        """Which of its fields are stored."""
        return field_selection(self.connection, self.stream)

    @property
    def salt_fingerprint(self) -> str | None:
        """Of what its fields are hashed with; read when a sync starts, never at load."""
        hashes = self.fields is not None and self.fields.hashed
        return paths.fingerprint(paths.hash_salt()) if hashes else None

    @property
    def selection(self) -> str | None:
        """The fingerprint of which fields are stored, and how."""
        if self.fields is None:
            return None
        text = f"{self.fields} {self.salt_fingerprint}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tables(self, lake_uri: str, partition: str | None = None) -> StreamTables:
        """Its tables as they stand, with the state of one partition."""
        writer = app_id(self.key.path)
        if partition is not None:
            writer = f"{writer}|{partition}"
        uri = "/".join([lake_uri, *self.table_path])
        return StreamTables(uri, writer, history=self.wanted.history)

    def refuse_foreign(self, table: Table) -> None:
        """Refuse a table that another asset filled, or this one when it had another key, or no partitions.

        Raises:
            ConfigError: says whose it is.
        """
        own = app_id(self.key.path)
        refuse_foreign(
            table,
            f"{self.key.to_user_string()} as it is now",
            "give the asset back its former key or partitions; or move the table away, and "
            "the stream is read anew",
            partitions_of=None if self.partitions is None else own,
        )

    def landed(self, described: AirbyteStream | None = None) -> ConfiguredStream:
        """The stream as its table gets it, of the catalog's schema or of what its source says of it
        otherwise. A partition with a window is read whole each time, and its
        rows replaced; so are those of a key, unless the stream is incremental: then the partition has a
        cursor of its own, and goes on from it."""
        found = as_landed(self.connection, self.stream, described)
        written = self.wanted.partitions
        if written is None:
            return found
        if partitions.has_window(written) or found.sync_mode != INCREMENTAL:
            found = copy.copy(found)
            found.destination_sync_mode = OVERWRITING.get(found.destination_sync_mode, OVERWRITE)
        return found
