"""A task that parses parts of a segment, and writes a Parquet file of rows and one of rejected records."""

from __future__ import annotations

import gc
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elt_assets.lake.spark.parsing.blocks import BlockParser
from elt_assets.lake.spark.parsing.job import Job, Part, Result, Task
from elt_assets.lake.spark.parsing.statistics import statistics
from elt_assets.lake.spark.tasks import discard_file, discarding_on_error

BLOCK = 1 << 19
"""Bytes that are parsed at a time."""
_READ = 1 << 22
RESULT = "result string"
"""Schema of the results of `in_batches`: each is JSON."""
Plain = tuple[Any, ...]
_GROUP_BYTES = 48 << 20
"""Bytes in memory that become one row group."""
_RECURSION = 4_000
"""The decoder counts a level of nesting as a level of Python's stack, which has 1,000 by default."""


def runner(job: Job, tasks: Sequence[Task]) -> Callable[[Iterable[int]], Iterator[Plain]]:
    """Return the function that runs the tasks of some numbers.

    It yields plain values, in the order of the attributes of a `Result`: a worker cannot return objects of
    classes that were sent to it.
    """

    def work(numbers: Iterable[int]) -> Iterator[Plain]:
        pa.set_cpu_count(1)
        sys.setrecursionlimit(max(_RECURSION, sys.getrecursionlimit()))
        gc.disable()  # it would search millions of values for cycles, and there are none
        try:
            for number in numbers:
                result = run(job, tasks[number])
                yield tuple(getattr(result, each.name) for each in fields(result))
        finally:
            gc.enable()

    return work


def batch_runner(
    job: Job, tasks: Sequence[Task]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of `runner` for `mapInArrow` over a DataFrame of numbers (see `RESULT`)."""
    work = runner(job, tasks)

    def in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [json.dumps(each, default=list) for each in work(batch.column(0).to_pylist())]
            yield pa.RecordBatch.from_arrays([pa.array(results, pa.string())], names=["result"])

    return in_batches


def run(job: Job, task: Task) -> Result:
    """Parse the parts of a task."""
    raw_id = job.metadata.names[0]
    output = _Output(job.root, job.folder, raw_id)
    dead = _Output(job.dead_letter.root, job.dead_letter.folder)
    result = Result()
    parsers: dict[tuple[str, str, str | None], BlockParser] = {}
    with discarding_on_error(output, dead):
        system, path = task.source
        with system.open_input_file(path) as source:
            for part in task.parts:
                stream = (part.form, part.stream, part.namespace)
                if stream not in parsers:
                    parsers[stream] = BlockParser(job, part)
                for block, numbers in _blocks(source, part):
                    rows = parsers[stream].parse(block, numbers, part)
                    output.write(rows.batch)
                    if rows.dead is not None:
                        result.places.extend(rows.dead.column("place").to_pylist())
                        dead.write(rows.dead)
                    result.changed += rows.changed
                    result.undeclared.update(rows.undeclared)
                    for number in rows.foreign:
                        result.foreign.extend((part.number, number))
        output.close()
        dead.close()
    result.path, result.size, result.rows, result.stats = output.described
    result.dead_path, result.dead_size, result.rejected, result.dead_stats = dead.described
    return result


def _blocks(source: Any, part: Part) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield blocks of whole lines, and the numbers of their lines in the piece."""
    source.seek(part.offset)
    remaining, line = part.size, part.line
    rest: list[bytes] = []  # the start of a line whose end is not read yet
    while remaining:
        data = source.read(min(_READ, remaining))
        if not data:
            raise EOFError(f"the segment ends {remaining} bytes too early")
        remaining -= len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest.append(data)
            continue
        whole = b"".join([*rest, data[:cut]])
        rest = [data[cut:]]
        ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == 10) + 1
        for low, high in _cuts(ends):
            begin = int(ends[low - 1]) if low else 0
            yield whole[begin : int(ends[high - 1])], np.arange(line + low, line + high)
        line += len(ends)
    if any(rest):
        raise EOFError("the last line of the segment has no end")


def _cuts(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of lines of about the size of a block, given the positions of the lines' ends."""
    low = begin = 0
    while low < len(ends):
        high = max(int(np.searchsorted(ends, begin + BLOCK, "right")), low + 1)
        yield low, high
        begin, low = int(ends[high - 1]), high


class _Output:
    """A file of a task, which is created with its first rows.

    Args:
        root: pyarrow's file system, and the path in it of the table; `folder`: in the table.
        raw_id: the column with the rows' ids; empty if there is none.
    """

    def __init__(self, root: tuple[Any, str], folder: str, raw_id: str = ""):
        self._system, self._root = root
        self._folder, self._raw_id = folder, raw_id
        self._name = f"{folder}/{uuid.uuid4().hex}.parquet"
        self._footers: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.described = ("", 0, 0, "")

    def write(self, batch: pa.RecordBatch) -> None:
        if len(batch):
            self._bytes += batch.get_total_buffer_size()
            self._waiting.append(batch)
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._writer is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        (footer,) = self._footers
        self.described = (self._name, size, footer.num_rows, statistics(footer))

    def discard(self) -> None:
        """Remove the file."""
        if self._writer is not None:
            # Else its destructor writes to the closed file, and complains.
            self._writer.is_open = False
        if self._sink is not None:
            discard_file(self._system, f"{self._root}/{self._name}", self._sink)
        self._sink = None

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._open(self._waiting[0].schema)
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._bytes = [], 0

    def _open(self, schema: pa.Schema) -> None:
        if self._system.type_name == "local":  # a store of objects has no folders
            self._system.create_dir(f"{self._root}/{self._folder}", recursive=True)
        self._sink = self._system.open_output_stream(f"{self._root}/{self._name}")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            store_schema=False,
            use_dictionary=[name for name in _leaves(schema) if name != self._raw_id],
            column_encoding={self._raw_id: "DELTA_BYTE_ARRAY"} if self._raw_id else None,
            dictionary_pagesize_limit=1 << 18,
            metadata_collector=self._footers,
        )


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Yield the paths of a file's columns."""
    for each in schema:
        yield from _paths(each.name, each.type)


def _paths(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for each in type_:
            yield from _paths(f"{path}.{each.name}", each.type)
    elif pa.types.is_list(type_):
        yield from _paths(f"{path}.list.element", type_.value_type)
    else:
        yield path
