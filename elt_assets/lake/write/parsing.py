"""The tasks on Spark that parse segments, or read slices, to files of rows; and counts of undeclared fields.

Used by `writer`, `sync_columns` and `rewrite`. `pipeline.progress` and `destination.airbyte_read` report the
counts.

First the counts of undeclared fields, which the stream's schema does not declare: they are counted by name,
and kept if the stream has `on_undeclared: keep`. Then the read of slices (`read_slices`), each by a task from
its source. Then the parse of the lines of a segment (`SegmentParser`).

Spec: Airbyte Protocol: a record may hold fields that its stream's schema does not name; a destination may
ignore them.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.utils import is_remote

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.added import list_added
from elt_assets.lake.columns.logical_types import Array, Column, Scalar, Struct, core, describe_type
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_tasks, run_tasks_in_part
from elt_assets.lake.worker.blocks import parse_name
from elt_assets.lake.worker.job import (
    MAX_NAMES,
    OTHERS,
    DeadLetter,
    DeclaredNames,
    KeyPart,
    LineRange,
    ParseJob,
    ParseResult,
    ParseTask,
)
from elt_assets.lake.worker.kinds import ARRAY, STRUCT, UNREAD, Field
from elt_assets.lake.worker.lines import make_parse
from elt_assets.lake.worker.slices import (
    MAX_SLICES,
    POSITIONS,
    LocalFile,
    SharedFile,
    SliceFile,
    SliceResult,
    SliceSource,
    SliceTask,
    make_slice_read,
)
from elt_assets.lake.worker.values import MISFIT
from elt_assets.protocol.messages import DEPENDENT, TRUNCATED
from elt_assets.storage.location import Location
from elt_assets.storage.staging import StagedFiles, Staging
from elt_assets.sync.field_selection import UNDECLARED
from elt_assets.sync.pending import SliceGroup
from elt_assets.sync.segments import Piece, Segment, refuse_foreign

OTHER_REASONS = "(other reasons)"


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return the fields and how many records have each, the most frequent first, as text for the log."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{name} ({records:,} records)" for name, records in most[:10]]
    return ", ".join(parts) + (f" and {len(most) - 10} more" if len(most) > 10 else "")


def limit_counts(counts: Mapping[str, int], others: str = OTHERS) -> dict[str, int]:
    """Return the counts of the `MAX_NAMES` most frequent names, and one count for all others. If a source
    uses data as names, the counts must not fill the memory.

    Args:
        others: the name of the count of all others.
    """
    if len(counts) <= MAX_NAMES:
        return dict(counts)
    most = Counter(counts).most_common()
    most = [item for item in most if item[0] != others]
    rest = sum(records for _, records in most[MAX_NAMES:]) + counts.get(others, 0)
    return {**dict(most[:MAX_NAMES]), others: rest}


def read_slices(
    spark: SparkSession, job: ParseJob, source: SliceSource, group: SliceGroup, staging: Staging
) -> tuple[Sequence[SliceResult], Exception | None]:
    """Read the slices of a group, each in a task of its own.

    The slices are read side by side, and any of them may fail. Those before it are kept up to the last state
    among them, so that the next run reads the others only.

    Args:
        staging: where tasks read files of slices.

    Returns:
        The results; if a slice cannot be read, those before the last state before it, and its error.

    Raises:
        EltError: a slice cannot be read, and no state is before it; or the file of one is not a plain file in
            the folder of the source.
        SystemFailure: there are too many slices; or the rows of one are not those that its source has given.
    """
    if group.first + len(group.slices) > MAX_SLICES:
        raise SystemFailure(
            f"the source has made more than {MAX_SLICES:,} slices of a stream in one sync",
            guidance="report it to the maintainer of the source: a slice may have many small parts",
        )
    files = StagedFiles(source.folder, "a slice", follows_link=False)
    with ExitStack() as stack:

        def share(path: str) -> SliceFile:
            with files.open(f"{source.folder}/{path}") as opened:
                if staging.shared is None:
                    return LocalFile(source.folder, path)
                return SharedFile(*stack.enter_context(staging.share_copy(opened)).file_system())

        tasks = [
            SliceTask(
                part.key,
                bytes(part.data),
                (group.first + number) * POSITIONS,
                None if part.file is None else share(part.file),
                bool(part.file_has_changes),
            )
            for number, part in enumerate(group.slices)
        ]
        values, error = run_tasks_in_part(spark, len(tasks), make_slice_read, job, source, tasks)
    results = [SliceResult(*part) for part in values]
    failed = next((number for number, part in enumerate(results) if part.failure), None)
    if failed is not None:
        results, error = results[:failed], _make_error(results[failed])
    if error is not None:
        results = results[: group.count_covered(len(results))]
        if not results:
            raise error
    _check_slices(tasks, results)
    return results, error


def _make_error(result: SliceResult) -> EltError:
    assert result.failure is not None
    kind, message, guidance, detail = result.failure
    return error_class(kind)(message, guidance=guidance, detail=detail)


def _check_slices(tasks: Sequence[SliceTask], results: Sequence[SliceResult]) -> None:
    for task, result in zip(tasks, results, strict=False):
        if result.rows + result.rejected != result.read:
            raise SystemFailure(
                f"slice {task.key} has {result.read} rows, but {result.rows} were written and "
                f"{result.rejected} rejected; nothing of it was committed",
                guidance="this is a defect of this project: report it",
            )


Key = Sequence[Sequence[str]]
"""Paths of table columns."""

REJECTED_AT = "rejected_at"
"""The column of the dead letter with the time at which records were rejected."""
MIN_TASK_BYTES = 8 << 20
"""Bytes of lines from which a segment is divided into more than one task: each writes a file."""
MAX_TASK_BYTES = 256 << 20
_CORES = 4
"""The number of tasks at the same time where the number of cores is not known."""
_READ = 1 << 22


@dataclass(frozen=True)
class SyncIds:
    """The ids that all rows of one sync share."""

    # The first 24 characters of the rows' UUIDs, unique to the sync. The last 12 are the extraction order:
    # the ids of one sync sort in the order of extraction.
    raw_id_prefix: str
    generation_id: int
    sync_id: int


@dataclass(frozen=True)
class Rejections:
    """The table of rejected records, and the values that its rows share."""

    table: Table
    # `schema`, `values`: the columns of the dead letter, and the values that the rows of a sync share; the
    # rows of a segment share `REJECTED_AT`.
    schema: t.StructType
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ParsedSegment:
    """The files that the tasks of a segment have written; they are not visible yet."""

    files: Sequence[DataFile]
    rejected: Sequence[DataFile]
    results: Sequence[ParseResult]
    error: Exception | None = None  # why slices of the group are not among them


class SegmentParser:
    """Parses the segments of one stream.

    Args:
        table: gets the files of rows.
        columns: the columns to read.
        declared: all columns that the stream's schema declares.
        key: the columns of the key; one at least must not be null, and no object that has one.
        partition: the value of the column `_elt_partition`; None: the rows do not have it.
        cursor: the column by which rows of a key are ordered; empty if there is none.
        keeps_undeclared: undeclared fields are kept, in the column `UNDECLARED`.
        infers: the types of undeclared fields are inferred.
    """

    def __init__(
        self,
        table: Table,
        rejections: Rejections,
        columns: Sequence[Column],
        declared: Sequence[Column],
        sync_ids: SyncIds,
        key: Key = (),
        partition: str | None = None,
        cursor: Sequence[str] = (),
        *,
        keeps_undeclared: bool = False,
        infers: bool = False,
    ):
        order = [(cursor, "ordered")] if key and cursor else []
        extra = UNDECLARED if keeps_undeclared else None
        self._table = table
        self._rejections = rejections
        self._make_job = partial(
            ParseJob,
            fields=tuple(map(field_of, columns)),
            key=[_key_part(columns, part) for part in key],
            strict_reasons={
                number: f"field {column.source!r} does not fit its column's type, "
                f"{describe_type(column.kind)}"
                for number, column in enumerate(columns)
                if column.strict
            },
            sync_ids=(sync_ids.raw_id_prefix, sync_ids.generation_id, sync_ids.sync_id),
            partition=partition,
            metadata=_arrow_schema(
                metadata_columns.table_schema([], partitioned=partition is not None).fields
            ),
            declared=collect_names([column for column in declared if column.source != extra]),
            extra=extra,
            infers=infers,
            nulled={
                name: f"field {name!r} is null in place of a value that did not fit: rows are {use} by it"
                for path, use in [*((part, "matched") for part in key), *order]
                for name in _key_part(columns, path).fields
            },
            dependent=DEPENDENT,
            keyless=TRUNCATED,
        )

    def reopen(self, fields: Sequence[Sequence[str]]) -> SegmentParser:
        """Return a parser for which some fields are not declared, so that their types are inferred."""
        parser = copy.copy(self)
        declared = reduce(_forget, fields, self._make_job.keywords["declared"])
        vars(parser)["_make_job"] = partial(self._make_job, declared=declared, is_reopened=True)
        return parser

    def make_job(self) -> ParseJob:
        """Return the job of tasks that write to new folders of the two tables, each to one file in both."""
        rejections = self._rejections
        schema = _arrow_schema(rejections.schema.fields)
        values = {**rejections.values, REJECTED_AT: datetime.now(timezone.utc)}
        output, dead_output = (
            replace(table.output(), max_rows=sys.maxsize, max_bytes=sys.maxsize)
            for table in (self._table, rejections.table)
        )
        return self._make_job(output=output, dead_letter=DeadLetter(dead_output, schema, values))

    def parse(self, spark: SparkSession, segment: Segment, location: Location) -> ParsedSegment:
        """Write the rows of a segment's lines, and the records that have none.

        Args:
            location: the location from which the tasks read the segment.

        Raises:
            SystemFailure, ConfigError: a line is no record of the stream; or rows are missing.
        """

        def run(job: ParseJob) -> list[ParseResult]:
            tasks = list(tasks_of(segment, location, _cores(spark)))
            values = run_tasks(spark, len(tasks), make_parse, job, tasks)
            results = [ParseResult(*attributes) for attributes in values]
            _check(segment, results)
            return results

        return self._write(run)

    def read(
        self, spark: SparkSession, group: SliceGroup, source: SliceSource, staging: Staging
    ) -> ParsedSegment:
        """Read slices in tasks, and write their rows, and the records that have none.

        If a slice cannot be read, those before the last state before it are kept (`ParsedSegment.error`).

        Raises:
            EltError: a slice cannot be read, and no state is before it; or rows are missing.
        """
        error: Exception | None = None

        def run(job: ParseJob) -> Sequence[ParseResult]:
            nonlocal error
            results, error = read_slices(spark, job, source, group, staging)
            return results

        return replace(self._write(run), error=error)

    def _write(self, run: Callable[[ParseJob], Sequence[ParseResult]]) -> ParsedSegment:
        """Run tasks that write to new folders; keep the files of their results, and no others."""
        job = self.make_job()
        folder, dead_folder = job.output.folder, job.dead_letter.output.folder
        storage, dead_storage = self._table.storage, self._rejections.table.storage
        try:
            results = run(job)
            # Attempts of tasks that Spark has repeated may have left files.
            files = [DataFile(*file) for result in results for file in result.files]
            rejected = [DataFile(*file) for result in results for file in result.dead_files]
            storage.keep_only(folder, {file.path for file in files})
            if rejected:
                dead_storage.keep_only(dead_folder, {file.path for file in rejected})
        except BaseException:
            storage.discard_folder(folder)
            dead_storage.discard_folder(dead_folder)
            raise
        return ParsedSegment(files, rejected, results)


def _check(segment: Segment, results: Sequence[ParseResult]) -> None:
    """Refuse results that are not those of all lines.

    Raises:
        SystemFailure, ConfigError: see `SegmentParser.parse`.
    """
    for result in results:
        for piece, line in zip(result.foreign_lines[::2], result.foreign_lines[1::2], strict=True):
            refuse_foreign(segment, piece, line)
    lines = sum(result.rows + result.rejected for result in results)
    if lines != segment.records:
        raise SystemFailure(
            f"the staged segment {segment.path} has {lines} lines, but {segment.records} "
            "records were written to it",
            guidance="nothing of it was committed; check that nothing else writes to the staging folder",
        )


def collect_names(columns: Sequence[Column]) -> DeclaredNames:
    """Return the names of the fields of columns, also of those within objects."""
    inner = {column.source: core(column.kind) for column in columns}
    objects = {
        name: collect_names(kind.fields) for name, kind in inner.items() if isinstance(kind, Struct)
    }
    return DeclaredNames(frozenset(inner), objects)


def _forget(declared: DeclaredNames, path: Sequence[str]) -> DeclaredNames:
    """Return declared names without a field."""
    name, *rest = path
    if rest and name in declared.objects:
        inner = _forget(declared.objects[name], rest)
        return DeclaredNames(declared.names, {**declared.objects, name: inner})
    objects = {other: inner for other, inner in declared.objects.items() if other != name}
    return DeclaredNames(declared.names - {name}, objects)


def find_misfits(results: Sequence[ParseResult], columns: Sequence[Column]) -> list[list[str]]:
    """Return the fields of added columns that had values of another type, by their paths in the source."""
    changed = {
        change.field.partition(".")[0]
        for result in results
        for change in map(parse_name, result.changes)
        if (change.change, change.reason) == MISFIT
    }
    return [path for path, _ in list_added(columns) if path[0] in changed]


def _key_part(columns: Sequence[Column], path: Sequence[str]) -> KeyPart:
    sources: list[str] = []
    fields, kind = columns, None
    for name in path:
        column = next(field for field in fields if field.name == name)
        sources.append(column.source)
        kind = column.kind
        fields = kind.fields if isinstance(kind, Struct) else ()
    assert kind is not None
    paths = [".".join(sources[: depth + 1]) for depth in range(len(sources))]
    field = f"field {paths[-1]!r} of the primary key"
    return KeyPart(
        path,
        frozenset(paths),
        f"{field} does not fit its type, {describe_type(kind)}",
        f"the object with {field} is null or missing",
    )


def _cores(spark: SparkSession) -> int:
    return _CORES if is_remote() else spark.sparkContext.defaultParallelism


def tasks_of(segment: Segment, location: Location, cores: int) -> Iterator[ParseTask]:
    """Yield tasks of about equal sizes: one for each core, unless they would be too small or too large."""
    source = location.file_system()
    size = min(max(-(-segment.size // cores), MIN_TASK_BYTES), MAX_TASK_BYTES)
    parts: list[LineRange] = []
    room = size
    for part in _parts(segment, size):
        if parts and part.size > room:
            yield ParseTask(source, tuple(parts))
            parts, room = [], size
        parts.append(part)
        room -= part.size
    if parts:
        yield ParseTask(source, tuple(parts))


def _parts(segment: Segment, size: int) -> Iterator[LineRange]:
    """Yield the pieces of a segment, those that are too large in parts of whole lines."""
    with segment.path.open("rb", buffering=0) as source:
        for number, piece in enumerate(segment.pieces):
            whole = (piece.offset, piece.size, piece.records)
            line = 0
            for offset, length, lines in (
                [whole] if piece.size <= size + size // 4 else _ranges(source, piece, size)
            ):
                if lines:
                    yield LineRange(
                        number,
                        piece.form.value,
                        offset,
                        length,
                        piece.first,
                        line,
                        piece.received_at,
                        piece.stream,
                        piece.namespace,
                    )
                line += lines


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


def field_of(column: Column) -> Field:
    """Return a column as tasks know it."""
    source, name, kind = column.source, column.name, column.kind
    (type_,) = _arrow_schema([t.StructField("value", column.type)]).types
    if isinstance(kind, Array):
        return Field(source, name, ARRAY, type_, (field_of(Column("", "", kind.items)),))
    if isinstance(kind, Struct):
        return Field(source, name, STRUCT, type_, tuple(map(field_of, kind.fields)))
    return Field(source, name, kind.name if isinstance(kind, Scalar) else UNREAD, type_)


def _arrow_schema(columns: Sequence[t.StructField]) -> pa.Schema:
    return pa.schema(delta_schema(t.StructType(list(columns))).to_arrow())
