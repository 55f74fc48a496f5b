"""The merge of each destination sync mode: what a commit does with a checkpoint's rows.

The properties of the modes are in `protocol.airbyte.sync_modes`. In every mode, a refresh replaces the rows
of older generations: the commit does this, not the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.files import TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import dedup
from elt_assets.lake.merge.dedup import MergeResult, MergeTarget, Ordering
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    OVERWRITE_DEDUP,
    find_added_modes,
)

Merge = Callable[[SparkSession, Table, MergeTarget, Batch, Ordering, t.StructType], MergeResult]
"""Merges a batch, which has rows, into the files of a target. The files that it writes are not visible before
a commit. A checkpoint without rows needs no merge."""


def _append(
    _spark: SparkSession,
    _table: Table,
    target: MergeTarget,
    batch: Batch,
    _by: Ordering,
    _schema: t.StructType,
) -> MergeResult:
    """Add the batch's files to the files of the target: every row becomes a row of the table."""
    return MergeResult(TableChange(batch.files), target.tombstones)


_MERGES: Mapping[str, Merge] = MappingProxyType(
    {APPEND: _append, OVERWRITE: _append, APPEND_DEDUP: dedup.merge, OVERWRITE_DEDUP: dedup.merge}
)


def reads_table(mode: str) -> bool:
    """Return whether the merge of a destination sync mode looks at the files of the table."""
    return _MERGES.get(mode) is not _append


def load_merge(mode: str) -> Merge:
    """Return the merge of a destination sync mode."""
    if mode in _MERGES:
        return _MERGES[mode]
    merge: Merge = find_added_modes()[mode].load().merge
    return merge
