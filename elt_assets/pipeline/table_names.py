"""The tables of a project by name: that of any asset, by its key, and the names that there are.

`orchestration.table_reading` and `elt sql` find tables with it; `orchestration.spark_source` hands the paths
to Spark.

A table is found without a list of all tables: only the connection that the key begins with is loaded. The
list is made for a name that is not found as it is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow.fs as pafs

from elt_assets.connection import Connection, ConnectionPlace, list_places, load_connection
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.write.paths import Levels, TablePath, locate_table, split_companion
from elt_assets.pipeline.stream import key_levels, table_path
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.location import Location

_NEAR = 5
"""Names that an error shows."""


class ProjectStreams:
    """The paths of the tables of the project's streams. A connection is loaded when a key begins with it."""

    def find(self, key: Levels) -> TablePath | None:
        name, *namespaces, stream_name = key
        connection = self._load(name)
        if connection is None or len(namespaces) > 1:
            return None
        stream = StreamId(stream_name, *namespaces[:1])
        is_configured = any(settings.id == stream for settings in connection.streams)
        return table_path(connection, stream) if is_configured else None

    def namespace_of(self, connection: str) -> str:
        loaded = self._load(connection)
        return connection if loaded is None else loaded.lake_namespace

    def _load(self, name: str) -> Connection | None:
        place = next((place for place in self._places if place.name == name), None)
        return None if place is None else load_connection(place)

    @cached_property
    def _places(self) -> Sequence[ConnectionPlace]:
        return list_places()


def table_of(lake: Location, key: Sequence[str]) -> Location:
    """Return the location of an asset's table."""
    return locate_table(lake, key, ProjectStreams())


def tables_with_documents(lake: Location, key: Sequence[str]) -> list[Location]:
    """Return the locations of the tables that may have the documents of an asset's rows.

    Those of a companion's rows are below the stream's own table.
    """
    stem, suffix = split_companion(key[-1])
    places = [table_of(lake, key)]
    return [*places, table_of(lake, [*key[:-1], stem])] if suffix and stem else places


def find_key(lake: Location, name: Sequence[str]) -> Levels:
    """Return the key of the asset whose table has a name; its case counts only if several names differ in it.

    Raises:
        ConfigError: there is no table of this name, or there are several.
    """
    key = tuple(name)
    if is_table(table_of(lake, key)):
        return key
    keys = list(dict.fromkeys(_list_keys(lake, key)))
    same = [
        other for other in keys if _fold(other) == _fold(key) and is_table(table_of(lake, other))
    ]
    if len(same) == 1:
        return same[0]
    if same:
        names = " and ".join(map(_format, sorted(same)))
        raise ConfigError(
            f"there is no table {_format(key)}, and {names} differ from it in case only",
            guidance="write the name as it is in one of them",
        )
    if key in keys:
        raise ConfigError(
            f"there is no table {_format(key)} yet", guidance=f"run `elt sync {key[0]}` first"
        )
    raise ConfigError(f"there is no table {_format(key)}", guidance=_suggest(key, keys))


def _suggest(key: Levels, keys: Sequence[Levels]) -> str:
    """Return what to write for a name that no table has."""
    texts = {_format(_fold(other)): _format(other) for other in keys}
    near = difflib.get_close_matches(_format(_fold(key)), texts, n=_NEAR, cutoff=0.5)
    last = [_format(other) for other in keys if _fold(other)[-1] == _fold(key)[-1]]
    names = list(dict.fromkeys([*last, *(texts[text] for text in near)]))[:_NEAR]
    if names:
        return f"near names: {', '.join(names)}"
    return "`elt list` and `elt list CONNECTION` show the names that there are"


def _list_keys(lake: Location, name: Levels) -> Iterator[Levels]:
    """Yield the keys of the project's streams, and those that folders of the lake have as their paths: of
    tables downstream and of companions. Only folders that `name` could mean are listed."""
    for place in list_places():
        try:
            connection = load_connection(place)
        except ConfigError:  # `elt validate` reports it
            continue
        for settings in connection.streams:
            *above, stream = key_levels(connection.name, settings.id)
            yield (*above, stream + split_companion(name[-1].lower())[1])
    system, root = lake.file_system()
    levels: list[Levels] = [()]
    for _ in name:
        folders = [
            (*above, child) for above in levels for child in _list_folders(system, root, above)
        ]
        yield from folders
        levels = [path for path in folders if _fold(path) == _fold(name[: len(path)])]


def _list_folders(system: pafs.FileSystem, root: str, path: Levels) -> Iterator[str]:
    selector = pafs.FileSelector("/".join((root, *path)), allow_not_found=True)
    for info in system.get_file_info(selector):
        if info.type == pafs.FileType.Directory and not info.base_name.startswith(("_", ".")):
            yield info.base_name


def _fold(key: Levels) -> Levels:
    return tuple(level.casefold() for level in key)


def _format(key: Levels) -> str:
    return ".".join(key)
