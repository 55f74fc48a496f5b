"""The history `<table>_history`: every version of every key, and when it was current (SCD type 2).

Called by `write.commit`, like the merge into the table itself (`key_order`). `lake.write`, `lake.admin`,
`lake.read.row_hashes` and `lake.publish.schemas` use its columns, and `write.companions` and `elt
dbt-sources` its name.

The versions of a key are in the order of `lake.merge.key_order`. `_valid_from` is the cursor if that is a
time, else the time of extraction; it is never later than that of a later version. A version is valid until
the next version or a delete. A delete without a cursor value takes effect at the time in its marker, if
cursor and marker are times, else when it was extracted; no version of a later era is valid before that. A row
that arrives again unchanged is not a version, nor is one that another replaces which has its cursor and
start.

**What the history once answered for a key and a moment (`_valid_from <= moment < _valid_to`), it answers for
ever.** A commit changes only answers for moments since the effective time of one of its records:

- The effective time of a record whose cursor is a time is that time. Late versions and deletes are inserted
  in the past, and a record replaces the version that has its cursor. Nothing before the cursor changes, and
  nothing since the next version. That of a delete whose marker stands for the cursor is the time in the
  marker; it ends all that arrived before it, so it changes answers up to now.
- That of any other record (no cursor, a number, a null) is the time of its extraction. The cursor orders it
  among the versions, but does not change when the others were valid: of equal cursors, each version keeps its
  time.
- That of a refresh that replaces the table is the time of its commit, whatever the cursors of its rows: it
  says which rows there are now, not since when. It begins an *epoch* of each key that it changes (another
  row, no row, a row again); the versions of earlier epochs stay as they are. What the refresh brings, and all
  that comes later, belongs to the new epoch. There, an earlier time is a cursor like a number: it orders, and
  the effective time is that of the extraction, but not before the epoch. So no version moves, and a gap stays
  a gap. The first rows of a history begin no epoch: there were no answers before.
- A history that is turned on again is refreshed from its table: it does not learn what was lost meanwhile.
- A refresh that retains rows only reads again: its records take effect like those of any sync.

Each record is merged once, so it is one version. Test: `tests/lake/test_history_time.py`.

Deletes are kept in separate files that readers do not see, so that a late version gets an end. A merge writes
current and closed versions to different files. A later merge reads files of closed versions only if the batch
has a row that changes one: a late version, or one of a key that was deleted before.

The module publishes nothing, so it can be killed at any point. What is left at each step, and why nothing of
a history is lost or doubled:

- While versions are split, merged and written (FILES_SPLIT, KEYS_MERGED, FILES_WRITTEN): files that no log
  names. The files that they replace are still those of the history, and the state of the batch is not
  stored. So the next run reads the records again, and merges them into the same versions.
  `tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`
- After a refresh, or the beginning of a history: the same, see HISTORY_REFRESHED in `write.commit`. The next
  attempt makes a refresh of its own, at its own time: the epoch of the lost one is in no file that a log
  names.
  `tests/lake/test_crash_points.py::test_a_history_that_begins_survives_a_kill_at_any_point`,
  `tests/lake/test_crash_points.py::test_a_refresh_survives_a_kill_at_any_point`
- After a replay: the same, and its records are still in the dead letter, see `admin.replay`.
  `tests/lake/test_crash_points.py::test_a_replay_survives_a_kill_at_any_point`
- Between the commits of the history and of its table (COMPANION_COMMITTED): the versions are published, the
  records are not acknowledged. The table does not name this commit of the history: readers do not get it, and
  the next run undoes it before it merges the records again. So they are no second version, and no refresh
  takes effect twice: see `write.companions`.
  `tests/lake/test_crash_points.py::test_a_rollback_survives_a_kill_at_any_point`,
  `tests/lake/test_companions.py::test_a_kill_in_the_first_sync_with_a_history_leaves_nothing`

What a run does again need not be the same: a source may send other records, and a refresh has another time.
Each step is right for any, because it starts from the commit that the table names. Each merge counts the rows
that it reads and writes (`delta.row_counts`).

First the versions: their columns, their validity and their content. Then the files that hold them: `merge`,
`merge_replayed` and `refresh` find the present ones and write the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.row_counts import write_all
from elt_assets.lake.delta.storage import HIDDEN, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import key_order
from elt_assets.lake.merge.file_splitting import (
    Batch,
    Split,
    combine_small,
    has_key,
    key_value,
    lacks_nulls,
    split,
    split_all,
)
from elt_assets.lake.merge.key_order import (
    MergeInputs,
    MergeResult,
    MergeTarget,
    Ordering,
    WrittenFiles,
)
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.row_order import Validity

VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALIDITY = [
    t.StructField(VALID_FROM, t.TimestampType()),
    t.StructField(VALID_TO, t.TimestampType()),
    t.StructField(IS_CURRENT, t.BooleanType()),
]
CLOSED_AT = "_elt_closed_at"
"""Column of hidden files: the time when a full refresh no longer contained the key. Its row is a copy of the
key's last version."""
EPOCH = "_elt_epoch"
"""Column of the files that is in no schema: when the refresh was that a version counts from, in epoch
microseconds; 0 if there was none. The versions of an epoch come after all earlier ones, whatever the
cursor."""
HIDDEN_FIELDS = [
    t.StructField(CLOSED_AT, t.TimestampType()),
    t.StructField(EPOCH, t.LongType()),
]
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""The JSON of two values is the same only if they are equal."""
_TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)
_DELETED = "_elt_deleted"


def history_schema(schema: t.StructType) -> t.StructType:
    """Return the columns of the history of a table with this schema: a version ends with its delete, whether
    or not the table keeps the row."""
    return t.StructType([*metadata_columns.remove_deleted_at(schema).fields, *VALIDITY])


def wide_schema(schema: t.StructType) -> t.StructType:
    """Return the columns of a history's files, visible and hidden."""
    return t.StructType([*history_schema(schema), *HIDDEN_FIELDS])


