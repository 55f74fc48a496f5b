"""The parse of blocks of lines: rows, and the lines that have none with the reasons for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.parsing.envelopes import Head, envelope_of
from elt_assets.lake.spark.parsing.job import Job, Part
from elt_assets.lake.spark.parsing.records import RecordReader, Records
from elt_assets.lake.spark.parsing.stamp import Entry, reported, stamped
from elt_assets.lake.spark.types.changes import RECORD
from elt_assets.lake.spark.types.columns import MAX_BYTES, Columns
from elt_assets.lake.spark.types.numbers import has_long_number, has_small_number

_NO_CHANGES: list[Entry] = []


@dataclass
class Rows:
    """The result for a block.

    Attributes:
        batch: the rows.
        rejected: the reasons for which lines have no row, by the position of the line.
        foreign: the positions of lines that are no record of the stream.
        changed: the number of rows with changes.
        undeclared: how many records have each undeclared field.
    """

    batch: pa.RecordBatch
    rejected: Mapping[int, str]
    foreign: Sequence[int]
    changed: int
    undeclared: Counter[str] = field(default_factory=Counter)


class BlockParser:
    """Parses the blocks of one stream in one form.

    Args:
        part: a part with lines of this stream and form.
    """

    def __init__(self, job: Job, part: Part):
        self._job = job
        self._envelope = envelope_of(part)
        self._reader = RecordReader(job, part.form, self._envelope)
        names = [each.name for each in job.fields]
        types = [each.type for each in job.fields]
        self._schema = pa.schema([*map(pa.field, names, types), *job.metadata])

    def parse(
        self, block: bytes, numbers: np.ndarray, part: Part, *, is_exact: bool = False
    ) -> Rows:
        """Parse a block of whole lines.

        The decoder rounds numbers to doubles without a word. So a block that may have one of which a double
        does not keep all digits is decoded with its numbers as they stand in the lines.

        Args:
            numbers: of its lines in the piece of the part.
            is_exact: it may have such a number.
        """
        is_exact = is_exact or has_long_number(block)
        records = self._reader.read(block, len(numbers), is_exact=is_exact)
        present = [number for number, line in enumerate(records.lines) if line is not None]
        lines = [records.lines[number] for number in present]
        columns = Columns(
            records.changes.add, has_long_values=len(block) > MAX_BYTES, is_exact=is_exact
        )
        objects = list(map(self._envelope.data, lines))
        arrays = columns.of_objects(self._job.fields, objects, RECORD, present, self._reader.raw)
        if columns.has_tiny and not is_exact and has_small_number(block):
            return self.parse(block, numbers, part, is_exact=True)
        head = self._envelope.head(lines, numbers[present], part)
        entries = _entries(head, present, records)
        arrays += stamped(self._job, head, entries)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        rejected = {**records.rejected, **self._rejected(batch, present, records)}
        if len(rejected) > len(records.rejected):
            is_kept = [number not in rejected for number in present]
            batch = batch.filter(pa.array(is_kept))
            entries = entries and [e for e, kept in zip(entries, is_kept, strict=True) if kept]
        changed = sum(map(bool, entries)) if entries else 0
        return Rows(batch, rejected, records.foreign, changed, records.undeclared)

    def _rejected(
        self, batch: pa.RecordBatch, present: Sequence[int], records: Records
    ) -> dict[int, str]:
        """Return the reasons to reject records for their key, or for a value of a strict column."""
        if not self._job.key and not self._job.strict:
            return {}
        rejected = dict(self._key_faults(batch, present))
        for line, changes in records.changes.by_line.items():
            for change in changes:
                strict = self._job.strict.get(change.order[0])
                if strict is not None:
                    rejected[line] = strict
                    break
                part = self._job.key_part(change.field)
                if part is not None:
                    rejected[line] = part.misfit
        kept = set(present)
        return {line: reason for line, reason in rejected.items() if line in kept}

    def _key_faults(
        self, batch: pa.RecordBatch, present: Sequence[int]
    ) -> Iterator[tuple[int, str]]:
        """Yield the lines that lack their key: an object that has a part of it, or all parts."""
        key = self._job.key
        if not key:
            return
        nulls = [_at(batch, part.path).is_null() for part in key]
        for row in _rows(reduce(pc.and_, nulls)):
            yield present[row], "every field of the primary key is null"
        for part in key:
            if len(part.path) > 1:
                for row in _rows(_at(batch, part.path[:-1]).is_null()):
                    yield present[row], part.lacks_object


def _rows(flags: Any) -> list[int]:
    return list(np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist())


def _at(batch: pa.RecordBatch, path: Sequence[str]) -> Any:
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _entries(head: Head, present: Sequence[int], records: Records) -> list[list[Entry]] | None:
    """Return the changes of each record, those that the source reports first; None if there are none."""
    if not records.changes.by_line and not any(head.metas):
        return None
    by_line = records.changes.by_line
    return [
        [
            *(reported(meta) if meta else ()),
            *(change[1:] for change in records.changes.of(line)),
        ]
        if meta or line in by_line
        else _NO_CHANGES
        for line, meta in zip(present, head.metas, strict=True)
    ]
