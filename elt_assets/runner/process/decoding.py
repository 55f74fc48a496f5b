"""The messages in what a connector's process prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from elt_assets.protocol.airbyte.codec import decode, decode_blocks
from elt_assets.protocol.airbyte.messages import Message, RawRecord
from elt_assets.runner.process.child import Process

Said = Callable[[Process], Iterator[RawRecord | Message]]
"""Decodes what a process says."""


def fast(process: Process) -> Iterator[RawRecord | Message]:
    """Records come as they are kept in the lake: without what only another destination would need."""
    return decode_blocks(process.blocks())


def lossless(process: Process) -> Iterator[RawRecord | Message]:
    """Records come whole, to be sent on."""
    return map(partial(decode, whole=True), process.lines())
