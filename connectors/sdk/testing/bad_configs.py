"""Configs that violate a specification, made from a config that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from elt_assets.protocol.specification import types_at, violations

MAX_MISSING = 3
"""Maximum number of required fields that are left out, one in each config."""

_WRONG: Mapping[str, Any] = {"object": {"wrong": "type"}, "string": "wrong type", "array": []}
"""A value of each type; the first one is used that a field does not allow."""


@dataclass(frozen=True)
class BadConfig:
    """A config that violates the specification. `description`: how, without any value."""

    description: str
    config: dict[str, Any]


def bad_configs(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
    """Return configs that violate a specification: without a required field, or with a value of a wrong
    type."""
    candidates = [*islice(_incomplete(config, schema), MAX_MISSING), *_mistyped(config, schema)]
    return [candidate for candidate in candidates if violations(candidate.config, schema)]


def _incomplete(config: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[BadConfig]:
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name in config:
            rest = {field: value for field, value in config.items() if field != name}
            yield BadConfig(f"without the required field {name!r}", rest)


def _mistyped(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
    """Return a config with a wrong type of the first field that has a type; fields in the config first."""
    properties = schema.get("properties")
    declared = list(properties) if isinstance(properties, Mapping) else []
    for name in sorted(declared, key=lambda field: field not in config):
        places = types_at({name: None}, schema)
        allowed = next((types for place, _, types in places if place == (name,)), set())
        wrong = [value for kind, value in _WRONG.items() if kind not in allowed]
        if allowed and wrong:
            return [
                BadConfig(f"with a wrong type in the field {name!r}", {**config, name: wrong[0]})
            ]
    return []
