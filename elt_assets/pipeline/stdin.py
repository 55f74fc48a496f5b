"""Messages from stdin, in the protocol of Airbyte or Singer."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from elt_assets.protocol.airbyte.lines import MAX_LINE, split
from elt_assets.protocol.airbyte.messages import Message, RawRecord

CHUNK = 1 << 20
IDLE_MS = 500
"""Milliseconds without new bytes after which `IDLE` is yielded."""
IDLE = Message(type="NOTHING")
"""A message that has no content: no input is available now, so finished work can be reported."""


Sent = RawRecord | Message


def messages(stdin: BinaryIO, read: Callable[[bytes], Iterable[Sent]]) -> Iterator[Sent]:
    """Yield the messages to the end of the input, and `IDLE` while no input is available.

    Args:
        read: returns the messages of a line.

    Raises:
        SystemFailure: a line is longer than `MAX_LINE`; or as `read`.
    """
    for line in split(_chunks(stdin), MAX_LINE, "the source"):
        if line:
            yield from read(line)
        else:
            yield IDLE


def _chunks(stdin: BinaryIO) -> Iterator[bytes]:
    """Yield the input in chunks; an empty chunk if no input was available for `IDLE_MS`."""
    try:
        descriptor = stdin.fileno()
    except io.UnsupportedOperation:
        yield from iter(lambda: stdin.read(CHUNK), b"")
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if not poll.poll(IDLE_MS):
            yield b""
        elif chunk := os.read(descriptor, CHUNK):
            yield chunk
        else:
            return
