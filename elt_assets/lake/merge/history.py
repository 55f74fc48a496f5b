"""The history `<table>_history`: every version of every key, and when it was current (SCD type 2).

The versions of a key are in the order of `lake.merge.dedup`. `_valid_from` is the cursor if that is a time,
else the time of extraction; it is never later than that of a later version. A version is valid until the
next version or a delete. A delete without a cursor value takes effect at the time in its marker, if cursor
and marker are times, else when it was extracted; no version of a later era is valid before that. A row that
arrives again unchanged is not a version, nor is one that another replaces which has its cursor and start.

**What the history once answered for a key and a moment (`_valid_from <= moment < _valid_to`), it answers for
ever.** A commit changes only answers for moments since the place in time of one of its records:

- The place of a record whose cursor is a time is that time. Late versions and deletes are inserted in the
  past, and a record replaces the version that has its cursor. Nothing before the cursor changes, and nothing
  since the next version. The place of a delete whose marker stands for the cursor is the time in the marker;
  it ends all that arrived before it, so it changes answers up to now.
- The place of any other record (no cursor, a number, a null) is its extraction. The cursor orders it among
  the versions, but does not change when the others were valid: of equal cursors, each version keeps its time.
- The place of a refresh that replaces the table is its commit, whatever the cursors of its rows: it says
  which rows there are now, not since when. It begins an *epoch* of each key that it changes (another row, no
  row, a row again); the versions of earlier epochs stay as they are. What the refresh brings, and all that
  comes later, belongs to the new epoch. There, an earlier time is a cursor like a number: it orders, and the
  place is the extraction, but not before the epoch. So no version moves, and a gap stays a gap. The first
  rows of a history begin no epoch: there were no answers before.
- A history that is turned on again is refreshed from its table: it does not learn what was lost meanwhile.
- A refresh that retains rows only reads again: its records are placed like those of any sync.

Each record is merged once, so it is one version. Tests: `tests/lake/test_history_time.py`.

Deletes are kept in separate files that readers do not see, so that a late version gets an end.

A merge writes current and closed versions to different files. A later merge reads files of closed versions
only if the batch has a row that changes one: a late version, or one of a key that was deleted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, Change, DataFile
from elt_assets.lake.delta.row_counts import RowCounter, write_all
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import dedup, key_merge
from elt_assets.lake.merge.dedup import ARRIVAL, ERA, Merged, Ordering, Target
from elt_assets.lake.merge.file_splitting import (
    Batch,
    Split,
    combine_small,
    has_key,
    key_value,
    split,
    split_all,
)
from elt_assets.lake.merge.key_merge import Inputs, Written, kind_of
from elt_assets.lake.parse.conform import value_at
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.key_tasks import Validity

SUFFIX = "_history"
VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALIDITY = [
    t.StructField(VALID_FROM, t.TimestampType()),
    t.StructField(VALID_TO, t.TimestampType()),
    t.StructField(IS_CURRENT, t.BooleanType()),
]
_CLOSED_AT = "_elt_closed_at"
"""Column of hidden files: the time when a full refresh no longer contained the key. Its row is a copy of the
key's last version."""
_EPOCH = "_elt_epoch"
"""Column of the files that is in no schema: when the refresh was that a version counts from, in epoch
microseconds; 0 if there was none. Tables of earlier releases have the number of the refresh, which is a time
before all others. The versions of an epoch come after all earlier ones, whatever the cursor."""
HIDDEN_FIELDS = [
    t.StructField(_CLOSED_AT, t.TimestampType()),
    t.StructField(_EPOCH, t.LongType()),
]
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""The JSON of two values is the same only if they are equal."""
_TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)
_KEY, _SAME, _PLACE, _DELETED = "_elt_key", "_elt_same", "_elt_place", "_elt_deleted"
_SINCE, _LATEST = "_elt_since", "_elt_latest"


def history_schema(schema: t.StructType) -> t.StructType:
    """Return the columns of the history of a table with this schema."""
    return t.StructType([*schema.fields, *VALIDITY])


def merge(
    spark: SparkSession,
    table: Table,
    target: Target,
    batch: Batch,
    by: Ordering,
    schema: t.StructType,
    *,
    closing: bool = False,
    confirmed: Sequence[DataFile] = (),
) -> Merged:
    """Merge the versions of a batch into those of the same keys.

    Args:
        table: the history; `target` holds its files.
        schema: the columns of the table that the history is for.
        closing: the batch contains ends of keys.
        confirmed: files of the history with rows of these keys that are in their versions already.
    """
    if not batch.files:
        return Merged(Change(), target.tombstones)
    job = _Job(spark, table, batch, by, schema, closing, confirmed)
    closed = table.without_nulls([VALID_TO])
    opened = [file for file in target.files if file.path not in closed]
    past = [file for file in target.files if file.path in closed]
    visible, hidden = _split(job, opened, target.tombstones, has_past=bool(past))
    try:
        written = _after_current(job, visible, hidden) if past else None
        if written is not None:
            visible += combine_small(spark, table, past)
        else:
            visible += split(spark, table, past, batch, by.key, _wide(schema))
            written = _among_all(job, visible, hidden, apart=bool(past or visible.temporary))
    finally:
        table.discard_files([*visible.temporary, *hidden.temporary])
    versions, ends = written
    kept = Target(target.tombstones).after(Change(hidden.kept, hidden.taken))
    return Merged(Change([*visible.kept, *versions], visible.taken), [*kept, *ends])


@dataclass(frozen=True)
class _Job:
    """The arguments of a merge, except the files of its target."""

    spark: SparkSession
    table: Table
    batch: Batch
    by: Ordering
    schema: t.StructType
    closing: bool
    confirmed: Sequence[DataFile]

    @property
    def needs_windows(self) -> bool:
        return self.closing or self.by.arrival != "last"

    def inputs(self, visible: Split, hidden: Split) -> Inputs:
        present = [*visible.matching, *hidden.matching, *self.confirmed]
        return Inputs(self.table, self.batch, Batch(self.table, present))


def _split(
    job: _Job, opened: Sequence[DataFile], ends: Sequence[DataFile], *, has_past: bool
) -> tuple[Split, Split]:
    """Split the files that may hold current versions, and those of ends.

    If others hold only closed versions, the ends are not read whole: it matters whether any is of a key of
    the batch.
    """
    common = (job.batch, job.by.key, _wide(job.schema))
    if not has_past:
        return split_all(job.spark, job.table, opened, ends, *common)
    visible, _ = split_all(job.spark, job.table, opened, (), *common)
    return visible, split(job.spark, job.table, ends, *common, HIDDEN)


def _after_current(job: _Job, visible: Split, hidden: Split) -> Written | None:
    """Write the versions and ends of the keys, if all rows of the batch come after the current versions.

    Returns:
        None if a row does not, or if one task cannot do it: nothing was written.
    """
    if job.needs_windows or hidden.matching:
        return None
    return _in_one_task(job, job.inputs(visible, hidden), apart=True, is_partial=True)


def _among_all(job: _Job, visible: Split, hidden: Split, *, apart: bool) -> Written:
    """Write the versions and ends of the keys; `visible` and `hidden` hold all that there are."""
    inputs, written = job.inputs(visible, hidden), None
    if not job.needs_windows:
        written = _in_one_task(job, inputs, apart=apart, is_partial=False)
    may_close = job.closing or bool(hidden.matching)
    return written or _by_window(job.spark, inputs, job.by, job.schema, may_close=may_close)


def _wide(schema: t.StructType) -> t.StructType:
    """Return the columns of a history's files, visible and hidden."""
    return t.StructType([*history_schema(schema), *HIDDEN_FIELDS])


