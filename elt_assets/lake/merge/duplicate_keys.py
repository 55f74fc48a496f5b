"""Search for keys that more than one row of a table has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Key, is_nested, key_columns, key_names
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.spark.tasks import read_all_keys

MAX_LOCAL_ROWS = 2_000_000
"""Maximum number of rows whose keys are compared in this process; Spark compares the keys of more rows."""


def repeated_keys(
    provider: SparkProvider, table: Table, files: Sequence[DataFile], key: Key
) -> int:
    """Return the number of keys that more than one row has. Only the columns of the key are read.

    A row with a null in its key has no key: it may be older than the key of the table.
    """
    nested = any(is_nested(table.schema, part) for part in key)
    if not nested and sum(file.records for file in files) <= MAX_LOCAL_ROWS:
        return _repeated_local(table, files, key)
    rows = table.read_files(provider.get(), files).select(*key_columns(key))
    for name in key_names(key):
        rows = rows.where(f.col(name).isNotNull())
    counted = rows.groupBy(*key_names(key)).agg(f.count("*").alias("rows"))
    return counted.where(f.col("rows") > 1).count()


def _repeated_local(table: Table, files: Sequence[DataFile], key: Key) -> int:
    storage = table.storage
    paths, names = [f"{storage.root}/{file.path}" for file in files], key_names(key)
    columns = read_all_keys(storage.system, paths, key, table.arrow_schema())
    keys = pa.table(columns, names=names).drop_null()
    counted = keys.group_by(names).aggregate([([], "count_all")])
    return int(pc.sum(pc.greater(counted["count_all"], 1)).as_py() or 0)
