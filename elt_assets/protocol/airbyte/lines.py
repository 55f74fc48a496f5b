"""What the languages of connectors have in common: one line is one message, and not every line is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.messages import Log, Message, Noise, Unread

MAX_LINE = 256 << 20
"""Bytes. A longer line is no record that a table could hold."""
MAX_LOG_CHARACTERS = 2_000

# JSON has no bare control characters in strings; outside of strings it has these two, beside the line's end.
_SPACES = (b"\t", b"\r")
_OTHER_CONTROLS = [bytes([n]) for n in range(0x20) if bytes([n]) not in _SPACES]
# What ends a string or seems to, bare white space, and what JSON does not have, but some writers write.
_TOKEN = re.compile(rb'\\[\\"]|"|[\t\r]+|-?Infinity|NaN')
_MARK = b"\xef\xbb\xbf"
_STREAM = re.compile(rb'"stream"\s*:\s*"((?:[^"\\]|\\.)*)"')


class _Typed(msgspec.Struct):
    type: str


_decode_type = msgspec.json.Decoder(_Typed).decode


class Language:
    """Which messages there are, as far as that decides what becomes of a line that cannot be read.

    Args:
        kinds: the types of messages, each with the properties, beside `type`, by which one that was cut
            off can be told.
        vital: losing one of these would lose data, so a broken one ends the sync instead of becoming a
            log line.
    """

    def __init__(self, kinds: Mapping[str, Sequence[str]], vital: Collection[str]):
        self._kinds = kinds
        self._vital = vital
        names = "|".join(dict.fromkeys(name for body in kinds.values() for name in body)).encode()
        # How a message begins: by its type, or by its body where a connector writes that first.
        self._beginning = re.compile(
            rb'\s*\{\s*"(?:type"\s*:\s*"(?P<kind>\w+)"|(?P<body>%b)"\s*:)' % names
        )

    def mended(
        self, line: bytes, error: Exception, read: Callable[[bytes], object]
    ) -> bytes | Message:
        """A line that `read` failed on, as JSON would have it; or, if that is no help, what becomes of it.

        Raises:
            SystemFailure: as `misshapen`; or it is nested too deeply.
        """
        repaired = repair(line)
        if repaired == line:
            return self.misshapen(line, error)
        try:
            read(repaired)
        except msgspec.MsgspecError as still:
            return self.misshapen(line, still)
        except RecursionError:
            raise too_deep(line) from None
        return repaired

    def misshapen(self, line: bytes, error: object) -> Message:
        """What becomes of a torn or misshapen message, or of plain text: a LOG message.

        Raises:
            SystemFailure: it is a message that carries data.
        """
        kind = self._kind(line)
        if kind in self._vital:
            raise SystemFailure(
                f"the connector sent a malformed {kind} message: {error}",
                guidance="this is a defect of the connector, or it was cut off; "
                "the sync stops so that no data is lost",
            )
        if kind in self._kinds:
            return _as_log(line, "WARN", f"ignored a malformed {kind} message ({error})")
        if kind is not None:
            return _as_log(
                line, "WARN", f"ignored a message of the unknown type {kind[:MAX_LOG_CHARACTERS]!r}"
            )
        return Noise(type="LOG", log=Log(level="INFO", message=_head(line)))

    def _kind(self, line: bytes) -> str | None:
        """The type that a line claims, even where the rest of it cannot be read."""
        try:
            return _decode_type(line).type
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._claimed(line)

    def _claimed(self, line: bytes) -> str | None:
        """By how it begins: a message that was cut off is not to be taken for plain text."""
        match = self._beginning.match(line)
        if match is None:
            return None
        told, body = match["kind"], (match["body"] or b"").decode()
        claims = (
            kind for kind, names in self._kinds.items() if kind.encode() == told or body in names
        )
        return next(claims, None)


def repair(line: bytes) -> bytes:
    """A line with what JSON does not have, but some writers write, as JSON: non-finite numbers (`NaN`,
    `Infinity`) as strings of that name, bare control characters in strings as escapes; a byte order
    mark is dropped. Time and memory are proportional to the line's length."""
    while line.startswith(_MARK):
        line = line[len(_MARK) :]
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
        "the connector sent a message nested too deeply to read", detail=_head(line)
    )


def blocks(chunks: Iterable[bytes], limit: int, sender: str = "the connector") -> Iterator[bytes]:
    r"""Whole lines, as many as came at once, without the last one's newline; lines end at byte `\n` alone.
    But an empty chunk is passed on: for now there is no more.

    Args:
        limit: bytes that a line may have.
        sender: who is to blame.

    Raises:
        SystemFailure: a line is longer.
    """
    parts: list[bytes] = []
    held = 0
    for chunk in chunks:
        head, newline, _ = chunk.partition(b"\n")
        if held + len(head) > limit:
            beginning = b"".join([*parts, head])[: 4 * MAX_LOG_CHARACTERS]
            raise SystemFailure(
                f"{sender} sent a line longer than {limit >> 20} MiB{_stream(beginning)}",
                detail=_head(beginning),
            )
        if not chunk:
            yield chunk
        elif not newline:
            parts.append(chunk)
            held += len(chunk)
        else:
            whole, _, rest = b"".join([*parts, chunk]).rpartition(b"\n")
            if whole:
                yield whole
            parts, held = [rest], len(rest)
    if last := b"".join(parts):
        yield last


def split(chunks: Iterable[bytes], limit: int, sender: str = "the connector") -> Iterator[bytes]:
    """As `blocks`, line by line; empty ones are left out, but for one that says that there is no more."""
    for block in blocks(chunks, limit, sender):
        if block:
            yield from filter(None, block.split(b"\n"))
        else:
            yield block


def _stream(beginning: bytes) -> str:
    """Of which stream a line is, if it says so before its data begin."""
    named = _STREAM.search(beginning.partition(b'"data"')[0])
    return "" if named is None else f", of stream {named[1].decode('utf-8', 'replace')!r}"


def _as_log(line: bytes, level: str, why: str) -> Message:
    return Unread(type="LOG", log=Log(level=level, message=f"{why}: {_head(line)}"))


def _head(line: bytes) -> str:
    return line[: 4 * MAX_LOG_CHARACTERS].decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]