def _in_one_task(job: _Job, inputs: Inputs, *, apart: bool, is_partial: bool) -> Written | None:
    """Write the versions and ends of the keys in one task; None if it cannot."""
    by, schema = job.by, job.schema
    validity = Validity(
        *(VALID_FROM, VALID_TO, IS_CURRENT, _CLOSED_AT, _EPOCH),
        extracted=metadata_columns.EXTRACTED_AT,
        content=_content_names(schema),
        deleted_at=_deletion_times(schema),
        apart=apart,
        is_partial=is_partial,
    )
    names = history_schema(schema).names
    columns = [*names, _EPOCH], [*names, _CLOSED_AT, _EPOCH]
    return key_merge.in_one_task(job.spark, inputs, by.key, by.cursor, schema, validity, columns)


def _by_window(
    spark: SparkSession, inputs: Inputs, by: Ordering, schema: t.StructType, *, may_close: bool
) -> Written:
    """Write the versions and ends of the keys, found by Spark windows."""
    read = RowCounter()
    rows = read.over(dedup.union_rows(spark, inputs.batch, inputs.matching, by, _wide(schema)))
    begins = dedup.begins_era(inputs, by, schema)
    if begins is not None:
        begins &= f.col(_CLOSED_AT).isNull()
        rows = dedup.with_eras(rows, by, begins)
    rows = _with_validity(rows.where(has_key(by.key)), by, schema, begins)
    names = [*history_schema(schema).names, _EPOCH]
    is_end = _is_end(schema, may_close=may_close)
    written = dedup.write_rows(inputs.table, rows, is_end, names)
    key_merge.require_read(inputs, read.rows, written)
    return written


