"""The parse of blocks of lines to rows in columns, and to rows of the dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa

from elt_assets.lake.spark.parsing.change_counts import count_entries
from elt_assets.lake.spark.parsing.envelopes import Heads, make_envelope
from elt_assets.lake.spark.parsing.job import LineRange, ParseJob
from elt_assets.lake.spark.parsing.records import BlockRecords, RecordReader
from elt_assets.lake.spark.parsing.rejects import DeadLetterRows, find_rejects
from elt_assets.lake.spark.parsing.row_metadata import (
    Entry,
    build_metadata_columns,
    read_reported_changes,
)
from elt_assets.lake.spark.types.changes import WHOLE_RECORD
from elt_assets.lake.spark.types.columns import MAX_BYTES, ColumnBuilder
from elt_assets.lake.spark.types.numbers import has_long_number, has_small_number

_NO_CHANGES: list[Entry] = []


@dataclass
class BlockRows:
    """The result for a block."""

    batch: pa.RecordBatch  # the rows
    # The rows of rejected records in the dead letter; None if there are none.
    dead: pa.RecordBatch | None
    # The numbers, in the piece, of lines that are no record of the stream.
    foreign_lines: Sequence[int]
    changed: int  # the number of rows with changes
    changes: Counter[Entry]  # how many rows have each change
    reasons: Counter[str]  # how many records were rejected for each reason
    undeclared: Counter[str]  # how many records have each undeclared field
    # The reasons for changes, of `ParseJob.dependent`, that the rows have.
    dependent: AbstractSet[str] = frozenset()
    markers: int = 0  # how many rows stand for the end of all rows of a table: they are no records


class BlockParser:
    """Parses the blocks of one stream in one form.

    Args:
        part: a part with lines of this stream and form.
    """

    def __init__(self, job: ParseJob, part: LineRange):
        self._job = job
        self._envelope = make_envelope(part)
        self._reader = RecordReader(job, part.form, self._envelope)
        self._dead_letter = DeadLetterRows(job, self._envelope)
        names = [field.name for field in job.fields]
        types = [field.type for field in job.fields]
        self._schema = pa.schema([*map(pa.field, names, types), *job.metadata])

    def parse(
        self,
        block: bytes,
        numbers: np.ndarray,
        part: LineRange,
        *,
        keeps_number_texts: bool = False,
    ) -> BlockRows:
        """Parse a block of whole lines.

        The decoder rounds numbers to doubles without a word. So a block that may have one of which a double
        does not keep all digits is decoded with its numbers as they stand in the lines.

        Args:
            numbers: of its lines in the piece of the part.
            keeps_number_texts: it may have such a number.
        """
        keeps_number_texts = keeps_number_texts or has_long_number(block)
        records = self._reader.read(block, len(numbers), keeps_number_texts=keeps_number_texts)
        positions = [number for number, line in enumerate(records.lines) if line is not None]
        lines = [records.lines[number] for number in positions]
        builder = ColumnBuilder(
            records.changes.add,
            has_long_values=len(block) > MAX_BYTES,
            keeps_number_texts=keeps_number_texts,
        )
        objects = list(map(self._envelope.data, lines))
        arrays = builder.build(
            self._job.fields, objects, WHOLE_RECORD, positions, self._reader.raw_fields
        )
        # A number such as 1e-400 is not long, so only the double that it became, almost zero, shows it.
        if builder.has_tiny and not keeps_number_texts and has_small_number(block):
            return self.parse(block, numbers, part, keeps_number_texts=True)
        head = self._envelope.read_heads(lines, numbers[positions], part)
        entries = _entries(head, positions, records)
        arrays += build_metadata_columns(self._job, head, entries)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        rejects = find_rejects(self._job, batch, positions, records.changes)
        if rejects:
            is_kept = [number not in rejects for number in positions]
            batch = batch.filter(pa.array(is_kept))
            entries = entries and list(compress(entries, is_kept))
        rejects |= records.rejected
        changes = count_entries(entries or ())
        return BlockRows(
            batch,
            self._dead_letter.batch(block, numbers, part, rejects) if rejects else None,
            numbers[records.foreign_lines].tolist(),
            sum(any(entry[2] != self._job.keyless for entry in row) for row in entries or ()),
            changes,
            Counter(rejects.values()),
            records.undeclared,
            set(self._job.dependent).intersection(entry[2] for entry in changes),
        )


def _entries(
    head: Heads, positions: Sequence[int], records: BlockRecords
) -> list[list[Entry]] | None:
    """Return the changes of each record, those that the source reports first; None if there are none."""
    if not records.changes.by_line and not any(head.metas):
        return None
    by_line = records.changes.by_line
    return [
        [
            *(read_reported_changes(meta) if meta else ()),
            *(change[1:] for change in records.changes.list_for(line)),
        ]
        if meta or line in by_line
        else _NO_CHANGES
        for line, meta in zip(positions, head.metas, strict=True)
    ]
