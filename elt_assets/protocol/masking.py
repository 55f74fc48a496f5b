"""Masking of secrets in all text that is shown.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from urllib.parse import quote, quote_plus

from elt_assets.errors import SystemFailure
from elt_assets.protocol.escapes import unify, views
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
    undone once for each text (`escapes.views`), and a secret is searched only if its first characters are in
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
            for form in {unify(text), *(view.text for view in views(text))}:
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
