"""Codec of Airbyte messages, one message per line.

Spec: Interface Invariants: each message is on its own line, wrapped in an AirbyteMessage. A line that is not
wrapped is dropped and logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.lines import LineProtocol, too_deep
from elt_assets.protocol.airbyte.messages import Message, RawRecord

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
}
_PROTOCOL = LineProtocol(
    kinds={kind: [body] for kind, body in _BODIES.items()},
    vital=("RECORD", "STATE", "CATALOG", "SPEC", "CONNECTION_STATUS", "CONTROL", "PARTITION"),
)


class _FileRecord(msgspec.Struct):
    stream: str
    file_reference: dict[str, Raw]


class _FileEnvelope(msgspec.Struct):
    record: _FileRecord


class _Envelope(msgspec.Struct, gc=False):
    type: str
    record: RawRecord | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_decode_envelope = _ENVELOPE.decode


def decode(line: bytes, *, whole: bool = False) -> RawRecord | Message:
    """Decode one line, without its newline. With `whole`, a RECORD is decoded as a lossless `Message`.

    A line that is not a message, or is of an unknown type, is replaced by an `UndecodedLine` LOG message that
    contains its beginning. Common deviations from JSON are repaired: non-finite numbers (`NaN`,
    `Infinity`) become strings of that name, so that the cast to the table's type reports them; raw
    control characters in strings become escapes; a byte order mark is dropped. Everything else is
    unchanged. Of duplicate keys the last one counts.

    Raises:
        SystemFailure: the line is a message that must not be lost (RECORD, STATE, CATALOG, SPEC,
            CONNECTION_STATUS, CONTROL or PARTITION), but is truncated, malformed, not UTF-8, contains half a
            surrogate pair, or is nested too deeply.
        ConfigError: the line is a record that refers to a file.
    """
    try:
        if not line.isascii():
            line.decode()  # the decoder does not check that raw values are UTF-8
        envelope = _decode_envelope(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _recover(line, error, whole=whole)
    except RecursionError:
        raise too_deep(line) from None
    if envelope.record is not None and envelope.type == "RECORD" and not whole:
        return envelope.record
    return _decode_whole(line, envelope.type)


def decode_blocks(blocks: Iterable[bytes]) -> Iterator[RawRecord | Message]:
    """Decode blocks of whole lines, each line as in `decode`; twice as fast if all lines are valid.

    Raises:
        SystemFailure, ConfigError: see `decode`.
    """
    for whole in blocks:
        block = whole.removesuffix(b"\n")
        envelopes = _envelopes(block)
        if envelopes is None:
            yield from map(decode, filter(None, block.split(b"\n")))
            continue
        lines: list[bytes] = []
        for number, envelope in enumerate(envelopes):
            if envelope.record is not None and envelope.type == "RECORD":
                yield envelope.record
            else:
                lines = lines or block.split(b"\n")
                yield _decode_whole(lines[number], envelope.type)


def _envelopes(block: bytes) -> list[_Envelope] | None:
    """Return the envelope of each line; None if a line is malformed, or is not an object from its first byte
    to its last. The decoder accepts any white space between objects, so only this check separates lines."""
    lines = block.count(b"\n")
    if block.count(b"}\n{") != lines or not block.startswith(b"{"):
        return None
    try:
        if not block.isascii():
            block.decode()
        found = _ENVELOPE.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if len(found) == lines + 1 else None


def encode(message: Message) -> bytes:
    """Encode one message as one line, including the newline."""
    return message.to_json() + b"\n"


def _decode_whole(line: bytes, kind: str) -> Message:
    body = _BODIES.get(kind)
    if body is None:
        return _PROTOCOL.replacement(line, None)
    try:
        message = Message.from_json(line)
    except msgspec.MsgspecError as error:
        return _PROTOCOL.replacement(line, error)
    except RecursionError:
        raise too_deep(line) from None
    if getattr(message, body) is None:
        return _PROTOCOL.replacement(line, f"a {kind} message without {body!r}")
    return message


def _recover(line: bytes, error: Exception, *, whole: bool) -> RawRecord | Message:
    """Return a line that failed to decode, repaired and decoded; or the message that replaces it."""
    _refuse_file(line)
    recovered = _PROTOCOL.recover(line, error, _decode_envelope)
    return decode(recovered, whole=whole) if isinstance(recovered, bytes) else recovered


def _refuse_file(line: bytes) -> None:
    """Raise ConfigError if a line is a record that refers to a file."""
    try:
        record = msgspec.json.decode(line, type=_FileEnvelope).record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    raise ConfigError(
        f"a record of stream {record.stream!r} refers to a file (`file_reference`), but file transfer "
        "is not supported",
        guidance="remove the stream, or configure the source to send the contents of files as records",
    )
