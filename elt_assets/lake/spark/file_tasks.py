"""The code that reads and writes Parquet files in Spark's Python workers, through pyarrow's file systems.

It serves stores for which the JVM has no file system. The module is sent to the workers by value: a worker
needs pyarrow, but not this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.foreign_types import conformed
from elt_assets.lake.spark.tasks import (
    ArrowFunction,
    Output,
    batches_of,
    discarding_on_error,
    opened,
)

_CHUNK = 4 << 20
"""Bytes of lines that are read at a time."""
LINE = "line binary"
"""Schema of lines."""
WRITTEN = "path string"
"""Schema of a writing task's result: the path of each file that it wrote."""


@dataclass(frozen=True)
class Reading:
    """Files to read.

    `system`: pyarrow's file system. `groups`: the paths of each task's files in it. `schema`: the columns to
    return. `path_column`: the column of `schema` that gets the path of a row's file; None for no such column.
    """

    system: Any
    groups: Sequence[Sequence[str]]
    schema: pa.Schema
    path_column: str | None


@dataclass(frozen=True)
class Lines:
    """A file to read by lines. `path`: in the file system. `ranges`: offset and bytes of whole lines."""

    system: Any
    path: str
    ranges: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Writing:
    """The folder to write to, relative to a root in pyarrow's file system, and the limits of a file."""

    system: Any
    root: str
    folder: str
    rows_per_file: int
    bytes_per_file: int


def read(job: Reading) -> ArrowFunction:
    """Return the function for `mapInArrow` over group numbers that returns the rows of files."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for path in job.groups[task]:
                    yield from _rows(job, path)

    return work


def read_lines(job: Lines) -> ArrowFunction:
    """Return the function for `mapInArrow` over numbers of ranges that returns lines, without newlines."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from _lines(job, *job.ranges[task])

    return work


def write(job: Writing) -> ArrowFunction:
    """Return the function for `mapInArrow` that writes rows to new files and returns their paths."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(job.system, job.root, job.folder, job.rows_per_file, job.bytes_per_file)
        with discarding_on_error(output):
            for batch in batches:
                output.write(batch)
            output.close()
        yield pa.RecordBatch.from_arrays([pa.array(output.names, pa.string())], names=["path"])

    return work


def _rows(job: Reading, path: str) -> Iterator[pa.RecordBatch]:
    with opened(job.system, path, pre_buffer=True) as file:
        present = [name for name in job.schema.names if name in file.schema_arrow.names]
        for batch in batches_of(file, present):
            columns = [
                pa.repeat(pa.scalar(path), len(batch))
                if field.name == job.path_column
                else conformed(batch.column(field.name), field.type, field.name)
                if field.name in present
                else pa.nulls(len(batch), field.type)
                for field in job.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=job.schema)


def _lines(job: Lines, offset: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a range, some megabytes at a time.

    Raises:
        EOFError: the file ends before the range.
    """
    rest = b""
    with job.system.open_input_file(job.path) as source:
        source.seek(offset)
        while size:
            data = source.read(min(_CHUNK, size))
            if not data:
                raise EOFError(f"{job.path} ends {size} bytes too early")
            size -= len(data)
            *whole, rest = (rest + data).split(b"\n")
            yield pa.RecordBatch.from_arrays([pa.array(whole, pa.binary())], names=["line"])
