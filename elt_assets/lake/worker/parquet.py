"""Parquet files as tasks read and write them: rows, key columns, and the values of partition columns.

Also used outside of tasks: by `lake.jobs`, `lake.merge`, `lake.read` and `lake.write`, partly in this
process, and by `lake.delta` for the values of partition columns.

All rows of a file of a table with partition columns have the same values in these columns. The columns stay
in the files, so whatever reads files needs no rule for partitions. The footer has the values in the form of
Delta's log, under the key `VALUES`, so a file describes itself. Delta has no empty text as the value of a
partition; in these columns it is stored as null.

First the output of a task and the reading of files; then `FileWriter`; then the reading of keys; then the
writer for tables with partition columns, `PartitionedWriter`.

Spec: Delta Transaction Log Protocol, Partition Value Serialization
"""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.worker.foreign_types import conform, open_file
from elt_assets.lake.worker.statistics import Measure, statistics

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
WrittenFile: TypeAlias = tuple[str, int, int, str, dict[str, str | None]]
"""A file: its path relative to the table's root, its bytes and rows, Delta's statistics of it as JSON, and
the values of its partition columns. These are the arguments of a `DataFile`: a worker cannot return objects
of classes that were sent to it."""
VALUES = "elt.partition_values"
"""The key, in a file's footer, of the values of its partition columns."""
_MAX_BATCH_ROWS = 1 << 15
"""Maximum rows that are decoded at a time."""
_BATCH_BYTES = 32 << 20
"""Approximate bytes that are decoded at a time."""
_OPTIONS = {"dictionary_pagesize_limit": 1 << 16}
"""Options of pyarrow's writer. A dictionary does not help columns of many distinct values; a low limit ends
it early."""


@dataclass(frozen=True)
class Output:
    """A folder in which a task writes new files, of limited size."""

    root: tuple[Any, str]  # pyarrow's file system, and the path in it of the table
    folder: str  # relative to the root
    partition_by: Sequence[str] = ()  # the columns of which a file has one combination of values
    max_rows: int = sys.maxsize  # at this size a file is closed
    max_bytes: int = sys.maxsize


@contextlib.contextmanager
def discard_on_error(*writers: FileWriter) -> Iterator[None]:
    """Remove what writers have written if the block raises an error; that error is raised, and no other."""
    try:
        yield
    except BaseException:
        for writer in writers:
            writer.discard()
        raise


@contextlib.contextmanager
def open_parquet(system: Any, path: str, *, pre_buffer: bool = False) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading.

    Raises:
        OSError: the file is missing or damaged, or cannot be read in the table's types; the error names it.
    """
    try:
        with system.open_input_file(path) as source:
            yield open_file(source, pre_buffer=pre_buffer)
    except (OSError, pa.ArrowException) as error:
        raise OSError(f"the file {path} cannot be read: {error}") from error


def read_batches(
    file: pq.ParquetFile,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches that fit in memory, also if rows are large.

    Args:
        columns: the names of the columns; default: all.
        row_groups: the numbers of the row groups to read; default: all.
    """
    for number in range(file.num_row_groups) if row_groups is None else row_groups:
        group = file.metadata.row_group(number)
        width = max(group.total_byte_size // max(group.num_rows, 1), 1)
        rows = max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES // width))
        yield from file.iter_batches(rows, row_groups=[number], columns=columns)


class FileWriter:
    """Writes rows to new Parquet files, all in one combination of values of the partition columns.

    It begins a new file when one has its size, and when the columns change.

    Args:
        group_bytes: bytes in memory that become one row group.
        options: returns the options of pyarrow's writer for the columns of a file.
        key_values: texts in the footer of each file, by their keys.
    """

    def __init__(
        self,
        output: Output,
        *,
        group_bytes: int = 64 << 20,
        options: Callable[[pa.Schema], Mapping[str, Any]] = lambda _: _OPTIONS,
        key_values: Mapping[str, str] | None = None,
    ):
        self.files: list[WrittenFile] = []  # those that are closed
        self._output, self._options, self._key_values = output, options, key_values
        self._system, self._root = output.root
        self._names: list[str] = []  # also of a file that is not closed
        self._footers: list[pq.FileMetaData] = []
        self._rows = 0
        self._group_bytes = group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._measure = Measure()

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
        if self._waiting_bytes >= self._group_bytes:
            self.flush()

    def close(self) -> None:
        if self._writer is not None:
            self.flush()
            self._writer.add_key_value_metadata(
                {**self._measure.key_values(), **(self._key_values or {})}
            )
            self._writer.close()
            footer, size = self._footers.pop(), self._sink.tell()
            values = read_values(footer)
            self.files.append((self._names[-1], size, footer.num_rows, statistics(footer), values))
            self._sink.close()
        self._sink, self._writer, self._rows = None, None, 0

    def discard(self) -> None:
        """Remove all files that were written."""
        if self._writer is not None:
            self._writer.is_open = False  # else its destructor writes to the closed file
        for name in self._names:
            path = f"{self._root}/{name}"
            # Errors are ignored: the first one counts. In a store the file only stays closed: pyarrow would
            # leave an object with the name of the folder. What started the task removes the folder.
            with contextlib.suppress(Exception):
                self._sink.close()
            if self._system.type_name == "local":
                with contextlib.suppress(Exception):
                    self._system.delete_file(path)
        self._sink, self._writer, self._names, self.files = None, None, [], []

    @property
    def _is_full(self) -> bool:
        output = self._output
        return self._rows >= output.max_rows or self._sink.tell() >= output.max_bytes

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._measure.add(rows)
            self._writer.write_table(rows)
        self._waiting, self._waiting_bytes = [], 0

    def _open(self, schema: pa.Schema) -> None:
        name = f"{self._output.folder}/{uuid.uuid4().hex}.parquet"
        if self._system.type_name == "local":  # a store of objects has no folders
            self._system.create_dir(f"{self._root}/{self._output.folder}", recursive=True)
        self._names.append(name)
        self._measure = Measure()
        self._sink = self._system.open_output_stream(f"{self._root}/{name}")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            metadata_collector=self._footers,
            **self._options(schema),
        )


