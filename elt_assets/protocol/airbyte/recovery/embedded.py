r"""Messages in lines that are not one message.

Such a message stands behind, before or between other text, beside other messages, in an array or in another
object, or between the parts of a message that it cuts. A connector's output is shared: a progress bar, a
print, a library or another thread may write to the same line. The message must not be lost, because a later
state moves past it. So:

- Every whole message, at any place of the line, is recovered byte for byte.
- What remains may be a part of a message: an object that begins with the type of a message, or the body of
  one. Such a line counts as a malformed message of this type.
- Quoted JSON is text: a message between two equal quotes (`'{…}'`, `"{…}"`, or backticks), the beginning of
  one behind a single quote or backtick that is closed later, or an escaped one (`{\"type\": …`). Behind a
  part of a message quotes do not count: they may belong to it.

The search needs a line that contains the type or the body of a message. All other lines cost three regular
expressions. `tests/protocol/test_embedded.py` shows that no bytes around, between or inside messages lose
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.value_limit import check_values

_MAX_WORK = 8
"""Maximum number of bytes that a search reads, as multiple of the line's length: nested and truncated objects
are read again."""
_MIN_WORK = 1 << 20
_MAX_ATTEMPTS = 1_000
"""Maximum number of objects in a line that are not JSON: each costs a pass over the line before it."""

# What terminals hide, and the bytes between the letters of UTF-16, hide no message from the search for parts.
_INVISIBLE = re.compile(
    rb"\x1b\[[\d;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f]|\xe2\x80[\x8b-\x8f]|\xef\xbb\xbf"
)
_OBJECT = re.compile(r'\{[ \t\r]*"')
_QUOTES = (b"'", b'"', b"`")
# Behind the object of a quoted line, the representation of bytes has the escapes of its line break.
_ESCAPED_BREAKS = re.compile(rb"(?:\\[rn])*")


@dataclass(frozen=True)
class Body:
    """The body of a message type.

    Attributes:
        names: its properties in the message, besides `type`; the first one is required.
        opening: the pattern of its beginning, if a part of a message without its type must be recognized.
    """

    names: Sequence[str]
    opening: bytes | None = None


class Split(NamedTuple):
    """The contents of a line.

    Attributes:
        messages: its whole messages, in their order.
        rest: the line without them.
        unquoted: the rest without messages that stand in quotes.
    """

    messages: list[bytes]
    rest: bytes
    unquoted: bytes


class EmbeddedMessages:
    """Search for the messages of a protocol inside lines.

    Args:
        bodies: the body of each message type.
    """

    def __init__(self, bodies: Mapping[str, Body]):
        self._bodies = bodies
        pair = rb'"type"\s*:\s*"(%b)"\s*' % "|".join(bodies).encode()
        self._type = re.compile(pair)
        openings = {kind: body.opening for kind, body in bodies.items() if body.opening}
        self._openings = list(openings)
        self._evidence = re.compile(
            # The type is followed by another property, by another message, or by the end of the line;
            # or it is the last of several properties.
            rb"(?:\A|[{,\[])\s*%b(?:\Z|\{|,\s*(?:\"|\Z))|,\s*%b\}" % (pair, pair)
            + b"".join(b"|(" + opening + b")" for opening in openings.values())
        )

    def split(self, line: bytes) -> Split:
        """Take the whole messages out of a line.

        Raises:
            SystemFailure: the line is too intricate to search.
        """
        objects = list(self._objects(line))
        messages = [line[start:end] for start, end, is_quoted in objects if not is_quoted]
        rest = _remove_spans(
            line, [(start, end) for start, end, is_quoted in objects if not is_quoted]
        )
        return Split(
            messages, rest, _remove_spans(line, [(start, end) for start, end, _ in objects])
        )

    def kinds(self, text: bytes, *, is_part: bool = False) -> list[str]:
        """Return the types of the messages of which a text contains parts.

        Args:
            is_part: whether the text begins within a message.
        """
        kinds: list[str] = []
        if b'"' not in text:
            return kinds
        text = _INVISIBLE.sub(b"", text)
        quoted = 0  # the end of the quoted text
        for match in self._evidence.finditer(text):
            if not (is_part or kinds):
                quoted = max(quoted, _end_of_quotes(text, match.start()))
            if match.start() >= quoted:
                kinds.append(self._kind(match))
        return kinds

    def _kind(self, match: re.Match[bytes]) -> str:
        group = match.lastindex or 1
        return match[group].decode() if group <= 2 else self._openings[group - 3]

    def _objects(self, line: bytes) -> Iterator[tuple[int, int, bool]]:
        """Yield the start and the end of each whole message in a line, and whether it stands in quotes."""
        if b'"' not in line:
            return
        last_type = max((match.start() for match in self._type.finditer(line)), default=-1)
        if last_type < 0:
            return
        _check_values(line)
        text = line.decode("latin-1")  # a character for each byte
        work, attempts = max(_MIN_WORK, _MAX_WORK * len(line)), _MAX_ATTEMPTS
        after = end = 0
        while (match := _OBJECT.search(text, end)) and (place := match.start()) < last_type:
            outline, end = _object(text, place)
            work, attempts = work - (end - place), attempts - (outline is None)
            if work < 0 or attempts < 0:
                raise _too_intricate()
            if outline is not None and self._is_message(outline):
                is_quoted = _is_quoted(line, place, end) and not self.kinds(line[after:place])
                yield place, end, is_quoted
                after = end
            elif outline is None or self._type.search(line, place, end):
                end = place + 1  # it may contain messages

    def _is_message(self, outline: Mapping[str, str | None]) -> bool:
        body = self._bodies.get(outline.get("type") or "")
        return body is not None and body.names[0] in outline


def _outline(properties: list[tuple[str, Any]]) -> dict[str, str | None]:
    """Return the names of an object's properties, with the value of `type`: memory of nested ones is free."""
    return {
        name: value if name == "type" and isinstance(value, str) else None
        for name, value in properties
    }


