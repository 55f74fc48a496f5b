"""The rows of a table that were committed since an earlier version.

Used by `changes` of `orchestration.table_reading`, for incremental assets.

The files that a table has at both versions have the same rows. Of the other files, the rows of the newer
version that are not in the older one are new or updated, and the rows of the older version that are not in
the newer one were updated or deleted. A row keeps its `_airbyte_raw_id` wherever a merge, a compaction or a
wider type moves it, and each record of the source gets another one: so this id tells which rows are the same.

Where this cannot be known, or says less than all rows do, the comparison names an obstacle, and all rows are
read again. Then no row is missed: the reader replaces what it made of earlier rows.

First the comparison (`find_changes`); then the changed rows as a DataFrame of Spark, or as Arrow data without
Spark (`ChangeReader`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import EltError
from elt_assets.lake.columns.logical_types import SOURCE
from elt_assets.lake.columns.metadata_columns import PARTITION, PARTITION_FIELD, RAW_ID
from elt_assets.lake.delta import log
from elt_assets.lake.delta.commit_metadata import BACKFILL
from elt_assets.lake.delta.opening import arrow_columns, find_retyped
from elt_assets.lake.delta.outcome import NAME
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.merge.file_splitting import Key, key_value
from elt_assets.lake.read.scans import ArrowScan, FileGroup, RowFilter, TableScan
from elt_assets.lake.read.snapshots import list_files, select_columns
from elt_assets.lake.session import make_empty, value_at
from elt_assets.lake.worker.parquet import column_at
from elt_assets.lake.write.companions import SUFFIXES

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
    position = Position(table.version, read_commit_name(table, table.version))
    if since is None:
        return TableChanges(table, position, [whole], reload=FIRST_READ)
    comparison = Comparison(table, since, partitions)
    obstacle = comparison.find_obstacle()
    if obstacle is not None:
        return TableChanges(table, position, [whole], reload=obstacle)
    return comparison.changes(position)


class Comparison:
    """The comparison of a table with an earlier version of it."""

    def __init__(self, table: Table, since: Position, partitions: Collection[str] | None):
        self._table = table
        self._since = since
        self._partitions = partitions
        self._commits = table.commits_since(since.version)

    def find_obstacle(self) -> str | None:
        """Return why the changes are not all that must be read; None if they are."""
        obstacle = self.find_break()
        if obstacle is not None or not self.removed:
            return obstacle
        return self._find_obstacle_of_removed_files() or self.find_loss()

    def find_break(self) -> str | None:
        """Return why the table does not continue the earlier version in the same columns; None if it does."""
        since, table = self._since, self._table
        if since.version > table.version or since.commit != read_commit_name(table, since.version):
            return "the table is not the one of the last read: it was moved away, or restored from a backup"
        if any(commit.get("operation") == log.RESTORE for commit in self._commits):
            return "the table was restored to an earlier version"
        filled = sorted({commit[BACKFILL] for commit in self._commits if BACKFILL in commit})
        if filled:  # the rows have kept their ids
            return f"columns of rows from before were filled (`elt backfill`): {', '.join(filled)}"
        try:
            retyped = find_retyped(table.schema, self._former.schema)
        except EltError as error:
            return f"version {since.version} of the table cannot be opened: {error.message}"
        if retyped:
            return f"columns of the table have other types: {', '.join(retyped)}"
        return None

    def find_loss(self) -> str | None:
        """Return why the removed files cannot be read; None if they can."""
        paths = [self._table.storage.locate(file) for file in self.removed]
        infos = self._table.storage.system.get_file_info(paths)
        if any(info.type == pafs.FileType.NotFound for info in infos):
            return f"a vacuum has removed files of version {self._since.version}"
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether all rows of the table have another generation."""
        return self._table.metadata.generation != self._former.metadata.generation

    def _find_obstacle_of_removed_files(self) -> str | None:
        table = self._table
        if self.is_replaced:
            return "the rows of the table were replaced"
        if self._rest is not None and not self._rest:
            return "the rows of the partition were replaced"
        if not identifies_rows(table):
            return "files of the table were written again, and its rows have no ids of their own"
        return None

    def changes(self, position: Position) -> TableChanges:
        """Return the changes, if there is no obstacle."""
        reloaded, rest = self._reloaded, self._rest
        new = RowSelection(self._table, self.added, rest, reloaded, self.removed)
        former = RowSelection(self._table, self.removed, rest, reloaded, self.added)
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
    def added(self) -> list[DataFile]:
        """The files that the earlier version does not have."""
        return _list_others(self._table, self._former, self._partitions)

    @cached_property
    def removed(self) -> list[DataFile]:
        """The files that only the earlier version has."""
        return _list_others(self._former, self._table, self._partitions)

    @cached_property
    def _reloaded(self) -> frozenset[str]:
        """The partitions whose rows were replaced: they have another generation, and lost files."""
        prefix = f"{self._table.app_id}|"
        writers = {str(commit.get("elt.app")) for commit in self._commits}
        names = {writer.removeprefix(prefix) for writer in writers if writer.startswith(prefix)}
        asked = names if self._partitions is None else names.intersection(self._partitions)
        removed = {file.path for file in self.removed}
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


