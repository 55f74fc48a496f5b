"""What becomes of a checkpoint's rows that have keys: the latest of each key stays.

The greatest cursor is the latest, nulls last; of equal cursors the later extraction. A record that tells
of a delete (`_ab_cdc_deleted_at`) takes the place of its key like any other, but in no reader's list: it
is kept as a tombstone, so that an older record that comes later does not bring the key back.

spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, Change, DataFile
from elt_assets.lake.delta.row_counts import RowCounter, require_all, write_all
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import TARGET_BYTES, Batch, Key, split_all
from elt_assets.lake.parse.conform import path
from elt_assets.lake.schema import metadata_columns
from elt_assets.protocol.airbyte.catalog import DELETE_MARKERS

ARRIVAL = "_elt_arrival"
ROWS_PER_TASK = 500_000
BYTES_PER_TASK = TARGET_BYTES
"""Of files, which are compressed."""
_RANK = "_elt_rank"


@dataclass(frozen=True)
class Ordering:
    """Which rows are one (`key`: column paths) and which of them is the latest (`cursor`: a path).

    `late`: the batch did not arrive after what is there, but when its rows say.
    """

    key: Key
    cursor: Sequence[str] = ()
    late: bool = False


@dataclass(frozen=True)
class Target:
    """What a batch is merged into: files that readers see, or will see, and tombstones."""

    files: Sequence[DataFile]
    tombstones: Sequence[DataFile] = ()

    def after(self, change: Change) -> list[DataFile]:
        """The files that are there then."""
        gone = {file.path for file in change.remove}
        return [*(file for file in self.files if file.path not in gone), *change.add]


@dataclass(frozen=True)
class Merged:
    """What a merge makes of a target: a change of its files, and all its tombstones from then on."""

    change: Change
    tombstones: Sequence[DataFile]


def merge(
    spark: SparkSession,
    table: Table,
    target: Target,
    batch: Batch,
    by: Ordering,
    schema: t.StructType,
) -> Merged:
    """The latest row of each key among the target's and the batch's.

    Only files that hold a key of the batch are written anew. Rows without a whole key are no row's
    duplicate: they stay.

    Raises:
        SystemFailure: rows were lost on the way; nothing is to be committed.
    """
    if not batch.files:
        return Merged(Change(), target.tombstones)
    seen, dead = split_all(spark, table, target.files, target.tombstones, batch, by.key, schema)
    pulled = Batch(table, [*seen.pulled, *dead.pulled])
    try:
        read = RowCounter()
        rows = latest(read.over(united(spark, batch, pulled, by, schema)), by)
        alive, buried = written(table, rows, is_delete(schema), schema.names)
        require_read(table, batch, pulled, read, [*alive, *buried])
    finally:
        table.discard_files([*seen.work, *dead.work])
    still_buried = Target(target.tombstones).after(Change(dead.kept, dead.taken))
    return Merged(Change([*seen.kept, *alive], seen.taken), [*still_buried, *buried])


def require_read(
    table: Table, batch: Batch, pulled: Batch, read: RowCounter, made: Sequence[DataFile]
) -> None:
    """See that a merge read all rows that it had to, or remove what it `made`.

    Raises:
        SystemFailure: it did not.
    """
    expected = batch.records + pulled.records
    require_all(table, expected, read.rows, "rows read by a merge", made)


def united(
    spark: SparkSession, batch: Batch, pulled: Batch, by: Ordering, schema: t.StructType
) -> DataFrame:
    """Rows of a batch and those of its keys that were there; `ARRIVAL` orders the one after the other.

    A key's rows are in one task, so that windows by key need no other exchange, and files are sorted.
    """
    rows = batch.rows(spark, schema).withColumn(ARRIVAL, _arrival(by, 1))
    if pulled.files:
        present = pulled.rows(spark, schema).withColumn(ARRIVAL, _arrival(by, 0))
        rows = rows.unionByName(present)
    records, size = batch.records + pulled.records, batch.size + pulled.size
    tasks = max(ceil(records / ROWS_PER_TASK), ceil(size / BYTES_PER_TASK))
    if tasks <= 1:
        return rows.repartition(1)
    return rows.repartitionByRange(tasks, *map(path, by.key))


def _arrival(by: Ordering, order: int) -> Expression:
    return f.unix_micros(metadata_columns.EXTRACTED_AT) if by.late else f.lit(order).cast("long")


def latest(rows: DataFrame, by: Ordering) -> DataFrame:
    """The latest row of each key."""
    window = Window.partitionBy(*map(path, by.key)).orderBy(*recency(by))
    ranked = rows.withColumn(_RANK, f.row_number().over(window))
    return ranked.where(f.col(_RANK) == 1).drop(_RANK, ARRIVAL)


def recency(by: Ordering) -> list[Expression]:
    """The latest first."""
    order = [f.col(ARRIVAL).desc(), f.col(metadata_columns.RAW_ID).desc()]
    return [path(by.cursor).desc_nulls_last(), *order] if by.cursor else order


def written(
    table: Table, rows: DataFrame, is_end: Expression | None, visible: Sequence[str]
) -> tuple[list[DataFile], list[DataFile]]:
    """Rows as files: those that readers see, of the columns `visible`, and those that end a key."""
    names = [path([name]) for name in visible]
    if is_end is None:
        return write_all(table, rows.select(*names)), []
    rows = rows.persist()
    try:
        alive = write_all(table, rows.where(~is_end).select(*names))
        return alive, write_all(table, rows.where(is_end), HIDDEN)
    finally:
        rows.unpersist()


def is_delete(schema: t.StructType) -> Expression | None:
    """Whether a row tells of a delete; None where none can."""
    markers = [f.col(name).isNotNull() for name in DELETE_MARKERS if name in schema.names]
    return reduce(operator.or_, markers) if markers else None
