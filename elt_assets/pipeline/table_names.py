"""The tables of a project by name: that of any asset, by its key, and the names that there are.

`orchestration.table_reading` and `elt sql` find tables with it; `orchestration.spark_source` hands the paths
to Spark; `elt publish` lists the tables of downstream assets.

A table is found without a list of all tables: only the connection that the key begins with is loaded. The
list is made for a name that is not found as it is written.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from elt_assets.connection import Connection, ConnectionPlace, list_places, load_connection
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.snapshots import list_folders
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.paths import Levels, TablePath, TablePaths, locate_table, split_companion
from elt_assets.pipeline.stream import key_levels, table_path
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.location import Location

_log = logging.getLogger(__name__)
_DEEPEST = 8
"""Levels of folders in which tables of downstream assets are looked for."""
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


def list_special_paths() -> tuple[Mapping[Levels, TablePath], Mapping[str, str]]:
    """Return what of `ProjectStreams` does not follow from names: the paths of tables by the keys of their
    streams, and the folders of connections by their names. A connection that cannot be loaded is left out."""
    paths, namespaces = dict[Levels, TablePath](), dict[str, str]()
    for connection in _load_all():
        if connection.lake_namespace != connection.name:
            namespaces[connection.name] = connection.lake_namespace
        for settings in connection.streams:
            path = table_path(connection, settings.id)
            alone = TablePaths([connection.lake_namespace])
            alone.add({settings.id: settings.history})
            if path != alone[settings.id]:
                paths[key_levels(connection.name, settings.id)] = path
    return paths, namespaces


def _load_all() -> Iterator[Connection]:
    for place in list_places():
        try:
            yield load_connection(place)
        except ConfigError as error:  # noqa: PERF203 - `elt validate` reports it
            _log.warning("%s is left out: %s", place.name, error.message)


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


def list_downstream(lake: Location) -> Iterator[Levels]:
    """Yield the paths of the tables of downstream assets: an asset whose key is the path has written each.

    Tables of streams are none of them, also where the stream is not configured any more: these have states.
    Tables of other programs are none either.
    """
    streams = {levels for connection in _load_all() for levels in _list_levels(connection)}
    for levels in _list_tables(lake, ()):
        with contextlib.suppress(ConfigError):  # a table of another program, with rules of its own
            if levels not in streams and _is_downstream(lake, levels):
                yield levels


def _list_levels(connection: Connection) -> Iterator[Levels]:
    """Yield the paths that tables of a connection, and their companions, may have."""
    for settings in connection.streams:
        path = table_path(connection, settings.id)
        for above in (path.levels, path.other):
            yield from ((*above[:-1], above[-1] + suffix) for suffix in ("", *SUFFIXES.values()))


def _list_tables(lake: Location, above: Levels) -> Iterator[Levels]:
    for name in list_folders(lake.child(*above)):
        levels = (*above, name)
        if is_table(lake.child(*levels)):
            yield levels
        elif (
            len(levels) < _DEEPEST and "=" not in name
        ):  # else a partition of another program's table
            yield from _list_tables(lake, levels)


def _is_downstream(lake: Location, levels: Levels) -> bool:
    own, place = app_id(levels), lake.child(*levels)
    writers = [name for name in Table(place, own).writers if name.partition("|")[0] == own]
    return any(Table(place, writer).metadata.state is None for writer in writers[:1])


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
    for connection in _load_all():
        for settings in connection.streams:
            *above, stream = key_levels(connection.name, settings.id)
            yield (*above, stream + split_companion(name[-1].lower())[1])
    levels: list[Levels] = [()]
    for _ in name:
        folders = [
            (*above, child) for above in levels for child in list_folders(lake.child(*above))
        ]
        yield from folders
        levels = [path for path in folders if _fold(path) == _fold(name[: len(path)])]


def _fold(key: Levels) -> Levels:
    return tuple(level.casefold() for level in key)


def _format(key: Levels) -> str:
    return ".".join(key)
