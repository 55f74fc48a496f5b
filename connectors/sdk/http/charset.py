"""The encodings of texts that a response or a manifest may name."""

from __future__ import annotations

import codecs

import httpx

_NOT_OF_TEXTS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Codecs of Python that decode text, but are no encodings of texts: of domains (in quadratic time), of
literals, and one that always fails."""


def is_charset(name: str) -> bool:
    """Return whether a name is that of an encoding of texts. Python also calls compressions codecs."""
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # fails for a codec that is none of texts
    except (LookupError, ValueError):
        return False
    return codec.name.replace("_", "-") not in _NOT_OF_TEXTS


def charset_of(response: httpx.Response) -> str | None:
    """Return the encoding that a response names; None if it names none that can be used."""
    name = response.charset_encoding
    return name if name is not None and is_charset(name) else None
