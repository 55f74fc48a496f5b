"""The code that runs inside Spark's Python workers: it splits a table's files by key, column by column.

The module is sent to the workers by value: a worker needs pyarrow, but not this project.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.spark.foreign_types import conformed, conformed_columns, open_file

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

KEPT, MATCHING, TAKEN = "kept", "matching", "taken"
RESULT = "task int, role string, name string"
"""Schema of a task's result: a row for each file that it split (TAKEN) or wrote. `name`: its path."""
_MAX_BATCH_ROWS = 1 << 15
"""Maximum rows that are decoded at a time."""
_BATCH_BYTES = 32 << 20
"""Approximate bytes that are decoded at a time."""
_GROUP_BYTES = 64 << 20
"""Bytes in memory that become one row group of a written file."""


@dataclass(frozen=True)
class Job:
    """The description of a split: rows whose key is in a batch go to other files than the remaining rows.

    `groups`: the files of each task; rows of one group may be written to one file. `fold`: the numbers of
    groups in which all files are rewritten, also those without a key of the batch. `key`: column paths; empty
    if no row is taken out. `batch`: paths of the files that contain the keys. `matching`: the folder for rows
    with a key of the batch. `kept`: the folder for other rows. `rows_per_file`, `bytes_per_file`: the size at
    which a written file is closed. `schema`: the columns of the table. `root`: pyarrow's file system, and the
    path in it that all paths but those of `batch` are relative to.
    """

    root: tuple[Any, str]
    groups: Sequence[Sequence[str]]
    fold: frozenset[int]
    key: Sequence[Sequence[str]]
    batch: Sequence[str]
    kept: str
    matching: str
    rows_per_file: int
    bytes_per_file: int
    schema: pa.Schema


def run(job: Job) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of group numbers."""
    return in_arrow(partial(_split, job))


def in_arrow(do: Callable[[int], Iterable[tuple[str, str]]]) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of task numbers.

    Args:
        do: does one task; returns the roles and names of its result.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                results = list(do(task))
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([task] * len(results), pa.int32()),
                        pa.array([role for role, _ in results], pa.string()),
                        pa.array([name for _, name in results], pa.string()),
                    ],
                    names=["task", "role", "name"],
                )

    return work


def _split(job: Job, task: int) -> Iterator[tuple[str, str]]:
    """Split the files of one group; yield the role and path of each file that was split or written."""
    system, root = job.root
    wanted = read_all_keys(system, job.batch, job.key, job.schema)
    outputs = {
        KEPT: Output(system, root, job.kept, job.rows_per_file, job.bytes_per_file),
        MATCHING: Output(system, root, job.matching, job.rows_per_file, job.bytes_per_file),
    }
    with discarding_on_error(*outputs.values()):
        for name in job.groups[task]:
            present = read_keys(system, f"{root}/{name}", job.key, job.schema)
            mask = _matches(present, wanted) if job.key else _no_match(system, f"{root}/{name}")
            if task in job.fold or pc.any(mask).as_py():
                yield TAKEN, name
                _copy(job, name, mask, outputs)
        for role, output in outputs.items():
            output.close()
            yield from ((role, name) for name in output.names)


def _copy(job: Job, name: str, is_pulled: Any, outputs: dict[str, Output]) -> None:
    """Copy the rows of a file to the outputs, in the table's types; `is_pulled` is a boolean for each row."""
    offset = 0
    system, root = job.root
    with opened(system, f"{root}/{name}") as file:
        for rows in batches_of(file):
            batch = conformed_columns(rows, job.schema)
            mask = is_pulled.slice(offset, len(batch))
            offset += len(batch)
            outputs[MATCHING].write(batch.filter(mask))
            outputs[KEPT].write(batch.filter(pc.invert(mask)))


@contextlib.contextmanager
def discarding_on_error(*outputs: Any) -> Iterator[None]:
    """Remove what outputs have written if the block raises an error; that error is raised, and no other."""
    try:
        yield
    except BaseException:
        for output in outputs:
            output.discard()
        raise


def discard_file(system: Any, path: str, sink: Any) -> None:
    """Close and remove a file that was not written completely. Errors are ignored: the first one counts.

    In a store it only stays closed: pyarrow would leave an object with the name of the folder. What started
    the task removes the folder.
    """
    with contextlib.suppress(Exception):
        sink.close()
    if system.type_name == "local":
        with contextlib.suppress(Exception):
            system.delete_file(path)


