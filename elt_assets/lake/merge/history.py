"""`<table>_history`: every version of every key, and when it was the current one (SCD type 2).

A key's versions stand in the order of the cursor (nulls first), of equal cursors the later extraction
alone; where a stream has no cursor, in the order of extraction. `_valid_from` is the cursor where that is a
time, else when the version was extracted; it never exceeds that of a later version. A version is valid
until the next one, or a delete. What was delivered again unchanged is no version.

Deletes are kept in files of their own that no reader sees, so that a late version finds its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, Change, DataFile
from elt_assets.lake.delta.row_counts import RowCounter, write_all
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import dedup
from elt_assets.lake.merge.dedup import ARRIVAL, Merged, Ordering, Target
from elt_assets.lake.merge.file_splitting import Batch, key_columns, key_names, split_all
from elt_assets.lake.parse.conform import path
from elt_assets.lake.schema import metadata_columns

SUFFIX = "_history"
VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALIDITY = [
    t.StructField(VALID_FROM, t.TimestampType()),
    t.StructField(VALID_TO, t.TimestampType()),
    t.StructField(IS_CURRENT, t.BooleanType()),
]
_CLOSED_AT = "_elt_closed_at"
"""In hidden files: when a full refresh no longer contained the key. A copy of its last version."""
_EPOCH = "_elt_epoch"
"""In the files, of no schema: 0, or the refresh since which a key's versions are counted anew. What a
refresh corrects follows all that was there before, whatever the cursor."""
HIDDEN_FIELDS = [
    t.StructField(_CLOSED_AT, t.TimestampType()),
    t.StructField(_EPOCH, t.LongType()),
]
_TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)
_SAME, _RUN, _LATER = "_elt_same", "_elt_run", "_elt_later"


def history_schema(schema: t.StructType) -> t.StructType:
    """The columns of the history of a table with `schema`."""
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
) -> Merged:
    """A batch's versions put in their places among those of the same keys.

    Args:
        table: the history; `target` says what is in it.
        schema: of the table that this is the history of.
        closing: ends are among the batch.
    """
    if not batch.files:
        return Merged(Change(), target.tombstones)
    read = RowCounter()
    wide = t.StructType([*history_schema(schema), *HIDDEN_FIELDS])
    seen, ends = split_all(spark, table, target.files, target.tombstones, batch, by.key, wide)
    pulled = Batch(table, [*seen.pulled, *ends.pulled])
    try:
        rows = read.over(dedup.united(spark, batch, pulled, by, wide))
        rows = _chained(rows.where(_has_key(by)), by, schema)
        is_end = _is_end(schema, may_close=closing or bool(ends.pulled))
        names = [*history_schema(schema).names, _EPOCH]
        visible, hidden = dedup.written(table, rows, is_end, names)
        dedup.require_read(table, batch, pulled, read, [*visible, *hidden])
    finally:
        table.discard_files([*seen.work, *ends.work])
    kept_ends = Target(target.tombstones).after(Change(ends.kept, ends.taken))
    return Merged(Change([*seen.kept, *visible], seen.taken), [*kept_ends, *hidden])


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
    """As `merge` of `events`; then what is current is made what `whole` says, which holds every key there
    is: a key that it lacks is closed, now, and a row of it that an older cursor keeps back comes last.

    Args:
        epoch: the number of this refresh: greater than any before.
    """
    first = merge(spark, table, target, events, by, schema)
    if not target.files:
        return first
    between = Target(target.after(first.change), first.tombstones)
    due = Batch(table, _corrections(spark, table, between, whole, by, schema, epoch))
    try:
        second = merge(spark, table, between, due, by, schema, closing=True)
    finally:
        table.discard_files(due.files)
    final = between.after(second.change)
    needed = {*final, *second.tombstones, *target.files, *target.tombstones}
    table.discard_files({*first.change.add, *first.tombstones} - needed)
    return Merged(difference(target.files, final), second.tombstones)


def _has_key(by: Ordering) -> Expression:
    """Whether a row has a whole key; without one it is no version of anything."""
    return reduce(lambda a, b: a & b, (path(part).isNotNull() for part in by.key))


def difference(before: Sequence[DataFile], after: Sequence[DataFile]) -> Change:
    """What leads from the one list of files to the other."""
    old, new = {file.path for file in before}, {file.path for file in after}
    return Change(
        [file for file in after if file.path not in old],
        [file for file in before if file.path not in new],
    )


def _corrections(
    spark: SparkSession,
    table: Table,
    present: Target,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> list[DataFile]:
    """The ends of keys that are not in `whole`, and the rows of it that are not current."""
    names, keys = key_names(by.key), key_columns(by.key)
    wide = t.StructType([*history_schema(schema), *HIDDEN_FIELDS])
    current = table.read_files(spark, present.files, wide).where(f.col(IS_CURRENT))
    deletes = table.read_files(spark, present.tombstones, wide).where(f.col(_CLOSED_AT).isNull())
    rows = whole.rows(spark, wide).select("*", *keys)
    there = rows.select(*names)
    last = current.unionByName(deletes.dropDuplicates([metadata_columns.RAW_ID])).select("*", *keys)
    ends = last.join(there, names, "left_anti").withColumn(_CLOSED_AT, f.current_timestamp())
    said = current.select(*keys, _said(schema).alias(_SAME))
    known = [*names, _SAME]
    differing = rows.withColumn(_SAME, _said(schema)).join(said, known, "left_anti")
    due = ends.drop(*names).unionByName(differing.drop(*known))
    return write_all(table, due.withColumn(_EPOCH, f.lit(epoch).cast("long")), HIDDEN)


def _is_end(schema: t.StructType, *, may_close: bool) -> Expression | None:
    """Whether a row ends a key; None where none can."""
    deleted, closed = dedup.is_delete(schema), f.col(_CLOSED_AT).isNotNull()
    if deleted is None:
        return closed if may_close else None
    return deleted | closed


def _chained(rows: DataFrame, by: Ordering, schema: t.StructType) -> DataFrame:
    """Each key's versions and ends in order, with their validity."""
    keys = [path(part) for part in by.key]
    since = f.max(_EPOCH).over(Window.partitionBy(*keys))
    rows = rows.withColumn(_EPOCH, f.coalesce(_EPOCH, since, f.lit(0).cast("long")))
    # An end closes what was there before the refresh that it is of.
    order = [
        f.col(_EPOCH),
        f.col(_CLOSED_AT).isNull(),
        f.col(ARRIVAL),
        f.col(metadata_columns.RAW_ID),
    ]
    if by.cursor:
        order.insert(2, path(by.cursor).asc_nulls_first())
    chain = Window.partitionBy(*keys).orderBy(*order)
    last = _last_of_each_cursor(_distinct(rows, keys, chain, schema), keys, by)
    onward = chain.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    timed = last.withColumn(VALID_FROM, f.min(_time(by, schema)).over(onward))
    following = f.lead(VALID_FROM).over(chain)
    return timed.withColumn(VALID_TO, following).withColumn(IS_CURRENT, following.isNull())


