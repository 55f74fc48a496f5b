"""Differences between two specifications of a connector: the fields of its config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elt_assets.protocol.airbyte.json_schema import list_properties

_TEXTS = ("title", "description", "examples", "order", "group", "always_show", "pattern_descriptor")
"""Keywords that do not change which configs are valid, or what they mean."""


@dataclass(frozen=True)
class ConfigChange:
    """One difference."""

    field: str  # the dotted path
    change: str  # what happened to it


def compare_specifications(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str = ""
) -> list[ConfigChange]:
    """Return the differences between two schemas of a config, without those of titles and descriptions.

    Args:
        path: what the names of the fields begin with.
    """
    before, after = _list_fields(old), _list_fields(new)
    changes = [ConfigChange(f"{path}{name}", "is gone") for name in before if name not in after]
    for name, (schema, is_required) in after.items():
        field = f"{path}{name}"
        if name not in before:
            changes.append(ConfigChange(field, "is new and required" if is_required else "is new"))
            continue
        old_schema, was_required = before[name]
        if is_required != was_required:
            change = "is required now" if is_required else "is optional now"
            changes.append(ConfigChange(field, change))
        keywords = {keyword for keyword, _ in _keywords(old_schema) ^ _keywords(schema)}
        if keywords:
            changes.append(ConfigChange(field, f"has another {', '.join(sorted(keywords))}"))
        changes += compare_specifications(old_schema, schema, f"{field}.")
    return changes


def _list_fields(schema: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """Return the schema of each field, and whether the field is required."""
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    fields = list_properties(schema).items()
    return {name: (part, name in names) for name, part in fields if isinstance(part, Mapping)}


def _keywords(schema: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the keywords of a field with their values as texts, without those that are compared apart."""
    apart = ("properties", "required", *_TEXTS)
    return {
        (name, json.dumps(value, sort_keys=True))
        for name, value in schema.items()
        if name not in apart
    }
