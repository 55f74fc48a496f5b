"""Merge for `append` and `overwrite`: every row of a checkpoint becomes a row of the table."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.files import TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.dedup import MergeResult, MergeTarget, Ordering
from elt_assets.lake.merge.file_splitting import Batch


def merge(
    _spark: SparkSession,
    _table: Table,
    target: MergeTarget,
    batch: Batch,
    _by: Ordering,
    _schema: t.StructType,
) -> MergeResult:
    """Add the batch's files to the files of the target."""
    return MergeResult(TableChange(batch.files), target.tombstones)
