"""Messages that connectors of this project send: log lines, check results, errors and stream statuses."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from elt_assets.errors import EltError
from elt_assets.protocol.airbyte.catalog import StreamDescriptor
from elt_assets.protocol.airbyte.messages import (
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
