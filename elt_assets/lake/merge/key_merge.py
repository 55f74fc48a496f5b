"""Merge of a batch with the present rows of its keys in one vectorised Python task.

Few rows are merged without a Spark window, which needs a plan and takes two to five times the CPU time. The
rows are the same (`lake/spark/merge_tasks.py`); what the task cannot compare exactly as Spark does is left to
Spark. So are many rows: a task holds its rows in memory (2,000,000 rows of one key take 0.9 GB, as versions
of a history 1.2 GB), and several tasks would need buckets by ranges of keys, so that files keep such ranges.

A kill at KEYS_MERGED leaves files that no log names; the next run merges the same rows again.
`tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.files import HIDDEN, TARGET_BYTES, DataFile
from elt_assets.lake.delta.row_counts import verify_or_discard
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Batch, Key
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.merge_tasks import Markers, MergeJob, Validity, make_merge
from elt_assets.lake.spark.tasks import run_tasks
from elt_assets.protocol.catalog import DELETE_MARKERS

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
    """Write the latest row of each key, or all versions of each key.

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
