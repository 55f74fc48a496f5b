"""Parquet files, key columns and results, as tasks in Spark's Python workers read and write them.

The module is sent to the workers by value: a worker needs pyarrow, but not this project.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.spark.foreign_types import conform, open_file
from elt_assets.lake.spark.statistics import Measure

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
RESULT = "task int, role string, name string"
"""Schema of the results of tasks: each row has the number of its task."""
_MAX_BATCH_ROWS = 1 << 15
"""Maximum rows that are decoded at a time."""
_BATCH_BYTES = 32 << 20
"""Approximate bytes that are decoded at a time."""
_OPTIONS = {"dictionary_pagesize_limit": 1 << 16}
"""Options of pyarrow's writer. A dictionary does not help columns of many distinct values; a low limit ends
it early."""


def make_arrow_function(do: Callable[[int], Iterable[tuple[str, str]]]) -> ArrowFunction:
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


@contextlib.contextmanager
def discard_on_error(*writers: FileWriter) -> Iterator[None]:
    """Remove what writers have written if the block raises an error; that error is raised, and no other."""
    try:
        yield
    except BaseException:
        for writer in writers:
            writer.discard()
        raise


def _discard_file(system: Any, path: str, sink: Any) -> None:
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


class FileWriter:
    """Writes rows to new Parquet files of limited size. It also begins a new file when the columns change.

    Args:
        root: pyarrow's file system, and the path in it of the table.
        folder: the folder in the table for the files.
        max_rows, max_bytes: the size at which a file is closed; default: there is one file.
        group_bytes: bytes in memory that become one row group.
        options: returns the options of pyarrow's writer for the columns of a file.
        key_values: texts in the footer of each file, by their keys.

    Attributes:
        names: the paths of the files under the root.
        sizes, footers: the size in bytes and the footer of each file, once it is closed.
    """

    def __init__(
        self,
        root: tuple[Any, str],
        folder: str,
        max_rows: int = sys.maxsize,
        max_bytes: int = sys.maxsize,
        *,
        group_bytes: int = 64 << 20,
        options: Callable[[pa.Schema], Mapping[str, Any]] = lambda _: _OPTIONS,
        key_values: Mapping[str, str] | None = None,
    ):
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.footers: list[pq.FileMetaData] = []
        self._system, self._root = root
        self._folder, self._options = folder, options
        self._key_values = key_values
        self._max_rows, self._max_bytes, self._rows = max_rows, max_bytes, 0
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
            self.sizes.append(self._sink.tell())
            self._sink.close()
        self._sink, self._writer, self._rows = None, None, 0

    def discard(self) -> None:
        """Remove all files that were written."""
        if self._writer is not None:
            self._writer.is_open = False  # else its destructor writes to the closed file
        for name in self.names:
            _discard_file(self._system, f"{self._root}/{name}", self._sink)
        self._sink, self._writer, self.names = None, None, []

    @property
    def _is_full(self) -> bool:
        return self._rows >= self._max_rows or self._sink.tell() >= self._max_bytes

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._measure.add(rows)
            self._writer.write_table(rows)
        self._waiting, self._waiting_bytes = [], 0

    def _open(self, schema: pa.Schema) -> None:
        name = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        if self._system.type_name == "local":  # a store of objects has no folders
            self._system.create_dir(f"{self._root}/{self._folder}", recursive=True)
        self.names.append(name)
        self._measure = Measure()
        self._sink = self._system.open_output_stream(f"{self._root}/{name}")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            metadata_collector=self.footers,
            **self._options(schema),
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
