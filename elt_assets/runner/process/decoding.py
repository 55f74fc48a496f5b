"""Decode the output of a connector's process into messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elt_assets.protocol.codec import decode_blocks, decode_line
from elt_assets.protocol.messages import Message, RawRecord, Received
from elt_assets.protocol.routing import airbyte_runs
from elt_assets.runner.process.child import Process

Decoder = Callable[[Process], Iterator[Received]]
"""Yields the messages in the output of a process."""


def decode_runs(process: Process) -> Iterator[Received]:
    """Yield messages, with runs of records as they were received: the fastest way to a session."""
    runs = airbyte_runs()
    for block in process.blocks():
        yield from runs.messages(block)


def decode_fast(process: Process) -> Iterator[RawRecord | Message]:
    """Yield messages, with records as the lake needs them: without what only another destination needs."""
    return decode_blocks(process.blocks())


def decode_lossless(process: Process) -> Iterator[RawRecord | Message]:
    """Yield messages, with complete records, to be sent on."""
    for line in process.lines():
        yield from decode_line(line, whole=True)
