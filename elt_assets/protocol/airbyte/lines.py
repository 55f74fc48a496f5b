"""Lines that connectors print: splitting, repair, and replacement of lines that cannot be decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.messages import Log, Message, PlainText, UndecodedLine

MAX_LINE = 256 << 20
"""Maximum bytes of a line. A longer line is not a record that a table could store."""
MAX_LOG_CHARACTERS = 2_000
BLOCK = 1 << 19
"""Number of bytes that are gathered before their lines are passed on, if the sender is fast enough."""
_READS = 16
"""Maximum number of reads for one block: a slow sender's lines are passed on soon."""
_KEPT = 16 * BLOCK
"""Maximum size of the buffer that is kept after a long line."""

# JSON allows no raw control characters in strings. Outside of strings it allows these two and the newline.
_SPACES = (b"\t", b"\r")
_OTHER_CONTROLS = [bytes([n]) for n in range(0x20) if bytes([n]) not in _SPACES]
# Quotes, escaped quotes, raw white space, and non-finite numbers, which JSON does not have.
_TOKEN = re.compile(rb'\\[\\"]|"|[\t\r]+|-?Infinity|NaN')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STREAM_NAME = re.compile(rb'"stream"\s*:\s*"((?:[^"\\]|\\.)*)"')


class _Typed(msgspec.Struct):
    type: str


_decode_type = msgspec.json.Decoder(_Typed).decode


class LineProtocol:
    """The message types of a protocol. They decide how a line that cannot be decoded is replaced.

    Args:
        kinds: the message types, each with the properties, besides `type`, that identify a truncated
            message.
        vital: the types whose loss would lose data. A malformed message of these types ends the sync, and
            is not replaced by a log line.
    """

    def __init__(self, kinds: Mapping[str, Sequence[str]], vital: Collection[str]):
        self._kinds = kinds
        self._vital = vital
        names = "|".join(dict.fromkeys(name for body in kinds.values() for name in body)).encode()
        # A message begins with its type, or with its body if the connector writes that first.
        self._beginning = re.compile(
            rb'\s*\{\s*"(?:type"\s*:\s*"(?P<kind>\w+)"|(?P<body>%b)"\s*:)' % names
        )

    def recover(
        self, line: bytes, error: Exception, read: Callable[[bytes], object]
    ) -> bytes | Message:
        """Return a line on which `read` failed, repaired; or its replacement if the repair does not help.

        Raises:
            SystemFailure: see `replacement`; or the line is nested too deeply.
        """
        repaired = repair(line)
        if repaired == line:
            return self.replacement(line, error)
        try:
            read(repaired)
        except msgspec.MsgspecError as second_error:
            return self.replacement(line, second_error)
        except RecursionError:
            raise too_deep(line) from None
        return repaired

    def replacement(self, line: bytes, error: object) -> Message:
        """Return the LOG message that replaces a truncated or malformed message, or plain text.

        Raises:
            SystemFailure: the line is a message of a vital type.
        """
        kind = self._kind(line)
        if kind in self._vital:
            raise SystemFailure(
                f"the connector sent a malformed {kind} message: {error}",
                guidance="this is a defect of the connector, or its output was truncated; "
                "the sync stops so that no data is lost",
            )
        if kind in self._kinds:
            return _as_log(line, "WARN", f"ignored a malformed {kind} message ({error})")
        if kind is not None:
            return _as_log(
                line, "WARN", f"ignored a message of the unknown type {kind[:MAX_LOG_CHARACTERS]!r}"
            )
        return PlainText(type="LOG", log=Log(level="INFO", message=_excerpt(line)))

    def _kind(self, line: bytes) -> str | None:
        """Return the message type of a line, even if the rest cannot be decoded; None if there is none."""
        try:
            return _decode_type(line).type
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._kind_of_beginning(line)

    def _kind_of_beginning(self, line: bytes) -> str | None:
        """Return the message type that the beginning of a line shows, since a message may be truncated."""
        match = self._beginning.match(line)
        if match is None:
            return None
        named, body = match["kind"], (match["body"] or b"").decode()
        candidates = (
            kind for kind, names in self._kinds.items() if kind.encode() == named or body in names
        )
        return next(candidates, None)


