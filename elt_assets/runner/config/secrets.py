"""Resolve the references of a config, and collect their values as secrets.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import Place, types_at, unknown_fields
from elt_assets.runner.config.credentials import refuse_reserved
from elt_assets.runner.config.references import LITERAL, Reference, strings, walk_references


def resolve_references(
    config: Any, *, where: str = "config", schema: Any = None
) -> tuple[Any, list[str]]:
    """Replace every reference by its value, and every `{literal: value}` by its value.

    Args:
        where: the name of the config in errors.
        schema: a `connectionSpecification`. Where it allows no string, a text is parsed as JSON.

    Returns:
        The resolved config, and the texts of the values of references.

    Raises:
        ConfigError: a value is missing, is reserved, or does not have a type that the schema allows. The
            message has the reference and its place, but no value.
    """
    types = {
        place: allowed for place, value, allowed in types_at(config, schema) if is_reference(value)
    }
    if () in types:
        types[()] = types[()] or {"object"}  # as the config of every connector is
    return _resolve_value(config, (), where, types)


def is_reference(value: Any) -> bool:
    """Return whether a value of a config is a reference, also by a template."""
    return Reference.parse(value) is not None


def list_unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the warnings of `unknown_fields`; none if the whole config is a reference."""
    return [] if is_reference(config) else unknown_fields(config, schema)


def refuse_reserved_references(config: Any, where: str) -> None:
    """Refuse references to reserved variables, without reading anything that is referred to.

    Args:
        where: the name of the config in errors.

    Raises:
        ConfigError: as for `refuse_reserved`.
    """
    for place, reference in walk_references(config, where):
        for name in reference.variables:
            refuse_reserved(name, place)


def _resolve_value(
    config: Any, place: Place, where: str, types: Mapping[Place, set[str]]
) -> tuple[Any, list[str]]:
    reference = Reference.parse(config)
    if reference is not None:
        content, secrets = reference.read(where)
        value = convert_type(content, types[place], str(reference), where)
        return value, _secret_texts(value, secrets)
    if isinstance(config, Mapping):
        if set(config) == {LITERAL}:
            return config[LITERAL], []
        pairs = {
            k: _resolve_value(v, (*place, k), f"{where}.{k}", types) for k, v in config.items()
        }
        return {k: v[0] for k, v in pairs.items()}, [s for v in pairs.values() for s in v[1]]
    if isinstance(config, list):
        items = [
            _resolve_value(v, (*place, i), f"{where}[{i}]", types) for i, v in enumerate(config)
        ]
        return [v[0] for v in items], [s for v in items for s in v[1]]
    return config, []


def convert_type(content: Any, types: Collection[str], name: str, where: str) -> Any:
    """Return what a reference names as a value of one of the given JSON types.

    A value is returned unchanged if `types` is empty. Where strings are allowed, a text is returned
    unchanged, and another value becomes its JSON text, unless its own type is allowed too.

    Args:
        content: a text, or another JSON value.
        name: the reference, for the error.
        where: the place of the reference, for the error.

    Raises:
        ConfigError: the value has none of these types.
    """
    if not types or (isinstance(content, str) and "string" in types):
        return content
    value = _parse(content) if isinstance(content, str) else content
    if _json_types(value) & set(types):
        return value
    if "string" in types:
        return json.dumps(content)
    expected = " or ".join(sorted(types))
    raise ConfigError(
        f"{where} must be of type {expected}, but the value of {name} is not",
        guidance=f"set {name} to a JSON value of type {expected}",
    )


def _parse(text: str) -> Any:
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        return text


def _json_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"} if math.isfinite(value) else set()
    names = {dict: "object", list: "array", str: "string", type(None): "null"}
    return {names[type(value)]}


def _secret_texts(value: Any, secrets: list[str]) -> list[str]:
    """Return the texts of a referenced value that are secret; none for true, false and null."""
    if value is None or isinstance(value, bool):
        return []
    return [*secrets, *strings(value)] if secrets and isinstance(value, (dict, list)) else secrets