def content(schema: t.StructType) -> Expression:
    """Return the content of a version: the stream's own columns, and whether it is a delete."""
    columns = [_comparable(schema[name]) for name in content_names(schema)]
    deleted = key_order.is_delete(metadata_columns.remove_deleted_at(schema))
    return f.struct(*columns, *([] if deleted is None else [deleted.alias(_DELETED)]))


def _comparable(column: t.StructField) -> Expression:
    """Return the value of a column; as JSON text if it has a map, because Spark compares no maps."""
    value = value_at([column.name])
    return f.to_json(f.struct(value), _JSON_OPTIONS) if _has_map(column.dataType) else value


def _has_map(kind: t.DataType) -> bool:
    if isinstance(kind, t.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, t.MapType)


def content_names(schema: t.StructType) -> list[str]:
    """Return the names of the stream's own columns."""
    ours = {field.name for field in metadata_columns.METADATA_FIELDS}
    names = metadata_columns.remove_deleted_at(schema).names
    return [name for name in names if name not in ours]


def deletion_times(schema: t.StructType) -> list[str]:
    """Return the delete markers whose type is a time."""
    names = key_order.delete_markers(schema)
    return [name for name in names if isinstance(schema[name].dataType, _TIMES)]


SUFFIX = "_history"
_KEY, _SAME, _CURSOR = "_elt_key", "_elt_same", "_elt_cursor"
_SINCE, _LATEST, _IS_AFTER = "_elt_since", "_elt_latest", "_elt_after"


def merge(
    spark: SparkSession,
    table: Table,
    target: MergeTarget,
    batch: Batch,
    by: Ordering,
    schema: t.StructType,
    *,
    closing: bool = False,
    confirmed: Sequence[DataFile] = (),
) -> MergeResult:
    """Merge the versions of a batch into those of the same keys.

    Args:
        table: the history; `target` holds its files.
        schema: the columns of the table that the history is for.
        closing: the batch contains rows of a refresh, and ends of keys.
        confirmed: files of the history with rows of these keys that are in their versions already.
    """
    if not batch.files:
        return MergeResult(TableChange(), target.tombstones)
    job = _HistoryMerge(spark, table, batch, by, schema, closing, confirmed)
    closed = table.paths_lacking_nulls([VALID_TO])
    open_files = [file for file in target.files if file.path not in closed]
    past_files = [file for file in target.files if file.path in closed]
    visible, hidden = _split(job, open_files, target.tombstones, has_past=bool(past_files))
    try:
        # Closed versions are most of a history, and few batches change one: their files are opened only for
        # a batch that does.
        results = _merge_after_current(job, visible, hidden) if past_files else None
        if results is not None:
            visible += combine_small(spark, table, past_files)
        else:
            visible += split(spark, table, past_files, batch, by.key, wide_schema(schema))
            apart = bool(past_files or visible.temporary)
            inputs = job.inputs(visible, hidden)
            results = _merge_in_tasks(job, inputs, apart=apart, is_partial=False)
    finally:
        table.storage.discard([*visible.temporary, *hidden.temporary])
    assert results is not None  # no rows are missing
    if results.is_same:
        table.storage.discard([*visible.rest, *hidden.rest, *results.visible, *results.hidden])
        return MergeResult(TableChange(), target.tombstones)
    tombstones_left = MergeTarget(target.tombstones).apply(TableChange(hidden.rest, hidden.taken))
    return MergeResult(
        TableChange([*visible.rest, *results.visible], visible.taken),
        [*tombstones_left, *results.hidden],
    )


