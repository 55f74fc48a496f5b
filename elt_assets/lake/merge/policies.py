"""The merge of each destination sync mode: what a commit does with a checkpoint's rows.

The properties of the modes are in `protocol.airbyte.sync_modes`. In every mode, a refresh replaces the rows
of older generations: the commit does this, not the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import append, dedup
from elt_assets.lake.merge.dedup import MergeResult, MergeTarget, Ordering
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.protocol.airbyte.sync_modes import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    OVERWRITE_DEDUP,
    find_added_modes,
)

Merge = Callable[[SparkSession, Table, MergeTarget, Batch, Ordering, t.StructType], MergeResult]
"""Merges a batch, which has rows, into the files of a target. The files that it writes are not visible before
a commit. A checkpoint without rows needs no merge."""

_MODULES: Mapping[str, ModuleType] = MappingProxyType(
    {APPEND: append, OVERWRITE: append, APPEND_DEDUP: dedup, OVERWRITE_DEDUP: dedup}
)


def reads_table(mode: str) -> bool:
    """Return whether the merge of a destination sync mode looks at the files of the table."""
    return _MODULES.get(mode) is not append


def load_merge(mode: str) -> Merge:
    """Return the merge of a destination sync mode."""
    module = _MODULES[mode] if mode in _MODULES else find_added_modes()[mode].load()
    merge: Merge = module.merge
    return merge
