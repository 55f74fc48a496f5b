"""The split of a table's files by key, in Spark's Python workers, column by column.

The module is sent to the workers by value: a worker needs pyarrow, but not this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.spark.foreign_types import conform_columns
from elt_assets.lake.spark.partitioned_files import make_writer
from elt_assets.lake.spark.task_io import (
    ArrowFunction,
    FileWriter,
    discard_on_error,
    make_arrow_function,
    open_parquet,
    read_all_keys,
    read_batches,
    read_keys,
)

REST, MATCHING, TAKEN = "rest", "matching", "taken"
"""Roles of the files of a result: with the rows of other keys, with the rows of the batch's keys, and
those that were split."""


@dataclass(frozen=True)
class SplitJob:
    """The description of a split: rows whose key is in a batch go to other files than the remaining rows.

    Attributes:
        root: pyarrow's file system, and the path in it that all paths but those of `batch` are relative to.
        groups: the files of each task; rows of one group may be written to one file.
        fold: the numbers of groups in which all files are rewritten, also those without a key of the batch.
        key: column paths; empty if no row is taken out.
        batch: paths of the files that contain the keys.
        rest_folder: gets the rows of other keys.
        matching_folder: gets the rows with a key of the batch.
        rows_per_file, bytes_per_file: the size at which a written file is closed.
        schema: the columns of the table.
        partition_by: the partition columns of the files in `rest_folder`.
    """

    root: tuple[Any, str]
    groups: Sequence[Sequence[str]]
    fold: frozenset[int]
    key: Sequence[Sequence[str]]
    batch: Sequence[str]
    rest_folder: str
    matching_folder: str
    rows_per_file: int
    bytes_per_file: int
    schema: pa.Schema
    partition_by: Sequence[str] = ()


def make_split_runner(job: SplitJob) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of group numbers."""
    return make_arrow_function(partial(_split, job))


def _split(job: SplitJob, task: int) -> Iterator[tuple[str, str]]:
    """Split the files of one group; yield the role and path of each file that was split or written."""
    system, root = job.root
    batch_keys = read_all_keys(system, job.batch, job.key, job.schema)
    sizes = {"max_rows": job.rows_per_file, "max_bytes": job.bytes_per_file}
    writers = {
        REST: make_writer(job.root, job.rest_folder, job.partition_by, **sizes),
        MATCHING: make_writer(job.root, job.matching_folder, (), **sizes),
    }
    with discard_on_error(*writers.values()):
        for name in job.groups[task]:
            keys = read_keys(system, f"{root}/{name}", job.key, job.schema)
            mask = _matches(keys, batch_keys) if job.key else _no_match(system, f"{root}/{name}")
            if task in job.fold or pc.any(mask).as_py():
                yield TAKEN, name
                _copy(job, name, mask, writers)
        for role, writer in writers.items():
            writer.close()
            yield from ((role, name) for name in writer.names)


def _copy(job: SplitJob, name: str, is_pulled: Any, writers: dict[str, FileWriter]) -> None:
    """Copy the rows of a file to the writers, in the table's types; `is_pulled` is a boolean for each row."""
    offset = 0
    system, root = job.root
    with open_parquet(system, f"{root}/{name}") as file:
        for rows in read_batches(file):
            batch = conform_columns(rows, job.schema)
            mask = is_pulled.slice(offset, len(batch))
            offset += len(batch)
            writers[MATCHING].write(batch.filter(mask))
            writers[REST].write(batch.filter(pc.invert(mask)))


def _no_match(system: Any, path: str) -> Any:
    """Return False for each row of a file."""
    with system.open_input_file(path) as source:
        return pa.repeat(False, pq.read_metadata(source).num_rows)


def _matches(keys: Sequence[pa.ChunkedArray], batch_keys: Sequence[pa.ChunkedArray]) -> Any:
    """Return, for each row of a file, whether the batch has its key. A null is equal to a null.

    Each column becomes codes, small integers. The code of a composite key is made of them part by part, and
    made small again after each part, so that it never exceeds 64 bits, whatever the number of parts.
    """
    if not len(batch_keys[0]):
        return pa.repeat(False, len(keys[0]))
    codes, batch_codes = _codes(keys[0], batch_keys[0])
    for column, values in zip(keys[1:], batch_keys[1:], strict=True):
        more, more_of_batch = _codes(column, values)
        width = max(len(values), 1)  # both codes are below 2^31, so the combined one is below 2^62
        codes = pc.add(pc.multiply(codes, width), more)
        batch_codes = pc.add(pc.multiply(batch_codes, width), more_of_batch)
        codes, batch_codes = _codes(codes, batch_codes)
    matches = pc.is_valid(codes)
    return matches.combine_chunks() if isinstance(matches, pa.ChunkedArray) else matches


def _codes(column: Any, values: Any) -> tuple[Any, Any]:
    """Return both arrays as codes: equal values get equal integers; null for a value that `values` lacks."""
    if pa.types.is_null(values.type):
        values = values.cast(column.type)
    if pa.types.is_floating(values.type):  # -0.0 and 0.0 are the same key
        column, values = pc.add(column.cast(values.type), 0.0), pc.add(values, 0.0)
    distinct = pc.unique(values)
    if column.type != distinct.type:
        column = column.cast(distinct.type)
    codes = pc.index_in(column, value_set=distinct)
    value_codes = pc.index_in(values, value_set=distinct)
    return codes.cast(pa.int64()), value_codes.cast(pa.int64())
