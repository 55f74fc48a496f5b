"""The description of a parsing job: the input of its tasks and their results."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from elt_assets.lake.spark.parsing.undeclared import Declared

ROWS, AIRBYTE, SINGER = "rows", "airbyte", "singer"
"""The forms of a part's lines (see `protocol.airbyte.messages.Form`)."""

TEXTS = ("JSON", "JSON_OBJECT", "JSON_ARRAY")
RAW = frozenset({*TEXTS, "BIG_NUMBER", "BIG_INTEGER", "INTEGER_TEXT", "NUMBER_TEXT"})
"""Kinds whose values are taken as they stand in the line: pyarrow has no type that keeps their text."""
ARRAY, STRUCT, UNREAD = "ARRAY", "STRUCT", "UNREAD"


@dataclass(frozen=True)
class Field:
    """A column, a field nested in one, or the element of an array.

    Attributes:
        kind: the name of a `Scalar`, or ARRAY, STRUCT or UNREAD.
        type: the type of the column in the file.
        inner: the fields of an object, or the one element of an array.
    """

    source: str
    name: str
    kind: str
    type: pa.DataType
    inner: tuple[Field, ...] = ()

    @property
    def has_raw(self) -> bool:
        """Return whether a value in this field is taken as it stands in the line."""
        return self.kind in RAW or any(each.has_raw for each in self.inner)

    @property
    def leaves(self) -> int:
        """The number of scalars in this field."""
        return sum(each.leaves for each in self.inner) if self.inner else 1


@dataclass(frozen=True)
class Names:
    """The names of the properties that this project adds to a line of the form ROWS."""

    extracted_at: str
    sequence: str
    meta: str
    others: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (self.extracted_at, self.sequence, self.meta, *self.others)

    @property
    def all_names(self) -> frozenset[str]:
        return frozenset(self.all)


@dataclass(frozen=True)
class Job:
    """The settings that all tasks of a segment share.

    Attributes:
        root: pyarrow's file system, and the path in it of the table.
        folder: the folder in the table that gets the files.
        key: paths of columns; one at least must not be null, and no object that has one.
        stamp: the start of the rows' ids, the generation and the sync id.
        partition: the value of `_elt_partition`; None if the table has no partitions.
        metadata: the names and types of the metadata columns, in their order.
        declared: all names that the stream's schema declares; `names_are_read`: they are those of `fields`.
        keeps_undeclared: a line with an undeclared field is not clean.
        max_bytes: the size of the longest clean line.
        max_unclean: the share of lines that are not clean above which a task gives up.
    """

    root: tuple[Any, str]
    folder: str
    fields: tuple[Field, ...]
    key: Sequence[Sequence[str]]
    stamp: tuple[str, int, int]
    partition: str | None
    metadata: pa.Schema
    names: Names
    declared: Declared
    names_are_read: bool
    keeps_undeclared: bool
    max_bytes: int
    max_unclean: float


@dataclass(frozen=True)
class Part:
    """Whole lines of one form in a segment (see `sync.segments.Piece`). `number`: of its piece.

    `line`: the number of its first line in the piece.
    """

    number: int
    form: str
    offset: int
    size: int
    first: int
    line: int
    records: int
    received_at: int
    stream: str
    namespace: str | None


@dataclass(frozen=True)
class Task:
    """The parts that one task parses. `source`: pyarrow's file system, and the path in it of the segment."""

    source: tuple[Any, str]
    parts: tuple[Part, ...]


@dataclass
class Result:
    """The result of one task.

    Attributes:
        path: of the file, relative to the table's root; empty if no line was clean.
        stats: Delta's statistics of the file, as JSON.
        changed: rows with changes that the source has reported.
        unclean: four numbers for each line that is not clean: its piece, its number there, the position of
            its first byte in the segment, and its size.
        gave_up: too many lines were not clean; nothing was written.
    """

    path: str = ""
    size: int = 0
    rows: int = 0
    stats: str = ""
    changed: int = 0
    unclean: array[int] = field(default_factory=lambda: array("q"))
    undeclared: Counter[str] = field(default_factory=Counter)
    gave_up: bool = False

    @property
    def unclean_count(self) -> int:
        """The number of lines that are not clean."""
        return len(self.unclean) // 4
