"""Rows of a log of changes that depend on earlier rows: they are resolved before their batch is merged.

Called by `write.commit`.

A source that reads a log of changes reports some of them in `_airbyte_meta.changes` only: that a table was
truncated (`replace_truncations`), or that a large value did not change (`complete`). `resolve` replaces both,
so a merge, and a history, get nothing but whole rows and deletes.

Test: `tests/lake/test_dependent_rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.logical_types import SOURCE
from elt_assets.lake.delta.row_counts import RowCounter, verify_or_discard, write_all
from elt_assets.lake.delta.storage import HIDDEN, DataFile
from elt_assets.lake.merge.file_splitting import Batch, key_value
from elt_assets.lake.merge.key_order import Ordering, is_delete
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.row_order import ARRIVAL
from elt_assets.protocol.messages import TRUNCATED, UNCHANGED


def changes() -> Expression:
    """Return the changes that a row reports, as an expression."""
    return f.col(metadata_columns.META).getField("changes")


def is_for(change: Expression, reason: str) -> Expression:
    """Return whether a change has a reason."""
    return f.coalesce(change.getField("reason") == reason, f.lit(False))


def has_change(reason: str) -> Expression:
    """Return whether a row has a change for a reason."""
    return f.coalesce(f.exists(changes(), lambda change: is_for(change, reason)), f.lit(False))


def replace_changes(left: Expression) -> Expression:
    """Return the column META with other changes."""
    return f.col(metadata_columns.META).withField("changes", left)


_TRUNCATED_KEY, _PLACE, _CURSOR = "_elt_key", "_elt_place", "_elt_cursor"
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

    A log of changes says that a table was truncated, but not which rows it had. Such a record has no key, and
    the reason TRUNCATED among its changes. A delete of each row that arrived before it takes its place: of
    the rows of the batch, and of those of the table. The deletes have the place, the cursor and the times of
    the record. Rows that arrived after it stay, as do those whose cursor is greater: so a snapshot that
    replaces the rows of a table ends with a truncation whose cursor is less than those of its rows.

    Of several truncations, each deletes what arrived since the one before it: a history has an end for each
    version.

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
    return there.select(
        *names, key.alias(_TRUNCATED_KEY), place.alias(_PLACE), cursor.alias(_CURSOR)
    )


def _join(
    former: DataFrame, truncations: DataFrame, by: Ordering, schema: t.StructType
) -> DataFrame:
    """Return a delete for each key that a truncation finds."""
    is_between = (f.col(_PLACE) >= f.col(_SINCE)) & (f.col(_PLACE) < f.col(_UNTIL))
    if by.cursor:
        last = value_at([_RECORD, *by.cursor])
        is_between &= f.coalesce(f.col(_CURSOR) <= last, f.lit(True))
    ends = former.join(f.broadcast(truncations), is_between).dropDuplicates(
        [_TRUNCATED_KEY, _UNTIL]
    )
    own = _key_columns(by)
    columns = [
        value_at([name]) if name in own else value_at([_RECORD, name]).alias(name)
        for name in schema.names
    ]
    others = f.filter(changes(), lambda change: ~is_for(change, TRUNCATED))
    return ends.select(*columns).withColumn(metadata_columns.META, replace_changes(others))


def _key_columns(by: Ordering) -> list[str]:
    return list(dict.fromkeys(path[0] for path in by.key))


_KEY, _FIELD, _NEWEST = "_elt_key", "_elt_field", "_elt_newest_"


def complete(
    spark: SparkSession, batch: Batch, present: Batch, by: Ordering, schema: t.StructType
) -> list[DataFile]:
    """Write the rows of a batch with the values of their former versions; return hidden files of them.

    A log of changes leaves out large values that did not change. Such a value arrives as a null, with the
    reason UNCHANGED among the changes of its row. It gets the value of the version before it: that of the row
    that arrived before it with the same key, in the batch or in the table. Rows arrive in the order of the
    log, so the version before is the one that arrived before, whatever the cursor.

    After a delete, or if there is no version before it, the value is not known: it stays null, and the reason
    stays in the row.

    Args:
        present: the rows and deletes of the table.
        schema: the columns of both.

    Raises:
        SystemFailure: rows were lost.
    """
    rows = batch.rows(spark, schema).withColumn(_KEY, key_value(by.key))
    incomplete = batch.rows(spark, schema).where(has_change(UNCHANGED))
    fields = _columns_by_field(incomplete, schema)
    both = rows.withColumn(ARRIVAL, f.lit(1))
    if present.files:
        keys = incomplete.select(key_value(by.key).alias(_KEY)).distinct()
        former = present.rows(spark, schema).withColumn(_KEY, key_value(by.key))
        both = both.unionByName(former.join(keys, _KEY, "left_semi").withColumn(ARRIVAL, f.lit(0)))
    versions = Window.partitionBy(_KEY).orderBy(ARRIVAL, metadata_columns.RAW_ID)
    until_now = versions.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = _fill(both, fields, until_now, is_delete(schema))
    names = [value_at([name]) for name in schema.names]
    files = write_all(batch.table, whole.where(f.col(ARRIVAL) == 1).select(*names), HIDDEN)
    count = sum(file.records for file in files)
    verify_or_discard(batch.table, batch.records, count, "rows with unchanged values", files)
    return files


def _columns_by_field(incomplete: DataFrame, schema: t.StructType) -> Mapping[str, str]:
    """Return the columns of the fields that lack a value in a row, by the names of the fields."""
    entries = incomplete.select(f.explode(changes()).alias(_FIELD)).where(
        is_for(f.col(_FIELD), UNCHANGED)
    )
    names = {row[0] for row in entries.select(f.col(_FIELD).getField("field")).distinct().collect()}
    columns = {field.metadata.get(SOURCE, field.name): field.name for field in schema.fields}
    return {name: columns[name] for name in sorted(names & set(columns))}


def _fill(
    rows: DataFrame, fields: Mapping[str, str], until_now: WindowSpec, deleted: Expression | None
) -> DataFrame:
    """Return rows in which the fields have the newest value that is known, if a version has one."""
    newest: dict[str, Expression] = {}
    for number, (name, column) in enumerate(fields.items()):
        state = f.when(~_lacks(name), _state(value_at([column]), is_known=True))
        if deleted is not None:  # it ends what was known before it
            nothing = f.lit(None).cast(rows.schema[column].dataType)
            state = f.when(deleted, _state(nothing, is_known=False)).otherwise(state)
        newest[f"{_NEWEST}{number}"] = f.last(state, ignorenulls=True).over(until_now)
    rows = rows.withColumns(newest)
    values: dict[str, Expression] = {}
    left = changes()
    for (name, column), former in zip(fields.items(), map(f.col, newest), strict=True):
        is_filled = _lacks(name) & f.coalesce(former.getField("is_known"), f.lit(False))
        values[column] = f.when(is_filled, former.getField("value")).otherwise(value_at([column]))
        left = f.filter(left, _is_other(name, is_filled))
    return rows.withColumns({**values, metadata_columns.META: replace_changes(left)})


def _state(value: Expression, *, is_known: bool) -> Expression:
    return f.struct(f.lit(is_known).alias("is_known"), value.alias("value"))


def _lacks(name: str) -> Expression:
    return f.coalesce(f.exists(changes(), lambda change: _concerns(change, name)), f.lit(False))


def _concerns(change: Expression, name: str) -> Expression:
    return (change.getField("field") == name) & is_for(change, UNCHANGED)


def _is_other(name: str, is_filled: Expression) -> Callable[[Expression], Expression]:
    """Return the test of changes that stay, once a field has its value."""
    return lambda change: ~(is_filled & _concerns(change, name))


def resolve(
    spark: SparkSession,
    batch: Batch,
    present: Batch,
    by: Ordering,
    schema: t.StructType,
    dependent: Mapping[str, AbstractSet[str]],
) -> list[DataFile]:
    """Write the rows of a batch so that none depends on others; return files of them, new ones and old ones.

    Args:
        present: the rows and deletes of the table.
        schema: the columns of both.
        dependent: the paths of the files with rows that depend on others, by the reason, of `DEPENDENT`.

    Raises:
        SystemFailure: rows were lost.
    """
    files = list(batch.files)
    if TRUNCATED in dependent:
        # First: a value from before a truncation is not that of a row after it.
        paths = dependent[TRUNCATED]
        files = replace_truncations(spark, batch, paths, present, by, schema)
    if UNCHANGED in dependent:
        old_paths = {file.path for file in batch.files}
        try:
            return complete(spark, Batch(batch.table, files), present, by, schema)
        finally:
            batch.table.storage.discard(file for file in files if file.path not in old_paths)
    return files
