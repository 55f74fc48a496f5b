"""The table of an asset in the lake, from the asset's key and the metadata of its definition."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.paths import TablePath, find_table
from elt_assets.orchestration.events.metadata import (
    COMPANION_OF,
    DESTINATION,
    table_path_of,
    unwrap,
)
from elt_assets.storage.location import Location


def refuse_other_destination(key: dg.AssetKey, metadata: Mapping[str, Any]) -> None:
    """Refuse a stream whose rows are not in the lake.

    Raises:
        ConfigError: its connection writes to another destination.
    """
    destination = metadata.get(DESTINATION)
    if destination is not None:
        raise ConfigError(
            f"the rows of {key.to_user_string()} are not in the lake: its connection writes "
            f"to the destination {unwrap(destination)}",
            guidance="read the rows from this destination",
        )


def asset_table_path(key: dg.AssetKey, metadata: Mapping[str, Any]) -> TablePath:
    """Return the path of the table: from the asset's definition, or else from its key."""
    levels = tuple(key.path)
    return table_path_of(metadata) or TablePath(levels, levels)


def locate_asset_table(
    lake: Location, key: dg.AssetKey, metadata: Mapping[str, Any]
) -> tuple[Location, str]:
    """Return the location of an asset's table, and its writer.

    A companion is beside the table of its stream, which is its writer.
    """
    path = asset_table_path(key, metadata)
    stream = unwrap(metadata.get(COMPANION_OF))
    if stream is None:
        writer = app_id(key.path)
        return find_table(lake, path, writer), writer
    suffix = next(end for end in SUFFIXES.values() if path.levels[-1].endswith(end))
    writer = app_id(dg.AssetKey.from_user_string(stream).path)
    place = find_table(lake, path.without_suffix(suffix), writer)
    return place.add_suffix(suffix), writer + suffix
