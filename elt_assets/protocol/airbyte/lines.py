"""Lines that connectors print: splitting, and replacement of lines that cannot be decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.messages import Log, Message, PlainText, UndecodedLine
from elt_assets.protocol.airbyte.recovery.embedded import Body, EmbeddedMessages, Split
from elt_assets.protocol.airbyte.recovery.texts import read

MAX_LINE = 256 << 20
"""Maximum bytes of a line. A longer line is not a record that a table could store."""
MAX_LOG_CHARACTERS = 2_000
BLOCK = 1 << 19
"""Number of bytes that are gathered before their lines are passed on, if the sender is fast enough."""
_READS = 16
"""Maximum number of reads for one block: a slow sender's lines are passed on soon."""
_MAX_IDLE_BUFFER = 16 * BLOCK
"""Maximum size of the buffer that is kept after a long line."""

_GROWTH = 1 << 26
"""Maximum number of bytes by which the buffer grows at a time."""

T = TypeVar("T")
_STREAM_NAME = re.compile(rb'"stream"\s*:\s*"((?:[^"\\]|\\.)*)"')


class _Typed(msgspec.Struct):
    type: str


_decode_type = msgspec.json.Decoder(_Typed).decode


class LineProtocol:
    """The message types of a protocol. They decide what a line that cannot be decoded contains.

    Args:
        bodies: the message types.
        vital: the types whose loss would lose data. A malformed message of these types ends the sync, and
            is not replaced by a log line.
        salvage: functions that return what must be kept of a malformed message of a type; None if nothing
            must be kept.
    """

    def __init__(
        self,
        bodies: Mapping[str, Body],
        vital: Collection[str],
        salvage: Mapping[str, Callable[[bytes], Message | None]] = MappingProxyType({}),
    ):
        self._bodies = bodies
        self._vital = vital
        self._salvage = salvage
        self._embedded = EmbeddedMessages(bodies)
        names = dict.fromkeys(name for body in bodies.values() for name in body.names)
        # A message begins with its type, or with its body if the connector writes that first.
        self._beginning = re.compile(
            rb'\s*\{\s*"(?:type"\s*:\s*"(?P<kind>\w+)"|(?P<body>%b)"\s*:)'
            % "|".join(names).encode()
        )

    def parts(
        self, line: bytes, error: object, decode: Callable[[bytes], object]
    ) -> Sequence[bytes | Message]:
        """Return the messages in a line on which `decode` failed: lines to decode, and replacements.

        They are the messages inside it, and what replaces its other text; or the replacement of the line.

        Raises:
            SystemFailure: see `replacement`; or the line is nested too deeply.
        """
        contents = self._embedded.split(line)
        if not contents.messages or contents.messages == [line.strip()]:
            return [self.replacement(line, error, contents.unquoted)]
        return [*contents.messages, *self._rest(contents, decode)]

    def _rest(
        self, contents: Split, decode: Callable[[bytes], object]
    ) -> Sequence[bytes | Message]:
        """Return what a line contains beside messages: nothing visible, a message that was cut, or text."""
        rest = contents.rest
        if not any(c.isprintable() and not c.isspace() for c in rest.decode("utf-8", "replace")):
            return []
        try:
            read(decode, rest)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            error = "another message is on its line"
            return [self.replacement(rest, error, contents.unquoted)]
        except RecursionError:
            raise too_deep(rest) from None
        return [rest]

    def replacement(self, line: bytes, error: object, unquoted: bytes | None = None) -> Message:
        """Return the message that replaces a malformed message, a part of one, or plain text.

        Args:
            unquoted: the line without quoted messages; default: the line.

        Raises:
            SystemFailure: the line is a message of a vital type, or contains a part of one.
        """
        declared, kinds = self._kinds(line, line if unquoted is None else unquoted)
        for kind in kinds:
            if kind in self._vital:
                raise SystemFailure(
                    f"the connector sent a malformed {kind} message: {error}",
                    guidance="this is a defect of the connector, or its output was truncated; "
                    "the sync stops so that no data is lost",
                    # a record may have fields that must not be shown
                    detail=None if "RECORD" in kinds else _excerpt(line),
                )
        for kind in kinds:
            if kind in self._salvage and (salvaged := self._salvage[kind](line)) is not None:
                return salvaged
        if kinds:
            return _as_log(line, "WARN", f"ignored a malformed {kinds[0]} message ({error})")
        if declared is not None:
            return _as_log(
                line,
                "WARN",
                f"ignored a message of the unknown type {declared[:MAX_LOG_CHARACTERS]!r}",
            )
        return PlainText(type="LOG", log=Log(level="INFO", message=_excerpt(line)))

    def _kinds(self, line: bytes, unquoted: bytes) -> tuple[str | None, list[str]]:
        """Return the type that a line declares, and the types of the messages of which it contains parts."""
        try:
            kind = read(_decode_type, line).type
            if kind in self._bodies:
                return kind, [kind]
            declared: str | None = kind
        except msgspec.ValidationError:
            declared = None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            declared = self._kind_of_beginning(line)
        beginning = [kind for kind in self._bodies if kind == declared]
        return declared, beginning + self._embedded.kinds(unquoted, is_part=bool(beginning))

    def _kind_of_beginning(self, line: bytes) -> str | None:
        """Return the message type that the beginning of a line shows, since a message may be truncated."""
        match = self._beginning.match(line)
        if match is None:
            return None
        kind_bytes, name = match["kind"], (match["body"] or b"").decode()
        candidates = (
            kind
            for kind, body in self._bodies.items()
            if kind.encode() == kind_bytes or name in body.names
        )
        return next(candidates, None)


