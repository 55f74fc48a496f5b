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
from dataclasses import dataclass, field

_ESCAPED = re.compile("[\\\\%&+\r\ufffd\ud800-\udfff]")
"""What a text has in which a character may be escaped."""
_BYTE = re.compile(r"(?:\\+x|%(?:25)*)([0-9a-fA-F]{2})")
# Each alternative takes a whole run of backslashes or percent signs, so that none is scanned twice.
_CODE = re.compile(
    rf"(?P<bytes>(?:{_BYTE.pattern})+)|\\+u(?P<unit>[0-9a-fA-F]{{4}})|\\+"
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
    """A text without its escapes."""

    text: str
    starts: Sequence[int]  # where each character starts in the original text
    ends: Sequence[int]  # and where it ends there

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the place in the original text of a part of this one that is not empty."""
        return self.starts[start], self.ends[stop - 1]

    def find_spans(self, form: str) -> Iterator[tuple[int, int]]:
        """Yield the places in the original text of a part of this one, also those that overlap."""
        start = self.text.find(form)
        while start >= 0:
            yield self.span(start, start + len(form))
            start = self.text.find(form, start + 1)


def views(text: str) -> Iterator[View]:
    """Yield the text as it is, and if it has what can be an escape, its views without them."""
    original = View(text, range(len(text)), range(1, len(text) + 1))
    yield original
    if _ESCAPED.search(text):
        yield _undo_slashes(_decode(original, as_utf8=True), decodes_letters=True)
        yield _undo_slashes(_decode(original, as_utf8=False), decodes_letters=False)


def unify(text: str) -> str:
    """Return a text in which a character that stands for another one, or may be lost where a text is written,
    is as in each view: `+` is a space, and half of a pair is `?`."""
    return _HALF_PAIR.sub("?", text.translate(_SAME))


@dataclass
class _Characters:
    """Characters of a view that is made from another one."""

    view: View
    parts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def copy(self, start: int, end: int) -> None:
        """Add characters of the other view, as they are there."""
        if start < end:
            self.parts.append(self.view.text[start:end])
        self.starts.extend(self.view.starts[start:end])
        self.ends.extend(self.view.ends[start:end])

    def add(self, character: str, start: int, end: int) -> None:
        """Add a character in place of some of the other view. The halves of a pair become one character."""
        first, last = self.view.span(start, end)
        half = self.parts[-1][-1:] if self.parts else ""
        if "\ud800" <= half <= "\udbff" and "\udc00" <= character <= "\udfff":
            pair = (half + character).encode("utf-16", "surrogatepass").decode("utf-16")
            self.parts[-1], self.ends[-1] = self.parts[-1][:-1] + pair, last
        else:
            self.parts.append(character)
            self.starts.append(first)
            self.ends.append(last)


def _decode(view: View, *, as_utf8: bool) -> View:
    r"""Undo `%41`, `&#65;`, `\u0041` and `\x41`. A run of backslashes before none of these stays as it is.

    Args:
        as_utf8: whether several `\x41` may be one character, as where a program shows bytes; otherwise each
            is a character, as where it shows a text.
    """
    characters, end = _Characters(view), 0
    for match in _CODE.finditer(view.text):
        characters.copy(end, match.start())
        start, end = match.span()
        number = int(match["number"] or 0) or int(match["unit"] or match["hex"] or "0", 16)
        if match["bytes"]:
            _add_bytes(characters, start, end, as_utf8=as_utf8)
        elif match["name"]:
            characters.add(_NAMES[match["name"]], start, end)
        elif match.lastgroup and number <= _MAX_CODE:
            characters.add(chr(number), start, end)
        else:
            characters.copy(start, end)
    characters.copy(end, len(view.text))
    return View("".join(characters.parts), characters.starts, characters.ends)


def _add_bytes(characters: _Characters, start: int, end: int, *, as_utf8: bool) -> None:
    """Add the characters of bytes that follow each other."""
    codes, position = [*_BYTE.finditer(characters.view.text, start, end)], 0
    while position < len(codes):
        first = int(codes[position][1], 16)
        length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        run = codes[position : position + length]
        data = bytes(int(code[1], 16) for code in run)
        try:
            character = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            character = ""
        if not character or not (as_utf8 or run[0][0].startswith("%")):
            character, run = chr(first), run[:1]
        characters.add(character, run[0].start(), run[-1].end())
        position += len(run)


def _undo_slashes(view: View, *, decodes_letters: bool) -> View:
    r"""Undo backslashes before letters and quotes; others are one backslash, or none if letters stay.

    The text is one of `unify`, and `\r\n` is `\n` in it.
    """
    text, characters, end = view.text, _Characters(view), 0
    for match in _SLASHES.finditer(text):
        characters.copy(end, match.start())
        start, end = match.span()
        letter, is_quoting = match["letter"], match["quote"] is not None
        if decodes_letters and (letter or not is_quoting):
            characters.add(_LETTERS[letter] if letter else "\\", start, end)
        elif not decodes_letters and (letter or end < len(text)):
            end += not letter  # the next character begins at the backslashes
            characters.add(text[end - 1], start, end)
    characters.copy(end, len(text))
    text = unify("".join(characters.parts))
    if "\r\n" not in text:
        return View(text, characters.starts, characters.ends)
    places = [n for n in range(len(text)) if text[n : n + 2] != "\r\n"]
    return View(
        "".join(text[n] for n in places),
        [characters.starts[n] for n in places],
        [characters.ends[n] for n in places],
    )
