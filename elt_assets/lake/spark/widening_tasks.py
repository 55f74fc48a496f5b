"""The code, in Spark's Python workers, that rewrites files of a table in wider types.

The module is sent to the workers by value: a worker needs pyarrow and msgspec, but not this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.foreign_types import conform_columns
from elt_assets.lake.spark.partitioned_files import make_writer
from elt_assets.lake.spark.task_io import (
    ArrowFunction,
    discard_on_error,
    make_arrow_function,
    open_parquet,
    read_batches,
)
from elt_assets.lake.spark.types.fields import Field
from elt_assets.lake.spark.wider_values import Unfit, widen_values

NEW_FILE, UNFIT = "new_file", "unfit"
"""Roles of a task's results: a file that it wrote, or the path of a field whose value would change."""


@dataclass(frozen=True)
class WideningJob:
    """Files to rewrite.

    Attributes:
        root: pyarrow's file system, and the path in it that all paths are relative to.
        groups: the files of each task.
        folder: the folder for the new files.
        schema: the columns of the files.
        columns: for each column of the new files, what it is then, and what it was; None if it is new.
        rows_per_file, bytes_per_file: the size at which a written file is closed.
        partition_by: the partition columns of the table.
    """

    root: tuple[Any, str]
    groups: Sequence[Sequence[str]]
    folder: str
    schema: pa.Schema
    columns: Sequence[tuple[Field, Field | None]]
    rows_per_file: int
    bytes_per_file: int
    partition_by: Sequence[str] = ()


def make_widening_runner(job: WideningJob) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of task numbers."""
    return make_arrow_function(partial(_rewrite, job))


def _rewrite(job: WideningJob, task: int) -> Iterator[tuple[str, str]]:
    """Rewrite the files of one task. The rows of two files are never written to one."""
    system, root = job.root
    sizes = {"max_rows": job.rows_per_file, "max_bytes": job.bytes_per_file}
    writer = make_writer(job.root, job.folder, job.partition_by, **sizes)
    try:
        with discard_on_error(writer):
            for name in job.groups[task]:
                with open_parquet(system, f"{root}/{name}") as file:
                    for rows in read_batches(file):
                        writer.write(_widen(job, conform_columns(rows, job.schema)))
                writer.close()
    except Unfit as unfit:
        yield UNFIT, unfit.args[0]
    yield from ((NEW_FILE, name) for name in writer.names)


def _widen(job: WideningJob, rows: pa.RecordBatch) -> pa.RecordBatch:
    names = set(rows.schema.names)
    columns = [
        pa.nulls(len(rows), after.type)
        if before is None or before.name not in names
        else widen_values(rows.column(before.name), before, after, before.source)
        for after, before in job.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=[after.name for after, _ in job.columns])