def merge_replayed(
    spark: SparkSession,
    table: Table,
    target: Target,
    batch: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
) -> Merged:
    """Merge replayed rows into the versions of their keys.

    A row that arrived again unchanged is no version, nor is a delete that a refresh had before such a row. So
    only the table knows that it arrived after a replayed row. The rows of the table are merged too; those
    that are versions already change nothing.

    Args:
        whole: the rows and deletes of the table before the replay.
    """
    if not batch.files:
        return Merged(Change(), target.tombstones)
    keys = batch.rows(spark, schema).select(key_value(by.key).alias(_KEY)).distinct()
    rows = whole.rows(spark, schema).withColumn(_KEY, key_value(by.key))
    confirmed = write_all(table, rows.join(keys, _KEY, "left_semi").drop(_KEY), HIDDEN)
    try:
        return merge(spark, table, target, batch, by, schema, confirmed=confirmed)
    finally:
        table.discard_files(confirmed)


def refresh(
    spark: SparkSession,
    table: Table,
    target: Target,
    events: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> Merged:
    """Make the current versions equal to the rows of `whole`, from the time `epoch` on.

    The first rows of a history are merged like any others.

    Args:
        events: the rows of the refresh, also those that others of it have replaced.
        whole: what is left of them: a row or a delete of every key that is known.
        epoch: the time of this refresh, in epoch microseconds, later than those before.
    """
    if not target.files and not target.tombstones:
        return merge(spark, table, target, events, by, schema)
    due = Batch(table, _differences(spark, table, target, events, whole, by, schema, epoch))
    try:
        return merge(spark, table, target, due, by, schema, closing=True)
    finally:
        table.discard_files(due.files)


def _differences(
    spark: SparkSession,
    table: Table,
    target: Target,
    events: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> list[DataFile]:
    """Write what a refresh changes: the rows of keys that have another last row, and ends of keys that have
    none."""
    wide, known, nothing = _wide(schema), [_KEY, _SAME], Batch(table, [])
    columns = [key_value(by.key).alias(_KEY), _content(schema).alias(_SAME)]
    last = table.read_files(spark, [*target.files, *target.tombstones], wide).where(IS_CURRENT)
    present = last.where(f.col(_CLOSED_AT).isNull()).select("*", *columns)
    rows, left = (
        dedup.union_rows(spark, batch, nothing, by, wide).where(has_key(by.key))
        for batch in (events, whole)
    )
    latest = dedup.latest(left, by, None).select("*", *columns)
    ends = present.join(latest.select(_KEY), _KEY, "left_anti")
    ends = ends.withColumn(_CLOSED_AT, f.timestamp_micros(f.lit(epoch)))
    changed = latest.join(present.select(known), known, "left_anti")
    begins = dedup.begins_era(Inputs(table, events, nothing), by, schema)
    later = _later(rows.select("*", *columns), changed, present, by, begins)
    due = ends.select(*wide.names).unionByName(later.select(*wide.names))
    return write_all(table, due.withColumn(_EPOCH, f.lit(epoch).cast("long")), HIDDEN)


def _later(
    rows: DataFrame,
    latest: DataFrame,
    present: DataFrame,
    by: Ordering,
    begins: Expression | None,
) -> DataFrame:
    """Return the rows of the keys of `latest` that come after the present version of their key, or have none.

    Args:
        begins: whether a row begins an era, see `dedup.begins_era`.
    """
    rows = rows.join(latest.select(_KEY, f.col(metadata_columns.RAW_ID).alias(_LATEST)), _KEY)
    if not by.cursor:
        return rows
    cursor, arrival = value_at(by.cursor), f.col(metadata_columns.RAW_ID)
    since = present.select(_KEY, arrival.alias(_SINCE), f.struct(cursor).alias(_PLACE))
    rows = rows.join(since, _KEY, "left")
    # A null is less than any other value of a struct.
    is_later = f.col(_PLACE).isNull() | (f.struct(cursor) > f.col(_PLACE))
    is_later |= arrival == f.col(_LATEST)
    if begins is not None:
        arrivals = Window.partitionBy(_KEY).orderBy(arrival)
        is_after_delete = f.count_if(begins & (arrival > f.col(_SINCE))).over(arrivals) > 0
        rows, is_later = rows.withColumn(ERA, is_after_delete), is_later | f.col(ERA)
    return rows.where(is_later)


def _is_end(schema: t.StructType, *, may_close: bool) -> Expression | None:
    """Return whether a row ends a key; None if no row can."""
    deleted, closed = dedup.is_delete(schema), f.col(_CLOSED_AT).isNotNull()
    if deleted is None:
        return closed if may_close else None
    return deleted | closed


def _with_validity(
    rows: DataFrame, by: Ordering, schema: t.StructType, begins: Expression | None
) -> DataFrame:
    """Return each key's versions and ends in order, with their validity.

    Args:
        begins: whether a row begins an era, see `dedup.begins_era`.
    """
    keys = [value_at(part) for part in by.key]
    since = f.max(_EPOCH).over(Window.partitionBy(*keys))
    rows = rows.withColumn(_EPOCH, f.coalesce(_EPOCH, since, f.lit(0).cast("long")))
    # An end closes the versions from before its refresh.
    order = [
        f.col(_EPOCH),
        f.col(_CLOSED_AT).isNull(),
        f.col(ARRIVAL),
        f.col(metadata_columns.RAW_ID),
    ]
    if by.cursor:
        order.insert(2, value_at(by.cursor).asc_nulls_first())
    if begins is not None:
        order.insert(2, f.col(ERA))
    chain = Window.partitionBy(*keys).orderBy(*order)
    last = _last_of_each_place(_without_repeats(rows, chain, schema), chain, by, schema, begins)
    start = _start(by, schema)
    if begins is not None:
        # A refresh takes effect at its commit, also if a delete before it is said to be later.
        in_epoch = Window.partitionBy(*keys, _EPOCH).orderBy(*order[1:])
        last = last.withColumn(_DELETED, f.last(f.when(begins, start), True).over(in_epoch))
        start = f.greatest(start, f.col(_DELETED))
    onward = chain.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    with_start = last.withColumn(VALID_FROM, f.min(start).over(onward))
    following = f.lead(VALID_FROM).over(chain)
    return with_start.withColumn(VALID_TO, following).withColumn(IS_CURRENT, following.isNull())


def _without_repeats(rows: DataFrame, chain: WindowSpec, schema: t.StructType) -> DataFrame:
    """Return the first of consecutive versions with equal content."""
    return rows.withColumn(_SAME, _repeats_previous(schema, chain)).where(~f.col(_SAME))


def _repeats_previous(schema: t.StructType, chain: WindowSpec) -> Expression:
    """Return whether a version has the same content as the one before."""
    content = _content(schema)
    is_open = f.col(_CLOSED_AT).isNull()
    before = f.lag(f.when(is_open, content)).over(chain)
    return f.coalesce(is_open & before.isNotNull() & content.eqNullSafe(before), f.lit(False))


def _content(schema: t.StructType) -> Expression:
    """Return the content of a version: the stream's own columns, and whether it is a delete."""
    columns = [_comparable(schema[name]) for name in _content_names(schema)]
    deleted = dedup.is_delete(schema)
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


def _content_names(schema: t.StructType) -> list[str]:
    ours = {field.name for field in metadata_columns.METADATA_FIELDS}
    return [name for name in schema.names if name not in ours]


def _last_of_each_place(
    rows: DataFrame,
    chain: WindowSpec,
    by: Ordering,
    schema: t.StructType,
    begins: Expression | None,
) -> DataFrame:
    """Return the last of consecutive versions with the same cursor and start in an era, and all ends."""
    if not by.cursor:
        return rows
    era = [] if begins is None else [f.col(ERA)]
    is_open = f.col(_CLOSED_AT).isNull()
    place = f.struct(_EPOCH, is_open, *era, value_at(by.cursor), _start(by, schema))
    following = rows.withColumn(_PLACE, f.lead(place).over(chain))
    is_end = ~is_open if begins is None else ~is_open | begins
    return following.where(is_end | ~f.col(_PLACE).eqNullSafe(place))


def _start(by: Ordering, schema: t.StructType) -> Expression:
    """Return the start of a version's validity, before it is limited by later versions."""
    start = f.col(metadata_columns.EXTRACTED_AT)
    begin = f.when(f.col(_EPOCH) > 0, f.timestamp_micros(_EPOCH))
    if by.cursor and isinstance(kind_of(schema, by.cursor), _TIMES):
        times = [by.cursor, *([name] for name in _deletion_times(schema))]
        time = f.coalesce(*(value_at(time).cast("timestamp") for time in times))
        start = f.when(time < begin, start).otherwise(f.coalesce(time, start))
    return f.coalesce(f.col(_CLOSED_AT), f.greatest(start, begin))


def _deletion_times(schema: t.StructType) -> list[str]:
    """Return the delete markers whose type is a time."""
    names = key_merge.delete_markers(schema)
    return [name for name in names if isinstance(schema[name].dataType, _TIMES)]
