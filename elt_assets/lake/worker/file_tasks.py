"""Tasks that read, write and split Parquet files through pyarrow's file systems.

`lake.jobs` reads and writes with them; `merge.file_splitting` splits. Other tasks use parts of them:
`merge_task`, `row_hashes` and `unchanged` read rows, `unchanged` and `suppression` leave rows out.

Reading and writing serve stores for which the JVM has no file system. A split separates the rows of a table's
files by key, column by column: see `lake.merge.file_splitting`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.worker.foreign_types import conform, conform_columns
from elt_assets.lake.worker.parquet import (
    ArrowFunction,
    FileWriter,
    Output,
    WrittenFile,
    discard_on_error,
    open_parquet,
    open_writer,
    read_all_keys,
    read_batches,
    read_keys,
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
                    yield from read_rows(job.system, path, job.schema, job.path_column)

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


def read_rows(
    system: Any, path: str, schema: pa.Schema, path_column: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in the table's types. A column that the file lacks is null.

    Args:
        path_column: the column of `schema` that gets the path of the file.
    """
    with open_parquet(system, path, pre_buffer=True) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in read_batches(file, names):
            columns = [
                pa.repeat(pa.scalar(path), len(batch))
                if field.name == path_column
                else conform(batch.column(field.name), field.type, field.name)
                if field.name in names
                else pa.nulls(len(batch), field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


SplitFiles = tuple[Sequence[str], Sequence[WrittenFile], Sequence[WrittenFile]]
"""The files that were split, and new files with the rows of other keys, and of the batch's keys."""


@dataclass(frozen=True)
class SplitJob:
    """The description of a split: rows whose key is in a batch go to other files than the remaining rows."""

    groups: Sequence[Sequence[str]]  # the files of each task, whose rows may be written to one file
    fold: frozenset[int]  # the groups whose files are rewritten also without a key of the batch
    key: Sequence[Sequence[str]]  # column paths; empty if no row is taken out
    batch: Sequence[str]  # paths, in the file system, of the files that contain the keys
    rest: Output  # gets the rows of other keys; the paths of `groups` are relative to its root
    matching: Output  # gets the rows with a key of the batch
    schema: pa.Schema  # of the table


def make_split(job: SplitJob) -> Callable[[int], SplitFiles]:
    """Return the function that splits the files of the group of a number."""

    def split(number: int) -> SplitFiles:
        system, root = job.rest.root
        batch_keys = read_all_keys(system, job.batch, job.key, job.schema)
        rest, matching = open_writer(job.rest), open_writer(job.matching)
        taken = []
        with discard_on_error(rest, matching):
            for name in job.groups[number]:
                path = f"{root}/{name}"
                keys = read_keys(system, path, job.key, job.schema)
                mask = _matches(keys, batch_keys) if job.key else _no_match(system, path)
                if number in job.fold or pc.any(mask).as_py():
                    taken.append(name)
                    _copy(job, path, mask, rest, matching)
            rest.close()
            matching.close()
        return taken, rest.files, matching.files

    return split


def _copy(job: SplitJob, path: str, is_pulled: Any, rest: FileWriter, matching: FileWriter) -> None:
    """Copy the rows of a file to the writers, in the table's types; `is_pulled` is a boolean for each row."""
    offset = 0
    with open_parquet(job.rest.root[0], path) as file:
        for rows in read_batches(file):
            batch = conform_columns(rows, job.schema)
            mask = is_pulled.slice(offset, len(batch))
            offset += len(batch)
            matching.write(batch.filter(mask))
            rest.write(batch.filter(pc.invert(mask)))


def write_without(output: Output, path: str, is_left_out: Any) -> Sequence[WrittenFile]:
    """Write the rows of a file to new files without some, and return these.

    Args:
        path: of the file, in the file system of `output`.
        is_left_out: a boolean for each of its rows.
    """
    writer, offset = open_writer(output), 0
    with discard_on_error(writer), open_parquet(output.root[0], path) as file:
        for rows in read_batches(file):
            writer.write(rows.filter(pc.invert(is_left_out.slice(offset, len(rows)))))
            offset += len(rows)
        writer.close()
    return writer.files


def _no_match(system: Any, path: str) -> Any:
    """Return False for each row of a file."""
    with system.open_input_file(path) as source:
        return pa.repeat(False, pq.read_metadata(source).num_rows)


def _matches(keys: Sequence[pa.ChunkedArray], batch_keys: Sequence[pa.ChunkedArray]) -> Any:
    """Return, for each row of a file, whether the batch has its key. A null is equal to a null."""
    if not len(batch_keys[0]):
        return pa.repeat(False, len(keys[0]))
    matches = pc.is_valid(encode_keys(keys, batch_keys)[0])
    return matches.combine_chunks() if isinstance(matches, pa.ChunkedArray) else matches


def encode_keys(
    keys: Sequence[pa.ChunkedArray], batch_keys: Sequence[pa.ChunkedArray]
) -> tuple[Any, Any]:
    """Return a code for each row of a file and of a batch, which has rows: equal keys get equal integers.

    The code of a key that the batch lacks is null. Each column becomes codes, small integers. The code of a
    composite key is made of them part by part, and made small again after each part, so that it never exceeds
    64 bits, whatever the number of parts.
    """
    codes, batch_codes = _codes(keys[0], batch_keys[0])
    for column, values in zip(keys[1:], batch_keys[1:], strict=True):
        more, more_of_batch = _codes(column, values)
        width = max(len(values), 1)  # both codes are below 2^31, so the combined one is below 2^62
        codes = pc.add(pc.multiply(codes, width), more)
        batch_codes = pc.add(pc.multiply(batch_codes, width), more_of_batch)
        codes, batch_codes = _codes(codes, batch_codes)
    return codes, batch_codes


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
