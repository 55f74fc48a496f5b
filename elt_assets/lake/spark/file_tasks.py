"""The code that reads and writes Parquet files in Spark's Python workers, through pyarrow's file systems.

It serves stores for which the JVM has no file system. The module is sent to the workers by value: a worker
needs pyarrow, but not this project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.foreign_types import conform
from elt_assets.lake.spark.partitioned_files import open_writer
from elt_assets.lake.spark.task_io import (
    ArrowFunction,
    Output,
    discard_on_error,
    open_parquet,
    read_batches,
)

FILE = "file string"
"""Schema of a writing task's result: each file that it wrote, a `WrittenFile` as JSON."""


@dataclass(frozen=True)
class ReadJob:
    """Files to read."""

    system: Any  # pyarrow's file system
    groups: Sequence[Sequence[str]]  # the paths of each task's files in it
    schema: pa.Schema  # the columns to return
    # The column of `schema` that gets the path of a row's file; None for no such column.
    path_column: str | None


def read(job: ReadJob) -> ArrowFunction:
    """Return the function for `mapInArrow` over group numbers that returns the rows of files."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for path in job.groups[task]:
                    yield from _rows(job, path)

    return work


def write(output: Output, schema: pa.Schema | None) -> ArrowFunction:
    """Return the function for `mapInArrow` that writes rows to new files, and returns these.

    Args:
        schema: the types to write; None: those of the rows.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = open_writer(output)
        with discard_on_error(writer):
            for batch in batches:
                writer.write(batch if schema is None else _convert(batch, schema))
            writer.close()
        files = [json.dumps(file) for file in writer.files]
        yield pa.RecordBatch.from_arrays([pa.array(files, pa.string())], names=["file"])

    return work


def _convert(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        conform(values, field.type, field.name)
        for values, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows(job: ReadJob, path: str) -> Iterator[pa.RecordBatch]:
    with open_parquet(job.system, path, pre_buffer=True) as file:
        names = [name for name in job.schema.names if name in file.schema_arrow.names]
        for batch in read_batches(file, names):
            columns = [
                pa.repeat(pa.scalar(path), len(batch))
                if field.name == job.path_column
                else conform(batch.column(field.name), field.type, field.name)
                if field.name in names
                else pa.nulls(len(batch), field.type)
                for field in job.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=job.schema)
