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
    """A part of the key."""

    path: Sequence[str]  # the names of its column, and of the fields nested in it
    # The paths, of the source's names, of the field and of the objects around it.
    fields: frozenset[str]
    # `misfit`, `lacks_object`: the reasons to reject a record, for a value that is not kept as it is, and for
    # an object that is null or missing.
    misfit: str
    lacks_object: str


@dataclass(frozen=True)
class DeadLetter:
    """The files of rejected records."""

    output: Output
    schema: pa.Schema  # its columns: see `lake.write.dead_letter`
    values: Mapping[str, Any]  # of the columns that are the same in all rows


@dataclass(frozen=True)
class ParseJob:
    """The settings that all tasks of a segment share."""

    output: Output  # gets the files of rows
    fields: tuple[Field, ...]
    key: Sequence[KeyPart]  # one part at least must not be null, and no object that has one
    # The reasons to reject a record for a change of a value, by the number of its field.
    strict_reasons: Mapping[int, str]
    sync_ids: tuple[str, int, int]  # the start of the rows' ids, the generation and the sync id
    partition: str | None  # the value of `_elt_partition`; None if the table has no partitions
    metadata: pa.Schema  # the names and types of the metadata columns, in their order
    declared: DeclaredNames  # all names that the stream's schema declares
    # The name of the field that gets undeclared fields; None if they are not kept.
    extra: str | None
    dead_letter: DeadLetter
    # The reasons to reject a record whose key or cursor is null in place of a value that did not fit, by the
    # paths of the source's names.
    nulled: Mapping[str, str] = field(default_factory=dict)
    # The reasons for changes by which a row depends on those before it.
    dependent: Sequence[str] = ()
    keyless: str = ""  # the one of a row that needs no key

    @property
    def key_paths(self) -> frozenset[str]:
        """The paths of the key's fields, and of the objects around them."""
        return frozenset().union(*(part.fields for part in self.key))


@dataclass(frozen=True)
class LineRange:
    """Whole lines of one form in a segment."""

    number: int  # of its piece (see `sync.segments.Piece`)
    form: str
    offset: int
    size: int
    first: int  # the position in the stream of the first record of the piece
    line: int  # the number of its first line in the piece
    received_at: int
    stream: str
    namespace: str | None


@dataclass(frozen=True)
class ParseTask:
    """The parts that one task parses."""

    source: tuple[Any, str]  # pyarrow's file system, and the path in it of the segment
    parts: tuple[LineRange, ...]


@dataclass
class ParseResult:
    """The result of one task."""

    # The files with the rows; several only in a table with partition columns.
    files: Sequence[WrittenFile] = ()
    dead_files: Sequence[WrittenFile] = ()  # the file with the rejected records, if there are any
    changed: int = 0  # rows with changes
    # How many rows have each change, by its name (see `change_counts`).
    changes: Counter[str] = field(default_factory=Counter)
    # How many records were rejected for each reason.
    reasons: Counter[str] = field(default_factory=Counter)
    # The reasons for changes, of `ParseJob.dependent`, that the rows have.
    dependent: set[str] = field(default_factory=set)
    markers: int = 0  # how many rows are no records, but stand for the end of all rows of a table
    # The positions of the rejected records in their stream.
    rejected_sequence: array[int] = field(default_factory=lambda: array("q"))
    # How many records have each undeclared field.
    undeclared: Counter[str] = field(default_factory=Counter)
    # Pairs of numbers for each line that is no record of the stream: its piece, and its number there.
    foreign_lines: array[int] = field(default_factory=lambda: array("q"))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(rows for _, _, rows, _, _ in self.files)

    @property
    def rejected(self) -> int:
        """The number of rejected records."""
        return sum(rows for _, _, rows, _, _ in self.dead_files)
