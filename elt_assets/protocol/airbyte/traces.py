"""Failures in TRACE messages that are malformed.

A source reports the failure of a stream in a TRACE: an ERROR, or the status INCOMPLETE. If the trace cannot
be read, the failure is still one: a partial read must not replace a table. So:

- What can be read of the failure is kept: its text, and its stream.
- If the stream cannot be read, the failure is that of every stream, also of those that are complete.
- A trace that is not clearly something else (an estimate, analytics, another status, or a type that this
  project does not know) is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from elt_assets.protocol.airbyte.catalog import StreamDescriptor
from elt_assets.protocol.airbyte.messages import (
    INCOMPLETE,
    ErrorTrace,
    Message,
    StreamStatusTrace,
    Trace,
    UnreadableError,
)
from elt_assets.protocol.airbyte.recovery.texts import read
from elt_assets.protocol.airbyte.value_limit import check_values

ERROR, STREAM_STATUS = "ERROR", "STREAM_STATUS"
_OTHER_STATUSES = frozenset({"STARTED", "RUNNING", "COMPLETE"})
_TEXTS = ("message", "internal_message", "stack_trace", "failure_type")
_NO_FAILURE = re.compile(
    rb'"type"\s*:\s*"(?:ESTIMATE|ANALYTICS)"|"status"\s*:\s*"(?:STARTED|RUNNING|COMPLETE)"'
)
_FAILURE = re.compile(rb'ERROR|INCOMPLETE|"error"')


def failure_of_line(line: bytes) -> Message | None:
    """Return the failure that a malformed TRACE reports; None if it reports none."""
    try:
        check_values(line)
        message = read(msgspec.json.decode, line)
        trace = message["trace"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        is_other = _NO_FAILURE.search(line) and not _FAILURE.search(line)
        return None if is_other else _unreadable()
    except (TypeError, KeyError):
        return _unreadable()
    return _failure(trace) if isinstance(trace, dict) else _unreadable()


def complete_failure(message: Message) -> Message:
    """Return a TRACE that could be decoded with the failure that it reports in another notation."""
    trace = message.trace
    if trace is None or trace.reported_error is not None:
        return message
    kind, status = _word(trace.type), trace.stream_status
    if kind == ERROR or (kind == STREAM_STATUS and status is None):
        return _unreadable()
    if status is not None and _word(status.status) == INCOMPLETE:
        status.status = INCOMPLETE
    return message


def _failure(trace: Mapping[str, Any]) -> Message | None:
    kind, error, status = _word(trace.get("type")), trace.get("error"), trace.get("stream_status")
    if error is not None or kind == ERROR:
        if not isinstance(error, dict):
            return _unreadable(message=error)
        stream = _descriptor(error.get("stream_descriptor"))
        if stream is None and error.get("stream_descriptor") is not None:
            return _unreadable(**error)
        return _error(ErrorTrace(stream_descriptor=stream), error)
    if not isinstance(status, dict):
        is_other = status is None and kind != STREAM_STATUS and isinstance(trace.get("type"), str)
        return None if is_other else _unreadable()
    if _word(status.get("status")) in _OTHER_STATUSES:
        return None
    stream = _descriptor(status.get("stream_descriptor"))
    if stream is None:
        return _unreadable()
    body = StreamStatusTrace(stream_descriptor=stream, status=INCOMPLETE)
    return Message(type="TRACE", trace=Trace(type=STREAM_STATUS, stream_status=body))


def _descriptor(value: object) -> StreamDescriptor | None:
    """Return a stream descriptor; None if there is none that can be read."""
    try:
        return StreamDescriptor.from_json(msgspec.json.encode(value))
    except msgspec.MsgspecError:
        return None


def _word(value: object) -> str:
    """Return the letters of an enumeration's member, whatever their case and what stands around them."""
    return re.sub(r"[^A-Z_]", "", value.upper()) if isinstance(value, str) else ""


def _unreadable(**texts: object) -> Message:
    return _error(UnreadableError(), texts)


def _error(error: ErrorTrace, texts: Mapping[str, object]) -> Message:
    """Return the TRACE of an error with those of its texts that are texts."""
    for name in _TEXTS:
        if isinstance(text := texts.get(name), str):
            setattr(error, name, text)
    error.message = error.message or "the source reported a failure that cannot be read"
    return Message(type="TRACE", trace=Trace(type=ERROR, error=error))
