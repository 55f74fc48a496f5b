"""The parse of blocks of lines to rows and rejected records; and the names of changes, for reports.

The tasks parse with it (`lines`, `slice_batches`). Reports of `pipeline`, `orchestration` and `cli` read a
change from its name (`parse_name`), and `write.writer` limits the number of names.

A record is rejected if it is not readable; if it lacks all parts of its key, or an object that has one; or if
a value in its key or in a strict column is not kept as it is. It is rejected, too, if its cursor or a part of
its key is null in place of a value that did not fit, here or in the source: two values would be one, and the
newest row would be the oldest, since null is the least. The dead letter has its data as received, and the
whole line only if that cannot be read. A record that says that the table was truncated needs no key.

First the reasons to reject records, and their rows in the dead letter; then the counts of records by what was
changed in them (the field, the kind of the change, and its reason), where only records with changes cost
time: the others have no entries; then `BlockParser`, which uses both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.worker.columns import MAX_BYTES, ColumnBuilder
from elt_assets.lake.worker.envelopes import (
    Entry,
    Envelope,
    Heads,
    build_metadata_columns,
    make_envelope,
    read_reported_changes,
)
from elt_assets.lake.worker.job import MAX_NAMES, OTHERS, KeyPart, LineRange, ParseJob
from elt_assets.lake.worker.kinds import DECODING_ERRORS
from elt_assets.lake.worker.records import BlockRecords, RecordReader
from elt_assets.lake.worker.values import (
    NULLED,
    WHOLE_RECORD,
    BlockChanges,
    has_long_number,
    has_small_number,
)
from elt_assets.protocol.wire import read


def find_rejects(
    job: ParseJob, batch: pa.RecordBatch, positions: Sequence[int], changes: BlockChanges
) -> dict[int, str]:
    """Return the reasons to reject rows, by the positions of their lines.

    Args:
        positions: the positions of the rows' lines.
    """
    if not job.key and not job.strict_reasons:
        return {}
    reported = _Reported(job, batch)
    reasons = {positions[row]: reason for row, reason in reported.find_nulled().items()}
    missing = _find_missing_keys(job.key, batch, positions)
    if missing:
        for row in reported.find_keyless():
            missing.pop(positions[row], None)
    reasons |= missing
    misfits = {path: part.misfit for part in reversed(job.key) for path in part.fields}
    for line, entries in changes.by_line.items():
        for entry in entries:
            if entry.order[0] in job.strict_reasons:
                reasons[line] = job.strict_reasons[entry.order[0]]
                break
            if entry.field in misfits:
                reasons[line] = misfits[entry.field]
    return reasons


def _find_missing_keys(
    key: Sequence[KeyPart], batch: pa.RecordBatch, positions: Sequence[int]
) -> dict[int, str]:
    """Return the reasons for rows that lack all parts of their key, or an object that has a part of it."""
    faults = [(_column(batch, p.path[:-1]).is_null(), p.lacks_object) for p in key if p.path[1:]]
    if key:
        are_null = reduce(pc.and_, [_column(batch, part.path).is_null() for part in key])
        faults.insert(0, (are_null, "every field of the primary key is null"))
    return {
        positions[row]: reason
        for flags, reason in faults
        for row in np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist()
    }


class _Reported:
    """The changes of the rows of a batch: those that the source reports, and those that were made here."""

    def __init__(self, job: ParseJob, batch: pa.RecordBatch):
        self._job = job
        changes = pc.struct_field(batch.column(job.metadata.names[3]), "changes")
        self._owners = pc.list_parent_indices(changes)
        self._entries = pc.list_flatten(changes)

    def find_keyless(self) -> list[int]:
        """Return the numbers of the rows that need no key."""
        reasons = pc.struct_field(self._entries, "reason")
        return list(self._owners.filter(pc.equal(reasons, self._job.keyless)).to_pylist())

    def find_nulled(self) -> dict[int, str]:
        """Return the numbers of the rows with such a null in their key or cursor, and the reasons."""
        if not len(self._entries):
            return {}
        fields, kinds, reasons = (
            pc.struct_field(self._entries, name) for name in ("field", "change", "reason")
        )
        names_of_order, left_out = (
            pa.array(list(texts), pa.string()) for texts in (self._job.nulled, self._job.dependent)
        )
        nulled = pc.and_(pc.equal(kinds, NULLED), pc.is_in(fields, names_of_order))
        # A value that is left out because it has not changed is that of the row before.
        is_left_out = pc.is_in(reasons, left_out)
        chosen = pc.fill_null(pc.and_not(nulled, is_left_out), False)
        rows, names = self._owners.filter(chosen), fields.filter(chosen)
        return {
            row: self._job.nulled[name]
            for row, name in zip(rows.to_pylist(), names.to_pylist(), strict=True)
        }


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> Any:
    values = batch.column(path[0])
    return pc.struct_field(values, path[1:]) if path[1:] else values


class DeadLetterRows:
    """Makes the rows of rejected records."""

    def __init__(self, job: ParseJob, envelope: Envelope):
        self._job, self._envelope = job, envelope
        self._decode = msgspec.json.Decoder(envelope.line_type(Raw)).decode

    def batch(
        self, block: bytes, numbers: np.ndarray, part: LineRange, reasons: Mapping[int, str]
    ) -> pa.RecordBatch:
        """Return the rows of the lines of a block that have a reason, by their position."""
        lines, dead = block.split(b"\n"), self._job.dead_letter
        rows = [
            {
                "reason": reasons[number],
                **self._row(lines[number], numbers[number : number + 1], part),
                **dead.values,
            }
            for number in sorted(reasons)
        ]
        return pa.RecordBatch.from_pylist(rows, dead.schema)

    def _row(self, line: bytes, number: np.ndarray, part: LineRange) -> dict[str, Any]:
        try:
            whole = read(self._decode, line)
        except DECODING_ERRORS:  # the line is not JSON besides its texts
            return {"record": line.decode("utf-8", "replace"), "place": int(part.first + number[0])}
        data = bytes(self._envelope.data(whole))
        head = self._envelope.read_heads([whole], number, part)
        sequence, (meta,) = int(head.sequence[0]), head.metas
        is_object = data[:1] == b"{"
        return {
            "record": data.decode("utf-8", "replace"),
            "place": sequence,
            "row_id": f"{self._job.sync_ids[0]}{sequence:012x}"
            if head.row_ids is None
            else head.row_ids[0] or None,
            "extracted_at": int(head.times[0]) * 1000 if is_object else None,
            "meta": bytes(meta).decode("utf-8", "replace") if meta and is_object else None,
        }


MAX_TEXT = 300
"""Maximum characters of each part of a count's name: a source reports changes in its own words."""
_UNKNOWN = "UNKNOWN"


