"""A task that parses parts of a segment, and writes Parquet files of rows and one of rejected records.

`write.parsing` runs it. `slices` writes its rows and rejected records with the same functions.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from elt_assets.lake.worker.blocks import BlockParser, BlockRows, count_changes
from elt_assets.lake.worker.inference import merge_fields
from elt_assets.lake.worker.job import MAX_NAMES, LineRange, ParseJob, ParseResult, ParseTask
from elt_assets.lake.worker.parquet import FileWriter, discard_on_error, open_writer

BLOCK = 1 << 19
"""Bytes that are parsed at a time."""
_READ = 1 << 22
Plain = tuple[Any, ...]
_GROUP_BYTES = 48 << 20
"""Bytes in memory that become one row group."""


def make_parse(job: ParseJob, tasks: Sequence[ParseTask]) -> Callable[[int], Plain]:
    """Return the function that does the task of a number; it returns the attributes of a `ParseResult`."""

    def parse(number: int) -> Plain:
        gc.disable()  # it would search millions of values for cycles, and there are none
        try:
            return as_plain(parse_lines(job, tasks[number]))
        finally:
            gc.enable()

    return parse


def as_plain(result: ParseResult) -> Plain:
    """Return a result as plain values: a worker cannot return objects of classes that were sent to it."""
    return tuple(getattr(result, attribute.name) for attribute in fields(result))


def parse_lines(job: ParseJob, task: ParseTask) -> ParseResult:
    """Parse the parts of a task, and write the files of its rows and of its rejected records."""
    writer, dead_writer = open_writers(job)
    result = ParseResult()
    parsers: dict[tuple[str, str, str | None], BlockParser] = {}
    with discard_on_error(writer, dead_writer):
        system, path = task.source
        with system.open_input_file(path) as source:
            for part in task.parts:
                stream = (part.form, part.stream, part.namespace)
                if stream not in parsers:
                    parsers[stream] = BlockParser(job, part)
                for block, numbers in _blocks(source, part):
                    rows = parsers[stream].parse(block, numbers, part)
                    write_rows(job, rows, result, writer, dead_writer)
                    for number in rows.foreign_lines:
                        result.foreign_lines.extend((part.number, number))
        writer.close()
        dead_writer.close()
    result.files, result.dead_files = writer.files, dead_writer.files
    return result


def open_writers(job: ParseJob) -> tuple[FileWriter, FileWriter]:
    """Return the writers of a task's rows and of its rejected records."""
    options, dead_options = _encodings(job.metadata.names[0]), _encodings("")
    return (
        open_writer(job.output, group_bytes=_GROUP_BYTES, options=options),
        FileWriter(job.dead_letter.output, group_bytes=_GROUP_BYTES, options=dead_options),
    )


def write_rows(
    job: ParseJob,
    rows: BlockRows,
    result: ParseResult,
    writer: FileWriter,
    dead_writer: FileWriter,
) -> None:
    """Write rows and rejected records, and count them in a result."""
    writer.write(rows.batch)
    if rows.dead is not None:
        result.rejected_sequence.extend(rows.dead.column("place").to_pylist())
        dead_writer.write(rows.dead)
    result.changed += rows.changed
    if rows.changes:
        count_changes(result.changes, rows.changes, job.keyless)
    result.reasons.update(rows.reasons)
    result.dependent |= rows.dependent
    result.markers += rows.markers
    result.undeclared.update(rows.undeclared)
    if rows.inferred and len(result.inferred) <= MAX_NAMES:
        result.inferred = merge_fields(result.inferred, rows.inferred)


def _blocks(source: Any, part: LineRange) -> Iterator[tuple[bytes, np.ndarray]]:
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


def _encodings(raw_id: str) -> Callable[[pa.Schema], Mapping[str, Any]]:
    """Return a function that returns the options of pyarrow's writer for the columns of a file.

    Args:
        raw_id: the column with the rows' ids, which differ in few characters from row to row; "" for none.
    """
    return lambda schema: {
        "store_schema": False,
        "use_dictionary": [path for path in _leaves(schema) if path != raw_id],
        "column_encoding": {raw_id: "DELTA_BYTE_ARRAY"} if raw_id else None,
        "dictionary_pagesize_limit": 1 << 18,
    }


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Yield the paths of a file's columns."""
    for field in schema:
        yield from _paths(field.name, field.type)


def _paths(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _paths(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(type_):
        yield from _paths(f"{path}.list.element", type_.value_type)
    else:
        yield path
