"""Paths of the tables that one connection or destination writes, none shared; opening and finding the tables.

Used by `pipeline` (`stream`, `former_tables`) and `destination.tables`; `orchestration` finds tables with it
that it reads or moves.

The path of a stream's table ends with its cleaned name, the *plain* path (`columns.names.table_path`). Two
streams collide if the table of one, or a companion of it, would be a table of the other or lie within one,
also if only case distinguishes them: `Users` and `users`, `a.b` and `a_b`, `a` and `a_dead_letter`. Then one
of them has the plain path, and the name of the other's table ends with a hash of its namespace and name. Two
rules decide which one that is:

1. By the names of the streams, whatever their order: a stream with a namespace before one without, a name
   that needs no cleaning before one that does, a name in lower case before one with upper case, and then the
   one that sorts first. This needs no look at the lake (`TablePaths`).
2. A stream keeps the table that it has (`open_tables`): the collision may be newer than the table, or may
   have ended. A stream that has the plain path by rule 1, and has no table yet, takes the path with the hash
   if the other stream has a table at its own plain path.

Only streams that are configured together count. A name that a user wrote for a table is taken as it is, or
refused: it never gets a hash, and no other stream's table gets one because of it.
Test: `tests/lake/test_table_paths.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.names import (
    LONGEST,
    RESERVED_TABLES,
    hash_table_names,
    table_name,
    table_path,
)
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import SUFFIXES, Claims, StreamTables, app_id
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.location import Location

Levels = tuple[str, ...]
"""Names of folders below the root of the lake; the last one is the table's."""


@dataclass(frozen=True)
class TablePath:
    """Path of a stream's table."""

    levels: Levels  # the path by the names of the streams
    # The path that the stream may have by rule 2: with a hash if `levels` is plain, else plain.
    other: Levels
    # If `levels` is plain, the plain paths at which streams that collide with it may have tables.
    rivals: tuple[Levels, ...] = ()

    def without_suffix(self, suffix: str) -> TablePath:
        """Return the path of a stream's table from that of its companion with this suffix."""

        def stem(levels: Levels) -> Levels:
            return (*levels[:-1], levels[-1].removesuffix(suffix))

        return TablePath(stem(self.levels), stem(self.other), tuple(map(stem, self.rivals)))


@dataclass(frozen=True)
class TableNames:
    """Names of tables as users write them."""

    prefix: str = ""  # text before the names of all streams that `tables` does not name
    # The whole names of some streams' tables.
    tables: Mapping[StreamId, str] = field(default_factory=dict)

    def name_of(self, stream: StreamId) -> str:
        """Return the name of a stream's table, before it is cleaned."""
        return self.tables.get(stream, f"{self.prefix}{stream.name}")

    def refuse_unusable(self) -> None:
        """Check that the names need no cleaning.

        Raises:
            ConfigError: one of them has characters that no table's name has, or is too long or reserved.
        """
        if not _is_clean(f"{self.prefix}x"):
            raise ConfigError(
                f"prefix: {self.prefix!r} cannot begin the name of a table", guidance=_NAMES
            )
        for stream, name in self.tables.items():
            if not _is_clean(name):
                raise ConfigError(
                    f"stream {str(stream)!r}: table: {name!r} cannot be the name of a table",
                    guidance=_NAMES,
                )


_NAMES = (
    f"write letters, digits and underscores, at most {LONGEST} bytes, and no name that begins with "
    + " or ".join(RESERVED_TABLES)
)


def _is_clean(name: str) -> bool:
    return table_name(name) == name


class TablePaths:
    """Paths of the tables of streams that are written together.

    Args:
        root: the first levels of all paths.
        names: what users wrote about the names of the tables.

    Raises:
        ConfigError: a name that a user wrote cannot be that of a table.
    """

    def __init__(self, root: Sequence[str], names: TableNames | None = None):
        self._root = root
        self._names = names or TableNames()
        self._names.refuse_unusable()
        self._claims = Claims[StreamId]()
        self._levels: dict[StreamId, tuple[Levels, Levels]] = {}
        self._rivals: dict[StreamId, list[Levels]] = {}

    def add(self, streams: Mapping[StreamId, bool]) -> None:
        """Add streams, with whether each has a history. Streams that were added before keep their paths.

        Those whose table a user named are added first; then those with a namespace: a table within another
        one has no path that helps.

        Raises:
            ConfigError: the name that a user wrote is that of another stream's table, or of a companion of
                one, or the table would lie within another.
        """
        new = [stream for stream in streams if stream not in self._levels]
        for stream in sorted(new, key=self._precedence):
            self._levels[stream] = self._claim(stream, has_history=streams[stream])

    def __getitem__(self, stream: StreamId) -> TablePath:
        levels, other = self._levels[stream]
        return TablePath(levels, other, tuple(self._rivals.get(stream, ())))

    def _claim(self, stream: StreamId, *, has_history: bool) -> tuple[Levels, Levels]:
        paths = _paths(self._root, stream, self._names.name_of(stream))
        plain, other = next(paths), next(paths)
        claimed = self._claims.claim(stream, plain, has_history)
        if claimed is None:
            return plain, other
        owner, _ = claimed
        self._refuse_taken(stream, owner)
        self._rivals.setdefault(owner, []).append(plain)
        while self._claims.claim(stream, other, has_history) is not None:
            other = next(paths)
        return other, plain

    def _refuse_taken(self, stream: StreamId, owner: StreamId) -> None:
        """Refuse a collision of two streams if a user named the table of one."""
        named = next((name for name in (owner, stream) if name in self._names.tables), None)
        if named is None:
            return
        rival = owner if named is stream else stream
        raise ConfigError(
            f"stream {str(named)!r}: table: {self._names.tables[named]!r} is the table of stream "
            f"{str(rival)!r}, or a companion of it, or one of the two would lie within the other",
            guidance="write another `table` for one of the two streams",
        )

    def _precedence(self, stream: StreamId) -> tuple[bool, bool, bool, bool, str]:
        parts = [part for part in (stream.namespace, stream.name) if part is not None]
        is_changed = any(table_name(part) != part for part in parts)
        has_upper_case = any(part.lower() != part for part in parts)
        is_named = stream in self._names.tables
        return not is_named, stream.namespace is None, is_changed, has_upper_case, stream.quoted


