"""The merge of a batch with the rows of a table, in each mode, and the order of the rows of a key.

Called by `write.commit`, which gets the merge of a mode from `load_merge`; `history`, `changes_of_rows` and
`write.sync_columns` use the same order.

This is the order of a key's rows, for every merge, also for the versions of a history (`lake.merge.history`).
The tasks in Arrow that merge rows by it (`lake.worker.row_order`) are the only place that implements it.

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
record that arrived before it may still be replayed. In a table that keeps deleted rows (`deletes: keep`), the
latest row of a deleted key stays beside its tombstone, where readers see it: see `lake.worker.soft_deletes`.

A kill at KEYS_MERGED leaves files that no log names; the next run merges the same rows again.
`tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`

First the merge of rows by key in tasks (`merge_in_tasks`); then the merge of each destination sync mode
(`load_merge`), whose properties are in `protocol.catalog`. In every mode, a refresh replaces the rows of
older generations: the commit does this, not the merge.

Test: `tests/lake/test_row_order.py` compares the tasks with a sequential model, and
`tests/lake/test_key_merge.py` with windows of Spark.

Spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.row_counts import verify_or_discard
from elt_assets.lake.delta.storage import HIDDEN, TARGET_BYTES, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_on_rows, run_tasks
from elt_assets.lake.merge.file_splitting import (
    Batch,
    Key,
    is_merged_whole,
    record_parts,
    split_all,
)
from elt_assets.lake.merge.unchanged import Reduced, content_of, leave_out_unchanged
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.merge_task import (
    NOT_CONTINUED,
    TOO_LARGE,
    MergeJob,
    make_merge,
    make_merge_of_range,
)
from elt_assets.lake.worker.row_order import ARRIVAL, Markers, Rules, Validity
from elt_assets.lake.worker.soft_deletes import SoftDeleteColumns
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    DELETE_MARKERS,
    OVERWRITE,
    OVERWRITE_DEDUP,
    SOFT_DELETE,
    find_added_modes,
)

ROWS_PER_TASK = 500_000
"""Rows of a range of keys, which one task merges."""
BYTES_PER_TASK = TARGET_BYTES
"""Size of the files of such rows, in bytes; they are compressed."""
MAX_TASKS = 2
"""The number of ranges up to which a task reads the files itself, and Spark does not sort."""


class WrittenFiles(NamedTuple):
    """The files of a merge. `visible`: those that readers see. `hidden`: those of rows that end a key.

    `unchanged`: the number of rows of the batch that gave way to the same present rows. `is_same`: the rows
    are those that were there before the merge.
    """

    visible: list[DataFile]
    hidden: list[DataFile]
    unchanged: int = 0
    is_same: bool = False


@dataclass(frozen=True)
class MergeInputs:
    """The input of a merge: a batch, and the present rows of its keys, in files of `table`."""

    table: Table
    batch: Batch
    matching: Batch


@dataclass(frozen=True)
class Ordering:
    """The rules that decide which rows have the same key, and which of them is the latest."""

    key: Key  # column paths
    cursor: Sequence[str] = ()  # a column path; empty if there is no cursor
    # Whether the rows of the batch have the ids that they got when they arrived, and not newer ones than the
    # present rows. The ids of all syncs sort in the order of arrival.
    is_replay: bool = False
    # Whether a row gives way to the present row of its key if that has the same content (`unchanged`).
    keeps_unchanged: bool = False
    # Whether the latest row of a key stays when it is deleted (`lake.worker.soft_deletes`).
    keeps_deleted: bool = False


def merge_in_tasks(
    spark: SparkSession,
    inputs: MergeInputs,
    by: Ordering,
    schema: t.StructType,
    validity: Validity | None = None,
    columns: tuple[Sequence[str], Sequence[str]] | None = None,
) -> WrittenFiles | None:
    """Write the latest row of each key, or all versions of each key, in vectorised Python tasks.

    One task reads and merges few rows, without a plan of Spark. Of more rows, Spark makes ranges of keys,
    and sorts each, on disk if it must; a task for each range merges them block by block, and writes its
    files. So each file has a range of keys, and a task holds no more than a block (`lake.worker.merge_task`).

    Args:
        schema: the columns to read.
        validity: the columns of a history; None for the latest row of each key.
        columns: those of the files that readers see, and those of hidden files; default: those of `schema`.

    Returns:
        None if closed versions of a history are missing (see `Validity.is_partial`): nothing was written.

    Raises:
        SystemFailure: rows were lost.
    """
    job, tasks = _describe_job(inputs, by, schema, validity, columns), task_count(inputs)
    results: Sequence[Any] = [TOO_LARGE]
    if tasks <= MAX_TASKS:
        results = run_tasks(spark, 1, make_merge, job)
    if TOO_LARGE in results:
        rows = _sort_rows(spark, inputs, by, schema, tasks)
        results = run_on_rows(rows, make_merge_of_range, job)
    reach(Failpoint.KEYS_MERGED)
    merged = [result for result in results if result != NOT_CONTINUED]
    visible, hidden = (
        [DataFile(*file) for result in merged for file in result[kind]] for kind in (0, 1)
    )
    files = [*visible, *hidden]
    if len(merged) < len(results):
        inputs.table.storage.discard(files)
        return None
    rows_read, rows_written, of_batch, unchanged = (
        sum(result[count] for result in merged) for count in (2, 3, 4, 5)
    )
    expected = inputs.batch.records + inputs.matching.records
    verify_or_discard(inputs.table, expected, rows_read, "rows read by a merge", files)
    rows_of_files = sum(file.records for file in files)
    verify_or_discard(inputs.table, rows_written, rows_of_files, "rows written", files)
    # The rows of a replay do not count as those of a batch.
    is_same = by.keeps_unchanged and not of_batch and rows_written == inputs.matching.records
    return WrittenFiles(visible, hidden, unchanged, is_same)


def task_count(inputs: MergeInputs) -> int:
    """Return the number of ranges of keys that a merge needs."""
    records = inputs.batch.records + inputs.matching.records
    size = inputs.batch.size + inputs.matching.size
    return max(ceil(records / ROWS_PER_TASK), ceil(size / BYTES_PER_TASK))


def _describe_job(
    inputs: MergeInputs,
    by: Ordering,
    schema: t.StructType,
    validity: Validity | None,
    columns: tuple[Sequence[str], Sequence[str]] | None,
) -> MergeJob:
    visible, hidden = columns or (schema.names, schema.names)
    names = delete_markers(schema)
    is_latest, content, soft_deletes = validity is None, list[list[str]](), None
    if is_latest and by.keeps_deleted:
        soft_deletes = SoftDeleteColumns(
            metadata_columns.ROW_DELETED_AT,
            metadata_columns.RAW_ID,
            metadata_columns.EXTRACTED_AT,
            metadata_columns.META,
            metadata_columns.SYNC_ID,
            names,
        )
    if is_latest and by.keeps_unchanged:
        of_deletes = () if soft_deletes is None else (soft_deletes.deleted_at, *names)
        content = [path for path in content_of(schema) if path[0] not in of_deletes]
    markers = Markers(
        names,
        metadata_columns.META,
        metadata_columns.NULLED,
        metadata_columns.OWN_REASON,
    )
    rules = Rules(
        by.key,
        record_parts(by.key),
        by.cursor,
        metadata_columns.RAW_ID,
        markers,
        validity,
        content,
        soft_deletes,
    )
    return MergeJob(
        files=[
            (files.table.storage.locate(file), arrival)
            for files, arrival in _sources(inputs, by)
            for file in files.files
        ],
        schema=arrow_columns(schema),
        rules=rules,
        visible=inputs.table.output(),
        visible_columns=visible,
        hidden=inputs.table.output(HIDDEN),
        hidden_columns=hidden,
    )


def _sources(inputs: MergeInputs, by: Ordering) -> Sequence[tuple[Batch, int]]:
    """Return the rows of a merge, with their `ARRIVAL`."""
    return (inputs.matching, 0), (inputs.batch, 0 if by.is_replay else 1)


def _sort_rows(
    spark: SparkSession, inputs: MergeInputs, by: Ordering, schema: t.StructType, tasks: int
) -> DataFrame:
    """Return the rows of a merge in ranges of keys, each sorted by key and arrival."""
    parts = [
        files.rows(spark, schema).withColumn(ARRIVAL, f.lit(arrival))
        for files, arrival in _sources(inputs, by)
        if files.files
    ]
    keys = [value_at(part) for part in by.key]
    rows = reduce(lambda left, right: left.unionByName(right), parts)
    ranges = rows.repartitionByRange(max(tasks, 1), *keys)
    return ranges.sortWithinPartitions(*keys, ARRIVAL, metadata_columns.RAW_ID)


def delete_markers(schema: t.StructType) -> list[str]:
    """Return the columns of a table that hold delete markers."""
    return [name for name in DELETE_MARKERS if name in schema.names]


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
    """The result of a merge: a change of the target's files, and all its tombstones after it.

    `unchanged`: the number of rows of the batch that the target had already.
    """

    change: TableChange
    tombstones: Sequence[DataFile]
    unchanged: int = 0


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
    reduced = Reduced(batch)
    if by.keeps_unchanged and not is_merged_whole(
        table, [*target.files, *target.tombstones], by.key
    ):
        reduced = leave_out_unchanged(spark, table, target.files, batch, by.key, schema)
    if not reduced.batch.files:
        return MergeResult(TableChange(), target.tombstones, reduced.rows)
    visible, hidden = split_all(
        spark, table, target.files, target.tombstones, reduced.batch, by.key, schema
    )
    matching = Batch(table, [*visible.matching, *hidden.matching])
    try:
        inputs = MergeInputs(table, reduced.batch, matching)
        merged = merge_in_tasks(spark, inputs, by, schema)
    finally:
        table.storage.discard([*visible.temporary, *hidden.temporary, *reduced.temporary])
    assert merged is not None  # only a history can lack rows
    unchanged = reduced.rows + merged.unchanged
    if merged.is_same:
        table.storage.discard([*visible.rest, *hidden.rest, *merged.visible, *merged.hidden])
        return MergeResult(TableChange(), target.tombstones, unchanged)
    tombstones_left = MergeTarget(target.tombstones).apply(TableChange(hidden.rest, hidden.taken))
    return MergeResult(
        TableChange([*visible.rest, *merged.visible], visible.taken),
        [*tombstones_left, *merged.hidden],
        unchanged,
    )


def is_delete(schema: t.StructType) -> Expression | None:
    """Return whether a row is a delete, or has stayed after one; None if the table has no column for it."""
    names, deleted_at = delete_markers(schema), metadata_columns.find_deleted_at(schema)
    columns = [*names, *([deleted_at] if deleted_at else [])]
    if not columns:
        return None
    has_value = [f.col(name).isNotNull() for name in columns]
    return reduce(operator.or_, [*has_value, *([_is_nulled(names)] if names else [])])


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
    {
        APPEND: _append,
        OVERWRITE: _append,
        APPEND_DEDUP: merge_latest,
        OVERWRITE_DEDUP: merge_latest,
        SOFT_DELETE: merge_latest,
    }
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
