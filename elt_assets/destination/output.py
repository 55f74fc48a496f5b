"""Airbyte messages on stdout, and nothing else there.

spec: Interface Invariants: all messages of an actor go to its stdout, one to a line.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import BinaryIO

from elt_assets.protocol.airbyte import message_factory
from elt_assets.protocol.airbyte.catalog import StreamDescriptor, StreamId
from elt_assets.protocol.airbyte.codec import encode
from elt_assets.protocol.airbyte.messages import Message, State, StateStats


class OutputClosedError(Exception):
    """The reader of our messages went away."""


class Output:
    """Messages, each written when it is given."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def send(self, messages: Iterable[Message]) -> None:
        """
        Raises:
            OutputClosedError: nobody reads any more.
        """
        try:
            self._stream.write(b"".join(map(encode, messages)))
            self._stream.flush()
        except BrokenPipeError:
            raise OutputClosedError from None

    def log(self, level: str, text: str) -> None:
        self.send([message_factory.log(level, text)])

    def error(self, error: BaseException, stream: StreamId | None = None) -> None:
        """`stream`: whose it is, if one's."""
        named = None
        if stream is not None:
            named = StreamDescriptor(name=stream.name, namespace=stream.namespace)
        self.send([message_factory.error_trace(error, named)])


def counted(state: State, committed: int, rejected: int) -> State:
    """A state as received, and what became of its records.

    spec: AirbyteStateStats: counts are doubles; `rejectedRecordCount` since 0.18.
    """
    told = copy.copy(state)
    stats = StateStats() if state.destinationStats is None else copy.copy(state.destinationStats)
    stats.recordCount = float(committed)
    stats.rejectedRecordCount = float(rejected) if rejected else None
    told.destinationStats = stats
    return told
