"""Messages that programs of this project send: functions that make them, and `Output`, which writes them.

The programs are `elt-destination` and connectors (`connectors.sdk`); `sync.relay` and `runner.singer_tap`
take stream statuses.

Spec: Interface Invariants: all messages of an actor go to its stdout, one per line.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import StreamDescriptor
from elt_assets.protocol.codec import encode
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import (
    ConnectionStatus,
    ConnectorConfig,
    Control,
    ErrorTrace,
    Log,
    Message,
    StreamStatusTrace,
    Trace,
)

PROTOCOL_VERSION = "0.18.0"

Mask = Callable[[str], str]


def log(level: str, text: str) -> Message:
    """Return a LOG message; `level` is one of the protocol's levels."""
    return Message(type="LOG", log=Log(level=level, message=readable(text)))


def connection_status(*, succeeded: bool, text: str | None = None) -> Message:
    """Return the answer of the verb `check`; `text` says why the access failed."""
    status = "SUCCEEDED" if succeeded else "FAILED"
    body = ConnectionStatus(status=status, message=text and readable(text))
    return Message(type="CONNECTION_STATUS", connectionStatus=body)


def error_trace(
    error: BaseException, stream: StreamDescriptor | None = None, mask: Mask = str
) -> Message:
    """Return the TRACE message of an error. Only system errors have a stack trace, for the maintainer.

    Spec: AirbyteErrorTraceMessage.

    Args:
        stream: the stream that failed, if the error belongs to one stream.
        mask: masks secrets in each text.
    """
    failure_type, text, detail = "system_error", f"{type(error).__name__}: {error}", None
    if isinstance(error, EltError):
        failure_type, detail = error.failure_type, error.detail
        text = "\n".join(part for part in (error.message, error.guidance) if part)
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    body = ErrorTrace(
        message=mask(readable(text)),
        internal_message=detail and mask(readable(detail)),
        stack_trace=mask(readable(stack)) if failure_type == "system_error" else None,
        failure_type=failure_type,
        stream_descriptor=stream,
    )
    trace = Trace(type="ERROR", error=body, emitted_at=time.time() * 1000)
    return Message(type="TRACE", trace=trace)


def stream_status(stream: StreamDescriptor, status: str) -> Message:
    """Return the TRACE message of a stream's status. Spec: AirbyteStreamStatusTraceMessage."""
    body = StreamStatusTrace(stream_descriptor=stream, status=status)
    milliseconds = int(time.time() * 1000)
    trace = Trace(type="STREAM_STATUS", stream_status=body, emitted_at=milliseconds)
    return Message(type="TRACE", trace=trace)


def config_update(config: Mapping[str, Any]) -> Message:
    """Return the CONTROL message with a config that has changed.

    Spec: AirbyteControlConnectorConfigMessage.
    """
    body = Control(
        type="CONNECTOR_CONFIG",
        emitted_at=time.time() * 1000,
        connectorConfig=ConnectorConfig(config=dict(config)),
    )
    return Message(type="CONTROL", control=body)


def readable(text: str) -> str:
    """Return a text with lone surrogates escaped, so that the text of any exception can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


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
        self.send([log(level, self.mask(text))])

    def connection(self, *, succeeded: bool, text: str | None = None) -> None:
        """Send the result of a `check`."""
        masked_text = None if text is None else self.mask(text)
        self.send([connection_status(succeeded=succeeded, text=masked_text)])

    def error(self, error: BaseException, stream: StreamDescriptor | None = None) -> None:
        """Send an error; `stream` is the stream that failed, if the error belongs to one stream."""
        self.send([error_trace(error, stream, self.mask)])

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
