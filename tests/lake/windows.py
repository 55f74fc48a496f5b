"""The order of a key's rows in windows of Spark: the rules of `lake.worker.row_order`, said once more.

Spark compares values itself here, so tests compare the two for keys, cursors and contents of every type.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.row_counts import write_all
from elt_assets.lake.delta.storage import HIDDEN
from elt_assets.lake.merge.file_splitting import has_key
from elt_assets.lake.merge.history import (
    CLOSED_AT,
    EPOCH,
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    content,
    deletion_times,
)
from elt_assets.lake.merge.key_order import MergeInputs, Ordering, WrittenFiles, is_delete
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.row_order import ARRIVAL, Validity

ERA, RANK, LAST_ERA = "_elt_era", "_elt_rank", "_elt_last_era"
SAME_CONTENT, NEXT, DELETED = "_elt_same", "_elt_next", "_elt_deleted"
TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)


def merge_by_windows(
    spark: SparkSession,
    inputs: MergeInputs,
    by: Ordering,
    schema: t.StructType,
    validity: Validity | None = None,
    columns: tuple[Sequence[str], Sequence[str]] | None = None,
) -> WrittenFiles | None:
    """Replaces `key_order.merge_in_tasks`."""
    if validity is not None and validity.is_partial:
        return None
    rows = union_rows(spark, inputs, by, schema)
    begins, deleted = begins_era(by, schema), is_delete(schema)
    visible, _ = columns or (schema.names, schema.names)
    ends = f.lit(False) if deleted is None else deleted
    if validity is None:
        rows = select_latest(rows, by, begins)
    else:
        begins = None if begins is None else begins & f.col(CLOSED_AT).isNull()
        rows = rows if begins is None else add_eras(rows, by, begins)
        rows = add_validity(rows.where(has_key(by.key)), by, without(schema, validity), begins)
        ends |= f.col(CLOSED_AT).isNotNull()
    return WrittenFiles(
        write_all(inputs.table, rows.where(~ends).select(*(value_at([n]) for n in visible))),
        write_all(inputs.table, rows.where(ends), HIDDEN),
    )


def without(schema: t.StructType, validity: Validity) -> t.StructType:
    """The columns of the table that a history is of."""
    names = {validity.start, validity.end, validity.current, validity.closed, validity.epoch}
    return t.StructType([field for field in schema.fields if field.name not in names])


def kind_of(schema: t.StructType, column: Sequence[str]) -> t.DataType:
    kind: t.DataType = schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return kind


def union_rows(
    spark: SparkSession, inputs: MergeInputs, by: Ordering, schema: t.StructType
) -> DataFrame:
    rows = inputs.batch.rows(spark, schema).withColumn(ARRIVAL, f.lit(0 if by.is_replay else 1))
    present = inputs.matching.rows(spark, schema).withColumn(ARRIVAL, f.lit(0))
    return rows.unionByName(present).repartition(1)


def begins_era(by: Ordering, schema: t.StructType) -> Expression | None:
    deleted = is_delete(schema)
    if deleted is None or not by.cursor:
        return None
    return deleted & value_at(by.cursor).isNull()


def add_eras(rows: DataFrame, by: Ordering, begins: Expression) -> DataFrame:
    """Return rows with the column `ERA`."""
    arrivals = Window.partitionBy(*map(value_at, by.key)).orderBy(ARRIVAL, metadata_columns.RAW_ID)
    return rows.withColumn(ERA, f.count_if(begins).over(arrivals))


def select_latest(rows: DataFrame, by: Ordering, begins: Expression | None) -> DataFrame:
    """Return the latest row of each key, and its last delete without a cursor value."""
    order = [f.col(ARRIVAL).desc(), f.col(metadata_columns.RAW_ID).desc()]
    if by.cursor:
        order.insert(0, value_at(by.cursor).desc_nulls_last())
    is_kept = f.col(RANK) == 1
    # Rows of earlier eras lose to any row of the last one; the delete that began it stays beside the latest.
    if begins is not None:
        rows = add_eras(rows, by, begins)
        order.insert(0, f.col(ERA).desc())
        is_kept |= begins & (f.col(ERA) == f.col(LAST_ERA))
    ranks = Window.partitionBy(*map(value_at, by.key)).orderBy(*order)
    rows = rows.withColumn(RANK, f.row_number().over(ranks))
    if begins is not None:
        rows = rows.withColumn(LAST_ERA, f.first(ERA).over(ranks))
    return rows.where(is_kept).drop(RANK, LAST_ERA, ERA, ARRIVAL)


def add_validity(
    rows: DataFrame, by: Ordering, schema: t.StructType, begins: Expression | None
) -> DataFrame:
    """Return each key's versions and ends in order, with their validity."""
    keys = [value_at(part) for part in by.key]
    since = f.max(EPOCH).over(Window.partitionBy(*keys))
    rows = rows.withColumn(EPOCH, f.coalesce(EPOCH, since, f.lit(0).cast("long")))
    era = [] if begins is None else [f.col(ERA)]
    cursor = [value_at(by.cursor)] if by.cursor else []
    # An end closes the versions from before its refresh.
    order = [f.col(EPOCH), f.col(CLOSED_AT).isNull(), *era, *cursor]
    order += [f.col(ARRIVAL), f.col(metadata_columns.RAW_ID)]
    chain = Window.partitionBy(*keys).orderBy(*(column.asc_nulls_first() for column in order))
    back = Window.partitionBy(*keys).orderBy(*(column.desc_nulls_last() for column in order))
    last = keep_last_of_each_start(
        rows.withColumn(SAME_CONTENT, repeats_previous(schema, chain)).where(~f.col(SAME_CONTENT)),
        chain,
        by,
        schema,
        begins,
    )
    start = start_of(by, schema)
    if begins is not None:
        # A refresh takes effect at its commit, also if a delete before it is said to be later.
        in_epoch = Window.partitionBy(*keys, EPOCH).orderBy(
            *(column.asc_nulls_first() for column in order[1:])
        )
        last = last.withColumn(DELETED, f.last(f.when(begins, start), True).over(in_epoch))
        start = f.greatest(start, f.col(DELETED))
    # From the last version back: Spark would look at all later versions again for each version of a key.
    so_far = back.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    with_start = last.withColumn(VALID_FROM, f.min(start).over(so_far))
    next_start = f.lag(VALID_FROM).over(back)
    return with_start.withColumn(VALID_TO, next_start).withColumn(IS_CURRENT, next_start.isNull())


