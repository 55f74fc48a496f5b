"""One line, one message.

spec: Interface Invariants: each message on its own line, wrapped in an AirbyteMessage; what is not
wrapped is dropped, and logged.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.messages import Log, Message, RawRecord

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
}
# Losing one of these would lose data, so a broken one ends the sync instead of becoming a log line.
_VITAL = ("RECORD", "STATE", "CATALOG", "SPEC", "CONNECTION_STATUS", "CONTROL")


class _Envelope(msgspec.Struct):
    type: str
    record: RawRecord | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def decode(line: bytes) -> RawRecord | Message:
    """Read one line, without its newline.

    A line that is no message, or of an unknown type, comes back as a LOG message holding its
    beginning. Non-finite numbers (`NaN`, `Infinity`), which JSON does not have but Python writes,
    become strings of that name, so that the table's conversion reports them.

    Raises:
        SystemFailure: the line is a message that carries data, but not well formed.
    """
    try:
        envelope = _decode_envelope(line)
    except msgspec.ValidationError as error:
        return _misshapen(line, error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _not_json(line, error)
    except RecursionError:
        raise SystemFailure(
            "the connector sent a message nested too deeply to read", detail=_head(line)
        ) from None
    if envelope.record is not None and envelope.type == "RECORD":
        return envelope.record
    return _whole(line, envelope.type)


def encode(message: Message) -> bytes:
    """Write one message as one line, newline included."""
    return message.to_json() + b"\n"


def _whole(line: bytes, kind: str) -> Message:
    body = _BODIES.get(kind)
    if body is None:
        return _as_log(line, "WARN", f"ignored a message of the unknown type {kind!r}")
    try:
        message = Message.from_json(line)
    except msgspec.MsgspecError as error:
        return _misshapen(line, error)
    if getattr(message, body) is None:
        return _misshapen(line, f"a {kind} message without {body!r}")
    return message


def _misshapen(line: bytes, error: object) -> Message:
    kind = _kind(line)
    if kind in _VITAL:
        raise SystemFailure(
            f"the connector sent a malformed {kind} message: {error}",
            guidance="this is a defect of the connector; the sync stops so that no data is lost",
        )
    if kind in _BODIES:
        return _as_log(line, "WARN", f"ignored a malformed {kind} message ({error})")
    return _as_log(line, "INFO")


def _kind(line: bytes) -> str | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def _not_json(line: bytes, error: Exception) -> RawRecord | Message:
    """Python's own JSON with NaN and Infinity in it, a torn message, or plain text."""
    text = line.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text, parse_constant=str)
    except RecursionError:
        raise SystemFailure(
            "the connector sent a message nested too deeply to read", detail=_head(line)
        ) from None
    except ValueError:
        if text.lstrip().startswith('{"type"') and _names_vital(text):
            raise SystemFailure(
                f"the connector sent a message that is not JSON ({error})",
                guidance="this is a defect of the connector, or it was cut off; "
                "the sync stops so that no data is lost",
            ) from None
        return _as_log(line, "INFO")
    try:
        repaired = json.dumps(value).encode()
        _decode_envelope(repaired)
    except (msgspec.MsgspecError, UnicodeDecodeError) as still:
        return _misshapen(line, still)
    return decode(repaired)


def _names_vital(text: str) -> bool:
    head = text[:200]
    return any(f'"{kind}"' in head for kind in _VITAL)


def _as_log(line: bytes, level: str, why: str | None = None) -> Message:
    text = _head(line)
    return Message(type="LOG", log=Log(level=level, message=f"{why}: {text}" if why else text))


def _head(line: bytes) -> str:
    return line[:MAX_LOG_CHARACTERS].decode("utf-8", "replace")
