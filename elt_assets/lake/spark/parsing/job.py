"""The description of a parsing job: the input of its tasks and their results."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.parsing.undeclared_fields import DeclaredNames
from elt_assets.lake.spark.task_io import Output, WrittenFile
from elt_assets.lake.spark.types.fields import Field

ROWS, AIRBYTE, SINGER = "rows", "airbyte", "singer"
"""The forms of a part's lines (see `protocol.airbyte.messages.Form`)."""


@dataclass(frozen=True)
class KeyPart:
    """A part of the key.

    Attributes:
        path: the names of its column, and of the fields nested in it.
        fields: the paths, of the source's names, of the field and of the objects around it.
        misfit, lacks_object: the reasons to reject a record, for a value that is not kept as it is, and for
            an object that is null or missing.
    """

    path: Sequence[str]
    fields: frozenset[str]
    misfit: str
    lacks_object: str


@dataclass(frozen=True)
class DeadLetter:
    """The files of rejected records. `names`: of the columns, see `lake.write.dead_letter`.

    `values`: of the columns that are the same in all rows.
    """

    output: Output
    schema: pa.Schema
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ParseJob:
    """The settings that all tasks of a segment share.

    Attributes:
        output: gets the files of rows.
        key: one part at least must not be null, and no object that has one.
        nulled: the reasons to reject a record whose key or cursor is null in place of a value that did not
            fit, by the paths of the source's names.
        strict_reasons: the reasons to reject a record for a change of a value, by the number of its field.
        sync_ids: the start of the rows' ids, the generation and the sync id.
        partition: the value of `_elt_partition`; None if the table has no partitions.
        metadata: the names and types of the metadata columns, in their order.
        declared: all names that the stream's schema declares.
        extra: the name of the field that gets undeclared fields; None if they are not kept.
        dependent: the reasons for changes by which a row depends on those before it.
        keyless: the one of a row that needs no key.
    """

    output: Output
    fields: tuple[Field, ...]
    key: Sequence[KeyPart]
    strict_reasons: Mapping[int, str]
    sync_ids: tuple[str, int, int]
    partition: str | None
    metadata: pa.Schema
    declared: DeclaredNames
    extra: str | None
    dead_letter: DeadLetter
    nulled: Mapping[str, str] = field(default_factory=dict)
    dependent: Sequence[str] = ()
    keyless: str = ""

    @property
    def key_paths(self) -> frozenset[str]:
        """The paths of the key's fields, and of the objects around them."""
        return frozenset().union(*(part.fields for part in self.key))


@dataclass(frozen=True)
class LineRange:
    """Whole lines of one form in a segment.

    Attributes:
        number: of its piece (see `sync.segments.Piece`).
        first: the position in the stream of the first record of the piece.
        line: the number of its first line in the piece.
    """

    number: int
    form: str
    offset: int
    size: int
    first: int
    line: int
    received_at: int
    stream: str
    namespace: str | None


@dataclass(frozen=True)
class ParseTask:
    """The parts that one task parses. `source`: pyarrow's file system, and the path in it of the segment."""

    source: tuple[Any, str]
    parts: tuple[LineRange, ...]


@dataclass
class ParseResult:
    """The result of one task.

    Attributes:
        files: the files with the rows; several only in a table with partition columns.
        dead_files: the file with the rejected records, if there are any.
        changed: rows with changes.
        changes: how many rows have each change, by its name (see `change_counts`).
        reasons: how many records were rejected for each reason.
        dependent: the reasons for changes, of `ParseJob.dependent`, that the rows have.
        markers: how many rows are no records, but stand for the end of all rows of a table.
        rejected_sequence: the positions of the rejected records in their stream.
        undeclared: how many records have each undeclared field.
        foreign_lines: pairs of numbers for each line that is no record of the stream: its piece, and its
            number there.
    """

    files: Sequence[WrittenFile] = ()
    dead_files: Sequence[WrittenFile] = ()
    changed: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    dependent: set[str] = field(default_factory=set)
    markers: int = 0
    rejected_sequence: array[int] = field(default_factory=lambda: array("q"))
    undeclared: Counter[str] = field(default_factory=Counter)
    foreign_lines: array[int] = field(default_factory=lambda: array("q"))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(rows for _, _, rows, _, _ in self.files)

    @property
    def rejected(self) -> int:
        """The number of rejected records."""
        return sum(rows for _, _, rows, _, _ in self.dead_files)
