"""Masking of secrets in all text that is shown.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache, partial
from urllib.parse import quote, quote_plus

from elt_assets.protocol.secret_parts import LINE_WIDTHS, parts

MASK = "****"
_MIN_LENGTH = 3
"""Minimum characters of a secret. A shorter one is no secret, and masking it would hide half of a log."""
MIN_TRUNCATED = 2_000
"""Minimum characters of a text that may be truncated in the middle of a secret."""
_MIN_CODE_LENGTH = 8
"""Minimum characters of base64 that identify a secret within the base64 of a longer text."""
# The password of `scheme://user:password@host`. JSON may escape the slashes.
_URL_PASSWORD = re.compile(r""":(?://|\\/\\/)[^\s/@:"]*:([^\s/"]+)@""")
_WITH_BACKSLASH = frozenset("\"'/")
"""Characters before which an escape may put backslashes."""
_NAMED_ESCAPES = {
    "\n": (r"\\+n", r"\r\n", r"\\+r\\+n", "%(?:25)*0[dD]%(?:25)*0[aA]"),
    "\r": (r"\\+r",),
    "\t": (r"\\+t",),
    "\b": (r"\\+b",),
    "\f": (r"\\+f",),
    " ": (r"\+",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
    '"': ("&quot;",),
    "'": ("&apos;",),
}
_MAX_BYTE = 255
_UNESCAPED = re.compile("[A-Za-z0-9]+")
_URL_ALPHABET = str.maketrans("+/", "-_")


class Masker:
    """Replaces secrets in a text by `MASK`: known secrets and their parts (see `secret_parts`), however their
    characters are escaped for a URL, JSON, HTML or Python, or in base64; and any password in a URL."""

    def __init__(self, secrets: Iterable[str] = ()):
        self._parts: set[str] = set()
        self._beginnings: set[str] = set()
        self._forms: dict[str, _Form] = {}
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            if secret in self._parts:
                continue
            for part in parts(secret) - self._parts:
                if len(part) >= _MIN_LENGTH:
                    self._parts.add(part)
                    self._beginnings |= _spellings(part)
                    for text in (part, *_base64_forms(part)):
                        self._forms.setdefault(text, _Form(text))

    def __call__(self, text: str) -> str:
        parts, end = [], 0
        for start, stop in _merge_spans(self._spans(text)):
            parts += [text[end:start], MASK]
            end = stop
        return "".join([*parts, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from (match.span(1) for match in _URL_PASSWORD.finditer(text))
        for form in tuple(self._forms.values()):  # another thread may add some
            if form.anchor in text:
                yield from (match.span(1) for match in form.pattern.finditer(text))
        if self._parts and len(text) >= MIN_TRUNCATED:
            cut = max(map(partial(_measure_truncated, text), tuple(self._beginnings)))
            yield len(text) - cut, len(text)


class _Form:
    """A text that is masked, with the pattern of all its spellings.

    `anchor` is its longest run of letters and digits. No escape changes it, and searching it is a hundred
    times faster than the pattern, so the pattern is made and used only if the anchor is in a text.
    """

    def __init__(self, text: str):
        self._text = text
        self.anchor = max(_UNESCAPED.findall(text), key=len, default="")

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # The lookahead also finds occurrences that overlap.
        return re.compile(f"(?=({_any_spelling(self._text)}))")


def _spellings(secret: str) -> set[str]:
    """Return the usual spellings of a secret, of which the end of a text may have the beginning."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    data = secret.encode("utf-8", "surrogatepass")
    return {secret, quote(data, safe=""), quote_plus(data), *escaped, *_base64_forms(secret)}


def _any_spelling(secret: str) -> str:
    """Return a pattern of a text whose characters are escaped in any way, each one in its own."""
    return "".join(
        character if character.isascii() and character.isalnum() else _any_escape(character)
        for character in secret
    )


@lru_cache(4096)
def _any_escape(character: str) -> str:
    """Return a pattern of one character that is no letter or digit of ASCII, plain or escaped.

    A text in JSON may be part of another text in JSON, so there may be several backslashes, and several
    `25`s in a text that was percent-encoded several times.
    """
    encoded = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    codes = [units[start : start + 2].hex() for start in range(0, len(units), 2)]
    escapes = [
        _plain_pattern(character),
        "".join(f"%(?:25)*{_any_case(f'{byte:02x}')}" for byte in encoded),
        "".join(rf"\\+u{_any_case(code)}" for code in codes),
        "".join(rf"\\+x{byte:02x}" for byte in encoded),
        rf"&\#0*{ord(character)};",
        rf"&\#[xX]0*{_any_case(f'{ord(character):x}')};",
        *_NAMED_ESCAPES.get(character, ()),
    ]
    if _is_half_pair(character):
        escapes.append("[?\ufffd]")  # what stands for it in a text
    if ord(character) <= _MAX_BYTE:
        escapes.append(rf"\\+x{ord(character):02x}")
    return f"(?:{'|'.join(dict.fromkeys(escapes))})"


def _is_half_pair(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _plain_pattern(character: str) -> str:
    if character == "\\":
        return r"\\{1,8}"
    slashes = r"\\{0,7}" if character in _WITH_BACKSLASH else ""
    return slashes + re.escape(character)


def _any_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


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


def _measure_truncated(text: str, secret: str) -> int:
    """Return the length of the longest beginning of a secret that is at the end of a text; 0 for none."""
    start = max(0, len(text) - len(secret) + 1)
    while (start := text.find(secret[:_MIN_LENGTH], start)) >= 0:
        if secret.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0


def _merge_spans(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans ordered by start. Overlapping spans are merged, and empty ones are omitted."""
    start, stop = 0, 0
    for first, last in sorted(spans):
        if first >= stop:
            if stop > start:
                yield start, stop
            start = first
        stop = max(stop, last)
    if stop > start:
        yield start, stop
