"""Differences between two specifications of a connector: the fields of its config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_TEXTS = ("title", "description", "examples", "order", "group", "always_show", "pattern_descriptor")
"""Keywords that do not change which configs are valid, or what they mean."""


@dataclass(frozen=True)
class ConfigChange:
    """One difference. `field`: its dotted path; `change`: what happened to it."""

    field: str
    change: str


def compare_specifications(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ConfigChange]:
    """Return the differences between two schemas of a config, without those of titles and descriptions."""
    return list(_compare(old, new, ""))


def _compare(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[ConfigChange]:
    before, after = _properties(old), _properties(new)
    was_required, is_required = _list_required(old), _list_required(new)
    for name in before:
        if name not in after:
            yield ConfigChange(f"{path}{name}", "is gone")
    for name, schema in after.items():
        field, required = f"{path}{name}", name in is_required
        if name not in before:
            yield ConfigChange(field, "is new and required" if required else "is new")
            continue
        if required != (name in was_required):
            yield ConfigChange(field, "is required now" if required else "is optional now")
        changed = sorted(_keywords(before[name]) ^ _keywords(schema))
        names = ", ".join(dict.fromkeys(keyword for keyword, _ in changed))
        if names:
            yield ConfigChange(field, f"has another {names}")
        yield from _compare(before[name], schema, f"{field}.")


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {name: inner for name, inner in properties.items() if isinstance(inner, Mapping)}


def _list_required(schema: Mapping[str, Any]) -> list[Any]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _keywords(schema: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the keywords of a field with their values as texts, without those that are compared apart."""
    apart = ("properties", "required", *_TEXTS)
    return {
        (name, json.dumps(value, sort_keys=True))
        for name, value in schema.items()
        if name not in apart
    }
