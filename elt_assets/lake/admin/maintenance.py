"""Maintenance of a stream's tables (compaction, clustering, expiry, vacuum), and reading of its documents.

Dagster's jobs call `maintain` (`orchestration.table_jobs`). Code that reads tables calls `find_document`
(`orchestration.table_reading`).

Compaction, clustering and vacuum are safe during a sync. A compaction or a clustering changes no row, state
or transaction id, and gives way to a sync that replaced its files. A vacuum removes only files that are older
than the retention; the files that a running sync has not committed yet are younger.

What a kill leaves, so that nothing is lost or doubled:

- FILES_COMBINED: copies of rows in files that no log names; the next vacuum removes them.
  `tests/lake/test_crash_points.py::test_a_compaction_survives_a_kill_at_any_point`,
  `tests/lake/test_crash_points.py::test_a_clustering_survives_a_kill_at_any_point`
- FRESH_RECORDS_WRITTEN: the same, of the rejected records that stay.
  `tests/lake/test_crash_points.py::test_an_expiry_survives_a_kill_at_any_point`
- VACUUM_PLANNED, and between two removals: files that no version within the retention needs. The next vacuum
  finds those that are left.
  `tests/lake/test_crash_points.py::test_a_vacuum_survives_a_kill_at_any_point`
- Between two removals of documents: some of the unnamed documents. The next maintenance removes those.

First `cluster`; then the documents below a table, opened for a reader and removed when no row names them any
more; then `maintain`, which calls all the others.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.vacuum_mark import RETENTION, VacuumMark
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard, write_all
from elt_assets.lake.delta.storage import (
    DOCUMENTS,
    HIDDEN,
    TARGET_BYTES,
    TARGET_ROWS,
    UNFINISHED,
    VISIBLE,
    DataFile,
    TableChange,
    TableStorage,
)
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.merge.file_splitting import combine, is_small, pack_files
from elt_assets.lake.merge.history import VALID_TO
from elt_assets.lake.session import value_at
from elt_assets.lake.write.companions import DEAD_LETTER, SUFFIXES, StreamTables
from elt_assets.protocol.message_rules import FIELD
from elt_assets.storage.location import Location

ColumnPath = Sequence[str]
MIN_SHARE = 0.1
"""Share of the rows of a part that must be unsorted for the part to be sorted again: each time all its files
are rewritten."""


def cluster(spark: SparkSession, table: Table, columns: Sequence[ColumnPath]) -> int:
    """Sort the rows of each part of a table by columns, if enough of them are not sorted yet.

    Queries then skip files by their bounds. Files of sorted rows are in a folder whose name contains a
    fingerprint of the columns, so the log itself says which files are sorted. A part of the table (a Dagster
    partition) is sorted as a whole when enough of its rows are not, since sorted files of their own would
    overlap with the others.

    Args:
        columns: column paths; the first one is the most significant. Those that the table lacks are ignored.

    Returns:
        the number of files that were replaced by sorted ones.
    """
    order = _select_order(table, columns)
    if not order:
        return 0
    folder = _folder(order)
    replaced = 0
    for files in _select_parts(table, folder):
        with table.discard_new_folders_on_error():
            new = _sort(spark, table, files, order, folder)
        reach(Failpoint.FILES_COMBINED)
        try:
            with discard_if_unpublished(table, new):
                table.reorganise(TableChange(new, files))
            replaced += len(files)
        except Superseded:
            table.advance()
    return replaced


def list_sorted(table: Table, columns: Sequence[ColumnPath]) -> set[str]:
    """Return the paths of the files that are sorted by columns; a compaction would mix them with others."""
    order = _select_order(table, columns)
    folder = _folder(order)
    return {file.path for file in table.files if order and file.path.startswith(f"{folder}/")}


def _select_order(table: Table, columns: Sequence[ColumnPath]) -> list[ColumnPath]:
    return [path for path in columns if _is_present(table.schema, path)]


def _folder(order: Sequence[ColumnPath]) -> str:
    """Return the folder of the files that are sorted by columns."""
    fingerprint = hashlib.sha256(repr([list(path) for path in order]).encode()).hexdigest()[:8]
    return f"{VISIBLE}/sorted_{fingerprint}"


def count_unsorted(table: Table, columns: Sequence[ColumnPath]) -> int:
    """Return the rows that `cluster` would find in files that are not sorted yet; from the log alone."""
    order = _select_order(table, columns)
    folder = _folder(order)
    parts = _select_parts(table, folder, only_logged=True) if order else ()
    return sum(
        file.records for files in parts for file in files if not file.path.startswith(f"{folder}/")
    )


def _select_parts(
    table: Table, folder: str, *, only_logged: bool = False
) -> Iterator[list[DataFile]]:
    """Yield the files of each part of the table that has too many unsorted rows.

    Files whose partition is not known are left as they are.
    """
    is_partitioned = PARTITION in table.schema.names
    bounds = table.bounds([PARTITION], only_logged=only_logged) if is_partitioned else {}
    parts: dict[object, list[DataFile]] = {}
    for file in table.files:
        if not is_partitioned or file.path in bounds:
            parts.setdefault(bounds.get(file.path), []).append(file)
    for files in parts.values():
        rows = row_count(table, files)
        others = [file for file in files if not file.path.startswith(f"{folder}/")]
        if others and row_count(table, others) >= MIN_SHARE * rows:
            yield files


def _sort(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    columns: Sequence[ColumnPath],
    folder: str,
) -> list[DataFile]:
    """Write the rows of files to new files of about the target size, sorted by columns."""
    rows = row_count(table, files)
    size = sum(file.size for file in files)
    count = max(math.ceil(rows / TARGET_ROWS), math.ceil(size / TARGET_BYTES), 1)
    first = [[name] for name in table.partition_by]
    order = [value_at(path).asc_nulls_last() for path in [*first, *columns]]
    data = table.read_files(spark, files)
    parts = data.repartitionByRange(count, *order) if count > 1 else data.coalesce(1)
    new = write_all(table, parts.sortWithinPartitions(*order), folder)
    verify_or_discard(table, rows, row_count(table, new), "rows of sorted files", new)
    return new


def _is_present(schema: t.StructType, path: ColumnPath) -> bool:
    kind: t.DataType = schema
    for name in path:
        if not isinstance(kind, t.StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return not isinstance(kind, t.StructType | t.ArrayType | t.MapType)


_REJECTED = "record"
"""The column of a dead letter with a record as JSON."""
_PATH = re.compile(rf"{DOCUMENTS}/[0-9a-f]{{32}}/\d+-[A-Za-z0-9._-]+")
_READERS = 8


def find_document(tables: Iterable[Location], path: str) -> BinaryIO | None:
    """Open a document for reading, of the first of some tables that has it; None if none has it.

    Args:
        path: as rows name it.

    Raises:
        ConfigError: no document has such a path.
    """
    if not _PATH.fullmatch(path):
        raise ConfigError(
            f"{path!r} is not the path of a document",
            guidance="give the `file_reference` of a row, or its `path`",
        )
    for table in tables:
        with contextlib.suppress(FileNotFoundError):
            document: BinaryIO = TableStorage(table).open_path(path)
            return document
    return None


def remove_unnamed_documents(tables: StreamTables, retention: dt.timedelta) -> int:
    """Remove a stream's documents that are older than the retention, and that no file of its tables names.

    A document stays if any Parquet file of the stream's table or of its companions names it, whether or not a
    version has that file: so a document is removed only after vacuum has removed the last file with its rows.
    That includes rows that readers do not see yet, and rejected records, which can be replayed. A document
    that is younger than the retention stays too, because the row that names it may not be written yet.

    Returns:
        the number of removed documents.

    Raises:
        pa.ArrowInvalid: a file that is older than the retention cannot be read; nothing was removed.
    """
    storage, oldest = tables.main.storage, dt.datetime.now(dt.timezone.utc) - retention
    old = {path for path, changed in list_files(storage, DOCUMENTS) if changed < oldest}
    unnamed = find_unnamed_documents(storage, old, oldest)
    return storage.discard(DataFile(path, 0, 0) for path in unnamed)


def find_unnamed_documents(
    storage: TableStorage, documents: Collection[str], oldest: dt.datetime | None = None
) -> list[str]:
    """Return those of some documents that no file of a stream's tables names.

    Args:
        storage: that of the stream's table.
        documents: their paths.
        oldest: the time since when a file may be incomplete; default: any may be.

    Raises:
        pa.ArrowInvalid: a file that is older cannot be read.
    """
    unnamed = set(documents)
    if not unnamed:
        return []
    places = [storage.location, *map(storage.location.add_suffix, SUFFIXES.values())]
    files = [
        (part, path, oldest is not None and changed < oldest)
        for part in map(TableStorage, places)
        for path, changed in _list_parquet(part)
    ]
    with ThreadPoolExecutor(_READERS) as pool:
        for named in pool.map(lambda file: _read_named(*file), files):
            unnamed -= named
    return sorted(unnamed)


def _list_parquet(storage: TableStorage) -> Iterator[tuple[str, dt.datetime]]:
    for path, changed in list_files(storage):
        if path.endswith(".parquet") and not path.startswith((f"{LOG}/", f"{DOCUMENTS}/")):
            yield path, changed


def list_files(
    storage: TableStorage, folder: str | None = None
) -> Iterator[tuple[str, dt.datetime]]:
    """Yield the files of a table: the path of each below the root, and the time of its last change."""
    base = storage.root if folder is None else f"{storage.root}/{folder}"
    selector = pafs.FileSelector(base, allow_not_found=True, recursive=True)
    for info in storage.system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield info.path[len(storage.root) + 1 :], info.mtime


def _read_named(storage: TableStorage, path: str, is_old: bool) -> set[str]:
    """Return the documents that the rows of a file name.

    None if the file was removed meanwhile, or is incomplete: then a run is writing it or was killed, and the
    documents that only it names are as young as it is.
    """
    try:
        with storage.open_path(path) as source:
            file = pq.ParquetFile(source)
            column = _find_column(file.schema_arrow)
            if column is None:
                return set()
            named: set[str] = set()
            for batch in file.iter_batches(columns=[column]):
                named |= _find_paths(batch.column(0))
            return named
    except FileNotFoundError:
        return set()
    except pa.ArrowInvalid:
        if is_old:
            raise
        return set()


def _find_column(schema: pa.Schema) -> str | None:
    """Return the column with the places of documents, or with records that have such; None without one."""
    for field in schema:
        if field.name.lower() == FIELD:
            return f"{field.name}.path" if pa.types.is_struct(field.type) else str(field.name)
    return _REJECTED if _REJECTED in schema.names and "reason" in schema.names else None


def _find_paths(values: pa.Array) -> set[str]:
    if pa.types.is_struct(values.type):
        return set(filter(None, pc.struct_field(values, "path").unique().to_pylist()))
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return set()
    texts = values.filter(pc.fill_null(pc.match_substring(values, f"{DOCUMENTS}/"), False))
    return {path for text in texts.to_pylist() for path in _PATH.findall(text)}


CHECKPOINT_ENTRIES = 100
"""Entries of the log after its newest checkpoint, above which maintenance writes another one."""
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


PrepareVacuum = Callable[[Table, str | None], Sequence[str] | None]
"""Is called with a table and its kind of companion before it is vacuumed, when it is compacted. Returns the
folders below its root that are not of the table; None if the table must not be vacuumed."""


def maintain(
    spark: SparkSession,
    tables: StreamTables,
    retention: dt.timedelta = RETENTION,
    dead_letter_age: dt.timedelta | None = DEAD_LETTER_AGE,
    cluster_by: Sequence[ColumnPath] = (),
    prepare: PrepareVacuum = lambda *_: (),
) -> list[MaintenanceResult]:
    """Compact and vacuum a stream's table and its companions.

    A companion that is ahead of its table is skipped: its rollback needs its files as they are.

    Args:
        dead_letter_age: age at which rejected records are removed; None if they are kept.
        cluster_by: the columns by which the rows of the stream's table are sorted; see `cluster`.
        prepare: publishes the table before files that it named are removed.

    Raises:
        ConfigError: another engine gave a table a rule that this project does not keep.
    """
    maintained, refreshed = [], tables.main.dead_letter_files_of_refreshes()
    for kind, table in _list_maintained(tables):
        before, expired = len(table.files), 0
        if kind == DEAD_LETTER and dead_letter_age is not None:
            expired = expire(spark, table, dead_letter_age, leave=refreshed)
        order = cluster_by if kind is None else ()
        clustered = cluster(spark, table, order)
        compact(spark, table, leave={*refreshed, *list_sorted(table, order)})
        others = prepare(table, kind)
        removed = 0 if others is None else vacuum(table, retention, others)
        if table.log_length > CHECKPOINT_ENTRIES:
            table.write_checkpoint()
        removed += remove_old_checkpoints(table, retention)
        after = len(table.files)
        maintained.append(MaintenanceResult(table.uri, before, after, removed, expired, clustered))
    if maintained:
        documents = remove_unnamed_documents(tables, retention)
        maintained[0] = replace(maintained[0], documents=documents)
    return maintained


def _list_maintained(tables: StreamTables) -> Iterator[tuple[str | None, Table]]:
    """Yield the tables of a stream that may be maintained, with their kinds; see `maintain`."""
    for kind, table in ((None, tables.main), *tables.companions.items()):
        if table.exists and (kind is None or not tables.is_ahead(kind)):
            table.refuse_unwritable()
            yield kind, table


def combine_small_files(
    spark: SparkSession, tables: StreamTables, cluster_by: Sequence[ColumnPath] = ()
) -> int:
    """Compact a stream's table and its companions, which a sync goes on writing.

    Args:
        cluster_by: as for `maintain`.

    Returns:
        the decrease in the number of files.
    """
    refreshed, fewer = tables.main.dead_letter_files_of_refreshes(), 0
    for kind, table in _list_maintained(tables):
        order = cluster_by if kind is None else ()
        fewer += compact(spark, table, leave={*refreshed, *list_sorted(table, order)})
    return fewer


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
    the table; a table with many files has most of its log in them. If the first commits were removed, by an
    erasure or another engine, the oldest checkpoint stays too: the versions since are read from it.

    Returns:
        the number of removed files.
    """
    oldest = dt.datetime.now(dt.timezone.utc) - retention
    infos = table.storage.list_folder(LOG)
    old = [info.base_name for info in infos if info.mtime < oldest]
    names = [name for name in old if name.endswith(UNFINISHED)]
    checkpoints = [name for name in old if _CHECKPOINT.fullmatch(name)]
    needed = {max(checkpoints, default="").partition(".")[0]}
    if all(info.base_name != _FIRST_COMMIT for info in infos):
        needed.add(min(checkpoints, default="").partition(".")[0])
    names += [name for name in checkpoints if name.partition(".")[0] not in needed]
    return table.storage.discard(DataFile(f"{LOG}/{name}", 0, 0) for name in names)


