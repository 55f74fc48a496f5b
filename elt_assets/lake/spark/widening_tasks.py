"""The code, in Spark's Python workers, that rewrites files of a table in wider types.

The module is sent to the workers by value: a worker needs pyarrow and msgspec, but not this project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from elt_assets.lake.spark.foreign_types import conform_columns
from elt_assets.lake.spark.partitioned_files import open_writer
from elt_assets.lake.spark.task_io import (
    Output,
    WrittenFile,
    discard_on_error,
    open_parquet,
    read_batches,
)
from elt_assets.lake.spark.types.fields import Field
from elt_assets.lake.spark.wider_values import Unfit, widen_values


@dataclass(frozen=True)
class WideningJob:
    """Files to rewrite."""

    groups: Sequence[Sequence[str]]  # the files of each task, relative to the root of `output`
    output: Output
    schema: pa.Schema  # of the files
    columns: Sequence[tuple[Field, Field | None]]  # what each is then, and was; None if it is new


def make_widening(
    job: WideningJob,
) -> Callable[[int], tuple[Sequence[WrittenFile], str | None]]:
    """Return the function that rewrites the files of the group of a number.

    It returns the new files; or none, and the path of a field whose value would change.
    """

    def rewrite(number: int) -> tuple[Sequence[WrittenFile], str | None]:
        system, root = job.output.root
        writer = open_writer(job.output)
        try:
            with discard_on_error(writer):
                for name in job.groups[number]:
                    with open_parquet(system, f"{root}/{name}") as file:
                        for rows in read_batches(file):
                            writer.write(_widen(job, conform_columns(rows, job.schema)))
                    writer.close()  # the rows of two files are never written to one
        except Unfit as unfit:
            return (), unfit.args[0]
        return writer.files, None

    return rewrite


def _widen(job: WideningJob, rows: pa.RecordBatch) -> pa.RecordBatch:
    names = set(rows.schema.names)
    columns = [
        pa.nulls(len(rows), after.type)
        if before is None or before.name not in names
        else widen_values(rows.column(before.name), before, after, before.source)
        for after, before in job.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=[after.name for after, _ in job.columns])
