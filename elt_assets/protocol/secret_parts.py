"""Parts of a secret that are secrets too, for `masking`; and `CREDENTIAL`, for secrets in any text.

`runner` finds secrets in variables and configs with `CREDENTIAL`.

A secret is often a structure that programs take apart.

A service account is JSON with a key in PEM, a database is a URL with a password, a header is base64 of a user
and a password. Each form is decoded, and what it contains is decoded again, to a depth of `_MAX_DEPTH`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

MAX_PARTS = 2_000
"""Maximum number of parts of one secret; further ones are not masked on their own."""
_MAX_DEPTH = 5
MAX_SIZE = 1 << 20
"""Maximum number of characters that are decoded: of a secret and of its parts, together."""
MIN_TOKEN = 8
"""Minimum characters of a value in a URL's query, and of a whole text in base64."""
MIN_PATH_TOKEN = 20
"""Minimum characters of a part of a URL's path that is a token and no name."""

CREDENTIAL = re.compile(
    # scheme://user:password@host; the password ends at the last @ of the authority, or contains a slash
    r"[a-z][a-z0-9+.-]{0,30}://[^\s/?#@:]*:(?P<password>[^\s/?#]+|[^\s@]{1,1000})@"
    r"|https?://(?P<user>[^\s/?#@:]+)@"
    r"|^[^\s:/@]+:(?P<bare>[^\s/@]+)@[^\s/@]+/?$"  # a proxy may be written without a scheme
    r"|(?:^|[?&;,\s])(?:password|passwd|pwd|secret|token|sig|(?:account|access|api|shared_?access)_?key)"
    r"\s*=\s*(?P<parameter>[^\s&;,]+)"
    r"|(?P<key>-----BEGIN [A-Z ]*PRIVATE KEY-----)",
    re.IGNORECASE,
)
"""Matches the secrets in a text: passwords in a URL or a connection string, and keys."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]+(?:={1,2}\s*)?")
_PEM = re.compile(r"-----BEGIN [^-]+-----([^-]+)-----END")
LINE_WIDTHS = (64, 76)
"""Usual widths of lines in PEM and base64."""
_HEADER = re.compile(r"(?:basic|bearer|token)\s+(\S+)", re.IGNORECASE)
_USER = re.compile(r"(?!\d{4}-\d\d)[^\s:]+:(\S{6,})")
"""Matches `user:password`, but no time."""
_SETTING = re.compile(r"""["']?[\w.-]+["']?[ \t]*[:=][ \t]*["']?([^"']+)["']?,?""")


def parts(secret: str) -> set[str]:
    """Return a secret and the parts of it that are secret, each as a program would print it."""
    return {secret, *islice(_decode_parts(secret), MAX_PARTS)}


def _decode_parts(secret: str) -> Iterator[str]:
    """Yield the parts of a secret, at any depth, shallow ones first, and each once."""
    texts, level, size = {secret}, [secret], 0
    for _ in range(_MAX_DEPTH + 1):
        inner: list[str] = []
        for text in level:
            size += len(text)
            if size > MAX_SIZE:
                return
            for decode in _DECODERS:
                for part in decode(text):
                    if part and part not in texts:
                        texts.add(part)
                        inner.append(part)
                        yield part
        level = inner


def _split_lines(secret: str) -> Iterator[str]:
    """Yield the lines of a text, and the values of several lines such as `password: x` and `KEY=x`."""
    lines = [line.strip() for line in secret.splitlines()]
    yield from lines if len(lines) > 1 else ()
    yield secret.strip()
    if "\n" in secret.strip():
        matches = (_SETTING.fullmatch(line) for line in lines)
        yield from (match[1].removesuffix(",").strip() for match in matches if match is not None)


def _unescape(secret: str) -> Iterator[str]:
    r"""Yield a text without its escapes, such as the `\n` of a key in a variable."""
    if "%" in secret:
        yield unquote(secret)
    if "\\" in secret:
        yield secret.replace("\\n", "\n").replace("\\r", "\r")
        try:
            text = json.loads(f'"{secret}"', strict=False)
        except (ValueError, RecursionError):
            return
        yield text


def _find_json_leaves(secret: str) -> Iterator[str]:
    if secret[:1] not in ("{", "[", '"'):
        return
    try:
        # Numbers as they are written; of a repeated name, each value.
        waiting: list[Any] = [
            json.loads(
                secret,
                parse_int=str,
                parse_float=str,
                parse_constant=str,
                object_pairs_hook=lambda pairs: [value for _, value in pairs],
            )
        ]
    except (ValueError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        waiting += reversed(value) if isinstance(value, list) else ()


def _find_in_url(secret: str) -> Iterator[str]:
    """Yield the tokens and passwords of a URL or a connection string, also percent-decoded."""
    texts = [text for match in CREDENTIAL.finditer(secret) for text in match.groups() if text]
    try:
        url = urlsplit(secret) if "://" in secret else urlsplit("")
    except ValueError:
        url = urlsplit("")
    texts += [text for text in (url.password, "" if url.password else url.username) if text]
    pairs = [pair.partition("=")[2] or pair for pair in re.split("[&;]", url.query)]
    texts += [text for text in pairs if len(text) >= MIN_TOKEN]
    texts += [text for text in url.path.split("/") if len(text) >= MIN_PATH_TOKEN]
    for text in texts:
        yield from (text, unquote(text), unquote_plus(text))


def _decode_base64(secret: str) -> Iterator[str]:
    """Yield the text of which a secret is the base64, with or without padding, in either alphabet."""
    if not _BASE64.fullmatch(secret):
        return
    code = "".join(secret.split()).rstrip("=").replace("-", "+").replace("_", "/")
    if len(code) < MIN_TOKEN:
        return
    try:
        text = base64.b64decode(code + "=" * (-len(code) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return
    if all(character.isprintable() or character.isspace() for character in text):
        yield text


def _split_pem(secret: str) -> Iterator[str]:
    """Yield the code of a key as one line, and in lines of the usual widths."""
    for match in _PEM.finditer(secret):
        code = "".join(match[1].split())
        yield code
        for width in LINE_WIDTHS:
            yield from (code[start : start + width] for start in range(0, len(code), width))


def _find_in_header(secret: str) -> Iterator[str]:
    """Yield the token of a header, and the password of `user:password`."""
    match = _HEADER.fullmatch(secret.strip())
    if match is not None:
        yield match[1]
    user = _USER.fullmatch(secret)
    if user is not None and "://" not in secret:
        yield user[1]


_DECODERS: tuple[Callable[[str], Iterator[str]], ...] = (
    *(_split_lines, _unescape, _find_json_leaves, _find_in_url),
    *(_decode_base64, _split_pem, _find_in_header),
)