def _distinct(
    rows: DataFrame, keys: Sequence[Expression], chain: WindowSpec, schema: t.StructType
) -> DataFrame:
    """Of versions in a row that say the same, the first; confirmed in the epoch of the last."""
    told = rows.withColumn(_SAME, _is_same(schema, chain))
    runs = told.withColumn(_RUN, f.count_if(~f.col(_SAME)).over(chain))
    confirmed = f.max(_EPOCH).over(Window.partitionBy(*keys, _RUN))
    return runs.withColumn(_EPOCH, confirmed).where(~f.col(_SAME))


def _is_same(schema: t.StructType, chain: WindowSpec) -> Expression:
    """Whether a version says what the one before says."""
    said = _said(schema)
    open_ended = f.col(_CLOSED_AT).isNull()
    before = f.lag(f.when(open_ended, said)).over(chain)
    return f.coalesce(open_ended & before.isNotNull() & said.eqNullSafe(before), f.lit(False))


def _said(schema: t.StructType) -> Expression:
    """What a version says: the stream's own columns."""
    ours = {field.name for field in metadata_columns.METADATA_FIELDS}
    return f.struct(*(path([name]) for name in schema.names if name not in ours))


def _last_of_each_cursor(rows: DataFrame, keys: Sequence[Expression], by: Ordering) -> DataFrame:
    """Of a key's versions with one cursor, the last."""
    if not by.cursor:
        return rows
    window = Window.partitionBy(*keys, _EPOCH, path(by.cursor)).orderBy(
        ARRIVAL, metadata_columns.RAW_ID
    )
    later = window.rowsBetween(1, Window.unboundedFollowing)
    is_end = f.col(_CLOSED_AT).isNotNull()
    version = f.when(~is_end, f.lit(1))
    counted = rows.withColumn(_LATER, f.max(version).over(later))
    return counted.where(is_end | f.col(_LATER).isNull())


def _time(by: Ordering, schema: t.StructType) -> Expression:
    """When a version began, as far as it says itself."""
    begun = f.col(metadata_columns.EXTRACTED_AT)
    if by.cursor and isinstance(_kind(schema, by.cursor), _TIMES):
        begun = f.coalesce(path(by.cursor).cast("timestamp"), begun)
    return f.coalesce(f.col(_CLOSED_AT), begun)


def _kind(schema: t.StructType, column: Sequence[str]) -> t.DataType:
    return reduce(lambda kind, name: kind[name].dataType, column, schema)  # type: ignore[arg-type, return-value]
