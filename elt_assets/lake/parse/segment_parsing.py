"""The fast parse of segments: Arrow tasks on Spark write the rows of all lines that are provably clean.

The tasks name all other lines. The caller parses these, and only these, with `conform`, which is exact for
any line and three times slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.utils import is_remote

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.table import Table
from elt_assets.lake.parse import cast
from elt_assets.lake.parse.changes import MAX_VALUE_BYTES
from elt_assets.lake.parse.conform import Key, Stamp
from elt_assets.lake.parse.undeclared import STAGED, declared_names
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.schema.logical_types import Array, Column, LogicalType, Scalar, Struct
from elt_assets.lake.spark.parsing.job import (
    ARRAY,
    RAW,
    STRUCT,
    UNREAD,
    Field,
    Job,
    Names,
    Part,
    Result,
    Task,
)
from elt_assets.lake.spark.parsing.lines import is_supported
from elt_assets.lake.spark.parsing.task import RESULT, batch_runner, runner
from elt_assets.lake.spark.worker_code import with_code
from elt_assets.storage.location import Location
from elt_assets.sync import segments
from elt_assets.sync.segments import Piece, Segment

MAX_UNCLEAN = 0.1
"""The share of lines that are not clean above which the exact parse of all lines is faster."""
MIN_TASK_BYTES = 8 << 20
"""Bytes of lines from which a segment is divided into more than one task: each writes a file."""
MAX_TASK_BYTES = 256 << 20
SLOWER = (
    "so many records had names or values that do not fit the stream's schema that the rest was parsed in a "
    "way that is exact for them and takes about three times as long; correct the schema"
)
"""The message about a sync that went over to the exact parse."""
_CORES = 4
"""The number of tasks at the same time where the number of cores is not known."""
_READ = 1 << 22


UncleanLine = tuple[int, int, int, int]
"""A line that is not clean: the number of its piece, its number there, its offset and its size."""


def unclean_lines(result: Result) -> Iterator[UncleanLine]:
    """Yield the lines that a task has not parsed."""
    values = result.unclean
    yield from zip(values[::4], values[1::4], values[2::4], values[3::4], strict=True)


class SegmentParser:
    """Parses the segments of one stream.

    Args:
        table: gets the files.
        columns: the columns to read.
        declared: all columns that the stream's schema declares.
        key: paths of columns; one at least must not be null, and no object that has one.
        partition: the value of the column `_elt_partition`; None: the rows do not have it.
        keeps_undeclared: a line with an undeclared field is not clean.
        max_unclean: the share of such lines above which a task gives up.
    """

    def __init__(
        self,
        table: Table,
        columns: Sequence[Column],
        declared: Sequence[Column],
        stamp: Stamp,
        key: Key = (),
        partition: str | None = None,
        *,
        keeps_undeclared: bool = False,
        max_unclean: float = MAX_UNCLEAN,
    ):
        self._table = table
        names = declared_names(declared)
        self._job = Job(
            root=(table.storage.system, table.storage.root),
            folder="",
            fields=tuple(map(_field, columns)),
            key=[list(part) for part in key],
            stamp=(stamp.raw_id_prefix, stamp.generation_id, stamp.sync_id),
            partition=partition,
            metadata=_metadata(partition),
            names=_NAMES,
            declared=names,
            names_are_read=names == declared_names(cast.read_columns(columns)),
            keeps_undeclared=keeps_undeclared,
            max_bytes=MAX_VALUE_BYTES,
            max_unclean=max_unclean,
        )

    @property
    def is_possible(self) -> bool:
        """Return whether the decoder of lines supports the names of the stream's fields."""
        fields = self._job.fields
        ours = {each.source for each in fields}.isdisjoint(STAGED)
        return ours and all(_is_supported(each) for each in fields)

    def parse(
        self, spark: SparkSession, segment: Segment, place: Location
    ) -> tuple[list[DataFile], list[Result]]:
        """Write the rows of a segment's clean lines to files that are not visible yet.

        Args:
            place: the location from which the tasks read the segment.

        Returns:
            the files, and the results of all tasks; no files if a task has given up.
        """
        folder = self._table.new_folder()
        job = replace(self._job, folder=folder)
        try:
            results = _run(spark, job, list(_tasks(segment, place, _cores(spark))))
            if any(result.gave_up for result in results):
                self._table.storage.discard_folder(folder)
                return [], results
            # Attempts of tasks that Spark has repeated may have left files.
            self._table.storage.keep_only(folder, {result.path for result in results})
        except BaseException:
            self._table.storage.discard_folder(folder)
            raise
        files = [DataFile(r.path, r.size, r.rows, r.stats) for r in results if r.path]
        return files, results