def identifies_rows(table: Table) -> bool:
    """Return whether each row has an id that changes with its values. In a history, the end of a version
    changes and the id does not."""
    is_companion = any(table.uri.endswith(suffix) for suffix in SUFFIXES.values())
    return RAW_ID in table.schema.names and not is_companion


def read_commit_name(table: Table, version: int) -> str:
    """Return the name of the commit of a version, or its time; empty if the log has no such version."""
    entry = log.read_info(table.storage, version)
    return "" if entry is None else str(entry.get(NAME) or entry["timestamp"])


_KEY = "_elt_key"
_ID = t.StructType([t.StructField(RAW_ID, t.StringType())])


@dataclass(frozen=True)
class ChangeReader:
    """Reads the rows of a table's changes."""

    changes: TableChanges
    columns: t.StructType  # the columns to return
    key: Key  # the columns of the key; empty if the rows have none

    @classmethod
    def create(
        cls, changes: TableChanges, columns: Sequence[str] | None, key_fields: Key
    ) -> ChangeReader:
        """Return a reader.

        Args:
            columns: the names of the columns to read; None for all.
            key_fields: the paths in the source of the fields by which rows are told apart.

        Raises:
            ConfigError: there is no such column.
        """
        table = changes.table
        return cls(changes, select_columns(table, columns), _find_key(table.schema, key_fields))

    def scan_rows(self) -> ArrowScan:
        """Return the new and updated rows as a scan."""
        return _scan(self.changes.rows, self.columns)

    def scan_deleted(self) -> TableScan:
        """Return the removed rows whose keys are not among those of the new rows, as a scan."""
        former = _scan(self.changes.removed, self._columns_and_key).to_table()
        if self.key and len(former):
            updated = set(
                _read_keys(_scan(self.changes.rows, self._key_columns).to_table(), self.key)
            )
            is_deleted = [value not in updated for value in _read_keys(former, self.key)]
            former = former.filter(pa.array(is_deleted, pa.bool_()))
        return TableScan(former.select(self.columns.names))

    def select_rows(self, spark: SparkSession) -> DataFrame:
        """Return the new and updated rows as a DataFrame."""
        return _select_all(spark, self.changes.rows, self.columns)

    def select_deleted(self, spark: SparkSession) -> DataFrame:
        """Return the same rows as `scan_deleted`, as a DataFrame."""
        former = _select_all(spark, self.changes.removed, self._columns_and_key)
        if self.key:
            updated = _select_all(spark, self.changes.rows, self._key_columns)
            updated = updated.select(key_value(self.key).alias(_KEY))
            is_same = key_value(self.key).eqNullSafe(f.col(_KEY))
            former = former.join(updated, is_same, "left_anti")
        return former.select(*(value_at([name]) for name in self.columns.names))

    @property
    def _key_columns(self) -> t.StructType:
        names = dict.fromkeys(path[0] for path in self.key)
        return t.StructType([self.changes.table.schema[name] for name in names])

    @property
    def _columns_and_key(self) -> t.StructType:
        more = [field for field in self._key_columns if field.name not in self.columns.names]
        return t.StructType([*self.columns.fields, *more])


