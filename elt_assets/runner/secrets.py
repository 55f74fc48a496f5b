"""Keeping secrets out of everything that is shown.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from elt_assets.errors import ConfigError

MASK = "****"
_SHORTEST = 3
"""A shorter secret is not masked: it would blot out half of every log, and is no secret."""


class Masker:
    """Replaces known secrets in text, also where they are URL- or JSON-encoded."""

    def __init__(self, secrets: Iterable[str] = ()):
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            if len(secret) >= _SHORTEST:
                encoded = json.dumps(secret)[1:-1]
                self._secrets |= {secret, encoded, quote(secret, safe=""), quote_plus(secret)}
        # Longest first, so that a secret that contains another is hidden whole.
        ordered = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text


def resolve_environment(config: Any, *, where: str = "config") -> tuple[Any, list[str]]:
    """Replace every `{env: NAME}` by the variable's value; returns the config and the values used.

    Raises:
        ConfigError: a variable is not set; names it and its place, and no value.
    """
    if isinstance(config, Mapping):
        if set(config) == {"env"} and isinstance(config["env"], str):
            return _variable(config["env"], where)
        pairs = {k: resolve_environment(v, where=f"{where}.{k}") for k, v in config.items()}
        return {k: v[0] for k, v in pairs.items()}, [s for v in pairs.values() for s in v[1]]
    if isinstance(config, list):
        items = [resolve_environment(v, where=f"{where}[{i}]") for i, v in enumerate(config)]
        return [v[0] for v in items], [s for v in items for s in v[1]]
    return config, []


def _variable(name: str, where: str) -> tuple[str, list[str]]:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where} refers to the environment variable {name}, which is not set",
            guidance=f"set {name} where Dagster runs, or write another name after `env:`",
        )
    return value, [value]


def secret_values(config: Any, schema: Any) -> Iterator[str]:
    """Every scalar of `config` that stands under an `airbyte_secret` property of `schema`."""
    if not isinstance(schema, Mapping):
        return
    if schema.get("airbyte_secret"):
        yield from _scalars(config)
        return
    for branch in ("oneOf", "anyOf", "allOf"):
        for option in schema.get(branch) or ():
            yield from secret_values(config, option)
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from secret_values(value, (schema.get("properties") or {}).get(key))
    elif isinstance(config, list):
        for value in config:
            yield from secret_values(value, schema.get("items"))


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
