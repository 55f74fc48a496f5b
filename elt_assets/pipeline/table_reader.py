"""The location of the table of any asset, by its key."""

from __future__ import annotations

from collections.abc import Sequence

from elt_assets.connection import list_places, load_connection
from elt_assets.lake.columns.names import table_name
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.paths import find_table
from elt_assets.pipeline.connection_stream import table_path
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.location import Location


def table_of(lake: Location, key: Sequence[str]) -> Location:
    """Return the location of an asset's table."""
    place = _find(lake, key)
    stem, suffix = _companion(key[-1])
    if suffix and not is_table(place):
        return _find(lake, [*key[:-1], stem]).add_suffix(suffix)
    return place


def tables_with_documents(lake: Location, key: Sequence[str]) -> list[Location]:
    """Return the locations of the tables that may have the documents of an asset's rows.

    Those of a companion's rows are below the stream's own table.
    """
    stem, suffix = _companion(key[-1])
    places = [table_of(lake, key)]
    return [*places, table_of(lake, [*key[:-1], stem])] if suffix and stem else places


def _find(lake: Location, key: Sequence[str]) -> Location:
    own = lake.child(*key)
    if len(key) < 2:
        return own
    connection, *namespaces, name = key
    namespace = connection
    place = next((place for place in list_places() if place.name == connection), None)
    if place is not None:
        loaded = load_connection(place)
        namespace, stream = loaded.lake_namespace, StreamId(name, *namespaces[:1])
        if len(namespaces) < 2 and any(settings.id == stream for settings in loaded.streams):
            return find_table(lake, table_path(loaded, stream), app_id(key))
    if is_table(own):  # of an asset that is no stream
        return own
    return lake.child(namespace, *map(table_name, namespaces), table_name(name))


def _companion(name: str) -> tuple[str, str]:
    """Return a table's stream name and its companion suffix, which is empty for the stream's own table."""
    suffix = next((suffix for suffix in SUFFIXES.values() if name.endswith(suffix)), "")
    return name.removesuffix(suffix), suffix
