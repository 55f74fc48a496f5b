"""The files that hold some Dagster partitions of a table: found, read, removed; and counts of repeated keys.

`lake.read` finds and reads them by their statistics, and `write.commit` and `write.frames` replace them.
`orchestration` counts the rows of a partition, and its checks the keys that more than one row has
(`count_repeated_keys`, at the end).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.columns.metadata_columns import PARTITION, PARTITION_FIELD
from elt_assets.lake.delta.row_counts import RowCounter, row_count, verify_or_discard, write_all
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Key, has_key, is_nested, key_value, record_parts
from elt_assets.lake.session import SparkProvider, value_at
from elt_assets.lake.worker.parquet import read_all_keys


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


MAX_LOCAL_ROWS, MAX_LOCAL_NUMBERS = 2_000_000, 16_000_000
"""Maximum number of rows whose keys are compared in this process; the second one, if the key is one number
or time, of 8 bytes. Spark compares the keys of more rows, which costs more than to read them by slices."""


def count_repeated_keys(
    provider: SparkProvider, table: Table, files: Sequence[DataFile], key: Key
) -> int:
    """Return the number of keys that more than one row has. Only the columns of the key are read.

    Rows without a key (see `Key`) are not counted.
    """
    nested = any(is_nested(table.schema, part) for part in key)
    most = MAX_LOCAL_NUMBERS if _is_number(table, key) else MAX_LOCAL_ROWS
    if not nested and sum(file.records for file in files) <= most:
        return _count_repeated_here(table, files, key)
    rows = table.read_files(provider.get(), files).where(has_key(key))
    counts = rows.groupBy(key_value(key)).agg(f.count("*").alias("rows"))
    return counts.where(f.col("rows") > 1).count()


def _count_repeated_here(table: Table, files: Sequence[DataFile], key: Key) -> int:
    storage = table.storage
    paths = [f"{storage.root}/{file.path}" for file in files]
    names = [".".join(part) for part in key]
    columns = read_all_keys(storage.system, paths, key, table.arrow_schema())
    keys = pa.table(columns, names=names)
    lacks_key = reduce(pc.and_, (pc.is_null(keys[".".join(part)]) for part in record_parts(key)))
    keys = keys.filter(pc.invert(lacks_key))
    if _is_number(table, key):
        return count_repeated_numbers(keys.column(0).cast(pa.int64()).to_numpy())
    counts = keys.group_by(names).aggregate([([], "count_all")])
    return int(pc.sum(pc.greater(counts["count_all"], 1)).as_py() or 0)


def _is_number(table: Table, key: Key) -> bool:
    """Return whether a key is one column whose values are numbers of 64 bits: integers and times."""
    if len(key) != 1 or len(key[0]) != 1:
        return False
    kind = table.arrow_schema().field(key[0][0]).type
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def count_repeated_numbers(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """Return how many of the distinct numbers are there more than once."""
    ordered = np.sort(numbers)
    is_repeat = ordered[1:] == ordered[:-1]
    is_first = np.append(True, ~is_repeat[:-1]) if len(is_repeat) else is_repeat
    return int(np.count_nonzero(is_repeat & is_first))
