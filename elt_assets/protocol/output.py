"""Output of Airbyte messages to a binary stream, for all programs of this project that send messages.

Spec: Interface Invariants: all messages of an actor go to its stdout, one per line.
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
    """Error raised if the reader of the messages has closed the stream."""


class Output:
    """A buffer of messages, which are written by `flush`. Texts are masked.

    Args:
        flushes: whether messages are written as soon as they are sent; errors are then those of `flush`.
    """

    def __init__(self, stream: BinaryIO, *, flushes: bool = False):
        self._stream = stream
        self._flushes = flushes
        self._buffer = bytearray()
        self.mask = Masker()

    def send(self, messages: Iterable[Message]) -> None:
        self._buffer += b"".join(map(encode, messages))
        if self._flushes:
            self.flush()

    def log(self, level: str, text: str) -> None:
        """Send a LOG message; `level` is one of the protocol's levels."""
        self.send([message_factory.log(level, self.mask(text))])

    def connection(self, *, succeeded: bool, text: str | None = None) -> None:
        """Send the result of a `check`."""
        masked_text = None if text is None else self.mask(text)
        self.send([message_factory.connection_status(succeeded=succeeded, text=masked_text)])

    def error(self, error: BaseException, stream: StreamDescriptor | None = None) -> None:
        """Send an error; `stream` is the stream that failed, if the error belongs to one stream."""
        self.send([message_factory.error_trace(error, stream, self.mask)])

    def flush(self) -> None:
        """Write all messages in the buffer.

        Raises:
            OutputClosedError: the reader has closed the stream.
        """
        try:
            self._stream.write(self._buffer)
            self._stream.flush()
        except BrokenPipeError:
            raise OutputClosedError from None
        self._buffer.clear()
