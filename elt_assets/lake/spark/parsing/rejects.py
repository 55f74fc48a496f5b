"""Rejected records: the reasons for which a record has no row, and its row in the dead letter.

A record is rejected if it is not readable; if it lacks all parts of its key, or an object that has one; or if
a value in its key or in a strict column is not kept as it is. It is rejected, too, if its cursor or a part of
its key is null in place of a value that did not fit, here or in the source: two values would be one, and the
newest row would be the oldest, since null is the least. The dead letter has its data as received, and the
whole line only if that cannot be read. A record that says that the table was truncated needs no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.spark.parsing.envelopes import Envelope
from elt_assets.lake.spark.parsing.job import KeyPart, LineRange, ParseJob
from elt_assets.lake.spark.types.changes import NULLED, BlockChanges
from elt_assets.lake.spark.types.fields import DECODING_ERRORS
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
