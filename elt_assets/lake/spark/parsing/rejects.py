"""Rejected records: the reasons for which a record has no row, and its row in the dead letter.

A record is rejected if it is not readable; if it lacks all parts of its key, or an object that has one; or if
a value in its key or in a strict column is not kept as it is. The dead letter has its data as received, and
the whole line only if that cannot be read. A record that says that the table was truncated needs no key.
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
from elt_assets.lake.spark.types.changes import BlockChanges
from elt_assets.lake.spark.types.fields import DECODING_ERRORS
from elt_assets.protocol.airbyte.recovery.texts import read


def find_rejects(
    job: ParseJob, batch: pa.RecordBatch, positions: Sequence[int], changes: BlockChanges
) -> dict[int, str]:
    """Return the reasons to reject rows, by the positions of their lines.

    Args:
        positions: the positions of the rows' lines.
    """
    if not job.key and not job.strict_reasons:
        return {}
    reasons = _find_missing_keys(job.key, batch, positions)
    if reasons:
        for row in _find_keyless(job, batch):
            reasons.pop(positions[row], None)
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


def _find_keyless(job: ParseJob, batch: pa.RecordBatch) -> list[int]:
    """Return the numbers of the rows that need no key."""
    changes = pc.struct_field(batch.column(job.metadata.names[3]), "changes")
    reasons = pc.struct_field(pc.list_flatten(changes), "reason")
    owners = pc.list_parent_indices(changes)
    return list(owners.filter(pc.equal(reasons, job.keyless)).to_pylist())


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
