"""Codec of Airbyte messages, one message per line, and the failures in TRACE messages that are malformed.

`runner.connector`, `routing`, `sync.segments` and `connectors.testing` decode with it; `message_output` and
`sync.relay` encode.

First `failure_of_line` and `complete_failure`. A source reports the failure of a stream in a TRACE: an ERROR,
or the status INCOMPLETE. If the trace cannot be read, the failure is still one: a partial read must not
replace a table. So:

- What can be read of the failure is kept: its text, and its stream.
- If the stream cannot be read, the failure is that of every stream, also of those that are complete.
- A trace that is not clearly something else (an estimate, analytics, another status, or a type that this
  project does not know) is a failure.

Then the codec: `decode_line`, `decode_blocks` and `encode`.

Spec: Interface Invariants: each message is on its own line, wrapped in an AirbyteMessage. A line that is not
wrapped is dropped and logged. A line with a message and other text is no such line: see `lines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from elt_assets.protocol.catalog import StreamDescriptor
from elt_assets.protocol.json_schema import shallow
from elt_assets.protocol.lines import Body, LineProtocol, take_single, too_deep
from elt_assets.protocol.messages import (
    INCOMPLETE,
    ErrorTrace,
    Message,
    RawRecord,
    StreamStatusTrace,
    Trace,
    UnreadableError,
)
from elt_assets.protocol.wire import as_read, check_values, read

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


_BODIES = {
    "RECORD": "record",
    "STATE": "state",
    "LOG": "log",
    "SPEC": "spec",
    "CONNECTION_STATUS": "connectionStatus",
    "CATALOG": "catalog",
    "TRACE": "trace",
    "CONTROL": "control",
    "DESTINATION_CATALOG": "destination_catalog",
    "NEWS": "news",
    "PARTITION": "partition",
    "COMPARISON": "comparison",
    "RANGE": "range",
    "SLICE": "slice",
    "BARRIER": "barrier",
}
_BODY_NAMES = (*_BODIES.values(), "generation")
_OPENINGS = {
    "RECORD": rb'"(?:stream|data|namespace|emitted_at|meta|file_reference)"\s*:',
    "STATE": rb'"(?:type"\s*:\s*"(?:STREAM|GLOBAL|LEGACY)"|(?:stream|global)"\s*:\s*\{'
    rb'|(?:data|sourceStats|destinationStats)"\s*:)',
    "TRACE": rb'"(?:type"\s*:\s*"(?:ERROR|STREAM_STATUS)"|(?:error|stream_status)"\s*:\s*\{'
    rb'|emitted_at"\s*:)',
    "CONTROL": rb'"(?:type"\s*:\s*"CONNECTOR_CONFIG"|(?:connectorConfig|emitted_at)"\s*:)',
    "PARTITION": rb'"stream_descriptor"\s*:',
    "COMPARISON": rb'"stream_descriptor"\s*:',
    "RANGE": rb'"stream_descriptor"\s*:',
    "SLICE": rb'"(?:stream_descriptor|key|data)"\s*:',
}
"""The beginnings of bodies by which a part of a message is recognized, if its loss could remain unnoticed."""
_PASSED_ON = ("RECORD", "STATE")
"""The types whose raw values are as received, whatever they contain: they are passed on, not used."""
_PROTOCOL = LineProtocol(
    bodies={
        kind: Body(
            [body],
            rb'"%b"\s*:\s*\{\s*' % body.encode() + _OPENINGS[kind] if kind in _OPENINGS else None,
        )
        for kind, body in _BODIES.items()
    },
    vital=(
        "RECORD",
        "STATE",
        "CATALOG",
        "SPEC",
        "CONNECTION_STATUS",
        "CONTROL",
        "PARTITION",
        "COMPARISON",
        "RANGE",
        "SLICE",
        "BARRIER",
    ),
    salvage={"TRACE": failure_of_line},
)


class _Envelope(msgspec.Struct, gc=False):
    type: str
    record: RawRecord | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_decode_envelope = _ENVELOPE.decode


def decode(line: bytes, *, whole: bool = False) -> RawRecord | Message:
    """Decode a line that should be one message, as `decode_line`.

    Raises:
        SystemFailure: as `decode_line`; or the line contains a message beside other text.
    """
    return take_single(decode_line(line, whole=whole))


def decode_line(line: bytes, *, whole: bool = False) -> Sequence[RawRecord | Message]:
    """Decode the messages of one line, without its newline: usually one.

    With `whole`, a RECORD is decoded as a lossless `Message`.

    A line that shows no message is replaced by an `UndecodedLine` LOG message that contains its beginning;
    so is the text before a message. A text that is no text, and a number that JSON does not have, make no
    message malformed, see `wire`; a record's data, its meta and the blobs of a state are as
    received. Of duplicate keys the last one counts.

    A malformed TRACE is replaced by the failure that it reports or may report, as the module says.

    A message has one body, that of its type: with the body of another one, it is malformed. A reader that
    looks for a body could otherwise be given one past the checks for its type.

    Raises:
        SystemFailure: the line is a message that must not be lost (RECORD, STATE, CATALOG, SPEC,
            CONNECTION_STATUS, CONTROL, PARTITION, COMPARISON, RANGE, SLICE or BARRIER), or shows one (see
            `lines`), but is truncated, malformed, or nested too deeply.
    """
    try:
        envelope = read(_decode_envelope, line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _PROTOCOL.take_apart(line, error, lambda part: decode_line(part, whole=whole))
    except RecursionError:
        return [_shallow_catalog(line)]
    if envelope.record is not None and envelope.type == "RECORD" and not whole:
        return (envelope.record,)
    return (_decode_message(line, envelope.type),)


def decode_blocks(blocks: Iterable[bytes]) -> Iterator[RawRecord | Message]:
    """Decode blocks of whole lines, each line as in `decode_line`; twice as fast if all lines are valid.

    Raises:
        SystemFailure: see `decode_line`.
    """
    for whole in blocks:
        block = whole.removesuffix(b"\n")
        envelopes = _envelopes(block)
        if envelopes is None:
            for line in filter(None, block.split(b"\n")):
                yield from decode_line(line)
            continue
        lines: list[bytes] = []
        for number, envelope in enumerate(envelopes):
            if envelope.record is not None and envelope.type == "RECORD":
                yield envelope.record
            else:
                lines = lines or (block.split(b"\n") if len(envelopes) > 1 else [block])
                yield _decode_message(lines[number], envelope.type)


def _envelopes(block: bytes) -> list[_Envelope] | None:
    """Return the envelope of each line; None if a line is malformed, or is not an object from its first byte
    to its last. The decoder accepts any white space between objects, so only this check separates lines."""
    lines = block.count(b"\n")
    if block.count(b"}\n{") != lines or not block.startswith(b"{"):
        return None
    try:
        envelopes = _ENVELOPE.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return envelopes if len(envelopes) == lines + 1 else None


def encode(message: Message) -> bytes:
    """Encode one message as one line, including the newline. Raw values are as received."""
    return message.to_json() + b"\n"


def _decode_message(line: bytes, kind: str) -> Message:
    """Return the message of a line that is an object of a type, or what replaces it."""
    body = _BODIES.get(kind)
    if body is None:
        return _PROTOCOL.replacement(line, "its type is unknown")
    try:
        if kind != "RECORD":
            check_values(line)
        message = Message.from_json(line if kind in _PASSED_ON else as_read(line))
    except msgspec.MsgspecError as error:
        return _PROTOCOL.replacement(line, error)
    except RecursionError:
        raise too_deep(line) from None
    if getattr(message, body) is None:
        return _PROTOCOL.replacement(line, f"a {kind} message without {body!r}")
    others = [name for name in _BODY_NAMES if name != body and getattr(message, name) is not None]
    if others:
        return _PROTOCOL.replacement(line, f"a {kind} message with {others[0]!r} too")
    return complete_failure(message)


def _shallow_catalog(line: bytes) -> Message:
    """Return the CATALOG of a line that is nested too deeply, with `shallow` schemas.

    Raises:
        SystemFailure: the line is another message.
    """
    try:
        message = Message.from_json(as_read(shallow(line)))
    except (msgspec.MsgspecError, RecursionError):
        raise too_deep(line) from None
    if message.type != "CATALOG" or message.catalog is None:
        raise too_deep(line)
    return message
