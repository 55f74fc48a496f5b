"""Configs that violate a specification, made from a config that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from elt_assets.protocol.config_check import violations
from elt_assets.protocol.specification import types_at

MAX_MISSING = 10
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
    incomplete = (
        BadConfig(f"without the required field {'.'.join(place)!r}", rest)
        for place, rest in _incomplete(config)
        if violations(rest, schema)
    )
    mistyped = [bad for bad in _change_type(config, schema) if violations(bad.config, schema)]
    return [*islice(incomplete, MAX_MISSING), *mistyped]


def _incomplete(config: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield the config without one of its fields, at any depth, with the place of the field."""
    for name, value in config.items():
        yield [name], {field: config[field] for field in config if field != name}
        if isinstance(value, Mapping):
            for place, inner in _incomplete(value):
                yield [name, *place], {**config, name: inner}


def _change_type(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
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