@dataclass(frozen=True)
class _HistoryMerge:
    """The arguments of a merge, except the files of its target."""

    spark: SparkSession
    table: Table
    batch: Batch
    by: Ordering
    schema: t.StructType
    closing: bool
    confirmed: Sequence[DataFile]

    def inputs(self, visible: Split, hidden: Split) -> MergeInputs:
        table_files = [*visible.matching, *hidden.matching, *self.confirmed]
        return MergeInputs(self.table, self.batch, Batch(self.table, table_files))


def _split(
    job: _HistoryMerge, open_files: Sequence[DataFile], ends: Sequence[DataFile], *, has_past: bool
) -> tuple[Split, Split]:
    """Split the files that may hold current versions, and those of ends.

    If others hold only closed versions, the ends are not read whole: it matters whether any is of a key of
    the batch.
    """
    common = (job.batch, job.by.key, wide_schema(job.schema))
    if not has_past:
        return split_all(job.spark, job.table, open_files, ends, *common)
    visible, _ = split_all(job.spark, job.table, open_files, (), *common)
    return visible, split(job.spark, job.table, ends, *common, HIDDEN)


def _merge_after_current(job: _HistoryMerge, visible: Split, hidden: Split) -> WrittenFiles | None:
    """Write the versions and ends of the keys, if all rows of the batch come after the current versions.

    Returns:
        None if a row may not: nothing was written.
    """
    if job.closing or job.by.is_replay or hidden.matching:
        return None
    return _merge_in_tasks(job, job.inputs(visible, hidden), apart=True, is_partial=True)


def _merge_in_tasks(
    job: _HistoryMerge, inputs: MergeInputs, *, apart: bool, is_partial: bool
) -> WrittenFiles | None:
    """Write the versions and ends of the keys; None if closed versions are missing."""
    validity = Validity(
        *(VALID_FROM, VALID_TO, IS_CURRENT, CLOSED_AT, EPOCH),
        extracted=metadata_columns.EXTRACTED_AT,
        content=content_names(job.schema),
        deleted_at=deletion_times(job.schema),
        apart=apart,
        is_partial=is_partial,
    )
    wide, names = wide_schema(job.schema), history_schema(job.schema).names
    columns = [*names, EPOCH], wide.names
    return key_order.merge_in_tasks(job.spark, inputs, job.by, wide, validity, columns)


def merge_replayed(
    spark: SparkSession,
    table: Table,
    target: MergeTarget,
    batch: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
) -> MergeResult:
    """Merge replayed rows into the versions of their keys.

    A row that arrived again unchanged is no version, nor is a delete that a refresh had before such a row. So
    only the table knows that it arrived after a replayed row. The rows of the table are merged too; those
    that are versions already change nothing.

    Args:
        whole: the rows and deletes of the table before the replay.
    """
    if not batch.files:
        return MergeResult(TableChange(), target.tombstones)
    keys = batch.rows(spark, schema).select(key_value(by.key).alias(_KEY)).distinct()
    rows = _read_present(spark, whole, schema).withColumn(_KEY, key_value(by.key))
    confirmed = write_all(table, rows.join(keys, _KEY, "left_semi").drop(_KEY), HIDDEN)
    try:
        return merge(spark, table, target, batch, by, schema, confirmed=confirmed)
    finally:
        table.storage.discard(confirmed)


