"""Splitting of a table's files by the keys of a batch, for merges; and combination of small files.

A merge (`key_order`, `history`) rewrites only files that contain a key of its batch, and so does an erasure
(`admin.erased_rows`). `admin.maintenance` and `write.rewrite` group files here, too, and maintenance combines
them.

The other modules of `lake.merge`, `write.commit` and `lake.read.changes` have the keys of a batch from here.

Files whose statistics exclude every key of the batch are not opened. Of the other files, only the key columns
are read. A file that contains a key of the batch is rewritten without the rows of these keys, which are
written to separate files. Each file is split by one vectorised task, which receives all keys of the batch;
too many keys for that are joined with the files instead.

A kill at FILES_SPLIT leaves copies in files that no log names; the split files are still those of the table.
`tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard
from elt_assets.lake.delta.storage import HIDDEN, TARGET_BYTES, TARGET_ROWS, VISIBLE, DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_tasks
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.file_tasks import SplitJob, make_split

Key = Sequence[Sequence[str]]
"""Paths of table columns. A null in a part of a composite key is a value: it is equal to a null, and to
nothing else. A row has no key if all parts that come from its record are null (see `record_parts`): no record
is accepted without a key, but a table may have such rows from before it had this key. They stay where they
are. Airbyte's users need such keys: airbytehq/airbyte#31926."""

SMALL_DIVISOR = 8
"""A file is small if it is below the target divided by this number."""
MIN_SMALL_FILES = 8
"""Number of small files from which a merge also combines them."""
MAX_ROWS_UNSPLIT = 200_000
"""Maximum number of rows of a table whose files are not split, if they do not exceed `TARGET_BYTES`."""
MAX_KEYS = 4_000_000
"""Maximum number of rows of a batch whose keys are sent to each task; a larger batch is joined."""
MAX_BATCH_BYTES = 1 << 30
"""Maximum size of the files of such a batch, in bytes."""

_FILE, _KEY = "_elt_file", "_elt_key"


@dataclass(frozen=True)
class Batch:
    """Rows to merge: files under a table's root."""

    table: Table
    files: Sequence[DataFile]

    @property
    def records(self) -> int:
        return row_count(self.table, self.files)

    @property
    def size(self) -> int:
        """The size of its files, in bytes."""
        return sum(file.size for file in self.files)

    def rows(self, spark: SparkSession, schema: t.StructType) -> DataFrame:
        return self.table.read_files(spark, self.files, schema)


@dataclass(frozen=True)
class Split:
    """The result of splitting files."""

    taken: Sequence[DataFile] = ()  # files that leave the table
    rest: Sequence[DataFile] = ()  # new files with the rows of these that stay in the table
    # Files with the rows that have a key of the batch, to be merged with it.
    matching: Sequence[DataFile] = ()
    # Files among these that the caller must remove after the merge.
    temporary: Sequence[DataFile] = ()

    def __add__(self, more: Split) -> Split:
        return Split(
            [*self.taken, *more.taken],
            [*self.rest, *more.rest],
            [*self.matching, *more.matching],
            [*self.temporary, *more.temporary],
        )


def split_all(
    spark: SparkSession,
    table: Table,
    visible: Sequence[DataFile],
    hidden: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
) -> tuple[Split, Split]:
    """Split visible and hidden files by the keys of a batch; files with few rows are read whole instead.

    A row without a key stays where it is.
    """
    if is_merged_whole(table, [*visible, *hidden], key):
        return Split(visible, (), visible), Split(hidden, (), hidden)
    return (
        split(spark, table, visible, batch, key, schema),
        split(spark, table, hidden, batch, key, schema, HIDDEN),
    )


def is_merged_whole(table: Table, files: Sequence[DataFile], key: Key) -> bool:
    """Return whether files have so few rows that they are merged without being split, and all have a key."""
    is_small_table = (
        sum(file.records for file in files) <= MAX_ROWS_UNSPLIT
        and sum(file.size for file in files) <= TARGET_BYTES
    )
    return is_small_table and any(lacks_nulls(table, files, part) for part in record_parts(key))