@contextlib.contextmanager
def opened(system: Any, path: str, *, pre_buffer: bool = False) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading.

    Raises:
        OSError: the file is missing or damaged, or cannot be read in the table's types; the error names it.
    """
    try:
        with system.open_input_file(path) as source:
            yield open_file(source, pre_buffer=pre_buffer)
    except (OSError, pa.ArrowException) as error:
        raise OSError(f"the file {path} cannot be read: {error}") from error


def batches_of(
    file: pq.ParquetFile, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches that fit in memory, also if rows are large.

    Args:
        columns: the names of the columns; default: all.
    """
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        width = max(group.total_byte_size // max(group.num_rows, 1), 1)
        rows = max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES // width))
        yield from file.iter_batches(rows, row_groups=[number], columns=columns)


class Output:
    """A writer of files of limited rows and bytes. It also begins a new file when the columns change."""

    def __init__(self, system: Any, root: str, folder: str, max_rows: int, max_bytes: int):
        self.names: list[str] = []
        self._system, self._root, self._folder = system, root, folder
        self._max_rows, self._max_bytes, self._rows = max_rows, max_bytes, 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        batch = batch.replace_schema_metadata(None)
        if self._writer is not None and (self._is_full or self._writer.schema != batch.schema):
            self.close()
        if self._writer is None:
            self._open(batch.schema)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._rows += len(batch)
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        if self._writer is not None:
            self._write_group()
            self._writer.close()
            self._sink.close()
        self._sink, self._writer, self._rows = None, None, 0

    def discard(self) -> None:
        """Remove all files that were written."""
        if self._writer is not None:
            self._writer.is_open = False  # else its destructor writes to the closed file
        for name in self.names:
            discard_file(self._system, f"{self._root}/{name}", self._sink)
        self._sink, self._writer, self.names = None, None, []

    @property
    def _is_full(self) -> bool:
        return self._rows >= self._max_rows or self._sink.tell() >= self._max_bytes

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _open(self, schema: pa.Schema) -> None:
        name = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        if self._system.type_name == "local":  # a store of objects has no folders
            self._system.create_dir(f"{self._root}/{self._folder}", recursive=True)
        self.names.append(name)
        self._sink = self._system.open_output_stream(f"{self._root}/{name}")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            # A dictionary does not help columns of many distinct values; a low limit ends it early.
            dictionary_pagesize_limit=1 << 16,
        )


def read_all_keys(
    system: Any, paths: Sequence[str], key: Sequence[Sequence[str]], schema: pa.Schema
) -> list[pa.ChunkedArray]:
    """Return the key columns of several files, concatenated, in types that hold the values of all files."""
    if not paths or not key:
        return [pa.chunked_array([pa.nulls(0)]) for _ in key]
    names = [str(number) for number in range(len(key))]
    tables = [pa.table(read_keys(system, path, key, schema), names=names) for path in paths]
    return list(pa.concat_tables(tables, promote_options="permissive").columns)


def read_keys(
    system: Any, path: str, key: Sequence[Sequence[str]], schema: pa.Schema | None = None
) -> list[pa.ChunkedArray]:
    """Return the key columns of a file. A column that the file lacks is null.

    Args:
        schema: the columns of the table, whose types the values get; None for the types of the file.
    """
    with opened(system, path) as file:
        table = file.read(columns=[".".join(part) for part in key])
        rows = file.metadata.num_rows
        values = [leaf(table, part, rows) for part in key]
    if schema is None:
        return values
    return [
        conformed(column, type_of(schema, part), ".".join(part))
        for column, part in zip(values, key, strict=True)
    ]


def type_of(schema: pa.Schema, path: Sequence[str]) -> pa.DataType:
    """Return the type of the column at a path."""
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def leaf(table: pa.Table, path: Sequence[str], rows: int) -> pa.ChunkedArray:
    """Return the column at a path. If the table has none, it is null in all `rows`."""
    if path[0] not in table.column_names:
        return pa.chunked_array([pa.nulls(rows)])
    column = table.column(path[0])
    for name in path[1:]:
        if column.type.get_field_index(name) < 0:
            return pa.chunked_array([pa.nulls(rows)])
        column = pc.struct_field(column, name)
    return column


def _no_match(system: Any, path: str) -> Any:
    """Return False for each row of a file."""
    with system.open_input_file(path) as source:
        return pa.repeat(False, pq.read_metadata(source).num_rows)


def _matches(present: Sequence[pa.ChunkedArray], wanted: Sequence[pa.ChunkedArray]) -> Any:
    """Return, for each row of a file, whether its key is a wanted one. A null is equal to a null."""
    if not len(wanted[0]):
        return pa.repeat(False, len(present[0]))
    codes, wanted_codes = _codes(present[0], wanted[0])
    for column, values in zip(present[1:], wanted[1:], strict=True):
        more, more_wanted = _codes(column, values)
        width = max(len(values), 1)  # both codes are below 2^31, so the combined one is below 2^62
        codes = pc.add(pc.multiply(codes, width), more)
        wanted_codes = pc.add(pc.multiply(wanted_codes, width), more_wanted)
        codes, wanted_codes = _codes(codes, wanted_codes)
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
