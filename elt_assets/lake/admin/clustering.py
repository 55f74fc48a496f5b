"""Clustering: the rows of a table in the order of some columns, so that queries skip files by their bounds.

Files of sorted rows are in a folder whose name contains a fingerprint of the columns, so the log itself says
which files are sorted. A part of the table (a Dagster partition) is sorted as a whole when enough of its rows
are not, since sorted files of their own would overlap with the others.

Like a compaction, clustering changes no row, state or transaction id, and gives way to a sync that replaced
its files. A kill at FILES_COMBINED leaves copies of rows in files that no log names; the next vacuum removes
them. `tests/lake/test_crash_points.py::test_a_clustering_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.files import (
    TARGET_BYTES,
    TARGET_ROWS,
    VISIBLE,
    DataFile,
    TableChange,
)
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard, write_all
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.schema.metadata_columns import PARTITION
from elt_assets.lake.spark.expressions import value_at

ColumnPath = Sequence[str]
MIN_SHARE = 0.1
"""Share of the rows of a part that must be unsorted for the part to be sorted again: each time all its files
are rewritten."""


def cluster(spark: SparkSession, table: Table, columns: Sequence[ColumnPath]) -> int:
    """Sort the rows of each part of a table by columns, if enough of them are not sorted yet.

    Args:
        columns: column paths; the first one is the most significant. Those that the table lacks are ignored.

    Returns:
        the number of files that were replaced by sorted ones.
    """
    order = _select_order(table, columns)
    if not order:
        return 0
    folder = _folder(order)
    replaced = 0
    for files in _select_parts(table, folder):
        with table.discard_new_folders_on_error():
            new = _sort(spark, table, files, order, folder)
        reach(Failpoint.FILES_COMBINED)
        try:
            with discard_if_unpublished(table, new):
                table.reorganise(TableChange(new, files))
            replaced += len(files)
        except Superseded:
            table.advance()
    return replaced


def list_sorted(table: Table, columns: Sequence[ColumnPath]) -> set[str]:
    """Return the paths of the files that are sorted by columns; a compaction would mix them with others."""
    order = _select_order(table, columns)
    folder = _folder(order)
    return {file.path for file in table.files if order and file.path.startswith(f"{folder}/")}


def _select_order(table: Table, columns: Sequence[ColumnPath]) -> list[ColumnPath]:
    return [path for path in columns if _is_present(table.schema, path)]


def _folder(order: Sequence[ColumnPath]) -> str:
    """Return the folder of the files that are sorted by columns."""
    fingerprint = hashlib.sha256(repr([list(path) for path in order]).encode()).hexdigest()[:8]
    return f"{VISIBLE}/sorted_{fingerprint}"


def _select_parts(table: Table, folder: str) -> Iterator[list[DataFile]]:
    """Yield the files of each part of the table that has too many unsorted rows.

    Files whose partition is not known are left as they are.
    """
    is_partitioned = PARTITION in table.schema.names
    bounds = table.bounds([PARTITION]) if is_partitioned else {}
    parts: dict[object, list[DataFile]] = {}
    for file in table.files:
        if not is_partitioned or file.path in bounds:
            parts.setdefault(bounds.get(file.path), []).append(file)
    for files in parts.values():
        rows = row_count(table, files)
        others = [file for file in files if not file.path.startswith(f"{folder}/")]
        if others and row_count(table, others) >= MIN_SHARE * rows:
            yield files


def _sort(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    columns: Sequence[ColumnPath],
    folder: str,
) -> list[DataFile]:
    """Write the rows of files to new files of about the target size, sorted by columns."""
    rows = row_count(table, files)
    size = sum(file.size for file in files)
    count = max(math.ceil(rows / TARGET_ROWS), math.ceil(size / TARGET_BYTES), 1)
    first = [[name] for name in table.partition_by]
    order = [value_at(path).asc_nulls_last() for path in [*first, *columns]]
    data = table.read_files(spark, files)
    parts = data.repartitionByRange(count, *order) if count > 1 else data.coalesce(1)
    new = write_all(table, parts.sortWithinPartitions(*order), folder)
    verify_or_discard(table, rows, row_count(table, new), "rows of sorted files", new)
    return new


def _is_present(schema: t.StructType, path: ColumnPath) -> bool:
    kind: t.DataType = schema
    for name in path:
        if not isinstance(kind, t.StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return not isinstance(kind, t.StructType | t.ArrayType | t.MapType)
