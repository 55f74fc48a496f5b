"""A table's files taken apart by key: what a merge must look at, and what it leaves as it is.

Files whose statistics exclude every key of the batch are not opened; of the others the key columns
are read; only files that hold a key are written again, without the rows of those keys, which are
set aside. That is done by one vectorised task a file, to each of which the batch's keys are handed; or by
joins, where the keys are too many to be handed around.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import HIDDEN, VISIBLE, DataFile, Files
from elt_assets.lake.delta.row_counts import require_all, row_count
from elt_assets.lake.delta.table import Table
from elt_assets.lake.parse.conform import path
from elt_assets.lake.spark import tasks

cloudpickle.register_pickle_by_value(tasks)  # type: ignore[no-untyped-call]

Key = Sequence[Sequence[str]]
"""Paths of table columns."""

TARGET_ROWS = 1_000_000
"""Rows of a file at most: what a merge rewrites for one key."""
TARGET_BYTES = 64 << 20
MOST_BYTES = 2 * TARGET_BYTES
"""Bytes of a file at most: more than the target, so that what compresses worse now is one file still."""
SMALL = 8
"""A file is small below this part of the target."""
MANY = 8
"""Small files that a merge puts together by the way."""
WHOLE = 200_000
"""Rows of a table that are not worth taking apart, if they are no more than `TARGET_BYTES`."""
MAX_KEYS = 4_000_000
"""Rows of a batch whose keys are handed to each task; beyond that, joins."""
MAX_BATCH_BYTES = 1 << 30
"""Bytes of such a batch's files."""

_FILE = "_elt_file"


@dataclass(frozen=True)
class Batch:
    """New rows: files that were written under a table's root, and are in no reader's list."""

    table: Table
    files: Sequence[DataFile]

    @property
    def records(self) -> int:
        return row_count(self.table, self.files)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    def rows(self, spark: SparkSession, schema: t.StructType) -> DataFrame:
        return self.table.read_files(spark, self.files, schema)


@dataclass(frozen=True)
class Split:
    """Files taken apart: `taken` are replaced by `kept`; `pulled` has the rows of the batch's keys. Of
    that, `work` is nobody's: whoever asked must discard it."""

    taken: Sequence[DataFile] = ()
    kept: Sequence[DataFile] = ()
    pulled: Sequence[DataFile] = ()
    work: Sequence[DataFile] = ()


def split_all(
    spark: SparkSession,
    table: Table,
    visible: Sequence[DataFile],
    hidden: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
) -> tuple[Split, Split]:
    """Take apart visible and hidden files, both by the same keys: the batch's, or all where they are few.

    A row with a null in its key, as a table may hold from before it had that key, stays where it is.
    """
    if _is_small([*visible, *hidden]) and _has_whole_keys(table, [*visible, *hidden], key):
        return Split(visible, (), visible), Split(hidden, (), hidden)
    return (
        split(spark, table, visible, batch, key, schema),
        split(spark, table, hidden, batch, key, schema, HIDDEN),
    )


def _is_small(files: Sequence[DataFile]) -> bool:
    rows, size = sum(file.records for file in files), sum(file.size for file in files)
    return rows <= WHOLE and size <= TARGET_BYTES


def _has_whole_keys(table: Table, files: Sequence[DataFile], key: Key) -> bool:
    """Whether the statistics of files, in the log or in their footers, say that no key has a null."""
    for part in key:
        known = table.without_nulls(part)
        others = [file.path for file in files if file.path not in known]
        if any(_nulls(file, part) != 0 for file in table.storage.describe(others)):
            return False
    return True


def _nulls(file: DataFile, column: Sequence[str]) -> Any:
    """How many nulls a column has in a file just looked at; None where that is not known."""
    found = json.loads(file.stats or "{}").get("nullCount")
    for name in column:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def split(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
    kind: str = VISIBLE,
) -> Split:
    """Take apart those of `files` that hold a key of `batch`.

    Args:
        schema: the columns to read by.
        kind: where files that are kept belong: among the visible or the hidden ones.
    """
    if not files or not batch.files:
        return Split()
    candidates = _candidates(table, files, batch.files, key)
    too_many = batch.records > MAX_KEYS or batch.size > MAX_BATCH_BYTES
    if too_many or any(is_nested(schema, part) for part in key):
        return _by_join(spark, table, candidates, batch, key, schema, kind)
    groups, fold = _groups(files, candidates)
    return _by_task(spark, table, groups, fold, batch, key, kind)


def _candidates(
    table: Table, files: Sequence[DataFile], batch: Sequence[DataFile], key: Key
) -> list[DataFile]:
    """The files whose bounds do not exclude every row of the batch."""
    found = list(files)
    for part in key:
        told = [_bounds(file, part) for file in batch]
        wanted = [bounds for bounds in told if bounds is not None]
        if len(wanted) < len(batch):
            continue
        known = table.bounds(part)
        found = [
            file
            for file in found
            if file.path not in known or any(_meet(known[file.path], one) for one in wanted)
        ]
    return found