_NAMES = Names(
    segments.EXTRACTED_AT,
    segments.SEQUENCE,
    segments.META,
    (segments.NOT_AN_OBJECT, segments.PLACE),
)


def _run(spark: SparkSession, job: Job, tasks: Sequence[Task]) -> list[Result]:
    """Run the tasks.

    An RDD needs no plan, which saves a sixth of the CPU time of a short sync. A session of Spark Connect has
    no RDDs.
    """
    if is_remote():
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        frame = numbers.mapInArrow(with_code(batch_runner, job, tasks), RESULT)
        return [Result(*json.loads(row["result"])) for row in frame.collect()]
    numbered = spark.sparkContext.parallelize(range(len(tasks)), len(tasks))
    return [
        Result(*each) for each in numbered.mapPartitions(with_code(runner, job, tasks)).collect()
    ]


def _cores(spark: SparkSession) -> int:
    return _CORES if is_remote() else spark.sparkContext.defaultParallelism


def _tasks(segment: Segment, place: Location, cores: int) -> Iterator[Task]:
    """Yield tasks of about equal sizes: one for each core, unless they would be too small or too large."""
    source = place.file_system()
    size = min(max(-(-segment.size // cores), MIN_TASK_BYTES), MAX_TASK_BYTES)
    parts: list[Part] = []
    room = size
    for part in _parts(segment, size):
        if parts and part.size > room:
            yield Task(source, tuple(parts))
            parts, room = [], size
        parts.append(part)
        room -= part.size
    if parts:
        yield Task(source, tuple(parts))


def _parts(segment: Segment, size: int) -> Iterator[Part]:
    """Yield the pieces of a segment, those that are too large in parts of whole lines."""
    with segment.path.open("rb", buffering=0) as source:
        for number, piece in enumerate(segment.pieces):
            if piece.size <= size + size // 4:
                if piece.records:
                    yield _part(piece, number, (piece.offset, piece.size), (0, piece.records))
                continue
            line = 0
            for start, length, lines in _ranges(source, piece, size):
                yield _part(piece, number, (start, length), (line, lines))
                line += lines


def _part(piece: Piece, number: int, span: tuple[int, int], lines: tuple[int, int]) -> Part:
    """Return a part of a piece: `span` is its offset and size, `lines` its first line and their number."""
    return Part(
        number,
        piece.form.value,
        *span,
        piece.first + lines[0],
        *lines,
        piece.received_at,
        piece.stream,
        piece.namespace,
    )


def _ranges(source: Any, piece: Piece, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the offset, the bytes and the number of lines of each range of whole lines in a piece."""
    start = position = piece.offset
    end, lines = piece.offset + piece.size, 0
    source.seek(position)
    while position < end:
        data = source.read(min(_READ, end - position))
        if not data:
            return
        reached = position + len(data) - start
        cut = data.find(b"\n", max(size - (position - start), 0)) + 1 if reached > size else 0
        if cut:
            lines += data.count(b"\n", 0, cut)
            yield start, position + cut - start, lines
            start, lines = position + cut, 0
            data = data[cut:]
        lines += data.count(b"\n")
        position += cut + len(data)
    if lines:
        yield start, end - start, lines


def _field(column: Column) -> Field:
    return _of_kind(column.source, column.name, column.kind)


def _of_kind(source: str, name: str, kind: LogicalType) -> Field:
    column = Column(source, name, kind)
    type_ = _arrow_type(column.type)
    if isinstance(kind, Array):
        return Field(source, name, ARRAY, type_, (_of_kind("", "", kind.items),))
    if isinstance(kind, Struct):
        return Field(source, name, STRUCT, type_, tuple(map(_field, kind.fields)))
    return Field(source, name, kind.name if isinstance(kind, Scalar) else UNREAD, type_)


def _arrow_type(kind: t.DataType) -> pa.DataType:
    schema = delta_schema(t.StructType([t.StructField("value", kind)])).to_arrow()
    return pa.schema(schema).field(0).type


def _metadata(partition: str | None) -> pa.Schema:
    more = [] if partition is None else [metadata_columns.PARTITION_FIELD]
    fields = t.StructType([*metadata_columns.METADATA_FIELDS, *more])
    return pa.schema(delta_schema(fields).to_arrow())


def _is_supported(each: Field) -> bool:
    """Return whether all names in a column are supported, if its values are taken from decoded lines."""
    if not each.has_raw:
        return True
    is_known = each.kind == UNREAD or is_supported(each.source)
    return is_known and (each.kind in RAW or all(map(_has_supported_names, each.inner)))


def _has_supported_names(each: Field) -> bool:
    """Return whether the decoder supports the name of a field and of all fields nested in it."""
    return each.kind == UNREAD or (
        is_supported(each.source) and all(map(_has_supported_names, each.inner))
    )
