r"""Lines that connectors print: splitting, and what a line becomes that is not one message.

`runner`, `destination` and `routing` split with it; `codec` and `singer` tell messages from text.

A connector's output is shared: a print, a progress bar, a library or another thread may write to the line of
a message. A later state moves past a message that is lost, so no line with one may count as text. The rule:

1. A line that is a whole message is a message (`codec`, `singer`).
2. A whole message at the end of a line, behind other text (a print without a newline, the prefix of a log,
   what a progress bar leaves), is a message too, and the text before it is a line of its own.
3. Any other line that shows a message whose loss could remain unnoticed ends the sync. These types are
   `vital`: data, states, and what a command answers or waits for. A TRACE that cannot be read is a failure
   (`codec.failure_of_line`).
4. All other lines are text of the log.

A line shows a message if it has, between the properties of an object, the type of one (`"type": "RECORD",`),
or the beginning of its body (`"record": {"stream":`), which shows the rest of a message that begins on
another line. What terminals hide, and the zero bytes of UTF-16, hide neither. Text that quotes a message as
JSON does (`{\"type\": \"RECORD\"`, as in a string of another JSON) shows none: a log may say what was sent.
Quotes of other kinds excuse nothing: `'{"type": …}'` cannot be told from a message in other text.

Nothing else is recovered: what stands behind, between or inside of messages on one line can be put together
in several ways, and a wrong guess is data that nobody misses. `tests/protocol/test_lines.py` shows that no
bytes around, between or inside of messages lose one without an error. Only a message that is cut twice within
its first bytes, in its type and in the name of its body, shows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.messages import Log, Message, PlainText, UndecodedLine
from elt_assets.protocol.wire import read

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
_MAX_OBJECTS = 20
"""Maximum number of places where a message is looked for in a line. Text before one rarely has an object."""
_MAX_WORK = 64 << 20
"""Number of bytes after which no further place is looked at: each costs passes over the rest of the line."""

T = TypeVar("T")
_STREAM_NAME = re.compile(rb'"stream"\s*:\s*"((?:[^"\\]|\\.)*)"')
_OBJECT = re.compile(rb'\{[ \t\r]*"')
_INVISIBLE = re.compile(
    rb"\x1b\[[\d;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f]|\xe2\x80[\x8b-\x8f]|\xef\xbb\xbf"
)


class _Typed(msgspec.Struct):
    type: str


_decode_type = msgspec.json.Decoder(_Typed).decode


class Body(NamedTuple):
    """The body of a message type."""

    names: Sequence[str]  # its properties in the message, besides `type`
    # The pattern of its beginning, if a part of a message without its type must be recognized.
    opening: bytes | None = None


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
        types = "|".join(bodies).encode()
        self._kinds_by_name = {
            name: kind for kind in bodies for name in (kind, *bodies[kind].names)
        }
        names = "|".join(self._kinds_by_name).encode()
        # A message begins with its type, or with its body if the connector writes that first.
        self._beginning = re.compile(rb'\s*\{\s*"(?:type"\s*:\s*"(\w+)"|(%b)"\s*:)' % names)
        self._evidence = re.compile(
            # Another property, message or object follows the type, or the end of the object or the line.
            rb'(?:\A|[{,\[])\s*"type"\s*:\s*"(?P<type>%b)"\s*(?:\Z|[{}]|,\s*(?:"|\Z))' % types
            + b"".join(
                b"|(?P<%b>%b)" % (kind.encode(), body.opening)
                for kind, body in bodies.items()
                if body.opening
            )
        )

    def take_apart(
        self, line: bytes, error: object, decode: Callable[[bytes], Iterable[T]]
    ) -> Sequence[T | Message]:
        """Return what a line is that is not one message: what replaces its text, and the message at its end.

        Args:
            decode: returns the messages of a line.

        Raises:
            SystemFailure: see `replacement`; or as `decode`.
        """
        start = self._find_last(line)
        if start is None:
            return [self.replacement(line, error)]
        text, messages = line[:start], decode(line[start:])
        if not any(c.isprintable() and not c.isspace() for c in text.decode("utf-8", "replace")):
            return [*messages]
        return [self.replacement(text, "another message follows on its line"), *messages]

    def _find_last(self, line: bytes) -> int | None:
        """Return where the whole message at the end of a line begins; None if there is none.

        Only one place can be the beginning: an object inside of another one ends before the line does.
        """
        if b'"type"' not in line or not line.rstrip().endswith(b"}"):
            return None
        places = min(_MAX_OBJECTS, 1 + _MAX_WORK // len(line))
        for place in islice(_OBJECT.finditer(line, 1), places):
            try:
                kind = read(_decode_type, line[place.start() :]).type
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            if kind in self._bodies:
                return place.start()
        return None

    def replacement(self, line: bytes, error: object) -> Message:
        """Return the message that replaces a malformed message, a part of one, or plain text.

        Raises:
            SystemFailure: the line is a message of a vital type, or shows one.
        """
        declared, kinds = self._kinds(line)
        for kind in kinds:
            if kind in self._vital:
                stream = _describe_stream(line) if kind == "RECORD" else ""
                raise SystemFailure(
                    f"the connector sent a malformed {kind} message{stream}: {error}",
                    guidance="this is a defect of the connector, or its output was truncated: each message "
                    "must be on its own line, and other text must go to stderr; the sync stops so that no "
                    "data is lost",
                    # a record may have fields that must not be shown
                    detail=None if "RECORD" in kinds else _excerpt(line),
                )
        for kind in kinds:
            if kind in self._salvage and (salvaged := self._salvage[kind](line)) is not None:
                return salvaged
        if kinds:
            return _as_log(line, f"ignored a malformed {kinds[0]} message ({error})")
        if declared is not None:
            name = declared[:MAX_LOG_CHARACTERS]
            return _as_log(line, f"ignored a message of the unknown type {name!r}")
        return PlainText(type="LOG", log=Log(level="INFO", message=_excerpt(line)))

    def _kinds(self, line: bytes) -> tuple[str | None, Sequence[str]]:
        """Return the type that a line declares, and the types of the messages that it shows."""
        declared: str | None = None
        try:
            kind = declared = read(_decode_type, line).type
            if kind in self._bodies:
                return kind, [kind]
        except msgspec.ValidationError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if beginning := self._beginning.match(line):
                name = beginning[beginning.lastindex or 1].decode()
                declared = self._kinds_by_name.get(name)
        kinds = [kind for kind in self._bodies if kind == declared]
        if b'"' in line:
            matches = self._evidence.finditer(_INVISIBLE.sub(b"", line))
            kinds += [(m["type"] or b"").decode() or str(m.lastgroup) for m in matches]
        return declared, kinds


def too_deep(line: bytes) -> SystemFailure:
    """Return the error of a line whose message is nested too deeply."""
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
        block = bytes(
            memoryview(buffer)[:end]
        )  # one copy, of a view that is gone before the buffer changes
        buffer[: size - end] = buffer[end:size]
        size, end, reads = size - end, 0, 0
        if len(buffer) > _MAX_IDLE_BUFFER and size <= BLOCK:
            del buffer[2 * BLOCK :]
        yield block
        del block  # a long line is not held while the next one is read
    if size:
        yield bytes(memoryview(buffer)[:size])


def split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of blocks one by one, without their newlines and without empty lines."""
    for block in blocks:
        yield from filter(None, block.split(b"\n"))


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


def _as_log(line: bytes, why: str) -> Message:
    return UndecodedLine(type="LOG", log=Log(level="WARN", message=f"{why}: {_excerpt(line)}"))


def _excerpt(line: bytes) -> str:
    return line[: 4 * MAX_LOG_CHARACTERS].decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]
