"""Airbyte messages on a binary stream: what every program of this project that speaks on stdout shares.

spec: Interface Invariants: all messages of an actor go to its stdout, one to a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from elt_assets.protocol.airbyte import message_factory
from elt_assets.protocol.airbyte.catalog import StreamDescriptor
from elt_assets.protocol.airbyte.codec import encode
from elt_assets.protocol.airbyte.messages import Message
from elt_assets.protocol.masking import Masker


class OutputClosedError(Exception):
    """The reader of the messages went away."""


class Output:
    """Messages, written when they are flushed; texts are masked."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._buffer = bytearray()
        self.mask = Masker()

    def send(self, messages: Iterable[Message]) -> None:
        self._buffer += b"".join(map(encode, messages))

    def log(self, level: str, text: str) -> None:
        """`level`: as in the protocol."""
        self.send([message_factory.log(level, self.mask(text))])

    def connection(self, *, succeeded: bool, text: str | None = None) -> None:
        """The answer of a `check`."""
        shown = None if text is None else self.mask(text)
        self.send([message_factory.connection_status(succeeded=succeeded, text=shown)])

    def error(self, error: BaseException, stream: StreamDescriptor | None = None) -> None:
        """`stream`: whose error it is, if one's."""
        self.send([message_factory.error_trace(error, stream, self.mask)])

    def flush(self) -> None:
        """
        Raises:
            OutputClosedError: nobody reads any more.
        """
        try:
            self._stream.write(self._buffer)
            self._stream.flush()
        except BrokenPipeError:
            raise OutputClosedError from None
        self._buffer.clear()
