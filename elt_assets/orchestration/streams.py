"""A stream of a connection as a Dagster asset."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.orchestration.assets import partitions
from elt_assets.pipeline.connection_stream import ConnectionStream, default_key
from elt_assets.protocol.airbyte.catalog import ConfiguredStream

_RESERVED = frozenset({"elt_maintenance"})
"""Names of this project's jobs that have a schedule, which the schedule of a connection could equal."""


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

    Dagster allows ASCII only. A hash keeps names distinct that would be equal: after the replacement of other
    characters, or because a part contains the separator. Of a stream's key, only the connection must not
    contain it; the stream may, as `shop__order__c`.
    """
    readable, path = "__".join(key.path), list(key.path)
    name = re.sub(r"[^A-Za-z0-9_]", "_", readable)[:100]
    is_distinct = readable.split("__", 1 if len(path) == 2 else -1) == path
    if name == readable and is_distinct:
        return name
    hashed = readable if is_distinct else "/".join(path)
    return f"{name}_{hashlib.sha256(hashed.encode()).hexdigest()[:8]}"


def connection_name(connection: Connection) -> str:
    """Return the beginning of the names of what Dagster has once for a connection.

    It is also the name of the op that reads all streams of the connection together.
    """
    name = op_name(dg.AssetKey([connection.name]))
    return f"{name}_connection" if name in _RESERVED else name


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


def by_partitions(assets: Sequence[StreamAsset]) -> list[list[StreamAsset]]:
    """Return streams by definition of partitions, of which a job of Dagster has one.

    Those without partitions are with the first one.
    """
    groups: list[list[StreamAsset]] = []
    plain = [asset for asset in assets if asset.partitions is None]
    for asset in assets:
        same = (group for group in groups if group[0].partitions == asset.partitions)
        if asset.partitions is not None and (group := next(same, None)) is not None:
            group.append(asset)
        elif asset.partitions is not None:
            groups.append([asset])
    if not groups:
        return [plain] if plain else []
    return [groups[0] + plain, *groups[1:]]
