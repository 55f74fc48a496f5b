"""One line, one message.

spec: Interface Invariants: each message on its own line, wrapped in an AirbyteMessage; what is not
wrapped is dropped, and logged.
"""

from __future__ import annotations

import re

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.messages import Log, Message, Noise, RawRecord, Unread

MAX_LOG_CHARACTERS = 2_000

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
}
# Losing one of these would lose data, so a broken one ends the sync instead of becoming a log line.
_VITAL = ("RECORD", "STATE", "CATALOG", "SPEC", "CONNECTION_STATUS", "CONTROL")

# How a message begins: by its type, or by its body where a connector writes that first.
_BEGINNING = re.compile(
    rb'\s*\{\s*"(?:type"\s*:\s*"(?P<kind>\w+)"|(?P<body>%b)"\s*:)'
    % "|".join(_BODIES.values()).encode()
)
# A string, to its end or the line's; or what JSON does not have, but some writers write.
_STRAY = re.compile(
    rb'(?P<string>"[^"\\]*(?:\\.?[^"\\]*)*"?)|(?P<constant>-?Infinity|NaN)|\A(?P<mark>(?:\xef\xbb\xbf)+)',
    re.DOTALL,
)
_CONTROL = re.compile(rb"[\x00-\x1f]")


class _Envelope(msgspec.Struct):
    type: str
    record: RawRecord | None = None


class _Typed(msgspec.Struct):
    type: str


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_type = msgspec.json.Decoder(_Typed).decode


def decode(line: bytes) -> RawRecord | Message:
    """Read one line, without its newline.

    A line that is no message, or of an unknown type, comes back as an `Unread` LOG message holding
    its beginning. What JSON does not have but some writers write is repaired, all else to the letter:
    non-finite numbers (`NaN`, `Infinity`) become strings of that name, so that the table's
    conversion reports them; bare control characters in strings become escapes; a byte order mark
    is dropped. Of duplicate keys the last one counts.

    Raises:
        SystemFailure: the line is a message that carries data, but cut off, not well formed, not
            UTF-8, with half a surrogate pair in it, or nested too deeply.
    """
    try:
        if not line.isascii():
            line.decode()  # the decoder would let other bytes through in what it leaves raw
        envelope = _decode_envelope(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _unreadable(line, error)
    except RecursionError:
        raise _too_deep(line) from None
    if envelope.record is not None and envelope.type == "RECORD":
        return envelope.record
    return _whole(line, envelope.type)


def encode(message: Message) -> bytes:
    """Write one message as one line, newline included."""
    return message.to_json() + b"\n"


def _whole(line: bytes, kind: str) -> Message:
    body = _BODIES.get(kind)
    if body is None:
        return _misshapen(line, None)
    try:
        message = Message.from_json(line)
    except msgspec.MsgspecError as error:
        return _misshapen(line, error)
    except RecursionError:
        raise _too_deep(line) from None
    if getattr(message, body) is None:
        return _misshapen(line, f"a {kind} message without {body!r}")
    return message


def _unreadable(line: bytes, error: Exception) -> RawRecord | Message:
    """Almost JSON, a torn or misshapen message, or plain text."""
    repaired = _STRAY.sub(_repair, line)
    if repaired == line:
        return _misshapen(line, error)
    try:
        _decode_envelope(repaired)
    except msgspec.MsgspecError as still:
        return _misshapen(line, still)
    except RecursionError:
        raise _too_deep(line) from None
    return decode(repaired)


def _repair(stray: re.Match[bytes]) -> bytes:
    if stray["string"]:
        return _CONTROL.sub(lambda found: b"\\u%04x" % ord(found[0]), stray["string"])
    return b'"%b"' % stray["constant"] if stray["constant"] else b""


def _misshapen(line: bytes, error: object) -> Message:
    kind = _kind(line)
    if kind in _VITAL:
        raise SystemFailure(
            f"the connector sent a malformed {kind} message: {error}",
            guidance="this is a defect of the connector, or it was cut off; "
            "the sync stops so that no data is lost",
        )
    if kind in _BODIES:
        return _as_log(line, "WARN", f"ignored a malformed {kind} message ({error})")
    if kind is not None:
        return _as_log(line, "WARN", f"ignored a message of the unknown type {kind[:100]!r}")
    return Noise(type="LOG", log=Log(level="INFO", message=_head(line)))


def _kind(line: bytes) -> str | None:
    """The type that a line claims, even where the rest of it cannot be read."""
    try:
        return _decode_type(line).type
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _claimed(line)


def _claimed(line: bytes) -> str | None:
    """By how it begins: a message that was cut off is not to be taken for plain text."""
    match = _BEGINNING.match(line)
    if match is None:
        return None
    body = (match["body"] or b"").decode()
    claims = (
        kind for kind, name in _BODIES.items() if name == body or kind.encode() == match["kind"]
    )
    return next(claims, None)


def _too_deep(line: bytes) -> SystemFailure:
    return SystemFailure(
        "the connector sent a message nested too deeply to read", detail=_head(line)
    )


def _as_log(line: bytes, level: str, why: str) -> Message:
    return Unread(type="LOG", log=Log(level=level, message=f"{why}: {_head(line)}"))


def _head(line: bytes) -> str:
    return line[: 4 * MAX_LOG_CHARACTERS].decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]