_read = json.JSONDecoder(
    object_pairs_hook=_outline, parse_int=str, parse_float=str, strict=False
).raw_decode


def _object(text: str, place: int) -> tuple[Mapping[str, str | None] | None, int]:
    """Return the outline of the object at a place, and its end; None and the place of the error if there is
    none."""
    try:
        return _read(text, place)
    except json.JSONDecodeError as error:
        return None, error.pos
    except RecursionError:
        raise _too_intricate() from None


def _remove_spans(line: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    """Return a line without some of its parts, which are in order."""
    starts, ends = [span[0] for span in spans], [span[1] for span in spans]
    return b"".join(
        line[start:end] for start, end in zip([0, *ends], [*starts, len(line)], strict=True)
    )


def _is_quoted(line: bytes, start: int, end: int) -> bool:
    """Return whether an object stands between two equal quotes."""
    escapes = _ESCAPED_BREAKS.match(line, end)
    quote = line[start - 1 : start] if start else b""
    return quote in _QUOTES and line.startswith(quote, escapes.end() if escapes else end)


def _end_of_quotes(text: bytes, place: int) -> int:
    """Return the end of the quoted text that begins with an object around a place; 0 if there is none.

    A double quote begins none: the object has double quotes of its own, so its end would be unknown.
    """
    start = place if text.startswith(b"{", place) else place - 1
    quote = text[start - 1 : start] if start > 0 and text.startswith(b"{", start) else b""
    return text.rfind(quote, place) if quote in (b"'", b"`") else 0


def _check_values(line: bytes) -> None:
    try:
        check_values(line)
    except msgspec.ValidationError as error:
        raise _too_intricate(f"cannot be searched: {error}") from None


def _too_intricate(problem: str = "is nested too deeply to search") -> SystemFailure:
    return SystemFailure(
        f"the connector sent a line that contains parts of messages, and that {problem}",
        guidance="report it to the maintainer of the connector: each message must be on its own line",
    )
