"""The merge of a batch with the rows of a table, in each mode, and the order of the rows of a key.

Called by `write.commit`, which gets the merge of a mode from `load_merge`; `history`, `changes_of_rows` and
`write.sync_columns` use the same order.

This is the order of a key's rows, for every merge: the Spark windows here, the tasks in Arrow
(`lake.worker.merge_task`), and the versions of a history (`lake.merge.history`).

1. By era. A delete without a cursor value cannot be ordered by cursor: log-based sources send only the key of
   a deleted row. It is ordered by arrival. It ends all that arrived before it, whatever the cursors, and
   begins an era of its key: what arrives after it is later, also with an older cursor or none. A stream
   without a cursor needs no eras: all its rows are ordered by arrival.
2. In an era, by cursor. A null is less than any cursor, so an update without a cursor replaces only such a
   row, or a delete of the first kind.
3. Of equal cursors, by arrival: rows of the batch after the present rows, and of these by `_airbyte_raw_id`,
   which grows in the order of arrival. A replayed record has the id that it got when it arrived, and so
   stands where it would stand if it had been accepted then.

A record is a delete if its delete marker (`_ab_cdc_deleted_at`, `_sdc_deleted_at`) has any JSON value except
null: also an empty text, `false`, or a value that does not fit the column. Such a value is null in the row,
and `_airbyte_meta.changes` shows that it was there. A delete replaces the row of its key like any other
record, but readers do not see it. It is kept as a tombstone, so that an older record that arrives later does
not bring the key back. The last delete without a cursor value is kept even if a later row follows it: a
record that arrived before it may still be replayed.

A kill at KEYS_MERGED leaves files that no log names; the next run merges the same rows again.
`tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`

First the merge of few rows in one Python task; then the merge by a Spark window (`merge_latest` chooses);
then the merge of each destination sync mode (`load_merge`), whose properties are in `protocol.catalog`. In
every mode, a refresh replaces the rows of older generations: the commit does this, not the merge.

Test: `tests/lake/test_row_order.py` compares each of the ways with a sequential model.

Spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil
from types import MappingProxyType

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.row_counts import RowCounter, verify_or_discard, write_all
from elt_assets.lake.delta.storage import HIDDEN, TARGET_BYTES, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_tasks
from elt_assets.lake.merge.file_splitting import Batch, Key, lacks_nulls, split_all
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.merge_task import Markers, MergeJob, Validity, make_merge
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    DELETE_MARKERS,
    OVERWRITE,
    OVERWRITE_DEDUP,
    find_added_modes,
)

ROWS_PER_TASK = 500_000
"""A task holds its rows in memory: about half a kilobyte for each row of a narrow table."""
BYTES_PER_TASK = TARGET_BYTES
"""Size of the files per task; they are compressed."""
MAX_TASKS = 1
"""Maximum number of tasks of a merge that is made without windows."""
_ORDERED = (
    *(t.ByteType, t.ShortType, t.IntegerType, t.LongType),
    *(t.StringType, t.DateType, t.TimestampType, t.TimestampNTZType),
)
"""Types of keys and cursors that a task sorts as Spark does."""

WrittenFiles = tuple[list[DataFile], list[DataFile]]
"""Files that readers see, and hidden files of rows that end a key."""


@dataclass(frozen=True)
class MergeInputs:
    """The input of a merge: a batch, and the present rows of its keys, in files of `table`."""

    table: Table
    batch: Batch
    matching: Batch


def task_count(batch: Batch, matching: Batch) -> int:
    """Return the number of tasks that a merge needs."""
    records, size = batch.records + matching.records, batch.size + matching.size
    return max(ceil(records / ROWS_PER_TASK), ceil(size / BYTES_PER_TASK))


def verify_read(inputs: MergeInputs, rows: int, new_files: WrittenFiles) -> None:
    """Check that a merge read all rows of its input; if it did not, remove the files that it has `new_files`.

    Raises:
        SystemFailure: it did not.
    """
    expected = inputs.batch.records + inputs.matching.records
    files = [*new_files[0], *new_files[1]]
    verify_or_discard(inputs.table, expected, rows, "rows read by a merge", files)


def merge_in_one_task(
    spark: SparkSession,
    inputs: MergeInputs,
    key: Key,
    cursor: Sequence[str],
    schema: t.StructType,
    validity: Validity | None = None,
    columns: tuple[Sequence[str], Sequence[str]] | None = None,
) -> WrittenFiles | None:
    """Write the latest row of each key, or all versions of each key, in one vectorised Python task.

    Few rows are merged without a Spark window, which needs a plan and takes two to five times the CPU time.
    The rows are the same (`lake.worker.merge_task`); what the task cannot compare exactly as Spark does is
    left to Spark. So are many rows: a task holds its rows in memory (2,000,000 rows of one key take 0.9 GB,
    as versions of a history 1.2 GB), and several tasks would need buckets by ranges of keys, so that files
    keep such ranges.

    Args:
        schema: the columns of the batch's table.
        validity: the columns of a history; None for the latest row of each key.
        columns: those of the files that readers see, and those of hidden files; default: those of `schema`.

    Returns:
        None if one task is too small for it, or cannot compare the values: nothing was written.

    Raises:
        SystemFailure: rows were lost.
    """
    ordering = [*key, cursor] if cursor else key
    if not all(isinstance(kind_of(schema, column), _ORDERED) for column in ordering):
        return None
    if task_count(inputs.batch, inputs.matching) > MAX_TASKS:
        return None
    visible, hidden = columns or (schema.names, schema.names)
    job = MergeJob(
        batch_files=[inputs.batch.table.storage.locate(file) for file in inputs.batch.files],
        table_files=[file.path for file in inputs.matching.files],
        key=key,
        cursor=cursor,
        raw_id=metadata_columns.RAW_ID,
        markers=Markers(
            delete_markers(schema),
            metadata_columns.META,
            metadata_columns.NULLED,
            metadata_columns.OWN_REASON,
        ),
        visible=inputs.table.output(),
        visible_columns=visible,
        hidden=inputs.table.output(HIDDEN),
        hidden_columns=hidden,
        schema=inputs.table.arrow_schema(schema),
        validity=validity,
    )
    [result] = run_tasks(spark, 1, make_merge, job)
    reach(Failpoint.KEYS_MERGED)
    if result is None:
        return None
    new_files, hidden_files, rows_read, rows_written = result
    files = [DataFile(*file) for file in new_files], [DataFile(*file) for file in hidden_files]
    verify_read(inputs, rows_read, files)
    rows = sum(file.records for file in [*files[0], *files[1]])
    verify_or_discard(inputs.table, rows_written, rows, "rows written", [*files[0], *files[1]])
    return files


def kind_of(schema: t.StructType, column: Sequence[str]) -> t.DataType:
    """Return the type of a column by its path."""
    kind: t.DataType = schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return kind


def delete_markers(schema: t.StructType) -> list[str]:
    """Return the columns of a table that hold delete markers."""
    return [name for name in DELETE_MARKERS if name in schema.names]


ARRIVAL = "_elt_arrival"
ERA = "_elt_era"
"""Temporary column: the number of the key's deletes without a cursor value that arrived up to a row."""
_RANK, _LAST_ERA = "_elt_rank", "_elt_last_era"


