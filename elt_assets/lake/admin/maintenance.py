"""Compaction, clustering and vacuum: fewer and larger files, and no files and documents that are not needed.

Both are safe during a sync. A compaction changes no row, state or transaction id, and gives way to a sync
that replaced its files. A vacuum removes only files that are older than the retention; the files that a
running sync has not committed yet are younger.

What a kill leaves, so that nothing is lost or doubled:

- FILES_COMBINED: copies of rows in files that no log names; the next vacuum removes them.
  `tests/lake/test_crash_points.py::test_a_compaction_survives_a_kill_at_any_point`
- FRESH_RECORDS_WRITTEN: the same, of the rejected records that stay.
  `tests/lake/test_crash_points.py::test_an_expiry_survives_a_kill_at_any_point`
- VACUUM_PLANNED, and between two removals: files that no version within the retention needs. The next vacuum
  finds those that are left.
  `tests/lake/test_crash_points.py::test_a_vacuum_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow.fs as pafs
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.clustering import ColumnPath, cluster, list_sorted
from elt_assets.lake.admin.documents import remove_unnamed_documents
from elt_assets.lake.delta.files import HIDDEN, UNFINISHED, DataFile, TableChange, TableStorage
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.merge.file_splitting import combine, is_small, pack_files
from elt_assets.lake.merge.validity import VALID_TO
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.write.stream_tables import DEAD_LETTER, StreamTables

RETENTION = dt.timedelta(days=7)
DEAD_LETTER_AGE = dt.timedelta(days=90)
"""Age at which a rejected record is removed from its dead letter table."""


_FIRST_COMMIT = f"{0:020d}.json"
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint(\.[0-9.a-f-]+)?\.parquet")


@dataclass(frozen=True)
class MaintenanceResult:
    """The result of the maintenance of one table."""

    table: str
    files_before: int
    files_after: int
    removed: int  # the number of files that vacuum removed
    expired: int = 0  # the number of rejected records that were removed, because they were too old
    clustered: int = 0  # the number of files that sorted ones have replaced
    documents: int = 0  # the number of documents that were removed, because no row names them


def maintain(
    spark: SparkSession,
    tables: StreamTables,
    retention: dt.timedelta = RETENTION,
    dead_letter_age: dt.timedelta | None = DEAD_LETTER_AGE,
    cluster_by: Sequence[ColumnPath] = (),
) -> list[MaintenanceResult]:
    """Compact and vacuum a stream's table and its companions.

    A companion that is ahead of its table is skipped: its rollback needs its files as they are.

    Args:
        dead_letter_age: age at which rejected records are removed; None if they are kept.
        cluster_by: the columns by which the rows of the stream's table are sorted; see `cluster`.

    Raises:
        ConfigError: another engine gave a table a rule that this project does not keep.
    """
    maintained, refreshed = [], tables.main.dead_letter_files_of_refreshes()
    for kind, table in ((None, tables.main), *tables.companions.items()):
        if not table.exists or (kind is not None and tables.is_ahead(kind)):
            continue
        table.refuse_unwritable()
        before, expired = len(table.files), 0
        if kind == DEAD_LETTER and dead_letter_age is not None:
            expired = expire(spark, table, dead_letter_age, leave=refreshed)
        order = cluster_by if kind is None else ()
        clustered = cluster(spark, table, order)
        compact(spark, table, leave={*refreshed, *list_sorted(table, order)})
        removed = vacuum(table, retention) + remove_old_checkpoints(table, retention)
        after = len(table.files)
        maintained.append(MaintenanceResult(table.uri, before, after, removed, expired, clustered))
    if maintained:
        documents = remove_unnamed_documents(tables, retention)
        maintained[0] = replace(maintained[0], documents=documents)
    return maintained


def expire(
    spark: SparkSession, table: Table, age: dt.timedelta, leave: Collection[str] = ()
) -> int:
    """Remove the records of a dead letter table that were rejected before a time.

    Args:
        age: since when; rows without a time stay.
        leave: as for `compact`.

    Returns:
        the number of removed records.
    """
    oldest = dt.datetime.now(dt.timezone.utc) - age
    expired = 0
    for file in table.files_before("rejected_at", oldest):
        if file.path in leave:
            continue
        rows = table.read_files(spark, [file])
        old = rows.where(f.col("rejected_at") < f.lit(oldest)).count()
        if not old:
            continue
        fresh = rows.where(f.coalesce(f.col("rejected_at") >= f.lit(oldest), f.lit(True)))
        files = table.write_files(fresh) if old < file.records else []
        reach(Failpoint.FRESH_RECORDS_WRITTEN)
        try:
            verify_or_discard(
                table, file.records - old, row_count(table, files), "rejected records", files
            )
            with discard_if_unpublished(table, files):
                table.reorganise(TableChange(files, [file]))
            expired += old
        except Superseded:
            table.advance()
    return expired


def remove_old_checkpoints(table: Table, retention: dt.timedelta) -> int:
    """Remove checkpoints of the log that are older than the retention, but for the newest of them.

    Entries that a killed run left unfinished are removed with them.

    The commits stay, so each version can still be read, and each state found. A checkpoint lists all files of
    the table; a table with many files has most of its log in them. If another engine has removed commits,
    the checkpoints stay, because older versions need them.

    Returns:
        the number of removed files.
    """
    oldest = dt.datetime.now(dt.timezone.utc) - retention
    infos = table.storage.list_folder(LOG)
    old = [info.base_name for info in infos if info.mtime < oldest]
    names = [name for name in old if name.endswith(UNFINISHED)]
    if any(info.base_name == _FIRST_COMMIT for info in infos):
        checkpoints = [name for name in old if _CHECKPOINT.fullmatch(name)]
        newest = max(checkpoints, default="").partition(".")[0]
        names += [name for name in checkpoints if name.partition(".")[0] != newest]
    return table.storage.discard(DataFile(f"{LOG}/{name}", 0, 0) for name in names)


def compact(spark: SparkSession, table: Table, leave: Collection[str] = ()) -> int:
    """Combine small files: those of each partition separately, and those of a history's closed versions.

    Args:
        leave: paths of files that another table's commits name: they stay as they are.

    Returns:
        the decrease in the number of files.
    """
    removed = 0
    for group in _groups(table, leave):
        with table.discard_new_folders_on_error():
            files = combine(spark, table, [group]).rest
        reach(Failpoint.FILES_COMBINED)
        try:
            with discard_if_unpublished(table, files):
                table.reorganise(TableChange(files, group))
            removed += len(group) - len(files)
        except Superseded:
            table.advance()
    return removed


def vacuum(table: Table, retention: dt.timedelta = RETENTION) -> int:
    """Remove files older than the retention that neither the present version nor one within the retention
    uses.

    Returns:
        the number of removed files.
    """
    old = {*table.find_unreferenced(retention), *_hidden(table.storage, retention)}
    paths = old - table.find_needed(dt.datetime.now(dt.timezone.utc) - retention) if old else old
    reach(Failpoint.VACUUM_PLANNED)
    return table.storage.discard(DataFile(path, 0, 0) for path in paths)


def _groups(table: Table, leave: Collection[str]) -> Iterable[list[DataFile]]:
    bounds = table.bounds([metadata_columns.PARTITION])
    closed = table.paths_lacking_nulls([VALID_TO])
    kinds: dict[object, list[DataFile]] = {}
    is_partitioned = metadata_columns.PARTITION in table.schema.names
    for file in filter(is_small, table.files):
        is_unknown = (
            is_partitioned and file.path not in bounds
        )  # the name of its partition is too long
        if is_unknown or file.path in leave:
            continue
        part = (bounds.get(file.path), file.path in closed, file.part)
        kinds.setdefault(part, []).append(file)
    for files in kinds.values():
        yield from (group for group in pack_files(files) if len(group) > 1)


def _hidden(storage: TableStorage, retention: dt.timedelta) -> list[str]:
    """Return files older than the retention in the folder of hidden files: other engines' vacuum ignores
    it."""
    oldest = dt.datetime.now(dt.timezone.utc) - retention
    selector = pafs.FileSelector(f"{storage.root}/{HIDDEN}", allow_not_found=True, recursive=True)
    return [
        info.path.removeprefix(f"{storage.root}/")
        for info in storage.system.get_file_info(selector)
        if info.type == pafs.FileType.File and info.mtime < oldest
    ]
