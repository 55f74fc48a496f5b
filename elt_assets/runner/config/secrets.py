"""Keeping secrets out of everything that is shown.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

from elt_assets.errors import ConfigError
from elt_assets.protocol.config_places import Place
from elt_assets.protocol.specification import types_at
from elt_assets.runner.config.credentials import refuse_reserved
from elt_assets.runner.config.updates import strings

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


def resolve_environment(
    config: Any, *, where: str = "config", schema: Any = None
) -> tuple[Any, list[str]]:
    """Replace every `{env: NAME}` by the variable's value, and every `{literal: value}` by that value as it
    stands; returns the config and the variables' values.

    Args:
        schema: a `connectionSpecification`; where it allows no text, the variable's text is read as JSON.

    Raises:
        ConfigError: a variable is not set, or is not of the type that is allowed; names it and its place,
            and no value.
    """
    kinds = {
        place: types for place, value, types in types_at(config, schema) if is_reference(value)
    }
    return _resolved(config, (), where, kinds)


def is_reference(value: Any) -> bool:
    """Whether this is `{env: NAME}`."""
    return isinstance(value, Mapping) and set(value) == {"env"} and isinstance(value["env"], str)


def _resolved(
    config: Any, at: Place, where: str, kinds: Mapping[Place, set[str]]
) -> tuple[Any, list[str]]:
    if is_reference(config):
        text, _ = _variable(config["env"], where)
        value = typed(text, kinds[at], config["env"], where)
        return value, _shown_as(text, value)
    if isinstance(config, Mapping):
        if set(config) == {"literal"}:
            return config["literal"], []
        pairs = {k: _resolved(v, (*at, k), f"{where}.{k}", kinds) for k, v in config.items()}
        return {k: v[0] for k, v in pairs.items()}, [s for v in pairs.values() for s in v[1]]
    if isinstance(config, list):
        items = [_resolved(v, (*at, i), f"{where}[{i}]", kinds) for i, v in enumerate(config)]
        return [v[0] for v in items], [s for v in items for s in v[1]]
    return config, []


def typed(text: str, types: Collection[str], name: str, where: str) -> Any:
    """The text of a variable as a value of one of some JSON types; as it stands where text is allowed, or
    nothing is said.

    Raises:
        ConfigError: it is of none of them.
    """
    if not types or "string" in types:
        return text
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        value = text
    if not _json_types(value) & set(types):
        wanted = " or ".join(sorted(types))
        raise ConfigError(
            f"{where} must be of type {wanted}, and the text of the environment variable {name} is not",
            guidance=f"set {name} to a JSON value of type {wanted}",
        )
    return value


def _json_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"} if math.isfinite(value) else set()
    names = {dict: "object", list: "array", str: "string", type(None): "null"}
    return {names[type(value)]}


def _shown_as(text: str, value: Any) -> list[str]:
    """How a variable's value may show up in a text; true, false and null give nothing away."""
    if value is None or isinstance(value, bool):
        return []
    return [text, *strings(value)] if isinstance(value, (dict, list)) else [text]


def _variable(name: str, where: str) -> tuple[str, list[str]]:
    refuse_reserved(name, where)
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where} refers to the environment variable {name}, which is not set",
            guidance=f"set {name} where Dagster runs, or write another name after `env:`",
        )
    return value, [value]
