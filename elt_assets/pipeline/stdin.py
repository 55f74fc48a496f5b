"""What comes on stdin, be it Airbyte's or Singer's."""

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
"""How long to wait for more before it is said that for now there is none."""
NOTHING = Message(type="NOTHING")
"""For now there is no more: time to tell what is done."""


Sent = RawRecord | Message


def messages(stdin: BinaryIO, read: Callable[[bytes], Iterable[Sent]]) -> Iterator[Sent]:
    """What comes, to the end; and `NOTHING` while nothing does.

    Args:
        read: from a line to the messages in it.

    Raises:
        SystemFailure: a line is longer than `MAX_LINE`; and as `read`.
    """
    for line in split(_chunks(stdin), MAX_LINE, "the source"):
        if line:
            yield from read(line)
        else:
            yield NOTHING


def _chunks(stdin: BinaryIO) -> Iterator[bytes]:
    """Empty where nothing has come for a while."""
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
