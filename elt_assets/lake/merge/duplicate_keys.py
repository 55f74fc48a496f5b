"""Search for keys that more than one row of a table has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Key, has_key, is_nested, key_value, record_parts
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.spark.task_io import read_all_keys

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
