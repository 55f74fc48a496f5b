"""A task that parses parts of a segment and writes one Parquet file."""

from __future__ import annotations

import json
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

BLOCK = 1 << 18
"""Bytes that are parsed at a time. Of a block with a line that does not fit, each line is tested."""
_READ = 1 << 22
RESULT = "result string"
"""Schema of the results of `in_batches`: each is JSON."""
Plain = tuple[Any, ...]
_GROUP_BYTES = 48 << 20
"""Bytes in memory that become one row group."""
_TRIAL = 2_000
"""The number of lines after which a task may give up."""


def runner(job: Job, tasks: Sequence[Task]) -> Callable[[Iterable[int]], Iterator[Plain]]:
    """Return the function that runs the tasks of some numbers.

    It yields plain values, in the order of the attributes of a `Result`: a worker cannot return objects of
    classes that were sent to it.
    """

    def work(numbers: Iterable[int]) -> Iterator[Plain]:
        pa.set_cpu_count(1)
        for number in numbers:
            found = run(job, tasks[number])
            yield tuple(getattr(found, each.name) for each in fields(found))

    return work


def batch_runner(
    job: Job, tasks: Sequence[Task]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of `runner` for `mapInArrow` over a DataFrame of numbers (see `RESULT`)."""
    work = runner(job, tasks)

    def in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [json.dumps(each, default=list) for each in work(batch.column(0).to_pylist())]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], names=["result"])

    return in_batches


def run(job: Job, task: Task) -> Result:
    """Parse the parts of a task; write the rows of their clean lines to a file."""
    output, result = _Output(job), Result()
    with discarding_on_error(output):
        system, path = task.source
        lines = 0
        with system.open_input_file(path) as source:
            for part in task.parts:
                parser = BlockParser(job, part)
                for block, numbers, offsets in _blocks(source, part, job.max_bytes):
                    before = len(parser.unclean)
                    if block is None:
                        parser.unclean += numbers.tolist()
                    else:
                        parser.parse(block, numbers)
                    lines += len(numbers)
                    _record_unclean(result, part, parser.unclean[before:], numbers, offsets)
                    output.write(parser.batches)
                    if lines >= _TRIAL and result.unclean_count > job.max_unclean * lines:
                        output.discard()
                        return Result(gave_up=True)
                result.undeclared.update(parser.undeclared)
                result.changed += parser.changed
        output.close()
    result.path, result.size, result.rows, result.stats = output.described
    return result


def _record_unclean(
    result: Result, part: Part, unclean: list[int], numbers: np.ndarray, offsets: np.ndarray
) -> None:
    first = int(numbers[0])
    for number in sorted(unclean):
        start, end = int(offsets[number - first]), int(offsets[number - first + 1])
        result.unclean.extend((part.number, number, start, end - start))


def _blocks(
    source: Any, part: Part, max_line: int
) -> Iterator[tuple[bytes | None, np.ndarray, np.ndarray]]:
    """Yield blocks of whole lines, the numbers of their lines, and the positions of their lines' ends.

    A line above the limit is yielded alone, without its bytes.
    """
    source.seek(part.offset)
    remaining, rest, start, line = part.size, b"", part.offset, part.line
    while remaining or rest:
        data = source.read(min(_READ, remaining)) if remaining else b""
        if remaining and not data:
            raise EOFError(f"the segment ends {remaining} bytes too early")
        remaining -= len(data)
        whole = rest + data
        cut = whole.rfind(b"\n") + 1
        if not cut:
            if not remaining:
                raise EOFError("the last line of the segment has no end")
            rest = whole
            continue
        rest = whole[cut:]
        ends = np.flatnonzero(np.frombuffer(whole, np.uint8, cut) == 10) + 1
        for low, high in _cuts(ends):
            begin = int(ends[low - 1]) if low else 0
            offsets = start + np.concatenate([[begin], ends[low:high]])
            numbers = np.arange(line + low, line + high)
            size = int(ends[high - 1]) - begin
            yield None if size > max_line else whole[begin : begin + size], numbers, offsets
        line += len(ends)
        start += cut


def _cuts(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of lines of about the size of a block, given the positions of the lines' ends."""
    low = begin = 0
    while low < len(ends):
        high = max(int(np.searchsorted(ends, begin + BLOCK, "right")), low + 1)
        yield low, high
        begin, low = int(ends[high - 1]), high


class _Output:
    """The file of a task, which is created with its first rows."""

    def __init__(self, job: Job):
        self._job = job
        self._system, self._root = job.root
        self._name = f"{job.folder}/{uuid.uuid4().hex}.parquet"
        self._footers: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.described = ("", 0, 0, "")

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Take all batches from a list."""
        self._bytes += sum(batch.get_total_buffer_size() for batch in batches)
        self._waiting += batches
        batches.clear()
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
            self._writer.is_open = (
                False  # else its destructor writes to the closed file, and complains
            )
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
            self._system.create_dir(f"{self._root}/{self._job.folder}", recursive=True)
        self._sink = self._system.open_output_stream(f"{self._root}/{self._name}")
        raw_id = self._job.metadata.names[0]
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            store_schema=False,
            use_dictionary=[name for name in _leaves(schema) if name != raw_id],
            column_encoding={raw_id: "DELTA_BYTE_ARRAY"},
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
