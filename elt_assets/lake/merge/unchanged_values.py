"""Rows with values of their former versions: a log of changes leaves out large values that did not change.

Such a value arrives as a null, with the reason UNCHANGED among the changes of its row. Before a batch is
merged, it gets the value of the version before it: that of the row that arrived before it with the same key,
in the batch or in the table. So a merge, and a history, get whole rows. Rows arrive in the order of the log,
so the version before is the one that arrived before, whatever the cursor.

After a delete, or if there is no version before it, the value is not known: it stays null, and the reason
stays in the row.
Test: `tests/lake/test_dependent_rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, DataFile
from elt_assets.lake.delta.row_counts import verify_or_discard, write_all
from elt_assets.lake.merge.dedup import ARRIVAL, Ordering, is_delete
from elt_assets.lake.merge.file_splitting import Batch, key_value
from elt_assets.lake.merge.reported_changes import changes, has_change, is_for, replace_changes
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.schema.logical_types import SOURCE
from elt_assets.lake.spark.expressions import value_at
from elt_assets.protocol.messages import UNCHANGED

_KEY, _FIELD, _NEWEST = "_elt_key", "_elt_field", "_elt_newest_"


def complete(
    spark: SparkSession, batch: Batch, present: Batch, by: Ordering, schema: t.StructType
) -> list[DataFile]:
    """Write the rows of a batch with the values of their former versions; return hidden files of them.

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
