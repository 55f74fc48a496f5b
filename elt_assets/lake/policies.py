"""What becomes of a checkpoint's rows: append, overwrite, deduplicate.

Each policy takes a table and the files that hold the new rows, and says which files a commit adds and
which it removes; none of them publishes anything.

spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from elt_assets.lake import types
from elt_assets.lake.conform import path
from elt_assets.lake.table import DataFile, Table

_FROM_BATCH = "_elt_from_batch"
_RANK = "_elt_rank"
_FILE = "_elt_file"


@dataclass(frozen=True)
class Change:
    """The files that a commit adds to a table and removes from it."""

    add: list[DataFile]
    remove: list[DataFile]


@dataclass(frozen=True)
class Ordering:
    """Which rows are one (`key`: column paths) and which of them is the latest (`cursor`: a path)."""

    key: Sequence[Sequence[str]]
    cursor: Sequence[str] = ()


def append(batch: list[DataFile]) -> Change:
    return Change(batch, [])


def overwrite(table: Table, batch: list[DataFile]) -> Change:
    """The new rows instead of all the old ones."""
    return Change(batch, table.files)


def deduplicate(spark: SparkSession, table: Table, batch: list[DataFile], by: Ordering) -> Change:
    """The batch's own latest rows, by themselves."""
    if not batch:
        return Change([], [])
    rows = table.read_files(spark, batch).withColumn(_FROM_BATCH, f.lit(1))
    return Change(table.write_files(_latest(rows, by)), [])


def merge(spark: SparkSession, table: Table, batch: list[DataFile], by: Ordering) -> Change:
    """The latest row of each key among the table's and the batch's.

    The greatest cursor is the latest, nulls last; of equal cursors the later extraction. Only files
    that hold a key of the batch are written anew.
    """
    if not batch:
        return Change([], [])
    incoming = table.read_files(spark, batch)
    touched = _touched(spark, table, incoming, by)
    rows = incoming.withColumn(_FROM_BATCH, f.lit(1))
    if touched:
        present = table.read_files(spark, touched).withColumn(_FROM_BATCH, f.lit(0))
        rows = rows.unionByName(present)
    return Change(table.write_files(_latest(rows, by)), touched)


def _latest(rows: DataFrame, by: Ordering) -> DataFrame:
    order = [f.col(_FROM_BATCH).desc(), f.col(types.RAW_ID).desc()]
    if by.cursor:
        order.insert(0, path(by.cursor).desc_nulls_last())
    window = Window.partitionBy(*map(path, by.key)).orderBy(*order)
    ranked = rows.withColumn(_RANK, f.row_number().over(window))
    return ranked.where(f.col(_RANK) == 1).drop(_RANK, _FROM_BATCH)


def _touched(
    spark: SparkSession, table: Table, incoming: DataFrame, by: Ordering
) -> list[DataFile]:
    """The table's files that hold a key of the batch: only key columns are read."""
    files = table.files
    if not files:
        return []
    keys = [path(part).alias(f"k{number}") for number, part in enumerate(by.key)]
    names = [f"k{number}" for number in range(len(keys))]
    present = table.read_files(spark, files)
    located = present.select(*keys, f.col("_metadata.file_path").alias(_FILE))
    hits = located.join(incoming.select(*keys).distinct(), names, "left_semi")
    found = {_tail(row[0]) for row in hits.select(_FILE).distinct().collect()}
    return [file for file in files if _tail(file.path) in found]


def _tail(uri: str) -> str:
    """The file's name: random, so that it tells a file whatever way its URI is written, and whether
    or not it lies in a folder (other writers' files do not)."""
    return uri.rpartition("/")[2]