def compact(spark: SparkSession, table: Table, leave: Collection[str] = ()) -> int:
    """Combine small files: those of each partition separately, and those of a history's closed versions.

    Args:
        leave: paths of files that another table's commits name: they stay as they are.

    Returns:
        the decrease in the number of files.
    """
    removed = 0
    for group in group_small_files(table, leave):
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


def vacuum(table: Table, retention: dt.timedelta = RETENTION, others: Sequence[str] = ()) -> int:
    """Remove files older than the retention that neither the present version nor one within the retention
    uses.

    Args:
        others: folders below the root, with a slash at the end, whose files are not of the table.

    Returns:
        the number of removed files.
    """
    old = {*table.find_unreferenced(retention), *_hidden(table.storage, retention)}
    old = {path for path in old if not path.startswith(tuple(others))}
    paths = old - table.find_needed(dt.datetime.now(dt.timezone.utc) - retention) if old else old
    reach(Failpoint.VACUUM_PLANNED)
    removed = table.storage.discard(DataFile(path, 0, 0) for path in paths)
    if removed == len(paths):
        VacuumMark.record(table, retention)
    return removed


def group_small_files(
    table: Table, leave: Collection[str], *, only_logged: bool = False
) -> Iterable[list[DataFile]]:
    """Yield the groups of files that are combined: each of several files.

    Args:
        leave: as for `compact`.
        only_logged: no footer is read of a file that has no statistics in the log.
    """
    bounds = table.bounds([metadata_columns.PARTITION], only_logged=only_logged)
    closed = table.paths_lacking_nulls([VALID_TO], only_logged=only_logged)
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