def _paths(root: Sequence[str], stream: StreamId, table: str) -> Iterator[Levels]:
    """Yield the plain path, and then the paths with a hash of more and more digits."""
    *above, name = table_path(root, stream, table)
    yield (*above, name)
    for hashed in hash_table_names(stream, table):
        yield (*above, hashed)


def open_tables(
    lake: Location,
    path: TablePath,
    writer: str,
    *,
    partition: str | None = None,
    history: bool = False,
    partition_by: Sequence[str] = (),
) -> StreamTables:
    """Return a stream's tables at their newest snapshots.

    Args:
        writer: the stream's id in transactions.
        partition: the Dagster partition that is written.
        partition_by: as for `StreamTables`.

    Raises:
        ConfigError: a companion would be the table that another stream already has, or the table would lie
            within that one.
    """
    own_id = writer if partition is None else f"{writer}|{partition}"
    settings: dict[str, Any] = {"history": history, "partition_by": partition_by}
    tables = StreamTables(lake.child(*path.levels), own_id, **settings)
    if _is_elsewhere(lake, path, writer, tables.main):
        tables = StreamTables(lake.child(*path.other), own_id, **settings)
    _refuse_rivals(lake, path, tables)
    return tables


def _refuse_rivals(lake: Location, path: TablePath, tables: StreamTables) -> None:
    """Check that no table of another stream is where a companion would be, or contains the stream's table."""
    companions = {table.uri.casefold() for table in tables.companions.values()}
    for rival in path.rivals:
        place = lake.child(*rival)
        uri = place.uri.casefold()
        contains = tables.main.uri.casefold().startswith(f"{uri}/")
        if (contains or uri in companions) and is_table(place):
            raise ConfigError(
                f"the table {tables.main.uri}, or a companion of it, would be {place}, or within it; that is "
                "the table of another stream",
                guidance="turn the `history` of the stream off if that is the companion, or put one of the "
                "two streams into a separate connection with another `namespace`",
            )


def find_table(lake: Location, path: TablePath, writer: str) -> Location:
    """Return the location of a stream's table, for a reader."""
    place = lake.child(*path.levels)
    if _is_elsewhere(lake, path, writer, Table(place, writer)):
        return lake.child(*path.other)
    return place


class StreamPaths(Protocol):
    """The paths of the tables of a project's streams, by the keys of their assets."""

    def find(self, key: Levels) -> TablePath | None:
        """Return the path of the table of a configured stream; None if no stream has this key."""

    def namespace_of(self, connection: str) -> str:
        """Return the folder of a connection's tables."""


def locate_table(lake: Location, key: Sequence[str], streams: StreamPaths) -> Location:
    """Return the location of the table of any asset: of a stream, a companion, or one downstream."""
    place = _locate(lake, tuple(key), streams)
    stem, suffix = split_companion(key[-1])
    if suffix and not is_table(place):
        return _locate(lake, (*key[:-1], stem), streams).add_suffix(suffix)
    return place


def _locate(lake: Location, key: Levels, streams: StreamPaths) -> Location:
    own = lake.child(*key)
    if len(key) < 2:
        return own
    path = streams.find(key)
    if path is not None:
        return find_table(lake, path, app_id(key))
    if is_table(own):  # of an asset that is no stream
        return own
    connection, *namespaces, name = key
    return lake.child(
        streams.namespace_of(connection), *map(table_name, namespaces), table_name(name)
    )


def split_companion(name: str) -> tuple[str, str]:
    """Return a table's stream name and its companion suffix, which is empty for the stream's own table."""
    suffix = next((suffix for suffix in SUFFIXES.values() if name.endswith(suffix)), "")
    return name.removesuffix(suffix), suffix


def _is_elsewhere(lake: Location, path: TablePath, writer: str, table: Table) -> bool:
    """Return whether a stream has its table at the other path, from the table at the path by rule 1."""
    if table.exists and (not table.is_foreign or _is_of(table, writer)):
        return False
    other = lake.child(*path.other)
    if is_table(other) and _is_of(Table(other, writer), writer):
        return True
    if not path.rivals:
        return False
    return table.exists or any(is_table(lake.child(*rival)) for rival in path.rivals)


def _is_of(table: Table, writer: str) -> bool:
    """Return whether the newest commit of a table is of a stream, or of a partition of it."""
    newest = table.newest_writer or ""
    return newest == writer or newest.startswith(f"{writer}|")