@dataclass(frozen=True)
class Ordering:
    """The rules that decide which rows have the same key, and which of them is the latest."""

    key: Key  # column paths
    cursor: Sequence[str] = ()  # a column path; empty if there is no cursor
    # Whether the rows of the batch have the ids that they got when they arrived, and not newer ones than the
    # present rows. The ids of all syncs sort in the order of arrival.
    is_replay: bool = False


@dataclass(frozen=True)
class MergeTarget:
    """The files that a batch is merged into: those that readers see, or will see, and tombstones."""

    files: Sequence[DataFile]
    tombstones: Sequence[DataFile] = ()

    def apply(self, change: TableChange) -> list[DataFile]:
        """Return the files after a change."""
        removed = {file.path for file in change.remove}
        return [*(file for file in self.files if file.path not in removed), *change.add]


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge: a change of the target's files, and all its tombstones after it."""

    change: TableChange
    tombstones: Sequence[DataFile]


def merge_latest(
    spark: SparkSession,
    table: Table,
    target: MergeTarget,
    batch: Batch,
    by: Ordering,
    schema: t.StructType,
) -> MergeResult:
    """Merge a batch into a target: of each key, the latest row stays.

    Of a large table, only files that contain a key of the batch are rewritten; a small table is rewritten
    whole, and many small files become one. Rows without a complete key have no duplicates: all of them stay.

    Raises:
        SystemFailure: rows were lost in the merge; nothing may be committed.
    """
    if not batch.files:
        return MergeResult(TableChange(), target.tombstones)
    visible, hidden = split_all(
        spark, table, target.files, target.tombstones, batch, by.key, schema
    )
    matching = Batch(table, [*visible.matching, *hidden.matching])
    try:
        inputs = MergeInputs(table, batch, matching)
        merged = None
        if not by.is_replay:
            merged = merge_in_one_task(spark, inputs, by.key, by.cursor, schema)
        files, tombstones = merged or _merge_by_window(spark, inputs, by, schema)
    finally:
        table.storage.discard([*visible.temporary, *hidden.temporary])
    tombstones_left = MergeTarget(target.tombstones).apply(TableChange(hidden.rest, hidden.taken))
    return MergeResult(
        TableChange([*visible.rest, *files], visible.taken), [*tombstones_left, *tombstones]
    )


