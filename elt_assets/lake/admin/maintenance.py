"""Compaction and vacuum: fewer, larger files, and none that nobody needs.

Both are safe beside a running sync. A compaction changes no row, state or transaction id, and gives
way to a sync that replaced its files. A vacuum removes only what is older than the retention: what a
running sync has written and not committed yet is younger.
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
from elt_assets.lake.merge.file_splitting import MOST_BYTES, TARGET_ROWS, in_tasks, is_small, packed
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark import tasks
from elt_assets.lake.write.stream_tables import StreamTables

RETENTION = dt.timedelta(days=7)


@dataclass(frozen=True)
class Maintained:
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    removed: int


def maintain(
    spark: SparkSession, tables: StreamTables, retention: dt.timedelta = RETENTION
) -> list[Maintained]:
    """Compact and vacuum a stream's table and its companions.

    A companion that is ahead of its table is left alone: what takes it back needs its files as they are.
    """
    done, named = [], tables.main.rejected_by_refreshes()
    for kind, table in ((None, tables.main), *tables.companions.items()):
        if not table.exists or (kind is not None and tables.is_ahead(kind)):
            continue
        before = len(table.files)
        compact(spark, table, leave=named)
        done.append(Maintained(table.uri, before, len(table.files), vacuum(table, retention)))
    return done


def compact(spark: SparkSession, table: Table, leave: Collection[str] = ()) -> int:
    """Put small files together, those of different partitions apart; returns how many are gone.

    Args:
        leave: paths of files that another table names, and so stay as they are.
    """
    gone = 0
    for group in _groups(table, leave):
        files = _together(spark, table, group)
        try:
            table.reorganise(Change(files, group))
            gone += len(group) - len(files)
        except Superseded:
            table.discard_files(files)
            table.advance()
    return gone


def vacuum(table: Table, retention: dt.timedelta = RETENTION) -> int:
    """Remove files that no version within the retention names, and that are older; returns how many."""
    old = {*table.unreferenced(retention), *_hidden(table.storage, retention)}
    found = old - table.needed_since(dt.datetime.now(dt.timezone.utc) - retention) if old else old
    table.discard_files(DataFile(path, 0, 0) for path in found)
    return len(found)


def _groups(table: Table, leave: Collection[str]) -> Iterable[list[DataFile]]:
    bounds = table.bounds([metadata_columns.PARTITION])
    partitions: dict[object, list[DataFile]] = {}
    is_partitioned = metadata_columns.PARTITION in table.schema.names
    for file in filter(is_small, table.files):
        is_unknown = is_partitioned and file.path not in bounds  # its partition's name is too long
        if is_unknown or file.path in leave:
            continue
        partitions.setdefault(bounds.get(file.path), []).append(file)
    for files in partitions.values():
        yield from (group for group in packed(files) if len(group) > 1)


def _together(spark: SparkSession, table: Table, group: list[DataFile]) -> list[DataFile]:
    job = tasks.Job(
        root=table.storage.uri,
        groups=[[file.path for file in group]],
        fold=frozenset([0]),
        key=(),
        batch=(),
        kept=Files.new_folder(),
        pulled=Files.new_folder(HIDDEN),
        rows_per_file=TARGET_ROWS,
        bytes_per_file=MOST_BYTES,
    )
    made = table.storage.describe(in_tasks(spark, job)[tasks.KEPT])
    require_all(table, row_count(table, group), row_count(table, made), "rows put together", made)
    return made


def _hidden(storage: Files, retention: dt.timedelta) -> list[str]:
    """Files older than the retention in the folder of hidden files, where no engine's vacuum looks."""
    oldest = dt.datetime.now(dt.timezone.utc) - retention
    selector = pafs.FileSelector(f"{storage.root}/{HIDDEN}", allow_not_found=True, recursive=True)
    return [
        info.path.removeprefix(f"{storage.root}/")
        for info in storage.system.get_file_info(selector)
        if info.type == pafs.FileType.File and info.mtime < oldest
    ]
