"""Records of blocks of JSON lines, without an object of Python for each line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BREAK, _OPEN, _QUOTE, _CLOSE = b'\n{"}'


def join_objects(block: bytes, head: bytes) -> pa.Array | None:
    """Return the objects of a block of lines as bytes, each with `head` in place of its opening brace.

    A line must be an object with a field, and have nothing around it: `{"` at its begin and `}` at its end.
    That is enough, since the block is valid: a text has no line break, and elsewhere in JSON no `{` follows a
    `}`. So a line break between the two is in no value.

    Args:
        block: as many values in JSON as lines, each with its end.

    Returns:
        None if a line looks different.
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _BREAK)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if not np.all(data[starts] == _OPEN) or not np.all(data[starts + 1] == _QUOTE):
        return None
    if not np.all(data[ends - 1] == _CLOSE):
        return None
    # Of each line, the parts are the brace, the rest, and the line break.
    offsets = np.append(np.stack([starts, starts + 1, ends], axis=1).ravel(), len(block))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(block)]
    parts = pa.Array.from_buffers(pa.binary(), 3 * len(starts), buffers)
    rests = parts.take(pa.array(np.arange(1, len(parts), 3)))
    return pc.binary_join_element_wise(pa.scalar(head), rests, pa.scalar(b""))
