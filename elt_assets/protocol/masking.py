"""Keeping secrets out of everything that is shown.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import quote, quote_plus

MASK = "****"
_SHORTEST = 3
"""A shorter secret is not masked: it would blot out half of every log, and is no secret."""


CUT = 2_000
"""Characters; a text this long may have been cut in the middle of a secret."""
_SHORTEST_CODE = 8
"""Characters of base64 by which a secret can be told within the code of a longer text."""
# Of `scheme://user:password@host`; with slashes as JSON may escape them, too.
_URL_PASSWORD = re.compile(r""":(?://|\\/\\/)[^\s/@:"]*:([^\s/"]+)@""")


_URL_ALPHABET = str.maketrans("+/", "-_")


class Masker:
    """Replaces secrets in text: known ones, also where they are encoded for a URL, in JSON or in base64; and
    any password in a URL."""

    def __init__(self, secrets: Iterable[str] = ()):
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            # Line by line too: of a key in PEM format, a log may show any line alone.
            for part in {secret, *map(str.strip, secret.splitlines())}:
                if len(part) >= _SHORTEST:
                    self._secrets |= _spellings(part)
        # Longest first, so that a secret that contains another is hidden whole; looking ahead, so
        # that secrets that overlap in a text are all found.
        ordered = sorted(self._secrets, key=len, reverse=True)
        self._pattern = (
            re.compile(f"(?=({'|'.join(map(re.escape, ordered))}))") if ordered else None
        )

    def __call__(self, text: str) -> str:
        shown, end = [], 0
        for start, stop in _merged(self._spans(text)):
            shown += [text[end:start], MASK]
            end = stop
        return "".join([*shown, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for pattern in (_URL_PASSWORD, self._pattern):
            yield from (found.span(1) for found in (pattern.finditer(text) if pattern else ()))
        if self._secrets and len(text) >= CUT:
            yield len(text) - max(map(partial(_begun, text), self._secrets)), len(text)


def _spellings(secret: str) -> set[str]:
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%..", lambda found: found[0].lower(), text) for text in quoted}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {json.dumps(text)[1:-1] for text in escaped}  # JSON as a text within JSON
    slashed = {text.replace("/", r"\/") for text in escaped}
    return {secret, repr(secret)[1:-1], *quoted, *lower, *escaped, *slashed, *_codes(secret)}


def _codes(secret: str) -> Iterator[str]:
    """A secret in base64, of either alphabet: alone, and as it shows in the code of a text that holds it, at
    each of the three places that a byte can have in a group."""
    data = secret.encode("utf-8", "surrogatepass")
    alone = base64.b64encode(data).decode()
    found = [alone, alone.rstrip("=")]
    for before in range(3):
        code = base64.b64encode(bytes(before) + data).decode()
        inner = code[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        found += [inner] * (len(inner) >= _SHORTEST_CODE)
    for code in found:
        yield from (code, code.translate(_URL_ALPHABET))


def _begun(text: str, secret: str) -> int:
    """How many characters of a secret stand at the end of a text."""
    sizes = range(len(secret) - 1, _SHORTEST - 1, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans ordered by their start, with those that overlap as one, and empty ones left out."""
    start, stop = 0, 0
    for first, last in sorted(spans):
        if first >= stop:
            if stop > start:
                yield start, stop
            start = first
        stop = max(stop, last)
    if stop > start:
        yield start, stop
