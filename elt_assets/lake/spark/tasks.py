"""What runs inside Spark's Python workers: a table's files taken apart by key, column-wise.

Sent to them by value: a worker needs pyarrow, and nothing of this project.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

KEPT, PULLED, TAKEN = "kept", "pulled", "taken"
RESULT = "task int, role string, name string"
"""What a task tells: of each file it took apart (TAKEN), and each it wrote, the path under the root."""
_ROWS = 1 << 15
"""Rows decoded at a time, at most."""
_BYTES = 32 << 20
"""Bytes decoded at a time, about."""
_GROUP_BYTES = 64 << 20
"""Bytes in memory that become a row group of a file that is written."""


@dataclass(frozen=True)
class Job:
    """How files are taken apart.

    `groups`: for each task its files, whose rows may end in one file together; of those in `fold`
    also the files without a key of the batch, of which there may be none at all. `key`: column paths;
    `batch`: URIs of the files that hold the keys. All other paths are under `root`, a URI. `kept` and
    `pulled` are the folders to write to, `rows_per_file` and `bytes_per_file` at how much a file ends.
    """

    root: str
    groups: Sequence[Sequence[str]]
    fold: frozenset[int]
    key: Sequence[Sequence[str]]
    batch: Sequence[str]
    kept: str
    pulled: str
    rows_per_file: int
    bytes_per_file: int


def run(job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over the numbers of the groups."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                told = list(_take_apart(job, task))
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([task] * len(told), pa.int32()),
                        pa.array([role for role, _ in told], pa.string()),
                        pa.array([name for _, name in told], pa.string()),
                    ],
                    names=["task", "role", "name"],
                )

    return work


def _take_apart(job: Job, task: int) -> Iterator[tuple[str, str]]:
    system, root = pafs.FileSystem.from_uri(job.root)
    batch = [pafs.FileSystem.from_uri(uri)[1] for uri in job.batch]
    wanted = read_all_keys(system, batch, job.key)
    outputs = {
        KEPT: _Output(system, root, job.kept, job),
        PULLED: _Output(system, root, job.pulled, job),
    }
    for name in job.groups[task]:
        present = read_keys(system, f"{root}/{name}", job.key)
        hits = _hits(present, wanted) if job.key else _none(system, f"{root}/{name}")
        if task in job.fold or pc.any(hits).as_py():
            yield TAKEN, name
            _copy(system, f"{root}/{name}", hits, outputs)
    for role, output in outputs.items():
        output.close()
        yield from ((role, name) for name in output.names)


def _copy(system: Any, path: str, hits: Any, outputs: dict[str, _Output]) -> None:
    at = 0
    with system.open_input_file(path) as source:
        for batch in _batches(pq.ParquetFile(source)):
            mask = hits.slice(at, len(batch))
            at += len(batch)
            outputs[PULLED].write(batch.filter(mask))
            outputs[KEPT].write(batch.filter(pc.invert(mask)))


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """A file's rows, in batches that memory holds however large a row is."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        width = max(group.total_byte_size // max(group.num_rows, 1), 1)
        rows = max(1, min(_ROWS, _BYTES // width))
        yield from file.iter_batches(rows, row_groups=[number])


class _Output:
    """Files that end at so many rows or bytes; a new one, too, where the columns change."""

    def __init__(self, system: Any, root: str, folder: str, limits: Job):
        self.names: list[str] = []
        self._system, self._root, self._folder = system, root, folder
        self._limits, self._rows = limits, 0
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

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return bool(
            self._rows >= limits.rows_per_file or self._sink.tell() >= limits.bytes_per_file
        )

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _open(self, schema: pa.Schema) -> None:
        name = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        self._system.create_dir(f"{self._root}/{self._folder}", recursive=True)
        self._sink = self._system.open_output_stream(f"{self._root}/{name}")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            # What has many values is better off without a dictionary: let it be seen early.
            dictionary_pagesize_limit=1 << 16,
        )
        self.names.append(name)


def read_all_keys(
    system: Any, paths: Sequence[str], key: Sequence[Sequence[str]]
) -> list[pa.ChunkedArray]:
    """The key columns of some files, one file after the other, in types that hold the values of all."""
    if not paths or not key:
        return [pa.chunked_array([pa.nulls(0)]) for _ in key]
    names = [str(number) for number in range(len(key))]
    found = [pa.table(read_keys(system, path, key), names=names) for path in paths]
    return list(pa.concat_tables(found, promote_options="permissive").columns)


def read_keys(system: Any, path: str, key: Sequence[Sequence[str]]) -> list[pa.ChunkedArray]:
    """A file's key columns. One that the file lacks is null: it was added to the table later."""
    with system.open_input_file(path) as source:
        file = pq.ParquetFile(source)
        table = file.read(columns=[".".join(part) for part in key])
        return [_leaf(table, part, file.metadata.num_rows) for part in key]


def _leaf(table: pa.Table, path: Sequence[str], rows: int) -> pa.ChunkedArray:
    if path[0] not in table.column_names:
        return pa.chunked_array([pa.nulls(rows)])
    column = table.column(path[0])
    for name in path[1:]:
        if column.type.get_field_index(name) < 0:
            return pa.chunked_array([pa.nulls(rows)])
        column = pc.struct_field(column, name)
    return column


def _none(system: Any, path: str) -> Any:
    """No row of a file."""
    with system.open_input_file(path) as source:
        return pa.repeat(False, pq.read_metadata(source).num_rows)


def _hits(present: Sequence[pa.ChunkedArray], wanted: Sequence[pa.ChunkedArray]) -> Any:
    """For each row of a file, whether its key is among those wanted. One with a null is not."""
    if any(pa.types.is_null(values.type) for values in wanted):
        return pa.repeat(False, len(present[0]))
    ours, theirs = _codes(present[0], wanted[0])
    for column, values in zip(present[1:], wanted[1:], strict=True):
        more, more_theirs = _codes(column, values)
        width = max(len(values), 1)  # two numbers below 2^31 make one below 2^62
        ours = pc.add(pc.multiply(ours, width), more)
        theirs = pc.add(pc.multiply(theirs, width), more_theirs)
        ours, theirs = _codes(ours, theirs)
    found = pc.is_valid(ours)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _codes(column: Any, values: Any) -> tuple[Any, Any]:
    """Equal values as equal numbers; null where a value of `column` is not among `values`."""
    if pa.types.is_floating(values.type):  # -0.0 is the key that 0.0 is
        column, values = pc.add(column.cast(values.type), 0.0), pc.add(values, 0.0)
    distinct = pc.unique(values)
    if column.type != distinct.type:
        column = column.cast(distinct.type)
    ours = pc.index_in(column, value_set=distinct, skip_nulls=True)
    theirs = pc.index_in(values, value_set=distinct, skip_nulls=True)
    return ours.cast(pa.int64()), theirs.cast(pa.int64())
