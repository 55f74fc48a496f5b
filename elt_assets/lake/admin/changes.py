"""The rows of a table that were committed since an earlier version.

The files that a table has at both versions have the same rows. Of the other files, the rows of the newer
version that are not in the older one are new or updated, and the rows of the older version that are not in
the newer one were updated or deleted. A row keeps its `_airbyte_raw_id` wherever a merge, a compaction or a
wider type moves it, and each record of the source gets another one: so this id tells which rows are the same.

Where this cannot be known, or says less than all rows do, the comparison names an obstacle, and all rows are
read again. Then no row is missed: the reader replaces what it made of earlier rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow.fs as pafs

from elt_assets.errors import EltError
from elt_assets.lake.admin.snapshots import list_files
from elt_assets.lake.delta import log
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.opening import find_retyped
from elt_assets.lake.delta.outcome import NAME
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.schema.metadata_columns import RAW_ID
from elt_assets.lake.write.stream_tables import SUFFIXES

FIRST_READ = "it is the first read"


@dataclass(frozen=True)
class Position:
    """A version of a table, and the name of its commit: another table may have the same version."""

    version: int
    commit: str


@dataclass(frozen=True)
class RowSelection:
    """Rows of files of a table."""

    table: Table
    files: Sequence[DataFile]
    partitions: Collection[str] | None = None  # those whose rows are selected; None for all
    other_partitions: Collection[str] = ()  # those whose rows are left out
    excluded: Sequence[DataFile] = ()  # files whose rows are left out, by their ids


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table since a position."""

    table: Table
    position: Position  # the position of the next read
    rows: Sequence[RowSelection]  # the new and updated rows; all rows in a reload
    # The former rows that were updated or deleted; none of what is reloaded.
    removed: Sequence[RowSelection] = ()
    reload: str | None = None  # why all rows are read; None if only those that changed are
    # Partitions of which all rows are read, because they were replaced.
    reloaded_partitions: frozenset[str] = frozenset()


def find_changes(
    table: Table, since: Position | None, partitions: Collection[str] | None
) -> TableChanges:
    """Return the changes of a table since a position.

    Args:
        table: at the version that a reader gets (`open_snapshot`).
        since: the position of the former read; None if there is none.
        partitions: those whose rows are asked for; None for all rows.

    Raises:
        ConfigError: the table has no partitions.
    """
    whole = RowSelection(table, list_files(table, partitions), partitions)
    position = Position(table.version, _read_commit_name(table, table.version))
    if since is None:
        return TableChanges(table, position, [whole], reload=FIRST_READ)
    comparison = _Comparison(table, since, partitions)
    obstacle = comparison.find_obstacle()
    if obstacle is not None:
        return TableChanges(table, position, [whole], reload=obstacle)
    return comparison.changes(position)


class _Comparison:
    """The comparison of a table with an earlier version of it."""

    def __init__(self, table: Table, since: Position, partitions: Collection[str] | None):
        self._table = table
        self._since = since
        self._partitions = partitions
        self._commits = table.commits_since(since.version)

    def find_obstacle(self) -> str | None:
        """Return why the changes are not all that must be read; None if they are."""
        since, table = self._since, self._table
        if since.version > table.version or since.commit != _read_commit_name(table, since.version):
            return "the table is not the one of the last read: it was moved away, or restored from a backup"
        if any(commit.get("operation") == log.RESTORE for commit in self._commits):
            return "the table was restored to an earlier version"
        try:
            retyped = find_retyped(table.schema, self._former.schema)
        except EltError as error:
            return f"version {since.version} of the table cannot be opened: {error.message}"
        if retyped:
            return f"columns of the table have other types: {', '.join(retyped)}"
        if not self._removed:
            return None
        return self._find_obstacle_of_removed_files()

    def _find_obstacle_of_removed_files(self) -> str | None:
        table = self._table
        if table.metadata.generation != self._former.metadata.generation:
            return "the rows of the table were replaced"
        if self._rest is not None and not self._rest:
            return "the rows of the partition were replaced"
        if not _identifies_rows(table):
            return "files of the table were written again, and its rows have no ids of their own"
        paths = [table.storage.locate(file) for file in self._removed]
        infos = table.storage.system.get_file_info(paths)
        if any(info.type == pafs.FileType.NotFound for info in infos):
            return f"a vacuum has removed files of version {self._since.version}"
        return None

    def changes(self, position: Position) -> TableChanges:
        """Return the changes, if there is no obstacle."""
        reloaded, rest = self._reloaded, self._rest
        new = RowSelection(self._table, self._added, rest, reloaded, self._removed)
        former = RowSelection(self._table, self._removed, rest, reloaded, self._added)
        files = list_files(self._table, reloaded) if reloaded else []
        whole = [RowSelection(self._table, files, reloaded)] if reloaded else []
        return TableChanges(
            self._table,
            position,
            [new, *whole],
            [former],
            reloaded_partitions=reloaded,
        )

    @cached_property
    def _former(self) -> Table:
        if self._since.version == self._table.version:
            return self._table
        return Table(self._table.storage.location, self._table.app_id, self._since.version)

    @cached_property
    def _added(self) -> list[DataFile]:
        return _list_others(self._table, self._former, self._partitions)

    @cached_property
    def _removed(self) -> list[DataFile]:
        return _list_others(self._former, self._table, self._partitions)

    @cached_property
    def _reloaded(self) -> frozenset[str]:
        """The partitions whose rows were replaced: they have another generation, and lost files."""
        prefix = f"{self._table.app_id}|"
        writers = {str(commit.get("elt.app")) for commit in self._commits}
        names = {writer.removeprefix(prefix) for writer in writers if writer.startswith(prefix)}
        asked = names if self._partitions is None else names.intersection(self._partitions)
        removed = {file.path for file in self._removed}
        return frozenset(
            name
            for name in asked
            if self._table.generation_of(prefix + name) != self._former.generation_of(prefix + name)
            and not removed.isdisjoint(_paths(self._former, [name]))
        )

    @property
    def _rest(self) -> Collection[str] | None:
        """The partitions whose changed rows are read; None for all."""
        return None if self._partitions is None else set(self._partitions) - self._reloaded


def _list_others(table: Table, other: Table, partitions: Collection[str] | None) -> list[DataFile]:
    """Return the files of a table, or of some partitions, that another version does not have."""
    if table is other:
        return []
    paths = {file.path for file in other.files}
    return [file for file in list_files(table, partitions) if file.path not in paths]


def _paths(table: Table, partitions: Collection[str]) -> set[str]:
    files = partition_files.files_of(table, partitions)
    return {file.path for file in (*files.own, *files.mixed)}


def _identifies_rows(table: Table) -> bool:
    """Return whether each row has an id that changes with its values. In a history, the end of a version
    changes and the id does not."""
    is_companion = any(table.uri.endswith(suffix) for suffix in SUFFIXES.values())
    return RAW_ID in table.schema.names and not is_companion


def _read_commit_name(table: Table, version: int) -> str:
    """Return the name of the commit of a version, or its time; empty if the log has no such version."""
    entry = log.read_info(table.storage, version)
    return "" if entry is None else str(entry.get(NAME) or entry["timestamp"])