def _merge_by_window(
    spark: SparkSession, inputs: MergeInputs, by: Ordering, schema: t.StructType
) -> WrittenFiles:
    """Write the latest row of each key, found by a Spark window."""
    read = RowCounter()
    rows = read.count(union_rows(spark, inputs.batch, inputs.matching, by, schema))
    rows = select_latest(rows, by, begins_era(inputs, by, schema))
    files = write_rows(inputs.table, rows, is_delete(schema), schema.names)
    verify_read(inputs, read.rows, files)
    return files


def union_rows(
    spark: SparkSession, batch: Batch, matching: Batch, by: Ordering, schema: t.StructType
) -> DataFrame:
    """Return the rows of a batch and the present rows of its keys; `ARRIVAL` orders them.

    All rows of a key are in one task: windows by key need no other exchange, and files are sorted.
    """
    rows = batch.rows(spark, schema).withColumn(ARRIVAL, f.lit(0 if by.is_replay else 1))
    if matching.files:
        table_rows = matching.rows(spark, schema).withColumn(ARRIVAL, f.lit(0))
        rows = rows.unionByName(table_rows)
    tasks = task_count(batch, matching)
    if tasks <= 1:
        return rows.repartition(1)
    return rows.repartitionByRange(tasks, *map(value_at, by.key))


def begins_era(inputs: MergeInputs, by: Ordering, schema: t.StructType) -> Expression | None:
    """Return whether a row is a delete without a cursor value; None if no row of a merge can be one."""
    deleted = is_delete(schema)
    if deleted is None or not by.cursor:
        return None
    files = (inputs.batch, inputs.matching)
    if all(lacks_nulls(batch.table, batch.files, by.cursor) for batch in files):
        return None
    return deleted & value_at(by.cursor).isNull()


def add_eras(rows: DataFrame, by: Ordering, begins: Expression) -> DataFrame:
    """Return rows with the column `ERA`.

    Args:
        begins: whether a row begins an era, see `begins_era`.
    """
    arrivals = Window.partitionBy(*map(value_at, by.key)).orderBy(ARRIVAL, metadata_columns.RAW_ID)
    return rows.withColumn(ERA, f.count_if(begins).over(arrivals))


