"""The files of a table that hold some Dagster partitions: found by statistics, read, and replaced."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import DataFile, TableChange
from elt_assets.lake.delta.row_counts import RowCounter, row_count, verify_or_discard, write_all
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema.metadata_columns import PARTITION, PARTITION_FIELD
from elt_assets.lake.spark.expressions import value_at
from elt_assets.lake.spark.session import SparkProvider


@dataclass(frozen=True)
class PartitionFiles:
    """The files that may hold rows of some partitions."""

    own: list[DataFile]  # files with rows of one of these partitions, and no other rows
    # Files that may also hold other rows: another engine combined them, or statistics are missing.
    mixed: list[DataFile]


def files_of(table: Table, partitions: Collection[str]) -> PartitionFiles:
    """Return the files that may hold rows of some partitions; no data is read."""
    values, result = sorted(partitions), PartitionFiles([], [])
    if not values:
        return result
    for file, bounds in table.files_overlapping([PARTITION], values[0], values[-1]):
        least, most = map(str, bounds or ("", chr(0x10FFFF)))
        first = bisect_left(values, least)
        if first == len(values) or values[first] > most:
            continue
        # The bounds of another engine may be those of a part of a long text.
        is_own = file.is_own and least == most
        (result.own if is_own else result.mixed).append(file)
    return result


def read(
    spark: SparkSession,
    table: Table,
    partitions: Collection[str],
    schema: t.StructType | None = None,
) -> DataFrame:
    """Return the rows of some partitions; files of other partitions are not read.

    Args:
        schema: the columns to read; default: those of the table.
    """
    files, schema = files_of(table, partitions), schema or table.schema
    if not files.mixed:
        return table.read_files(spark, files.own, schema)
    is_more = PARTITION not in schema.names
    read_schema = t.StructType([*schema.fields, PARTITION_FIELD]) if is_more else schema
    rows = table.read_files(spark, [*files.own, *files.mixed], read_schema)
    rows = rows.where(value_at([PARTITION]).isin(*partitions))
    return rows.drop(PARTITION) if is_more else rows


def count(provider: SparkProvider, table: Table, partition: str) -> int:
    """Return the number of rows of a partition; Spark is used only if the statistics are not sufficient."""
    files = files_of(table, [partition])
    rows = sum(file.records for file in files.own)
    if files.mixed:
        mixed = table.read_files(provider.get(), files.mixed)
        rows += mixed.where(value_at([PARTITION]) == partition).count()
    return rows


def plan_removal(
    session: Callable[[], SparkSession], table: Table, partition: str, schema: t.StructType
) -> TableChange:
    """Return the change that removes a partition from a table.

    Rows of other partitions that share its files are written to new files.

    Args:
        session: returns the Spark session; called only if there are such rows.
        schema: the columns of the new files.

    Raises:
        SystemFailure: rows were lost.
    """
    files = files_of(table, [partition])
    if not files.mixed:
        return TableChange((), files.own)
    read = RowCounter()
    rows = read.count(table.read_files(session(), files.mixed, schema))
    rest = write_all(table, rows.where(~value_at([PARTITION]).eqNullSafe(f.lit(partition))))
    expected = row_count(table, files.mixed)
    verify_or_discard(table, expected, read.rows, "rows read of files with other partitions", rest)
    return TableChange(rest, [*files.own, *files.mixed])
