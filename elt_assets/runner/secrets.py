"""Keeping secrets out of everything that is shown.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.messages import Message
from elt_assets.runner.credentials import refuse_reserved

MASK = "****"
_SHORTEST = 3
"""A shorter secret is not masked: it would blot out half of every log, and is no secret."""


CUT = 2_000
"""Characters; a text this long may have been cut in the middle of a secret."""


class Masker:
    """Replaces known secrets in text, also where they are URL- or JSON-encoded."""

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
        if self._pattern is None:
            return text
        shown, end = [], 0
        for start, stop in _merged(self._spans(text)):
            shown += [text[end:start], MASK]
            end = stop
        return "".join([*shown, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        assert self._pattern is not None
        for found in self._pattern.finditer(text):
            yield found.span(1)
        if len(text) >= CUT:
            yield len(text) - max(map(partial(_begun, text), self._secrets)), len(text)

    def optional(self, text: str | None) -> str | None:
        return None if text is None else self(text)

    def message(self, message: Message) -> Message:
        """The message, free of secrets wherever a person will read it."""
        if message.log is not None:
            message.log.message = self(message.log.message)
            message.log.stack_trace = self.optional(message.log.stack_trace)
        error = message.trace and message.trace.error
        if error:
            error.message = self.optional(error.message)
            error.internal_message = self.optional(error.internal_message)
            error.stack_trace = self.optional(error.stack_trace)
        if message.connectionStatus is not None:
            status = message.connectionStatus
            status.message = self.optional(status.message)
        return message

    def failure(self, failure: SystemFailure) -> SystemFailure:
        """The same, free of secrets."""
        return SystemFailure(
            self(failure.message), guidance=failure.guidance, detail=self.optional(failure.detail)
        )


def _spellings(secret: str) -> set[str]:
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%..", lambda found: found[0].lower(), text) for text in quoted}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {json.dumps(text)[1:-1] for text in escaped}  # JSON as a text within JSON
    slashed = {text.replace("/", r"\/") for text in escaped}
    return {secret, repr(secret)[1:-1], *quoted, *lower, *escaped, *slashed}


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
    refuse_reserved(name, where)
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where} refers to the environment variable {name}, which is not set",
            guidance=f"set {name} where Dagster runs, or write another name after `env:`",
        )
    return value, [value]
