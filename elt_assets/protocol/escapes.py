r"""Views of a text without its escapes, in which a secret is found however its characters are written.

A program prints a text as JSON, in a URL, in HTML or as Python, also JSON within JSON: each character may be
escaped in a way of its own, with any number of backslashes. In place of a pattern for each secret, which can
take exponential time, the escapes of the text are undone once, and what is left is compared with a secret
that went through the same. The work is linear in the text.

There is no single way to undo them: `\n` is a newline, or a backslash and the first letter of a secret. So
there are two views: one decodes such letters, and the other one drops the backslashes before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ESCAPED = re.compile("[\\\\%&+\r\ufffd\ud800-\udfff]")
"""What a text has in which a character may be escaped."""
# Each alternative takes a whole run of backslashes or percent signs, so that none is scanned twice.
_CODE = re.compile(
    r"(?P<slashes>\\+)(?:u(?P<unit>[0-9a-fA-F]{4})|x(?P<byte>[0-9a-fA-F]{2}))?"
    r"|%(?:25)*(?P<percent>[0-9a-fA-F]{2})"
    r"|&(?:\#0*(?P<number>\d{1,7})|\#[xX]0*(?P<hex>[0-9a-fA-F]{1,6})|(?P<name>amp|lt|gt|quot|apos));"
)
_SLASHES = re.compile(r"""\\+(?P<letter>[nrtbf])?(?P<quote>(?=["'/]))?""")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NAMES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_MAX_CODE = 0x10FFFF
_SAME = str.maketrans("+\ufffd", " ?")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class View:
    """A text without its escapes.

    Attributes:
        text: the text.
        starts, ends: the place of each character in the original text; None if it is the original text.
    """

    text: str
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the place in the original text of a part of this one that is not empty."""
        if self.starts is None or self.ends is None:
            return start, stop
        return self.starts[start], self.ends[stop - 1]


def views(text: str) -> Iterator[View]:
    """Yield the views of a text; none if it has nothing that can be an escape."""
    if _ESCAPED.search(text):
        yield _undo_slashes(_decode(text, as_utf8=True), decodes_letters=True)
        yield _undo_slashes(_decode(text, as_utf8=False), decodes_letters=False)


class _Characters:
    """Characters, each with its place in the original text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, character: str, start: int, end: int) -> None:
        self.parts.append(character)
        self.starts.append(start)
        self.ends.append(end)

    def add_plain(self, text: str, start: int, end: int) -> None:
        """Add the part of the original text from `start` to `end`."""
        self.parts.append(text[start:end])
        self.starts.extend(range(start, end))
        self.ends.extend(range(start + 1, end + 1))

    def view(self) -> View:
        return View("".join(self.parts), self.starts, self.ends)


def _decode(text: str, *, as_utf8: bool) -> View:
    r"""Undo `%41`, `&#65;`, `\u0041` and `\x41`. A run of backslashes before none of these stays as it is.

    Args:
        as_utf8: whether several bytes may be one character, as where a program shows bytes; otherwise each
            `\x41` is a character, as where it shows a text.
    """
    characters, end = _Characters(), 0
    run: list[tuple[int, int, int]] = []  # bytes that follow each other, with their places
    for match in _CODE.finditer(text):
        byte = match["percent"] or match["byte"]
        if run and (byte is None or match.start() != end):
            _add_bytes(characters, run, as_utf8=as_utf8)
        characters.add_plain(text, end, match.start())
        end = match.end()
        if byte is not None:
            run.append((int(byte, 16), match.start(), end))
            continue
        code = _read_code(match)
        if code is None:
            characters.add_plain(text, match.start(), end)
        else:
            characters.add(code, match.start(), end)
    _add_bytes(characters, run, as_utf8=as_utf8)
    characters.add_plain(text, end, len(text))
    return _join_pairs(characters)


def _read_code(match: re.Match[str]) -> str | None:
    """Return the character that a code stands for; None for backslashes alone, and for no character."""
    if match["name"]:
        return _NAMES[match["name"]]
    if match["number"]:
        number = int(match["number"])
    elif match["hex"] or match["unit"]:
        number = int(match["hex"] or match["unit"], 16)
    else:
        return None
    return chr(number) if number <= _MAX_CODE else None


def _add_bytes(characters: _Characters, run: list[tuple[int, int, int]], *, as_utf8: bool) -> None:
    """Add the characters of bytes, and empty the list of bytes."""
    position = 0
    while position < len(run):
        first, start, _ = run[position]
        length = (
            1 if first < 0xC0 or not as_utf8 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        )
        data = bytes(byte for byte, _, _ in run[position : position + length])
        try:
            character = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            character, length = chr(first), 1
        characters.add(character, start, run[position + length - 1][2])
        position += length
    run.clear()


def _join_pairs(characters: _Characters) -> View:
    """Return a view in which the two halves of a character beyond 0xFFFF are one."""
    view = characters.view()
    if not _HALF_PAIR.search(view.text):
        return view
    joined = _Characters()
    position = 0
    assert view.starts is not None
    assert view.ends is not None
    while position < len(view.text):
        pair, length = view.text[position : position + 2], 1
        if len(pair) == 2 and "\ud800" <= pair[0] < "\udc00" <= pair[1] <= "\udfff":
            pair, length = pair.encode("utf-16", "surrogatepass").decode("utf-16"), 2
        last = position + length - 1
        joined.add(pair if length == 2 else pair[0], view.starts[position], view.ends[last])
        position += length
    return joined.view()


def _undo_slashes(view: View, *, decodes_letters: bool) -> View:
    r"""Undo backslashes before letters and quotes; others are one backslash, or none if letters stay.

    A character that stands for another one, or may be lost where a text is written, is the same in each text:
    `+` is a space, half of a pair is `?`, and `\r\n` is `\n`.
    """
    text, characters, end = view.text, _Characters(), 0
    for match in _SLASHES.finditer(text):
        _copy(characters, view, end, match.start())
        start, end = match.start(), match.end()
        if decodes_letters and match["letter"]:
            characters.add(
                _LETTERS[match["letter"]], view.span(start, end)[0], view.span(start, end)[1]
            )
        elif decodes_letters and match["quote"] is None:
            characters.add("\\", *view.span(start, end))
        elif match["letter"] or end < len(text):  # the next character begins at the backslashes
            last = end if match["letter"] is None else end - 1
            characters.add(text[last], *view.span(start, last + 1))
            end = last + 1
    _copy(characters, view, end, len(text))
    return _unify(characters)


def _copy(characters: _Characters, view: View, start: int, end: int) -> None:
    assert view.starts is not None
    assert view.ends is not None
    characters.parts.append(view.text[start:end])
    characters.starts.extend(view.starts[start:end])
    characters.ends.extend(view.ends[start:end])


def _unify(characters: _Characters) -> View:
    text = _HALF_PAIR.sub("?", "".join(characters.parts).translate(_SAME))
    if "\r\n" not in text:
        return View(text, characters.starts, characters.ends)
    places = [n for n in range(len(text)) if text[n : n + 2] != "\r\n"]
    starts, ends = characters.starts, characters.ends
    return View(
        "".join(text[n] for n in places), [starts[n] for n in places], [ends[n] for n in places]
    )
