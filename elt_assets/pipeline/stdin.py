"""Messages from stdin, in the protocol of Airbyte or Singer."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

from elt_assets.protocol.lines import MAX_LINE, ReadInto, blocks
from elt_assets.protocol.messages import Message, Received

_GATHER_MS = 10
"""Time in milliseconds for which lines that were received wait for more input."""
IDLE_MS = 500
"""Milliseconds without new bytes after which `IDLE` is yielded."""
IDLE = Message(type="NOTHING")
"""A message that has no content: no input is available now, so finished work can be reported."""


def read_messages(
    stdin: BinaryIO, read: Callable[[bytes], Iterable[Received]]
) -> Iterator[Received]:
    """Yield the messages to the end of the input, and `IDLE` while no input is available.

    Args:
        read: returns the messages of a block of lines.

    Raises:
        SystemFailure: a line is longer than `MAX_LINE`; or as `read`.
    """
    for block in blocks(_reader(stdin), MAX_LINE, "the source"):
        if block:
            yield from read(block)
        else:
            yield IDLE


def _reader(stdin: BinaryIO) -> ReadInto:
    """Return a function that reads the input, and waits for `IDLE_MS` if there is none."""
    try:
        descriptor = stdin.fileno()
    except io.UnsupportedOperation:
        return lambda buffer, _: cast("io.BytesIO", stdin).readinto(buffer)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)

    def read(buffer: memoryview, has_lines: bool) -> int | None:
        ready = poll.poll(_GATHER_MS if has_lines else IDLE_MS)
        return os.readv(descriptor, [buffer]) if ready else None

    return read
