"""What streams have in the lake and in Dagster, who reads it, and its removal, for `elt remove`.

The tables go first from the places where they are published, then from the lake (`lake.admin.removal`). The
events of the assets stay: they are the history of what Dagster has done.

Each function does what is left to do, so a removal that was killed is finished by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import dagster as dg

from elt_assets.connection.partitions import dynamic_partitions
from elt_assets.errors import ConfigError
from elt_assets.lake.admin.removal import (
    StoredPart,
    is_being_removed,
    list_parts,
    remove_empty_folders,
    remove_tables,
)
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.paths import find_table
from elt_assets.orchestration.build import specs_of
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.translator import companion_key
from elt_assets.pipeline.following import drop_published, list_tables_at
from elt_assets.storage.location import Location


def locate_table(asset: StreamAsset, lake: Location) -> Location:
    """Return where the table of a stream is, or what is left of it."""
    path, writer = asset.table_path, app_id(asset.levels)
    for levels in (path.levels, path.other):
        if is_being_removed(lake.child(*levels), writer):
            return lake.child(*levels)
    try:
        return find_table(lake, path, writer)
    except ConfigError:  # it cannot be opened
        return lake.child(*path.levels)


def list_stored(asset: StreamAsset, lake: Location) -> list[StoredPart]:
    """Return what a stream has in the lake, with the sizes.

    Raises:
        ConfigError: another asset wrote the table.
    """
    place = locate_table(asset, lake)
    _refuse_foreign(asset, place)
    return list_parts(place)


def remove_stored(asset: StreamAsset, lake: Location, command: str) -> list[str]:
    """Remove all that a stream has in the lake, also from the catalogs in which it is published.

    Args:
        command: what a user runs to finish the removal.

    Returns:
        the URIs of other files at the places of the tables, which stay.

    Raises:
        ConfigError: another asset wrote the table, or it is being moved.
        EltError: a catalog or the store failed; calling this again goes on.
    """
    place = locate_table(asset, lake)
    _refuse_foreign(asset, place)
    if asset.connection.destination is None:
        levels = place.uri.removeprefix(f"{lake.uri}/").split("/")
        drop_published(list_tables_at(lake, levels, asset.connection.name))
    return remove_tables(place, app_id(asset.levels), command)


def remove_empty(asset: StreamAsset, lake: Location) -> None:
    """Remove the folders of the lake in which only the removed table of a stream was."""
    for levels in (asset.table_path.levels, asset.table_path.other):
        remove_empty_folders(lake, levels)


def _refuse_foreign(asset: StreamAsset, place: Location) -> None:
    try:
        table = Table(place, app_id(asset.levels))
    except (
        ConfigError
    ):  # a damaged table, or a part of one: at this place it can only be the stream's
        return
    if table.exists and (table.move is None or not table.move.is_removal):
        asset.refuse_foreign(table)


def find_readers(
    definitions: dg.Definitions, removed: Iterable[StreamAsset]
) -> list[tuple[str, str]]:
    """Return the assets that depend on removed streams or on their companions, each with what it reads."""
    assets = list(removed)
    keys = {asset.key for asset in assets}
    keys |= {companion_key(asset, suffix) for asset in assets for suffix in SUFFIXES.values()}
    return sorted(
        (spec.key.to_user_string(), dep.asset_key.to_user_string())
        for spec in specs_of(definitions)
        if spec.key not in keys
        for dep in spec.deps
        if dep.asset_key in keys
    )


def refuse_needed(asset: StreamAsset, others: Iterable[StreamAsset]) -> None:
    """Refuse to remove a stream whose values are the partitions of another stream of its connection.

    Raises:
        ConfigError: names that stream.
    """
    for other in others:
        dynamic = dynamic_partitions(other.settings.partitions)
        discovery = None if dynamic is None or other is asset else dynamic.discover
        if discovery is not None and discovery.stream == str(asset.stream.id):
            raise ConfigError(
                f"the partitions of {other.name} are values of {asset.name}",
                guidance=f"change `partitions.discover` of {other.name}, or remove that stream first",
            )


class Ticking(NamedTuple):
    """What Dagster keeps of a schedule or a sensor: whether it is on, and its cursor."""

    name: str
    origin: str  # its id with its code location
    selector: str  # its id with the name of its code location


def list_ticking(
    instance: dg.DagsterInstance, names: Collection[str]
) -> tuple[list[Ticking], list[str]]:
    """Return what Dagster keeps of schedules and sensors with these names, and the names that several code
    locations have, of which it is not known whose are meant."""
    states = [
        Ticking(state.name, state.instigator_origin_id, state.selector_id)
        for state in instance.all_instigator_state()
        if state.name in names
    ]
    counts = Counter(state.name for state in states)
    several = sorted(name for name, count in counts.items() if count > 1)
    return [state for state in states if state.name not in several], several


def forget_ticking(instance: dg.DagsterInstance, states: Iterable[Ticking]) -> None:
    """Remove what Dagster keeps of schedules and sensors."""
    for state in states:
        instance.delete_instigator_state(state.origin, state.selector)


def list_partition_keys(
    instance: dg.DagsterInstance,
    assets: Sequence[StreamAsset],
    definitions: dg.Definitions | None,
) -> list[tuple[str, str]]:
    """Return the keys of the streams' own dynamic partitions, each after the name of its definition.

    Args:
        definitions: those of the project; None if they are not known. Other assets may have the partitions
            of a name that the user gave.
    """
    keys = {asset.key for asset in assets}
    others = {
        spec.partitions_def.name
        for spec in ([] if definitions is None else specs_of(definitions))
        if isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition) and spec.key not in keys
    }
    names = {
        asset.partitions.name: asset.op_name
        for asset in assets
        if isinstance(asset.partitions, dg.DynamicPartitionsDefinition)
    }
    return [
        (name, key)
        for name, own in names.items()
        if name is not None and name not in others and (definitions is not None or name == own)
        for key in instance.get_dynamic_partitions(name)
    ]


def forget_partitions(instance: dg.DagsterInstance, keys: Iterable[tuple[str, str]]) -> None:
    """Remove keys of dynamic partitions."""
    for name, key in keys:
        instance.delete_dynamic_partition(name, key)