def repeats_previous(schema: t.StructType, chain: WindowSpec) -> Expression:
    """Return whether a version has the same content as the one before."""
    columns = content(schema)
    is_open = f.col(CLOSED_AT).isNull()
    before = f.lag(f.when(is_open, columns)).over(chain)
    return f.coalesce(is_open & before.isNotNull() & columns.eqNullSafe(before), f.lit(False))


def keep_last_of_each_start(
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
    is_open = f.col(CLOSED_AT).isNull()
    order = f.struct(EPOCH, is_open, *era, value_at(by.cursor), start_of(by, schema))
    rows_with_next = rows.withColumn(NEXT, f.lead(order).over(chain))
    is_end = ~is_open if begins is None else ~is_open | begins
    return rows_with_next.where(is_end | ~f.col(NEXT).eqNullSafe(order))


def start_of(by: Ordering, schema: t.StructType) -> Expression:
    """Return the start of a version's validity, before it is limited by later versions."""
    start = f.col(metadata_columns.EXTRACTED_AT)
    begin = f.when(f.col(EPOCH) > 0, f.timestamp_micros(EPOCH))
    if by.cursor and isinstance(kind_of(schema, by.cursor), TIMES):
        times = [by.cursor, *([name] for name in deletion_times(schema))]
        time = f.coalesce(*(value_at(time).cast(t.TimestampType()) for time in times))
        start = f.when(time < begin, start).otherwise(f.coalesce(time, start))
    return f.coalesce(f.col(CLOSED_AT), f.greatest(start, begin))
