"""The metadata columns of the rows of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from elt_assets.lake.spark.parsing.envelopes import Head
from elt_assets.lake.spark.parsing.job import Job

_WIDTH = 36
_PREFIX = 24


def stamped(job: Job, head: Head) -> list[Any]:
    """Return the metadata columns, in the order of `Job.metadata`."""
    prefix, generation, sync = job.stamp
    rows, meta = head.rows, job.metadata.field(3).type
    columns = [
        _ids(prefix, head.sequence),
        head.extracted_at,
        pa.repeat(pa.scalar(generation, pa.int64()), rows),
        pa.StructArray.from_arrays(
            [pa.repeat(pa.scalar(sync, pa.int64()), rows), _changes(head, meta.field(1).type)],
            fields=list(meta),
        ),
    ]
    if job.partition is not None:
        columns.append(pa.repeat(pa.scalar(job.partition, pa.string()), rows))
    return columns


def _ids(prefix: str, sequence: np.ndarray) -> pa.Array:
    """Return the rows' ids: the prefix, and the place of the record in hexadecimal."""
    rows = len(sequence)
    out = np.empty((rows, _WIDTH), np.uint8)
    out[:, :_PREFIX] = np.frombuffer(prefix.encode(), np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    for place in range(_WIDTH - _PREFIX):
        out[:, _WIDTH - 1 - place] = digits[(sequence >> (4 * place)) & 15]
    offsets = np.arange(0, _WIDTH * (rows + 1), _WIDTH, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _changes(head: Head, type_: pa.DataType) -> Any:
    """Return the changes that the source has reported; an empty list where there are none."""
    if head.changes is None:
        offsets = pa.array(np.zeros(head.rows + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], type_.value_type), type=type_)
    values = [[] if each is None else each for each in head.changes.to_pylist()]
    return pa.array(values, type_)
