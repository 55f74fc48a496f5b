"""Rows of a log that depend on those before them: before a batch is merged, each gets its meaning."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.merge.dedup import Ordering
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.truncations import replace_truncations
from elt_assets.lake.merge.unchanged_values import complete
from elt_assets.protocol.airbyte.messages import TRUNCATED, UNCHANGED

_STEPS = {TRUNCATED: replace_truncations, UNCHANGED: complete}
"""In this order: a value from before a truncation is not that of a row after it."""


def resolve(
    spark: SparkSession,
    batch: Batch,
    present: Batch,
    by: Ordering,
    schema: t.StructType,
    reasons: AbstractSet[str],
) -> list[DataFile]:
    """Write the rows of a batch so that none depends on others; return hidden files of them.

    Args:
        present: the rows and deletes of the table.
        schema: the columns of both.
        reasons: those by which rows depend on others, at least one of `DEPENDENT`.

    Raises:
        SystemFailure: rows were lost.
    """
    files: list[DataFile] = []
    for reason, step in _STEPS.items():
        if reason in reasons:
            former, source = files, Batch(batch.table, files) if files else batch
            try:
                files = step(spark, source, present, by, schema)
            finally:
                batch.table.discard_files(former)
    return files
