"""Truncations: a log of changes says that a table was truncated, but not which rows it had.

Such a record has no key, and the reason TRUNCATED among its changes. Before a batch is merged, a delete of
each row that arrived before it takes its place: of the rows of the batch, and of those of the table. So a
merge, and a history, get nothing but rows and deletes. The deletes have the place, the cursor and the times
of the record. Rows that arrived after it stay, as do those whose cursor is greater: so a snapshot that
replaces the rows of a table ends with a truncation whose cursor is less than those of its rows.

Of several truncations, each deletes what arrived since the one before it: a history has an end for each
version. Test: `tests/lake/test_dependent_rows.py`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, DataFile
from elt_assets.lake.delta.row_counts import RowCounter, verify_or_discard, write_all
from elt_assets.lake.merge.dedup import Ordering, is_delete
from elt_assets.lake.merge.file_splitting import Batch, key_value
from elt_assets.lake.merge.reported_changes import changes, has_change, is_for, replace_changes
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.expressions import value_at
from elt_assets.protocol.messages import TRUNCATED

_KEY, _PLACE, _CURSOR = "_elt_key", "_elt_place", "_elt_cursor"
_RECORD, _SINCE, _UNTIL = "_elt_record", "_elt_since", "_elt_until"


def replace_truncations(
    spark: SparkSession,
    batch: Batch,
    paths: AbstractSet[str],
    present: Batch,
    by: Ordering,
    schema: t.StructType,
) -> list[DataFile]:
    """Return the files of a batch, with hidden ones that have deletes in place of its truncations.

    Args:
        paths: the files of the batch with truncations.
        present: the rows and deletes of the table.
        schema: the columns of both.

    Raises:
        SystemFailure: rows were lost.
    """
    rest = [file for file in batch.files if file.path not in paths]
    part = Batch(batch.table, [file for file in batch.files if file.path in paths])
    rows, counter = part.rows(spark, schema), RowCounter()
    is_truncation = has_change(TRUNCATED)
    others = write_all(batch.table, counter.count(rows).where(~is_truncation), HIDDEN)
    verify_or_discard(batch.table, part.records, counter.rows, "rows of a batch", others)
    truncations = _list_truncations(rows.where(is_truncation), schema)
    place = f.col(metadata_columns.RAW_ID)
    former = _list_keys(rows.where(~is_truncation), by, schema, place)
    if rest:
        others_of_batch = Batch(batch.table, rest).rows(spark, schema)
        former = former.unionByName(_list_keys(others_of_batch, by, schema, place))
    if present.files:
        before = place if by.is_replay else f.lit("")
        former = former.unionByName(_list_keys(present.rows(spark, schema), by, schema, before))
    ends = write_all(batch.table, _join(former, truncations, by, schema), HIDDEN)
    return [*rest, *others, *ends]


def _list_truncations(truncations: DataFrame, schema: t.StructType) -> DataFrame:
    """Return the truncations, and between which places each deletes rows."""
    arrivals = Window.orderBy(metadata_columns.RAW_ID)
    since = f.coalesce(f.lag(metadata_columns.RAW_ID).over(arrivals), f.lit(""))
    record = f.struct(*(value_at([name]).alias(name) for name in schema.names))
    until = f.col(metadata_columns.RAW_ID).alias(_UNTIL)
    return truncations.select(record.alias(_RECORD), since.alias(_SINCE), until)


def _list_keys(rows: DataFrame, by: Ordering, schema: t.StructType, place: Expression) -> DataFrame:
    """Return the columns of the key of rows that are there, and the place and the cursor of each row."""
    deleted = is_delete(schema)
    there = rows if deleted is None else rows.where(~deleted)
    names = [value_at([name]) for name in _key_columns(by)]
    cursor = value_at(by.cursor) if by.cursor else f.lit(None)
    key = key_value(by.key)
    return there.select(*names, key.alias(_KEY), place.alias(_PLACE), cursor.alias(_CURSOR))


def _join(
    former: DataFrame, truncations: DataFrame, by: Ordering, schema: t.StructType
) -> DataFrame:
    """Return a delete for each key that a truncation finds."""
    is_between = (f.col(_PLACE) >= f.col(_SINCE)) & (f.col(_PLACE) < f.col(_UNTIL))
    if by.cursor:
        last = value_at([_RECORD, *by.cursor])
        is_between &= f.coalesce(f.col(_CURSOR) <= last, f.lit(True))
    ends = former.join(f.broadcast(truncations), is_between).dropDuplicates([_KEY, _UNTIL])
    own = _key_columns(by)
    columns = [
        value_at([name]) if name in own else value_at([_RECORD, name]).alias(name)
        for name in schema.names
    ]
    others = f.filter(changes(), lambda change: ~is_for(change, TRUNCATED))
    return ends.select(*columns).withColumn(metadata_columns.META, replace_changes(others))


def _key_columns(by: Ordering) -> list[str]:
    return list(dict.fromkeys(path[0] for path in by.key))
