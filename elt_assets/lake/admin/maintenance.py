"""Compaction and vacuum: fewer and larger files, and no files that are not needed.

Both are safe during a sync. A compaction changes no row, state or transaction id, and gives way to a sync
that replaced its files. A vacuum removes only files that are older than the retention; the files that a
running sync has not committed yet are younger.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from elt_assets.lake.delta.commits import Superseded
from elt_assets.lake.delta.files import HIDDEN, Change, DataFile, Files
from elt_assets.lake.delta.row_counts import require_all, row_count
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import MAX_BYTES, TARGET_ROWS, in_tasks, is_small, packed
from elt_assets.lake.merge.history import VALID_TO
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark import tasks
from elt_assets.lake.write.stream_tables import StreamTables

RETENTION = dt.timedelta(days=7)


@dataclass(frozen=True)
class Maintained:
    """The result of the maintenance of one table. `removed`: the number of files that vacuum removed."""

    table: str
    files_before: int
    files_after: int
    removed: int


def maintain(
    spark: SparkSession, tables: StreamTables, retention: dt.timedelta = RETENTION
) -> list[Maintained]:
    """Compact and vacuum a stream's table and its companions.

    A companion that is ahead of its table is skipped: its rollback needs its files as they are.
    """
    maintained, refreshed = [], tables.main.dead_letter_files_of_refreshes()
    for kind, table in ((None, tables.main), *tables.companions.items()):
        if not table.exists or (kind is not None and tables.is_ahead(kind)):
            continue
        before = len(table.files)
        compact(spark, table, leave=refreshed)
        maintained.append(Maintained(table.uri, before, len(table.files), vacuum(table, retention)))
    return maintained


def compact(spark: SparkSession, table: Table, leave: Collection[str] = ()) -> int:
    """Combine small files: those of each partition separately, and those of a history's closed versions.

    Args:
        leave: paths of files that another table's commits name: they stay as they are.

    Returns:
        the decrease in the number of files.
    """
    removed = 0
    for group in _groups(table, leave):
        files = _combined(spark, table, group)
        try:
            table.reorganise(Change(files, group))
            removed += len(group) - len(files)
        except Superseded:
            table.discard_files(files)
            table.advance()
    return removed


def vacuum(table: Table, retention: dt.timedelta = RETENTION) -> int:
    """Remove files older than the retention that neither the present version nor one within the retention
    uses.

    Returns:
        the number of removed files.
    """
    old = {*table.unreferenced(retention), *_hidden(table.storage, retention)}
    paths = old - table.needed_since(dt.datetime.now(dt.timezone.utc) - retention) if old else old
    table.discard_files(DataFile(path, 0, 0) for path in paths)
    return len(paths)


def _groups(table: Table, leave: Collection[str]) -> Iterable[list[DataFile]]:
    bounds = table.bounds([metadata_columns.PARTITION])
    closed = table.without_nulls([VALID_TO])
    kinds: dict[object, list[DataFile]] = {}
    is_partitioned = metadata_columns.PARTITION in table.schema.names
    for file in filter(is_small, table.files):
        is_unknown = (
            is_partitioned and file.path not in bounds
        )  # the name of its partition is too long
        if is_unknown or file.path in leave:
            continue
        kinds.setdefault((bounds.get(file.path), file.path in closed), []).append(file)
    for files in kinds.values():
        yield from (group for group in packed(files) if len(group) > 1)


def _combined(spark: SparkSession, table: Table, group: list[DataFile]) -> list[DataFile]:
    job = tasks.Job(
        root=(table.storage.system, table.storage.root),
        groups=[[file.path for file in group]],
        fold=frozenset([0]),
        key=(),
        batch=(),
        kept=Files.new_folder(),
        matching=Files.new_folder(HIDDEN),
        rows_per_file=TARGET_ROWS,
        bytes_per_file=MAX_BYTES,
    )
    written = table.storage.describe(in_tasks(spark, job)[tasks.KEPT])
    require_all(
        table,
        row_count(table, group),
        row_count(table, written),
        "rows of compacted files",
        written,
    )
    return written


def _hidden(storage: Files, retention: dt.timedelta) -> list[str]:
    """Return files older than the retention in the folder of hidden files: other engines' vacuum ignores
    it."""
    oldest = dt.datetime.now(dt.timezone.utc) - retention
    selector = pafs.FileSelector(f"{storage.root}/{HIDDEN}", allow_not_found=True, recursive=True)
    return [
        info.path.removeprefix(f"{storage.root}/")
        for info in storage.system.get_file_info(selector)
        if info.type == pafs.FileType.File and info.mtime < oldest
    ]