def _bounds(file: DataFile, column: Sequence[str]) -> tuple[Any, Any] | None:
    """Of a column in a file just written."""
    told = json.loads(file.stats or "{}")
    least, most = told.get("minValues"), told.get("maxValues")
    for name in column:
        least = least.get(name) if isinstance(least, dict) else None
        most = most.get(name) if isinstance(most, dict) else None
    return None if least is None or most is None else (least, most)


def _meet(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    if type(one[0]) is not type(other[0]):
        return True
    return bool(one[0] <= other[1] and other[0] <= one[1])


def is_small(file: DataFile) -> bool:
    return file.size * SMALL < TARGET_BYTES and file.records * SMALL < TARGET_ROWS


def packed(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Files in groups of about the target size."""
    groups: list[list[DataFile]] = []
    size, rows = TARGET_BYTES + 1, 0
    for file in files:
        if size + file.size > TARGET_BYTES or rows + file.records > TARGET_ROWS:
            groups.append([])
            size, rows = 0, 0
        groups[-1].append(file)
        size, rows = size + file.size, rows + file.records
    return groups


def _groups(
    files: Sequence[DataFile], candidates: Sequence[DataFile]
) -> tuple[list[list[DataFile]], frozenset[int]]:
    """What each task takes apart, and which tasks also put their files together."""
    small = [file for file in files if is_small(file)]
    if len(small) < MANY:
        return [[file] for file in candidates], frozenset()
    folded = packed(small)
    rest = [[file] for file in candidates if not is_small(file)]
    return [*folded, *rest], frozenset(range(len(folded)))


def _by_task(
    spark: SparkSession,
    table: Table,
    groups: Sequence[Sequence[DataFile]],
    fold: frozenset[int],
    batch: Batch,
    key: Key,
    kind: str,
) -> Split:
    job = tasks.Job(
        root=table.storage.uri,
        groups=[[file.path for file in group] for group in groups],
        fold=fold,
        key=key,
        batch=[batch.table.storage.locate(file) for file in batch.files],
        kept=table.new_folder(kind),
        pulled=Files.new_folder(HIDDEN),
        rows_per_file=TARGET_ROWS,
        bytes_per_file=MOST_BYTES,
    )
    if not groups:
        return Split()
    told = in_tasks(spark, job)
    names = set(told[tasks.TAKEN])
    taken = [file for group in groups for file in group if file.path in names]
    kept, pulled = (table.storage.describe(told[role]) for role in (tasks.KEPT, tasks.PULLED))
    return _whole(table, Split(taken, kept, pulled, work=pulled))


def _whole(table: Table, found: Split) -> Split:
    """The same split, once its counts add up.

    Raises:
        SystemFailure: they do not.
    """
    made = [*found.kept, *found.pulled]
    taken = row_count(table, found.taken)
    require_all(table, taken, row_count(table, made), "rows of the files taken apart", made)
    return found


def in_tasks(spark: SparkSession, job: tasks.Job) -> dict[str, list[str]]:
    """Run a job, a task for each group; the paths that the tasks told, by their role."""
    numbers = spark.range(0, len(job.groups), 1, len(job.groups))
    rows = numbers.mapInArrow(tasks.run(job), tasks.RESULT).collect()
    told: dict[str, list[str]] = {tasks.TAKEN: [], tasks.KEPT: [], tasks.PULLED: []}
    for row in sorted(rows):
        told[row.role].append(row.name)
    return told


def _by_join(
    spark: SparkSession,
    table: Table,
    candidates: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
    kind: str,
) -> Split:
    keys = batch.rows(spark, schema).select(*key_columns(key)).distinct()
    names = key_names(key)

    def joined(files: Sequence[DataFile], how: str) -> DataFrame:
        rows = table.read_files(spark, files, schema)
        located = rows.select("*", *key_columns(key), f.col("_metadata.file_path").alias(_FILE))
        return located.join(keys, names, how).drop(*names)

    hit = joined(candidates, "left_semi").select(_FILE).distinct().collect()
    found = {_tail(row[0]) for row in hit}
    taken = [file for file in candidates if _tail(file.path) in found]
    if not taken:
        return Split()
    kept = table.write_files(joined(taken, "left_anti").drop(_FILE), kind)
    pulled = table.write_files(joined(taken, "left_semi").drop(_FILE), HIDDEN)
    return _whole(table, Split(taken, kept, pulled, work=pulled))


def key_columns(key: Key) -> list[Expression]:
    """A key's values in columns of their own, named as `key_names` says."""
    return [path(part).alias(name) for part, name in zip(key, key_names(key), strict=True)]


def key_names(key: Key) -> list[str]:
    return [f"_elt_key_{number}" for number in range(len(key))]


def is_nested(schema: t.StructType, column: Sequence[str]) -> bool:
    """Whether a key's values are themselves structures, which only joins can compare."""
    kind: t.DataType = schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return isinstance(kind, t.StructType | t.ArrayType)


def _tail(uri: str) -> str:
    """The file's name: random, so that it tells a file whatever way its URI is written, and whether
    or not it lies in a folder (other writers' files do not)."""
    return uri.rpartition("/")[2]
