"""A stream of a connection as a Dagster asset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.checks import Checks
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.names import connection_name, is_ambiguous, valid_name
from elt_assets.pipeline.stream import ConnectionStream, default_key
from elt_assets.protocol.catalog import ConfiguredStream


def default_asset_key(connection: Connection, stream: ConfiguredStream) -> dg.AssetKey:
    return dg.AssetKey(list(default_key(connection, stream)))


def partitions_definition(
    connection: Connection, stream: ConfiguredStream
) -> dg.PartitionsDefinition[Any] | None:
    configured = connection.settings_of(stream.id).partitions
    if configured is None:
        return None
    return partitions.definition(
        configured, _name(connection, stream, default_asset_key(connection, stream))
    )


def _name(connection: Connection, stream: ConfiguredStream, key: dg.AssetKey) -> str:
    return valid_name(key.path, hashed=is_ambiguous(connection, stream.id))


@dataclass(frozen=True)
class StreamAsset(ConnectionStream):
    """One stream of a connection, as an asset. `spec`: the spec that the translator returned."""

    spec: dg.AssetSpec

    @property
    def key(self) -> dg.AssetKey:
        return self.spec.key

    @cached_property
    def op_name(self) -> str:
        """The name of the stream's op and pool, and the beginning of that of its schedule and sensor."""
        return _name(self.connection, self.stream, self.key)

    @property
    def step_name(self) -> str:
        """The name of the op that reads the stream: the connection's if its streams are read together."""
        return connection_name(self.connection) if self.connection.read_together else self.op_name

    @property
    def has_dead_letter_asset(self) -> bool:
        """Whether the dead letter is an asset; it is always a table."""
        return (self.settings.dead_letter or self.connection.dead_letter) == "asset"

    @cached_property
    def checks(self) -> Checks:
        """The settings of the stream's checks: its own, and those of its connection."""
        return self.settings.checks.over(self.connection.checks)

    @cached_property
    def partitions(self) -> dg.PartitionsDefinition[Any] | None:
        return partitions_definition(self.connection, self.stream)


def group_by_partitions(assets: Sequence[StreamAsset]) -> list[list[StreamAsset]]:
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


def group_by_run_tags(assets: Sequence[StreamAsset]) -> list[list[StreamAsset]]:
    """Return streams by the tags of their runs, of which a run has one set."""
    groups: dict[str, list[StreamAsset]] = {}
    for asset in assets:
        tags = json.dumps(asset.controls.run_tags, sort_keys=True)
        groups.setdefault(tags, []).append(asset)
    return list(groups.values())