def select_latest(rows: DataFrame, by: Ordering, begins: Expression | None) -> DataFrame:
    """Return the latest row of each key, and its last delete without a cursor value.

    Args:
        begins: whether a row begins an era, see `begins_era`.
    """
    order = [f.col(ARRIVAL).desc(), f.col(metadata_columns.RAW_ID).desc()]
    if by.cursor:
        order.insert(0, value_at(by.cursor).desc_nulls_last())
    is_kept = f.col(_RANK) == 1
    # Rows of earlier eras lose to any row of the last one; the delete that began it stays beside the latest.
    if begins is not None:
        rows = add_eras(rows, by, begins)
        order.insert(0, f.col(ERA).desc())
        is_kept |= begins & (f.col(ERA) == f.col(_LAST_ERA))
    ranks = Window.partitionBy(*map(value_at, by.key)).orderBy(*order)
    rows = rows.withColumn(_RANK, f.row_number().over(ranks))
    if begins is not None:
        rows = rows.withColumn(_LAST_ERA, f.first(ERA).over(ranks))
    return rows.where(is_kept).drop(_RANK, _LAST_ERA, ERA, ARRIVAL)


def write_rows(
    table: Table, rows: DataFrame, is_end: Expression | None, names: Sequence[str]
) -> tuple[list[DataFile], list[DataFile]]:
    """Write rows as files.

    Args:
        is_end: whether a row ends a key; None if no row does.
        names: the columns of the rows that readers see.

    Returns:
        the files that readers see, and the hidden files of rows that end a key.
    """
    columns = [value_at([name]) for name in names]
    if is_end is None:
        return write_all(table, rows.select(*columns)), []
    rows = rows.persist()
    try:
        files = write_all(table, rows.where(~is_end).select(*columns))
        return files, write_all(table, rows.where(is_end), HIDDEN)
    finally:
        rows.unpersist()


def is_delete(schema: t.StructType) -> Expression | None:
    """Return whether a row is a delete; None if the table has no column for a delete marker."""
    names = delete_markers(schema)
    if not names:
        return None
    has_value = [f.col(name).isNotNull() for name in names]
    return reduce(operator.or_, [*has_value, _is_nulled(names)])


def _is_nulled(fields: Sequence[str]) -> Expression:
    """Return whether a row has a null in one of these fields because its value did not fit the column."""
    entries = f.exists(
        f.col(metadata_columns.META).getField("changes"),
        lambda change: (
            change.getField("field").isin(list(fields))
            & (change.getField("change") == metadata_columns.NULLED)
            & change.getField("reason").startswith(metadata_columns.OWN_REASON)
        ),
    )
    return f.coalesce(entries, f.lit(False))


Merge = Callable[[SparkSession, Table, MergeTarget, Batch, Ordering, t.StructType], MergeResult]
"""Merges a batch, which has rows, into the files of a target. The files that it writes are not visible before
a commit. A checkpoint without rows needs no merge."""


def _append(
    _spark: SparkSession,
    _table: Table,
    target: MergeTarget,
    batch: Batch,
    _by: Ordering,
    _schema: t.StructType,
) -> MergeResult:
    """Add the batch's files to the files of the target: every row becomes a row of the table."""
    return MergeResult(TableChange(batch.files), target.tombstones)


_MERGES: Mapping[str, Merge] = MappingProxyType(
    {APPEND: _append, OVERWRITE: _append, APPEND_DEDUP: merge_latest, OVERWRITE_DEDUP: merge_latest}
)


def reads_table(mode: str) -> bool:
    """Return whether the merge of a destination sync mode looks at the files of the table."""
    return _MERGES.get(mode) is not _append


def load_merge(mode: str) -> Merge:
    """Return the merge of a destination sync mode."""
    if mode in _MERGES:
        return _MERGES[mode]
    merge: Merge = find_added_modes()[mode].load().merge
    return merge
