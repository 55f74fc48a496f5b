"""Rows of a log that depend on those before them: before a batch is merged, each gets its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.merge.dedup import Ordering
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.truncations import replace_truncations
from elt_assets.lake.merge.unchanged_values import complete
from elt_assets.protocol.messages import TRUNCATED, UNCHANGED


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
