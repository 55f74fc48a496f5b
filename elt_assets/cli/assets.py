"""Lookup of the streams' assets by the names on the command line, for commands that need Dagster.

It is apart from `lookup` because the import of Dagster takes a second, which other commands save.
"""

from __future__ import annotations

from collections.abc import Sequence

from elt_assets.cli.lookup import find_stream
from elt_assets.connection import Connection, ConnectionPlace, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.build import build_connection_assets
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.states import find
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import Catalog, stream_names


def assets_of(place: ConnectionPlace) -> list[StreamAsset]:
    """Return the configured streams of a connection.

    Raises:
        ConfigError: the connection cannot be loaded.
    """
    return ConnectionComponent.load_at(place).stream_assets()


def find_load_error(connection: Connection, catalog: Catalog) -> ConfigError | None:
    """Return why a connection cannot be loaded with a catalog; None if it can."""
    try:
        build_connection_assets(connection, catalog=catalog)
    except ConfigError as error:
        return error
    return None


def select_streams(
    connection: str, assets: Sequence[StreamAsset], names: Sequence[str]
) -> dict[str, StreamAsset]:
    """Return the streams with these names, each once, by the names that tell them apart; default: all.

    Raises:
        ConfigError: see `find_stream`.
    """
    by_id = {asset.stream.id: asset for asset in assets}
    texts = stream_names(by_id)
    chosen = [find_stream(connection, by_id, name) for name in names] or list(by_id)
    return {texts[stream]: by_id[stream] for stream in chosen}


def find_asset(key: str) -> StreamAsset:
    """Return the stream with an asset key, from any connection.

    Raises:
        ConfigError: no stream has this key; lists the existing keys. Or the connection that the key begins
            with cannot be loaded.
    """
    first = key.partition("/")[0]
    loadable: list[StreamAsset] = []
    broken: dict[str, ConfigError] = {}
    # The connection that the key begins with is loaded first: usually it has the stream.
    for place in sorted(list_places(), key=lambda place: place.name != first):
        try:
            assets = assets_of(place)
        except ConfigError as error:
            broken[place.name] = error
            continue
        keys = [asset.key for asset in assets]
        if any(key in (k.to_user_string(), k.to_escaped_user_string()) for k in keys):
            return find(assets, key)
        loadable += assets
    if first in broken:
        raise broken[first]
    try:
        return find(loadable, key)
    except ConfigError as error:
        if broken:
            error.guidance = f"{error.guidance}; not loadable: {', '.join(sorted(broken))}"
        raise