def too_deep(line: bytes) -> SystemFailure:
    return SystemFailure(
        "the connector sent a message nested too deeply to read",
        guidance="report it to the maintainer of the connector",
        detail=_excerpt(line),
    )


def take_single(parts: Sequence[T]) -> T:
    """Return the message of a line that should be one RECORD.

    Raises:
        SystemFailure: the line contains something beside it.
    """
    if len(parts) == 1:
        return parts[0]
    raise SystemFailure(
        f"the connector sent a RECORD beside other text on one line, which has {len(parts)} parts",
        guidance="this is a defect of the connector: each message must be on its own line; "
        "the sync stops so that no data is lost",
    )


ReadInto = Callable[[memoryview, bool], int | None]
"""Function that reads bytes into the beginning of a buffer and returns their number: 0 at the end of the
input, None if no bytes are available for now. Its second argument is true if whole lines wait to be passed
on: then it must not wait long."""


def blocks(read: ReadInto, limit: int, sender: str = "the connector") -> Iterator[bytes]:
    r"""Yield blocks of whole lines that arrived together, each line with its newline.

    Only the byte `\n` ends a line. The last line of the input may have no newline. An empty block is passed
    on while no input is available. The input is read into one buffer, which grows only for a long line.

    Args:
        limit: the maximum bytes of a line.
        sender: the program that sends the lines, for the message.

    Raises:
        SystemFailure: a line is longer than `limit`.
    """
    buffer = bytearray(2 * BLOCK)
    size = end = reads = 0  # `end`: of the last whole line in the buffer
    while True:
        if size == len(buffer):
            buffer += bytes(min(size, _GROWTH))
        with memoryview(buffer) as view, view[size:] as free:
            count = read(free, end > 0)
        if count == 0:
            break
        if count is not None:
            if not end:
                _check_length(buffer, size, size + count, limit, sender)
            end = buffer.rfind(b"\n", size, size + count) + 1 or end
            size, reads = size + count, reads + 1
            if not end or (size < BLOCK and reads < _READS):
                continue
        block = _copy(buffer, end)
        buffer[: size - end] = buffer[end:size]
        size, end, reads = size - end, 0, 0
        if len(buffer) > _MAX_IDLE_BUFFER and size <= BLOCK:
            del buffer[2 * BLOCK :]
        yield block
        del block  # a long line is not held while the next one is read
    if size:
        yield _copy(buffer, size)


def split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of blocks one by one, without their newlines and without empty lines."""
    for block in blocks:
        yield from filter(None, block.split(b"\n"))


def _copy(buffer: bytearray, size: int) -> bytes:
    with memoryview(buffer) as view, view[:size] as part:
        return bytes(part)


def _check_length(buffer: bytearray, checked: int, end: int, limit: int, sender: str) -> None:
    """Refuse the first line in the buffer if it is too long. Its first `checked` bytes contain no newline."""
    newline = buffer.find(b"\n", checked, end)
    length = end if newline < 0 else newline
    if length > limit:
        beginning = bytes(buffer[: min(length, 4 * MAX_LOG_CHARACTERS)])
        raise SystemFailure(
            f"{sender} sent a line longer than {limit >> 20} MiB{_describe_stream(beginning)}",
            guidance="make the source send smaller records, or report it to the maintainer of the "
            "connector",
            detail=_excerpt(beginning),
        )


def _describe_stream(beginning: bytes) -> str:
    """Return ", of stream NAME" if a line has its stream's name before its data; else an empty string."""
    match = _STREAM_NAME.search(beginning.partition(b'"data"')[0])
    return "" if match is None else f", of stream {match[1].decode('utf-8', 'replace')!r}"


def _as_log(line: bytes, level: str, why: str) -> Message:
    return UndecodedLine(type="LOG", log=Log(level=level, message=f"{why}: {_excerpt(line)}"))


def _excerpt(line: bytes) -> str:
    return line[: 4 * MAX_LOG_CHARACTERS].decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]