def read_values(footer: pq.FileMetaData) -> dict[str, str | None]:
    """Return the values of a file's partition columns, as Delta's log has them; empty if there are none."""
    text = (footer.metadata or {}).get(VALUES.encode())
    return {} if text is None else json.loads(text)


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
    with open_parquet(system, path) as file:
        table = file.read(columns=[".".join(part) for part in key])
        rows = file.metadata.num_rows
        values = [column_at(table, part, rows) for part in key]
    if schema is None:
        return values
    return [
        conform(column, type_at(schema, part), ".".join(part))
        for column, part in zip(values, key, strict=True)
    ]


def type_at(schema: pa.Schema, path: Sequence[str]) -> pa.DataType:
    """Return the type of the column at a path."""
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def column_at(table: pa.Table, path: Sequence[str], rows: int) -> pa.ChunkedArray:
    """Return the column at a path. If the table has none, it is null in all `rows`."""
    if path[0] not in table.column_names:
        return pa.chunked_array([pa.nulls(rows)])
    column = table.column(path[0])
    for name in path[1:]:
        if column.type.get_field_index(name) < 0:
            return pa.chunked_array([pa.nulls(rows)])
        column = pc.struct_field(column, name)
    return column


_MAX_OPEN = 64
"""Maximum number of files that stay open between two groups of rows."""
Values = tuple[str | None, ...]


class PartitionedWriter(FileWriter):
    """Writes rows as `FileWriter` does, those of each combination of values to files of their own.

    Rows wait until they make one row group; each file then gets its part of them. So few values make few
    files, and the memory does not depend on the number of values. Rows without one of the partition columns
    have a null there.

    Args:
        settings: as for `FileWriter`.
    """

    def __init__(self, output: Output, **settings: Any):
        super().__init__(output, **settings)
        self._settings = settings
        self._rows_waiting: list[pa.RecordBatch] = []
        self._bytes_waiting = 0
        self._open_files: dict[Values, FileWriter] = {}
        self._all_files: list[FileWriter] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        batch = batch.replace_schema_metadata(None)
        if self._rows_waiting and self._rows_waiting[0].schema != batch.schema:
            self._write_waiting()
        self._rows_waiting.append(batch)
        self._bytes_waiting += batch.nbytes
        if self._bytes_waiting >= self._group_bytes:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        for writer in self._open_files.values():
            writer.close()
        self._open_files = {}
        self.files = [file for writer in self._all_files for file in writer.files]

    def discard(self) -> None:
        for writer in self._all_files:
            writer.discard()
        self._open_files, self.files = {}, []

    def _write_waiting(self) -> None:
        if not self._rows_waiting:
            return
        rows = pa.Table.from_batches(self._rows_waiting).combine_chunks()
        self._rows_waiting, self._bytes_waiting = [], 0
        for values, part in split_by_values(rows, self._output.partition_by):
            writer = self._open_files.get(values) or self._open_file(values)
            for batch in part.to_batches():
                writer.write(batch)
            writer.flush()
        while len(self._open_files) > _MAX_OPEN:
            self._open_files.pop(next(iter(self._open_files))).close()

    def _open_file(self, values: Values) -> FileWriter:
        texts = dict(zip(self._output.partition_by, values, strict=True))
        output = replace(self._output, partition_by=())
        writer = FileWriter(output, **self._settings, key_values={VALUES: json.dumps(texts)})
        self._open_files[values] = writer
        self._all_files.append(writer)
        return writer


def open_writer(output: Output, **settings: Any) -> FileWriter:
    """Return a writer of files, for a table with partition columns or without."""
    writer = PartitionedWriter if output.partition_by else FileWriter
    return writer(output, **settings)


def split_by_values(
    rows: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[Values, pa.Table]]:
    """Yield the rows of each combination of values, in their order."""
    names = [name for name in partition_by if name in rows.column_names]
    for name in names:
        kind = rows[name].type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = pc.if_else(pc.equal(rows[name], ""), pa.scalar(None, kind), rows[name])
            rows = rows.set_column(rows.column_names.index(name), name, text)
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows[name].combine_chunks()
        indices = pc.dictionary_encode(column, null_encoding="encode").indices.to_numpy()
        _, codes = np.unique(codes * (len(rows) + 1) + indices, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rows = rows.take(pa.array(order)) if len(starts) > 1 else rows
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        part = rows.slice(start, end - start)
        yield (
            tuple(
                serialize(part[name][0].as_py()) if name in names else None for name in partition_by
            ),
            part,
        )


def serialize(value: Any) -> str | None:
    """Return a value in the form of Delta's log."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return None if value is None or value == "" else str(value)
