"""A stream of a connection as a Dagster asset."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.orchestration.assets import partitions
from elt_assets.pipeline.connection_stream import ConnectionStream, default_key
from elt_assets.protocol.airbyte.catalog import ConfiguredStream


def default_asset_key(connection: Connection, stream: ConfiguredStream) -> dg.AssetKey:
    return dg.AssetKey(list(default_key(connection, stream)))


def partitions_definition(
    connection: Connection, stream: ConfiguredStream
) -> dg.PartitionsDefinition[Any] | None:
    configured = connection.settings_of(stream.id).partitions
    if configured is None:
        return None
    return partitions.definition(configured, op_name(default_asset_key(connection, stream)))


def op_name(key: dg.AssetKey) -> str:
    """Return a valid Dagster name for an asset key.

    Dagster allows ASCII only. A hash keeps names distinct that are equal after the replacement.
    """
    readable = "__".join(key.path)
    name = re.sub(r"[^A-Za-z0-9_]", "_", readable)[:100]
    if name == readable:
        return name
    return f"{name}_{hashlib.sha256(readable.encode()).hexdigest()[:8]}"


def shared_op_name(connection: Connection) -> str:
    """Return the name of the op that reads all streams of a connection together."""
    return op_name(dg.AssetKey([connection.name]))


@dataclass(frozen=True)
class StreamAsset(ConnectionStream):
    """One stream of a connection, as an asset. `spec`: the spec that the translator returned."""

    spec: dg.AssetSpec

    @classmethod
    def of(
        cls, connection: Connection, stream: ConfiguredStream, spec: dg.AssetSpec
    ) -> StreamAsset:
        return cls(connection, stream, tuple(spec.key.path), spec)

    @property
    def key(self) -> dg.AssetKey:
        return self.spec.key

    @property
    def op_name(self) -> str:
        return op_name(self.key)

    @cached_property
    def partitions(self) -> dg.PartitionsDefinition[Any] | None:
        return partitions_definition(self.connection, self.stream)