def _scan(selections: Sequence[RowSelection], schema: t.StructType) -> ArrowScan:
    return ArrowScan(arrow_columns(schema), [_group(selection) for selection in selections])


def _group(selection: RowSelection) -> FileGroup:
    table, filters = selection.table, list[RowFilter]()
    if selection.partitions is not None:
        filters.append(_filter_partitions(selection.partitions))
    if selection.other_partitions:
        filters.append(_filter_partitions(selection.other_partitions, is_excluding=True))
    if selection.excluded and selection.files:
        excluded = RowSelection(table, selection.excluded)
        ids = _scan([excluded], _ID).to_table().column(RAW_ID)
        filters.append(RowFilter(RAW_ID, ids.combine_chunks(), is_excluding=True))
    paths = [table.storage.locate(file) for file in selection.files]
    return FileGroup(table.storage.system, paths, filters)


def _filter_partitions(partitions: Collection[str], *, is_excluding: bool = False) -> RowFilter:
    return RowFilter(PARTITION, pa.array(sorted(partitions), pa.string()), is_excluding)


def _find_key(schema: t.StructType, fields: Key) -> list[list[str]]:
    """Return the columns of fields of the source, and that of the partition; empty if one is missing."""
    paths = [_find_column(schema, field) for field in fields]
    if not paths or not all(paths):
        return []
    return [*paths, [PARTITION]] if PARTITION in schema.names else paths


def _find_column(schema: t.StructType, path: Sequence[str]) -> list[str]:
    kind: t.DataType = schema
    names: list[str] = []
    for part in path:
        fields = kind.fields if isinstance(kind, t.StructType) else []
        sources = {field.metadata.get(SOURCE, field.name): field for field in fields}
        same_case = {name.casefold(): field for name, field in sources.items()}
        field = sources.get(part) or same_case.get(part.casefold())
        if field is None:
            return []
        names.append(field.name)
        kind = field.dataType
    return names


def _read_keys(rows: pa.Table, key: Key) -> list[tuple[object, ...]]:
    """Return the key of each row. A value that is a structure has its text."""
    columns = [column_at(rows, path, len(rows)) for path in key]
    values = [
        map(repr, column.to_pylist()) if pa.types.is_nested(column.type) else column.to_pylist()
        for column in columns
    ]
    return list(zip(*values, strict=True))


def _select_all(
    spark: SparkSession, selections: Sequence[RowSelection], schema: t.StructType
) -> DataFrame:
    nothing = make_empty(spark, schema)
    return reduce(
        DataFrame.union, (_select(spark, selection, schema) for selection in selections), nothing
    )


def _select(spark: SparkSession, selection: RowSelection, schema: t.StructType) -> DataFrame:
    table, fields = selection.table, list(schema.fields)
    own = [field for field in (*_ID.fields, PARTITION_FIELD) if field.name in table.schema.names]
    fields += [field for field in own if field.name not in schema.names]
    rows = table.read_files(spark, selection.files, t.StructType(fields))
    partition = value_at([PARTITION])
    if selection.partitions is not None:
        rows = rows.where(partition.isin(*selection.partitions))
    if selection.other_partitions:
        is_other = f.coalesce(partition.isin(*selection.other_partitions), f.lit(False))
        rows = rows.where(~is_other)
    if selection.excluded:
        rows = rows.join(table.read_files(spark, selection.excluded, _ID), RAW_ID, "left_anti")
    return rows.select(*(value_at([name]) for name in schema.names))
