"""The metadata columns of the rows of a block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from elt_assets.lake.spark.parsing.envelopes import Heads
from elt_assets.lake.spark.parsing.job import ParseJob

_WIDTH = 36
_PREFIX = 24
_UTC = pa.timestamp("us", "UTC")

Entry = tuple[str | None, str | None, str | None]
"""A change: the field, the kind of the change and its reason."""
_MALFORMED: Entry = (None, None, "SOURCE_META_MALFORMED")
"""What stands for a change that cannot be read. Its values are not quoted: they may be those of fields that
must not be stored."""


def build_metadata_columns(
    job: ParseJob, head: Heads, changes: Sequence[Sequence[Entry]] | pa.ListArray | None
) -> list[pa.Array]:
    """Return the metadata columns, in the order of `ParseJob.metadata`.

    Args:
        changes: those of each row, also as a column; None if there are none.
    """
    prefix, generation, sync = job.sync_ids
    rows, meta = len(head.times), job.metadata.field(3).type
    ids = _ids(prefix, head.sequence)
    if head.row_ids is not None:
        ids = _restore_ids(prefix, head, ids)
    columns = [
        ids,
        pa.array(head.times * 1000).cast(_UTC),
        pa.repeat(pa.scalar(generation, pa.int64()), rows),
        pa.StructArray.from_arrays(
            [
                pa.repeat(pa.scalar(sync, pa.int64()), rows),
                _lists(changes, rows, meta.field(1).type),
            ],
            fields=list(meta),
        ),
    ]
    if job.partition is not None:
        columns.append(pa.repeat(pa.scalar(job.partition, pa.string()), rows))
    return columns


def _ids(prefix: str, sequence: np.ndarray) -> pa.Array:
    """Return the rows' ids: the prefix, and the position of the record in its stream in hexadecimal."""
    rows = len(sequence)
    out = np.empty((rows, _WIDTH), np.uint8)
    out[:, :_PREFIX] = np.frombuffer(prefix.encode(), np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    for digit in range(_WIDTH - _PREFIX):
        out[:, _WIDTH - 1 - digit] = digits[(sequence >> (4 * digit)) & 15]
    offsets = np.arange(0, _WIDTH * (rows + 1), _WIDTH, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _restore_ids(prefix: str, head: Heads, own: pa.Array) -> pa.Array:
    """Return the ids of replayed rows: their own, or ones as if their sync had started when they were
    extracted."""
    assert head.row_ids is not None
    ids = own.to_pylist()
    for number, (row_id, extracted_at) in enumerate(
        zip(head.row_ids, head.times.tolist(), strict=True)
    ):
        time = f"{extracted_at:012x}"
        ids[number] = row_id or f"{time[:8]}-{time[8:]}{prefix[13:]}{ids[number][_PREFIX:]}"
    return pa.array(ids, pa.string())


def read_reported_changes(meta: Any) -> list[Entry]:
    """Return the changes that the source itself reports in a record's `meta`.

    One that is not as in the protocol is a change of an unknown field, with the reason of `_MALFORMED`.
    """
    try:
        changes = (msgspec.json.decode(meta) or {}).get("changes") or ()
        entries = [(item.get("field"), item.get("change"), item.get("reason")) for item in changes]
    except (msgspec.MsgspecError, TypeError, AttributeError, RecursionError):
        return [_MALFORMED]
    return [
        entry if all(text is None or isinstance(text, str) for text in entry) else _MALFORMED
        for entry in entries
    ]


def _lists(
    changes: Sequence[Sequence[Entry]] | pa.ListArray | None, rows: int, type_: pa.ListType
) -> pa.ListArray:
    if isinstance(changes, pa.ListArray):
        return changes
    if changes is None:
        offsets = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], type_.value_type), type=type_)
    ends = np.cumsum([0, *map(len, changes)])
    entries = list(chain.from_iterable(changes))
    parts = [pa.array([entry[n] for entry in entries], pa.string()) for n in range(3)]
    values = pa.StructArray.from_arrays(parts, fields=list(type_.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=type_)
