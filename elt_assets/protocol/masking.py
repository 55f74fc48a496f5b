"""Masking of secrets in all text that is shown.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import quote, quote_plus

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


class Masker:
    """Replaces secrets in a text by `MASK`: known secrets, also if they are encoded for a URL, in JSON or in
    base64, and any password in a URL."""

    def __init__(self, secrets: Iterable[str] = ()):
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            # Each line too: a log may contain a single line of a key in PEM format.
            for part in {secret, *map(str.strip, secret.splitlines())}:
                if len(part) >= _MIN_LENGTH:
                    self._secrets |= _spellings(part)
        # The longest first, so that a secret that contains another one is masked completely. The
        # lookahead finds secrets that overlap in a text.
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
        if self._secrets and len(text) >= MIN_TRUNCATED:
            yield len(text) - max(map(partial(_truncated_length, text), self._secrets)), len(text)


def _spellings(secret: str) -> set[str]:
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%..", lambda found: found[0].lower(), text) for text in quoted}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {json.dumps(text)[1:-1] for text in escaped}  # JSON as a string in JSON
    slashed = {text.replace("/", r"\/") for text in escaped}
    return {secret, repr(secret)[1:-1], *quoted, *lower, *escaped, *slashed, *_base64_forms(secret)}


def _base64_forms(secret: str) -> Iterator[str]:
    """Yield a secret in base64, in both alphabets: encoded alone, and as part of the base64 of a longer text,
    at each of the three positions that a byte can have in a group."""
    data = secret.encode("utf-8", "surrogatepass")
    alone = base64.b64encode(data).decode()
    found = [alone, alone.rstrip("=")]
    for before in range(3):
        code = base64.b64encode(bytes(before) + data).decode()
        inner = code[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        found += [inner] * (len(inner) >= _MIN_CODE_LENGTH)
    for code in found:
        yield from (code, code.translate(_URL_ALPHABET))


def _truncated_length(text: str, secret: str) -> int:
    """Return the length of the longest beginning of a secret that is at the end of a text; 0 for none."""
    sizes = range(len(secret) - 1, _MIN_LENGTH - 1, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
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
