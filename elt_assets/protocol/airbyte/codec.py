"""One line, one message.

spec: Interface Invariants: each message on its own line, wrapped in an AirbyteMessage; what is not
wrapped is dropped, and logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.lines import Language, too_deep
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
}
_LANGUAGE = Language(
    kinds={kind: [body] for kind, body in _BODIES.items()},
    vital=("RECORD", "STATE", "CATALOG", "SPEC", "CONNECTION_STATUS", "CONTROL"),
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
    """Read one line, without its newline. With `whole`, a RECORD comes as a `Message` that loses nothing.

    A line that is no message, or of an unknown type, comes back as an `Unread` LOG message holding
    its beginning. What JSON does not have but some writers write is repaired, all else to the letter:
    non-finite numbers (`NaN`, `Infinity`) become strings of that name, so that the table's
    conversion reports them; bare control characters in strings become escapes; a byte order mark
    is dropped. Of duplicate keys the last one counts.

    Raises:
        SystemFailure: the line is a message that carries data, but cut off, not well formed, not
            UTF-8, with half a surrogate pair in it, or nested too deeply.
        ConfigError: the line is a record that refers to a file.
    """
    try:
        if not line.isascii():
            line.decode()  # the decoder would let other bytes through in what it leaves raw
        envelope = _decode_envelope(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _unreadable(line, error, whole=whole)
    except RecursionError:
        raise too_deep(line) from None
    if envelope.record is not None and envelope.type == "RECORD" and not whole:
        return envelope.record
    return _whole(line, envelope.type)


def decode_blocks(blocks: Iterable[bytes]) -> Iterator[RawRecord | Message]:
    """Read blocks of whole lines, as `decode` reads each line; twice as fast where all is well.

    Raises:
        SystemFailure: as `decode`.
    """
    for block in blocks:
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
                yield _whole(lines[number], envelope.type)


def _envelopes(block: bytes) -> list[_Envelope] | None:
    """Of each line; None if any is not well formed, or not an object from its first byte to its last: the
    decoder takes any white space between objects, so that only those tell lines apart."""
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
    """Write one message as one line, newline included."""
    return message.to_json() + b"\n"


def _whole(line: bytes, kind: str) -> Message:
    body = _BODIES.get(kind)
    if body is None:
        return _LANGUAGE.misshapen(line, None)
    try:
        message = Message.from_json(line)
    except msgspec.MsgspecError as error:
        return _LANGUAGE.misshapen(line, error)
    except RecursionError:
        raise too_deep(line) from None
    if getattr(message, body) is None:
        return _LANGUAGE.misshapen(line, f"a {kind} message without {body!r}")
    return message


def _unreadable(line: bytes, error: Exception, *, whole: bool) -> RawRecord | Message:
    """Almost JSON, a torn or misshapen message, or plain text."""
    _refuse_file(line)
    mended = _LANGUAGE.mended(line, error, _decode_envelope)
    return decode(mended, whole=whole) if isinstance(mended, bytes) else mended


def _refuse_file(line: bytes) -> None:
    """
    Raises:
        ConfigError: the line is a record that refers to a file.
    """
    try:
        record = msgspec.json.decode(line, type=_FileEnvelope).record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    raise ConfigError(
        f"a record of stream {record.stream!r} refers to a file (`file_reference`), and files are not "
        "transferred",
        guidance="leave the stream out, or have the source send the files' contents as records",
    )
