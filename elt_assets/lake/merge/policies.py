"""What a commit does with a checkpoint's rows, by the stream's destination sync mode.

The facts of a mode are in `protocol.airbyte.sync_modes`. That a refresh replaces the rows of older
generations is the same for all of them, and the commit's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import append, dedup
from elt_assets.lake.merge.dedup import Merged, Ordering, Target
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.protocol.airbyte.sync_modes import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    OVERWRITE_DEDUP,
    added,
)

Merge = Callable[[SparkSession, Table, Target, Batch, Ordering, t.StructType], Merged]
"""Joins a batch with the files of a target; what it writes is not visible until it is committed."""

_MODULES: Mapping[str, ModuleType] = MappingProxyType(
    {APPEND: append, OVERWRITE: append, APPEND_DEDUP: dedup, OVERWRITE_DEDUP: dedup}
)


def merge_of(mode: str) -> Merge:
    """The merge of a destination sync mode."""
    module = _MODULES[mode] if mode in _MODULES else added()[mode].load()
    found: Merge = module.merge
    return found
