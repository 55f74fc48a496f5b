"""Masking of secrets in all text that is shown, however their characters are written there.

`runner` and `connectors.testing` mask what connectors print, `message_output` what programs of this project
send, and `connectors.sdk.http` what is in errors.

A program prints a text as JSON, in a URL, in HTML or as Python, also JSON within JSON: each character may be
escaped in a way of its own, with any number of backslashes. In place of a pattern for each secret, which can
take exponential time, the escapes of the text are undone once (`views`), and what is left is compared with a
secret that went through the same (`Masker`). The work is linear in the text.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import quote, quote_plus

from elt_assets.errors import SystemFailure
from elt_assets.protocol.secret_parts import LINE_WIDTHS, parts

_ESCAPED = re.compile("[\\\\%&+\r\ufffd\ud800-\udfff]")
"""What a text has in which a character may be escaped."""
_BYTE = re.compile(r"(?:\\+x|%(?:25)*)([0-9a-fA-F]{2})")
# Each alternative takes a whole run of backslashes or percent signs, so that none is scanned twice.
_CODE = re.compile(
    rf"(?P<bytes>(?:{_BYTE.pattern})+)|\\+u(?P<unit>[0-9a-fA-F]{{4}})|\\+"
    r"|&(?:\#0*(?P<number>\d{1,7})|\#[xX]0*(?P<hex>[0-9a-fA-F]{1,6})|(?P<name>amp|lt|gt|quot|apos));"
)
_SLASHES = re.compile(r"\\+(?P<letter>[nrtbf])?")
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
    r"""Yield the text as it is, and if it has what can be an escape, its views without them.

    There is no single way to undo escapes: `\n` is a newline, or a backslash and the first letter of a
    secret; `\xc3\xa9` is one character, or two; `\u0025bb` is `%bb`, which may be a code again. So there is a
    view for each way.
    """
    original = _plain(text)
    yield original
    if _ESCAPED.search(text):
        decoded = [_decode(original, as_utf8=True)]
        # Bytes of a text that are read in another way, and codes that stand only where others were undone.
        for other in (_decode(original, as_utf8=False), _decode(decoded[0], as_utf8=True)):
            if all(other.text != view.text for view in decoded):  # seldom
                decoded.append(other)
        for view in decoded:
            yield _undo_slashes(view, decodes_letters=True)
            yield _undo_slashes(view, decodes_letters=False)


def _plain(text: str) -> View:
    return View(text, range(len(text)), range(1, len(text) + 1))


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
    r"""Drop all backslashes, with the letter behind them as it is, or as what it stands for.

    A backslash of a secret is dropped too: behind one or before one, the backslashes of an escape do not tell
    whether it is there. The text is one of `unify`, and `\r\n` is `\n` in it.
    """
    text, characters, end = view.text, _Characters(view), 0
    for match in _SLASHES.finditer(text):
        characters.copy(end, match.start())
        start, end = match.span()
        letter = match["letter"]
        if letter and decodes_letters:
            characters.add(_LETTERS[letter], start, end)
        elif letter or end < len(text):
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


MASK = "****"
_MIN_LENGTH = 3
"""Minimum characters of a secret. A shorter one is no secret, and masking it would hide half of a log."""
MIN_TRUNCATED = 2_000
"""Minimum characters of a text that may be truncated in the middle of a secret."""
_MIN_CODE_LENGTH = 8
"""Minimum characters of base64 that identify a secret within the base64 of a longer text."""
# The password of `scheme://user:password@host`. JSON may escape the slashes.
_URL_PASSWORD = re.compile(r""":(?://|\\/\\/)[^\s/@:"]*:([^\s/"]+)@""")
_URL_ALPHABET = str.maketrans("+/", "-_")
MAX_PARTS = 10_000
"""Maximum number of secrets and parts of secrets that are masked; the config of a connector has some tens."""
_FEW = 64
_MAX_COMPARISONS = 20_000
"""Maximum number of comparisons with a text. A text that needs more is not shown at all."""


class Masker:
    """Replaces secrets in a text by `MASK`: known secrets and their parts (see `secret_parts`), however their
    characters are escaped for a URL, JSON, HTML or Python, or in base64; and any password in a URL.

    Text and secrets come from connectors, so the work is linear in the text, whatever is in it: escapes are
    undone once for each text (`views`), and a secret is searched only if its first characters are in
    the text.
    """

    def __init__(self, secrets: Iterable[str] = ()):
        self._parts: set[str] = set()
        self._forms: dict[str, set[str]] = {}
        """What is searched in the views of a text, by its first `_MIN_LENGTH` characters."""
        self._beginnings: dict[str, set[str]] = {}
        """What the end of a text may have the beginning of, likewise."""
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask further secrets.

        Raises:
            SystemFailure: there would be more than `MAX_PARTS` secrets and parts.
        """
        for secret in secrets:
            if secret in self._parts:
                continue
            for part in parts(secret) - self._parts:
                if len(part) >= _MIN_LENGTH:
                    self._add_part(part)

    def _add_part(self, part: str) -> None:
        if len(self._parts) >= MAX_PARTS:
            raise SystemFailure(
                f"there are more than {MAX_PARTS:,} secrets to mask, with the parts of them",
                guidance="a connector changes few values of its config: this is a defect of the connector",
            )
        codes = set(_base64_forms(part))
        for text in {part, *codes}:
            # A text in which each `%` is escaped too has no code that the secret seems to have.
            plain = [
                _undo_slashes(_plain(text), decodes_letters=decodes) for decodes in (True, False)
            ]
            for form in {unify(text), *(view.text for view in (*plain, *views(text)))}:
                if len(form) >= _MIN_LENGTH:
                    self._forms.setdefault(form[:_MIN_LENGTH], set()).add(form)
        for text in codes | _spellings(part):
            self._beginnings.setdefault(text[:_MIN_LENGTH], set()).add(text)
        self._parts.add(part)  # last: another thread may have found it here

    def __call__(self, text: str) -> str:
        comparisons = 0
        spans = [match.span(1) for match in _URL_PASSWORD.finditer(text)]
        for view in views(text):
            for form in self._candidates(view.text):
                new_spans = [*islice(view.find_spans(form), _MAX_COMPARISONS)]
                comparisons += 1 + len(new_spans)
                if comparisons > _MAX_COMPARISONS:
                    return MASK
                spans += new_spans
        if len(text) >= MIN_TRUNCATED and self._parts:
            cut = self._measure_truncated(text)
            if cut is None:
                return MASK
            spans.append((len(text) - cut, len(text)))
        return _replace(text, spans)

    def _candidates(self, text: str) -> Iterator[str]:
        """Yield the forms whose first characters are in a text."""
        if len(self._forms) < _FEW:  # as nearly always: no table of the text is made
            starts = [start for start in tuple(self._forms) if start in text]
        else:
            windows = {
                text[start : start + _MIN_LENGTH] for start in range(len(text) - _MIN_LENGTH + 1)
            }
            starts = [window for window in windows if window in self._forms]
        for start in starts:
            yield from tuple(self._forms[start])  # another thread may add some

    def _measure_truncated(self, text: str) -> int | None:
        """Return the length of the longest beginning of a secret at the end of a text; 0 for none, None if it
        takes too long to find out."""
        comparisons = 0
        for start in range(len(text) - _MIN_LENGTH + 1):
            for secret in tuple(self._beginnings.get(text[start : start + _MIN_LENGTH], ())):
                comparisons += 1
                if comparisons > _MAX_COMPARISONS:
                    return None
                if secret.startswith(text[start:]) and len(secret) > len(text) - start:
                    return len(text) - start
        return 0


def _spellings(secret: str) -> set[str]:
    """Return the usual spellings of a secret without base64, of which a text may end with the beginning."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    data = secret.encode("utf-8", "surrogatepass")
    return {secret, quote(data, safe=""), quote_plus(data), *escaped}


def _base64_forms(secret: str) -> Iterator[str]:
    """Yield a secret in base64, in both alphabets: encoded alone, and as part of the base64 of a longer text,
    at each of the three positions that a byte can have in a group."""
    data = secret.encode("utf-8", "surrogatepass")
    alone = base64.b64encode(data).decode()
    codes = [alone, alone.rstrip("=")]
    for width in LINE_WIDTHS:
        codes += [alone[start : start + width] for start in range(0, len(alone), width)]
    for before in range(3):
        code = base64.b64encode(bytes(before) + data).decode()
        inner = code[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        codes += [inner] * (len(inner) >= _MIN_CODE_LENGTH)
    for code in codes:
        yield from (code, code.translate(_URL_ALPHABET))


def _replace(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with a mask in place of each span; those that overlap are one."""
    parts, end = [], 0
    for start, stop in sorted(spans):
        if end <= start < stop:
            parts += [text[end:start], MASK]
        end = max(end, stop) if start < stop else end
    return "".join([*parts, text[end:]])
