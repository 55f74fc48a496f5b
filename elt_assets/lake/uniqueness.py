"""Whether the rows of some files have a key each."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from elt_assets.lake.files import DataFile
from elt_assets.lake.kernel import read_keys
from elt_assets.lake.spark import SparkProvider
from elt_assets.lake.split import Key, is_nested, key_columns, key_names
from elt_assets.lake.table import Table

HERE = 2_000_000
"""Rows whose keys are compared in this process; more of them by Spark."""


def repeated_keys(
    provider: SparkProvider, table: Table, files: Sequence[DataFile], key: Key
) -> int:
    """How many keys more than one row has. Reads the key's columns alone."""
    nested = any(is_nested(table.schema, part) for part in key)
    if not nested and sum(file.records for file in files) <= HERE:
        return _repeated_here(table, files, key)
    rows = table.read_files(provider.get(), files).select(*key_columns(key))
    counted = rows.groupBy(*key_names(key)).agg(f.count("*").alias("rows"))
    return counted.where(f.col("rows") > 1).count()


def _repeated_here(table: Table, files: Sequence[DataFile], key: Key) -> int:
    storage = table.storage
    found = [read_keys(storage.system, f"{storage.root}/{file.path}", key) for file in files]
    names = key_names(key)
    columns = [
        pa.chunked_array([c for one in found for c in one[at].chunks]) for at in range(len(key))
    ]
    counted = pa.table(columns, names=names).group_by(names).aggregate([([], "count_all")])
    return int(pc.sum(pc.greater(counted["count_all"], 1)).as_py() or 0)
