"""Repair of lines that the decoder refuses, though only a value in them is bad.

Marks in the line tell `types.conversion` which values were repaired.

A bad text has half of a surrogate pair, or bytes that are not UTF-8: a text or JSON column keeps it with
U+FFFD, recorded as TRUNCATED; in any other column it is a misfit. A value that is nested too deeply becomes
null. A control character in a text, which JSON wants escaped, is kept: it is no
change. A number that is not finite (`NaN`, `Infinity`) becomes a string of that name: it is a value of other
types than numbers. What else is not JSON stays as it is.

Spec: RFC 8259, sections 7 to 9; the Unicode Standard, chapter 3.9 (U+FFFD for what cannot be decoded).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

MAX_DEPTH = 1000
"""Levels of arrays and objects in a JSON value. A deeper value becomes null."""
CUT_DEPTH = MAX_DEPTH + 600
"""Levels of a line from which its values are left out here: it has those of the stream's schema besides."""

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|-?Infinity|NaN', re.DOTALL)
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_UNDECODED = re.compile("[\udc80-\udcff]+")
_CONTROLS = re.compile("[\x00-\x1f]")
_UNUSED = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Characters that Unicode reserves for marks inside of a program."""


@dataclass(frozen=True)
class Marks:
    """The characters that mark bad texts, and values that were left out, in one repaired line, as UTF-8."""

    text: bytes
    value: bytes

    def remove_from(self, raw: bytes) -> bytes:
        """Return JSON without the marks."""
        return raw.replace(self.text, b"").replace(self.value, b"")

    def unmark_names(self, values: Mapping[str, Raw]) -> dict[str, Raw]:
        """Return the values of an object by their names without marks: a schema has the same names."""
        return {name.replace(self.text.decode(), ""): value for name, value in values.items()}


def repair_line(line: bytes) -> tuple[bytes, Marks]:
    """Return a line in which bad texts and values that are too deep are replaced and marked."""
    text = line.decode("utf-8", "surrogateescape")
    escaped = text.lower()
    text_mark, value_mark = [
        mark for mark in _UNUSED if mark not in text and f"\\u{ord(mark):04x}" not in escaped
    ][:2]
    parts: list[str] = []
    depth = last = 0
    cut = -1
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth == CUT_DEPTH and cut < 0:
                cut = token.start()
        elif first in "]}":
            if depth == CUT_DEPTH and cut >= 0:
                parts += [text[last:cut], f'"{value_mark}"']
                last, cut = token.end(), -1
            depth -= 1
        elif cut < 0:
            value = _repair_text(token[0], text_mark) if first == '"' else f'"{token[0]}"'
            parts += [text[last : token.start()], value]
            last = token.end()
    parts.append(text[last:])
    marks = Marks(text_mark.encode(), value_mark.encode())
    return "".join(parts).encode("utf-8", "replace"), marks


def _repair_text(text: str, mark: str) -> str:
    """Return a JSON string that the decoder accepts."""
    bad = f"{mark}\ufffd"
    if "\\" in text:
        text = _ESCAPES.sub(lambda match: bad if match[1] else match[0], text)
    text = _UNDECODED.sub(bad, text)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def is_too_deep(raw: bytes) -> bool:
    """Return whether a JSON value has more levels than `MAX_DEPTH`."""
    if len(raw) <= 2 * MAX_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKENS.finditer(raw.decode("utf-8", "replace")):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False