def refresh(
    spark: SparkSession,
    table: Table,
    target: MergeTarget,
    events: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> MergeResult:
    """Make the current versions equal to the rows of `whole`, from the time `epoch` on.

    The first rows of a history are merged like any others.

    Args:
        events: the rows of the refresh, also those that others of it have replaced.
        whole: what is left of them: a row or a delete of every key that is known.
        epoch: the time of this refresh, in epoch microseconds, later than those before.
    """
    begins = not target.files and not target.tombstones
    if begins and metadata_columns.find_deleted_at(schema) is None:
        return merge(spark, table, target, events, by, schema)
    if begins:
        files = write_all(table, _read_present(spark, events, schema), HIDDEN)
    else:
        files = _write_differences(spark, table, target, events, whole, by, schema, epoch)
    try:
        return merge(spark, table, target, Batch(table, files), by, schema, closing=not begins)
    finally:
        table.storage.discard(files)


def _write_differences(
    spark: SparkSession,
    table: Table,
    target: MergeTarget,
    events: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> list[DataFile]:
    """Write what a refresh changes: the rows of keys that have another last row, and ends of keys that have
    none."""
    wide, content_columns = wide_schema(schema), [_KEY, _SAME]
    columns = [key_value(by.key).alias(_KEY), content(schema).alias(_SAME)]
    last = table.read_files(spark, [*target.files, *target.tombstones], wide).where(IS_CURRENT)
    current = last.where(f.col(CLOSED_AT).isNull()).select("*", *columns)
    rows, left = (
        _read_present(spark, batch, schema, [*VALIDITY, *HIDDEN_FIELDS]).where(has_key(by.key))
        for batch in (events, whole)
    )
    latest = _select_latest(left, by).select("*", *columns)
    ends = current.join(latest.select(_KEY), _KEY, "left_anti")
    ends = ends.withColumn(CLOSED_AT, f.timestamp_micros(f.lit(epoch)))
    changed = latest.join(current.select(content_columns), content_columns, "left_anti")
    begins = _begins_era(events, by, schema)
    later = _select_later(rows.select("*", *columns), changed, current, by, begins)
    due = ends.select(*wide.names).unionByName(later.select(*wide.names))
    return write_all(table, due.withColumn(EPOCH, f.lit(epoch).cast("long")), HIDDEN)


def _read_present(
    spark: SparkSession, batch: Batch, schema: t.StructType, more: Sequence[t.StructField] = ()
) -> DataFrame:
    """Return the rows and deletes of a table without rows that have stayed after their delete."""
    rows = batch.rows(spark, t.StructType([*schema.fields, *more]))
    deleted_at = metadata_columns.find_deleted_at(schema)
    return rows if deleted_at is None else rows.where(f.col(deleted_at).isNull()).drop(deleted_at)


def _select_latest(rows: DataFrame, by: Ordering) -> DataFrame:
    """Return the row of each key, in place of the delete that may be beside it."""
    # A null is less than any other value of a struct.
    cursor = [value_at(by.cursor)] if by.cursor else []
    order = f.struct(*cursor, f.col(metadata_columns.RAW_ID))
    latest = f.max_by(f.struct("*"), order).alias(_LATEST)
    return rows.groupBy(key_value(by.key).alias(_KEY)).agg(latest).select(f"{_LATEST}.*")


def _begins_era(events: Batch, by: Ordering, schema: t.StructType) -> Expression | None:
    """Return whether a row is a delete without a cursor value; None if no row of `events` can be one."""
    deleted = key_order.is_delete(metadata_columns.remove_deleted_at(schema))
    if deleted is None or not by.cursor or lacks_nulls(events.table, events.files, by.cursor):
        return None
    return deleted & value_at(by.cursor).isNull()


def _select_later(
    rows: DataFrame,
    latest: DataFrame,
    current: DataFrame,
    by: Ordering,
    begins: Expression | None,
) -> DataFrame:
    """Return the rows of the keys of `latest` that come after the present version of their key, or have none.

    Args:
        begins: whether a row begins an era, see `key_order`.
    """
    rows = rows.join(latest.select(_KEY, f.col(metadata_columns.RAW_ID).alias(_LATEST)), _KEY)
    if not by.cursor:
        return rows
    cursor, arrival = value_at(by.cursor), f.col(metadata_columns.RAW_ID)
    since = current.select(_KEY, arrival.alias(_SINCE), f.struct(cursor).alias(_CURSOR))
    rows = rows.join(since, _KEY, "left")
    # A null is less than any other value of a struct.
    is_later = f.col(_CURSOR).isNull() | (f.struct(cursor) > f.col(_CURSOR))
    is_later |= arrival == f.col(_LATEST)
    if begins is not None:
        arrivals = Window.partitionBy(_KEY).orderBy(arrival)
        is_after_delete = f.count_if(begins & (arrival > f.col(_SINCE))).over(arrivals) > 0
        rows, is_later = rows.withColumn(_IS_AFTER, is_after_delete), is_later | f.col(_IS_AFTER)
    return rows.where(is_later)
