"""A stream of a connection as a Dagster asset, and the names of what Dagster has for it.

`build` makes each `StreamAsset`; the modules of this package and the commands of `elt` work on them.

First the names, of ops, pools, schedules, sensors and partitions; then `StreamAsset`.

Dagster keeps the state of a schedule or a sensor, and the keys of dynamic partitions, by name, so a name
changes only if two would be equal.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets.connection import Connection, ConnectionPlace, list_places, load_connection
from elt_assets.connection.checks import Checks
from elt_assets.connection.stream import Deletes
from elt_assets.errors import ConfigError
from elt_assets.orchestration import partitions
from elt_assets.pipeline.stream import ConnectionStream, default_key, key_levels
from elt_assets.protocol.catalog import ConfiguredStream, StreamId

_SEPARATOR = "__"
_RESERVED = frozenset({"elt_maintenance"})
"""Names of this project's jobs that have a schedule, which the schedule of a connection could equal."""
_Levels = tuple[str, ...]


def valid_name(levels: Sequence[str], *, hashed: bool = False) -> str:
    """Return a valid Dagster name for the levels of a key: with a hash if it must differ from the plain one.

    Dagster allows ASCII only. A hash also keeps names distinct that are equal after the replacement.
    """
    readable = _SEPARATOR.join(levels)
    name = re.sub(r"[^A-Za-z0-9_]", "_", readable)[:100]
    if name == readable and not hashed:
        return name
    text = "/".join(levels) if hashed else readable
    return f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@functools.lru_cache(maxsize=64)
def output_name(key: dg.AssetKey) -> str:
    """Return the name of an output for an asset: distinct for each key, since nothing is kept by it."""
    is_distinct = _SEPARATOR.join(key.path).split(_SEPARATOR) == list(key.path)
    return valid_name(key.path, hashed=not is_distinct)


def connection_name(connection: Connection) -> str:
    """Return the beginning of the names of what Dagster has once for a connection.

    It is also the name of the op that reads all streams of the connection together.
    """
    levels = (connection.name,)
    name = valid_name(levels, hashed=_is_taken(connection, levels))
    return f"{name}_connection" if name in _RESERVED else name


def is_ambiguous(connection: Connection, stream: StreamId) -> bool:
    """Return whether the plain name of a stream is also that of another one, which keeps it."""
    return _is_taken(connection, key_levels(connection.name, stream))


def _is_taken(connection: Connection, levels: _Levels) -> bool:
    """Return whether an earlier key in the project has the same plain name.

    Of keys whose levels join to the same text, that with the shorter first levels is the earlier one. It is
    of the same connection, or of one whose name is the beginning of this connection's name: "a" of "a__b".
    """
    name = _SEPARATOR.join(levels)
    if len(_separators(name)) < len(levels):  # there is no other way to split it
        return False
    return any(
        other < levels and _SEPARATOR.join(other) == name for other in _other_keys(connection)
    )


def _other_keys(connection: Connection) -> Iterator[_Levels]:
    """Yield the keys of the connection's streams, and of those of connections that its name begins with."""
    for stream in connection.streams:
        yield key_levels(connection.name, stream.id)
    for end in _separators(connection.name + _SEPARATOR):
        shorter = connection.name[:end]
        if 0 < end < len(connection.name):
            for place in list_places():
                if place.name == shorter:
                    yield from _keys_in(place, place.file.stat().st_mtime_ns)


def _separators(name: str) -> list[int]:
    """Return where a name has separators, which may overlap."""
    return [match.start() for match in re.finditer(f"(?={_SEPARATOR})", name)]


@functools.lru_cache(maxsize=64)
def _keys_in(place: ConnectionPlace, modified: int) -> tuple[_Levels, ...]:  # noqa: ARG001 - the cache's
    """Return the keys of the streams of a connection; none if it cannot be loaded."""
    try:
        connection = load_connection(place)
    except ConfigError:  # it is reported when this connection is loaded
        return ()
    return tuple(key_levels(connection.name, stream.id) for stream in connection.streams)


def default_asset_key(connection: Connection, stream: ConfiguredStream) -> dg.AssetKey:
    """Return the asset key that a stream has if the translator does not change it."""
    return dg.AssetKey(list(default_key(connection, stream)))


def partitions_definition(
    connection: Connection, stream: ConfiguredStream
) -> dg.PartitionsDefinition[Any] | None:
    """Return the definition of a stream's partitions for Dagster; None if it has no partitions."""
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

    @property
    def sweep(self) -> Deletes | None:
        """The settings of the sweeps that remove rows which the source no longer has; None for no sweeps."""
        return self.deletes if self.deletes.sweep is not None else None

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