class FieldChange(NamedTuple):
    """What was changed."""

    field: str  # its dotted name; "" for the whole record
    change: str
    reason: str

    @property
    def name(self) -> str:
        """The name of its count: one text, since results of tasks are JSON. See `parse_name`."""
        return f"{self.change} {self.reason} {self.field}"


OTHER_CHANGES = FieldChange(OTHERS, _UNKNOWN, _UNKNOWN)
"""All changes beyond the first `MAX_NAMES`."""


def parse_name(name: str) -> FieldChange:
    """Return the change that a count is of."""
    change, reason, field = name.split(" ", 2)
    return FieldChange(field, change, reason)


def count_changes(counts: Counter[str], entries: Mapping[Entry, int], ignored: str) -> None:
    """Count changes; those beyond the first `MAX_NAMES` together.

    Args:
        entries: how many records have each change.
        ignored: a reason that is not counted.
    """
    for (path, change, reason), records in entries.items():
        if reason == ignored:
            continue
        name = FieldChange(_cut(path), _word(change), _word(reason)).name
        is_known = name in counts or len(counts) < MAX_NAMES
        counts[name if is_known else OTHER_CHANGES.name] += records


def count_entries(rows: Iterable[Iterable[Entry]]) -> Counter[Entry]:
    """Return how many rows have each change: one that a source reports twice counts once."""
    return Counter(entry for row in rows if row for entry in dict.fromkeys(row))


def _word(text: str | None) -> str:
    """Return a name of the protocol, or of a source, as one word."""
    return "_".join(_cut(text).split()) or _UNKNOWN


def _cut(text: str | None) -> str:
    return (text or "")[:MAX_TEXT]


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
    # The schemas of undeclared fields by their names, if they are inferred.
    inferred: Mapping[str, Any] = field(default_factory=dict)


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
            inferred=records.inferred,
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