def combine_small(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> Split:
    """Combine small files if there are many, without reading their keys."""
    return combine(spark, table, _pack_small(files))


def combine(spark: SparkSession, table: Table, groups: Sequence[Sequence[DataFile]]) -> Split:
    """Combine the files of each group.

    Raises:
        SystemFailure: rows were lost.
    """
    fold = frozenset(range(len(groups)))
    return _split_in_tasks(spark, table, groups, fold, Batch(table, ()), (), VISIBLE, table.schema)


def record_parts(key: Key) -> Key:
    """Return the parts of a key that come from the record: all but the partition."""
    return [part for part in key if list(part) != [PARTITION]]


def lacks_nulls(table: Table, files: Sequence[DataFile], column: Sequence[str]) -> bool:
    """Return whether statistics, in the log or in the files' footers, show that a column has no null."""
    paths = table.paths_lacking_nulls(column)
    others = [file.path for file in files if file.path not in paths]
    return all(_null_count(file, column) == 0 for file in table.storage.describe(others))


def _null_count(file: DataFile, column: Sequence[str]) -> Any:
    """Return the number of nulls of a column in a file with statistics; None if it is unknown."""
    count = json.loads(file.stats or "{}").get("nullCount")
    for name in column:
        count = count.get(name) if isinstance(count, dict) else None
    return count


def split(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
    kind: str = VISIBLE,
) -> Split:
    """Split those of `files` that contain a key of `batch`.

    Args:
        schema: the columns to read.
        kind: the kind of the files that are kept, visible or hidden.
    """
    if not files or not batch.files:
        return Split()
    candidates = find_matching_files(table, files, batch.files, key)
    # Each task holds all keys of the batch in memory.
    too_many = batch.records > MAX_KEYS or batch.size > MAX_BATCH_BYTES
    if too_many or any(is_nested(schema, part) for part in key):
        return _split_by_join(spark, table, candidates, batch, key, schema, kind)
    folded = _pack_small(files)
    paths = {file.path for group in folded for file in group}
    rest = [[file] for file in candidates if file.path not in paths]
    groups, fold = [*folded, *rest], frozenset(range(len(folded)))
    return _split_in_tasks(spark, table, groups, fold, batch, key, kind, schema)


def take_out(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    batch: Batch,
    key: Key,
    kind: str = VISIBLE,
) -> Split:
    """Split those of `files` that contain a key of `batch`, and no other ones: no small file is combined.

    A column that the table lacks stays in the files.
    """
    if not files or not batch.files:
        return Split()
    groups = [[file] for file in find_matching_files(table, files, batch.files, key)]
    return _split_in_tasks(spark, table, groups, frozenset(), batch, key, kind, table.schema)


def find_candidates(
    table: Table, files: Sequence[DataFile], values: Mapping[str, Sequence[Any]]
) -> list[DataFile]:
    """Return the files whose bounds do not exclude every value of a column, for each of some columns."""
    candidates = list(files)
    for column, choices in values.items():
        of_table = table.bounds([column])
        candidates = [
            file
            for file in candidates
            if file.path not in of_table
            or any(_overlap(of_table[file.path], (value, value)) for value in choices)
        ]
    return candidates


def find_matching_files(
    table: Table, files: Sequence[DataFile], batch: Sequence[DataFile], key: Key
) -> list[DataFile]:
    """Return the files whose bounds do not exclude every row of the batch."""
    candidates = list(files)
    for part in key:
        if any(_null_count(file, part) != 0 for file in batch):
            continue  # bounds say nothing of nulls
        of_batch = [bounds for file in batch if (bounds := _bounds(file, part)) is not None]
        if len(of_batch) < len(batch):
            continue
        of_table = table.bounds(part)
        candidates = [
            file
            for file in candidates
            if file.path not in of_table
            or any(_overlap(of_table[file.path], bounds) for bounds in of_batch)
        ]
    return candidates


def _bounds(file: DataFile, column: Sequence[str]) -> tuple[Any, Any] | None:
    """Return the bounds of a column in a file that was just written; None if they are unknown."""
    stats = json.loads(file.stats or "{}")
    least, most = stats.get("minValues"), stats.get("maxValues")
    for name in column:
        least = least.get(name) if isinstance(least, dict) else None
        most = most.get(name) if isinstance(most, dict) else None
    return None if least is None or most is None else (least, most)


def _overlap(left: tuple[Any, Any], right: tuple[Any, Any]) -> bool:
    # A bound from JSON may have another type than one that was read: such a file is opened.
    if type(left[0]) is not type(right[0]):
        return True
    return bool(left[0] <= right[1] and right[0] <= left[1])


def is_small(file: DataFile) -> bool:
    """Return whether a file is so small that it is combined with others."""
    return file.size * SMALL_DIVISOR < TARGET_BYTES and file.records * SMALL_DIVISOR < TARGET_ROWS


def count_small(table: Table) -> int:
    """Return how many files of a table are small, without an object for each of them."""
    sizes, records = table.file_sizes
    is_few = pc.less(pc.multiply(records, SMALL_DIVISOR), TARGET_ROWS)
    is_little = pc.less(pc.multiply(sizes, SMALL_DIVISOR), TARGET_BYTES)
    return int(pc.sum(pc.and_(is_little, pc.fill_null(is_few, True))).as_py() or 0)


def pack_files(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return files in groups of about the target size."""
    groups: list[list[DataFile]] = []
    size, rows = TARGET_BYTES + 1, 0
    for file in files:
        if size + file.size > TARGET_BYTES or rows + file.records > TARGET_ROWS:
            groups.append([])
            size, rows = 0, 0
        groups[-1].append(file)
        size, rows = size + file.size, rows + file.records
    return groups


def _pack_small(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return the small files of each part of the table in groups, if the part has many."""
    parts = defaultdict(list)
    for file in filter(is_small, files):
        parts[file.part].append(file)
    many = (small for small in parts.values() if len(small) >= MIN_SMALL_FILES)
    return [group for small in many for group in pack_files(small)]


def _split_in_tasks(
    spark: SparkSession,
    table: Table,
    groups: Sequence[Sequence[DataFile]],
    fold: frozenset[int],
    batch: Batch,
    key: Key,
    kind: str,
    schema: t.StructType,
) -> Split:
    if not groups:
        return Split()
    job = SplitJob(
        groups=[[file.path for file in group] for group in groups],
        fold=fold,
        key=key,
        batch=[batch.table.storage.locate(file) for file in batch.files],
        rest=table.output(kind),
        matching=table.output(HIDDEN),
        schema=table.arrow_schema(schema),
    )
    results = run_tasks(spark, len(groups), make_split, job)
    reach(Failpoint.FILES_SPLIT)
    names = {name for taken_names, _, _ in results for name in taken_names}
    taken = [file for group in groups for file in group if file.path in names]
    rest = [DataFile(*file) for _, files, _ in results for file in files]
    matching = [DataFile(*file) for _, _, files in results for file in files]
    return _verify_split(table, Split(taken, rest, matching, temporary=matching))


def _verify_split(table: Table, result: Split) -> Split:
    """Return a split whose row counts are correct.

    Raises:
        SystemFailure: they are not.
    """
    files = [*result.rest, *result.matching]
    taken = row_count(table, result.taken)
    verify_or_discard(table, taken, row_count(table, files), "rows of the split files", files)
    return result


def _split_by_join(
    spark: SparkSession,
    table: Table,
    candidates: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
    kind: str,
) -> Split:
    keys = batch.rows(spark, schema).select(key_value(key).alias(_KEY)).distinct()

    def join_keys(files: Sequence[DataFile], how: str) -> DataFrame:
        rows = table.read_files(spark, files, schema, path_column=_FILE)
        return rows.withColumn(_KEY, key_value(key)).join(keys, _KEY, how).drop(_KEY)

    matches = join_keys(candidates, "left_semi").select(_FILE).distinct().collect()
    names = {file_name(row[0]) for row in matches}
    taken = [file for file in candidates if file_name(file.path) in names]
    if not taken:
        return Split()
    rest = table.write_files(join_keys(taken, "left_anti").drop(_FILE), kind)
    matching = table.write_files(join_keys(taken, "left_semi").drop(_FILE), HIDDEN)
    return _verify_split(table, Split(taken, rest, matching, temporary=matching))


def key_value(key: Key) -> Expression:
    """Return a key as one value, for joins. A composite one is a struct, in which nulls are equal."""
    parts = [value_at(part) for part in key]
    return parts[0] if len(parts) == 1 else f.struct(*parts)


def has_key(key: Key) -> Expression:
    """Return whether a row has a key (see `Key`)."""
    return reduce(operator.or_, (value_at(part).isNotNull() for part in record_parts(key)))


def is_nested(schema: t.StructType, column: Sequence[str]) -> bool:
    """Return whether the values of a key column are structures, which only joins can compare."""
    kind: t.DataType = schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return isinstance(kind, t.StructType | t.ArrayType)


def file_name(uri: str) -> str:
    """Return the name of a file. It is random: it identifies the file however its URI is written, and whether
    or not the file is in a folder (files of other writers are not)."""
    return uri.rpartition("/")[2]
