"""The description of a parsing job: the input and results of its tasks, and the fields that are undeclared.

`write.parsing` makes the job, and the tasks (`lines`, `slices`, and what they call) do it; `records` finds
the undeclared fields, and `pipeline.progress` describes them.

Undeclared fields are found by name at any depth of an object, and counted by dotted name.

A source may rename a field in case only before its catalog does, and dead letters have the former name. So a
field whose name differs from a declared one in case only is that field (`rename_fields`), unless its object
has another field that could be it, or the schema declares another field that it could be.
"""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.worker.inference import Schema, infer, merge_all
from elt_assets.lake.worker.kinds import Field
from elt_assets.lake.worker.parquet import Output, WrittenFile

MAX_NAMES = 100
"""Maximum number of names that are counted one by one. Records with another name are counted as `OTHERS`."""
OTHERS = "(other fields)"
_OBJECT, _ARRAY = b"{["

Extra: TypeAlias = "Raw | dict[str, Extra] | list[Extra | None]"
"""An undeclared value; or, for a declared object or array, the undeclared values in it."""


@dataclass(frozen=True)
class DeclaredNames:
    """The names that an object may have."""

    names: frozenset[str]
    objects: Mapping[str, DeclaredNames]  # the same for the values that are objects, by name
    # The names by their lower case, without those that differ in case only.
    by_lower_case: Mapping[str, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        counts = Counter(map(str.lower, self.names))
        only = {name.lower(): name for name in self.names if counts[name.lower()] == 1}
        object.__setattr__(self, "by_lower_case", only)


def find_undeclared(value: Raw, declared: DeclaredNames) -> Extra | None:
    """Return the undeclared fields of a value; None if it has none.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        extra: dict[str, Extra] = {
            name: inner for name, inner in fields.items() if name not in declared.names
        }
        for name, within in declared.objects.items():
            if name in fields and (inner := find_undeclared(fields[name], within)) is not None:
                extra[name] = inner
        return extra or None
    if first == _ARRAY:
        items = msgspec.json.decode(value, type=list[Raw])
        extras = [find_undeclared(item, declared) for item in items]
        return extras if any(item is not None for item in extras) else None
    return None


def find_unknown(value: Raw, declared: DeclaredNames) -> Extra | None:
    """Return the undeclared fields of a value, without those that differ from a declared one in case only.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    extra = find_undeclared(value, declared)
    if extra is None or not has_variant(extra, declared):
        return extra
    return find_undeclared(rename_fields(value, declared), declared)


def has_variant(extra: Extra | None, declared: DeclaredNames) -> bool:
    """Return whether the name of an undeclared field differs from a declared one in case only."""
    if isinstance(extra, dict):
        return any(
            name.lower() in declared.by_lower_case
            if isinstance(value, Raw)
            else has_variant(value, declared.objects[name])
            for name, value in extra.items()
        )
    return isinstance(extra, list) and any(has_variant(item, declared) for item in extra)


def rename_fields(value: Raw, declared: DeclaredNames) -> Raw:
    """Return a value whose fields have their declared names; the value itself if no name changes.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        variants = Counter(map(str.lower, fields))
        result = {}
        for name, inner in fields.items():
            is_only = variants[name.lower()] == 1
            own = declared.by_lower_case.get(name.lower(), name) if is_only else name
            within = declared.objects.get(own)
            result[own] = inner if within is None else rename_fields(inner, within)
        is_same = all(result.get(name) is inner for name, inner in fields.items())
        return value if is_same else Raw(msgspec.json.encode(result))
    if first == _ARRAY:
        items = msgspec.json.decode(value, type=list[Raw])
        results = [rename_fields(item, declared) for item in items]
        is_same = all(map(operator.is_, items, results))
        return value if is_same else Raw(msgspec.json.encode(results))
    return value


def describe_extra(extra: Extra | None) -> Schema:
    """Return the schema of undeclared fields: of a declared object or array, that of the undeclared ones."""
    if isinstance(extra, dict):
        return {"type": ["object"], "properties": {n: describe_extra(v) for n, v in extra.items()}}
    if isinstance(extra, list):
        return {"type": ["array"], "items": merge_all(map(describe_extra, extra))}
    return infer(extra)


def count_names(counts: Counter[str], extra: Extra) -> None:
    """Count each name of a record once, even if it occurs several times in an array. Memory stays bounded."""
    names: set[str] = set()
    _collect(extra, "", names)
    is_beyond = False
    for name in names:
        if name in counts or len(counts) < MAX_NAMES:
            counts[name] += 1
        else:
            is_beyond = True
    if is_beyond:
        counts[OTHERS] += 1


def _collect(extra: Extra | None, prefix: str, names: set[str]) -> None:
    if isinstance(extra, dict):
        for name, value in extra.items():
            path = f"{prefix}.{name}" if prefix else name
            if isinstance(value, Raw):
                names.add(path)
            else:
                _collect(value, path, names)
    elif isinstance(extra, list):
        for item in extra:
            _collect(item, prefix, names)


ROWS, AIRBYTE, SINGER = "rows", "airbyte", "singer"
"""The forms of a part's lines (see `protocol.messages.Form`)."""


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
    # The types of undeclared fields are inferred from their values.
    infers: bool = False
    # Fields with a column count as undeclared, so that their types are inferred (`SegmentParser.reopen`).
    is_reopened: bool = False
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
    # How many rows have each change, by its name (see `blocks.FieldChange`).
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
    # The schemas of undeclared fields by their names, if they are inferred (see `inference`).
    inferred: dict[str, Any] = field(default_factory=dict)
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
