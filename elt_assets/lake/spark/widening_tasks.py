"""The code, in Spark's Python workers, that rewrites files of a table in wider types.

The module is sent to the workers by value: a worker needs pyarrow and msgspec, but not this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.foreign_types import conformed_columns
from elt_assets.lake.spark.tasks import (
    ArrowFunction,
    Output,
    batches_of,
    discarding_on_error,
    in_arrow,
    opened,
)
from elt_assets.lake.spark.types.fields import Field
from elt_assets.lake.spark.wider_values import Unfit, widened

WRITTEN, UNFIT = "written", "unfit"
"""Roles of a task's results: a file that it wrote, or the path of a field whose value would change."""


@dataclass(frozen=True)
class Job:
    """Files to rewrite.

    Attributes:
        root: pyarrow's file system, and the path in it that all paths are relative to.
        groups: the files of each task.
        folder: the folder for the new files.
        schema: the columns of the files.
        columns: for each column of the new files, what it is then, and what it was; None if it is new.
        rows_per_file, bytes_per_file: the size at which a written file is closed.
    """

    root: tuple[Any, str]
    groups: Sequence[Sequence[str]]
    folder: str
    schema: pa.Schema
    columns: Sequence[tuple[Field, Field | None]]
    rows_per_file: int
    bytes_per_file: int


def run(job: Job) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of task numbers."""
    return in_arrow(partial(_rewrite, job))


def _rewrite(job: Job, task: int) -> Iterator[tuple[str, str]]:
    """Rewrite the files of one task. The rows of two files are never written to one."""
    system, root = job.root
    output = Output(system, root, job.folder, job.rows_per_file, job.bytes_per_file)
    try:
        with discarding_on_error(output):
            for name in job.groups[task]:
                with opened(system, f"{root}/{name}") as file:
                    for rows in batches_of(file):
                        output.write(_widened(job, conformed_columns(rows, job.schema)))
                output.close()
    except Unfit as unfit:
        yield UNFIT, unfit.args[0]
    yield from ((WRITTEN, name) for name in output.names)


def _widened(job: Job, rows: pa.RecordBatch) -> pa.RecordBatch:
    present = set(rows.schema.names)
    columns = [
        pa.nulls(len(rows), after.type)
        if before is None or before.name not in present
        else widened(rows.column(before.name), before, after, before.source)
        for after, before in job.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=[after.name for after, _ in job.columns])