def repair(line: bytes) -> bytes:
    """Return a line with common deviations from JSON repaired: non-finite numbers (`NaN`, `Infinity`) become
    strings of that name, raw control characters in strings become escapes, and a byte order mark is
    dropped. Time and memory are proportional to the line's length."""
    while line.startswith(_BYTE_ORDER_MARK):
        line = line[len(_BYTE_ORDER_MARK) :]
    found, end, is_string = bytearray(), 0, False
    for token in _TOKEN.finditer(line):
        text = token[0]
        if text == b'"':
            is_string = not is_string
        elif text.isspace() if is_string else text[0] in b"-IN":
            found += line[end : token.start()]
            found += _escaped(text, _SPACES) if is_string else b'"%b"' % text
            end = token.end()
    return _escaped(bytes(found + line[end:]) if end else line, _OTHER_CONTROLS)


def _escaped(text: bytes, controls: Iterable[bytes]) -> bytes:
    for control in controls:
        if control in text:
            text = text.replace(control, b"\\u%04x" % ord(control))
    return text


def too_deep(line: bytes) -> SystemFailure:
    return SystemFailure(
        "the connector sent a message nested too deeply to read",
        guidance="report it to the maintainer of the connector",
        detail=_excerpt(line),
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
    held = end = reads = 0  # `end`: of the last whole line in the buffer
    while True:
        if held == len(buffer):
            buffer += bytes(held)
        with memoryview(buffer) as view, view[held:] as free:
            count = read(free, end > 0)
        if count == 0:
            break
        if count is not None:
            if not end:
                _check_length(buffer, held, held + count, limit, sender)
            end = buffer.rfind(b"\n", held, held + count) + 1 or end
            held, reads = held + count, reads + 1
            if not end or (held < BLOCK and reads < _READS):
                continue
        yield _copy(buffer, end)
        buffer[: held - end] = buffer[end:held]
        held, end, reads = held - end, 0, 0
        if len(buffer) > _KEPT and held <= BLOCK:
            del buffer[2 * BLOCK :]
    if held:
        yield _copy(buffer, held)


def split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of blocks one by one, without their newlines and without empty lines."""
    for block in blocks:
        yield from filter(None, block.split(b"\n"))


def _copy(buffer: bytearray, size: int) -> bytes:
    with memoryview(buffer) as view, view[:size] as part:
        return bytes(part)


def _check_length(buffer: bytearray, held: int, end: int, limit: int, sender: str) -> None:
    """Refuse the first line in the buffer if it is too long. Its first `held` bytes contain no newline."""
    newline = buffer.find(b"\n", held, end)
    length = end if newline < 0 else newline
    if length > limit:
        beginning = bytes(buffer[: min(length, 4 * MAX_LOG_CHARACTERS)])
        raise SystemFailure(
            f"{sender} sent a line longer than {limit >> 20} MiB{_of_stream(beginning)}",
            guidance="make the source send smaller records, or report it to the maintainer of the "
            "connector",
            detail=_excerpt(beginning),
        )


def _of_stream(beginning: bytes) -> str:
    """Return ", of stream NAME" if a line has its stream's name before its data; else an empty string."""
    named = _STREAM_NAME.search(beginning.partition(b'"data"')[0])
    return "" if named is None else f", of stream {named[1].decode('utf-8', 'replace')!r}"


def _as_log(line: bytes, level: str, why: str) -> Message:
    return UndecodedLine(type="LOG", log=Log(level=level, message=f"{why}: {_excerpt(line)}"))


def _excerpt(line: bytes) -> str:
    return line[: 4 * MAX_LOG_CHARACTERS].decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]
