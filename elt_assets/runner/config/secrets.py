"""Resolve references to environment variables in a config, and collect their values as secrets.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.protocol.schema_places import Place
from elt_assets.protocol.specification import types_at
from elt_assets.runner.config.credentials import refuse_reserved
from elt_assets.runner.config.updates import strings


def resolve_environment(
    config: Any, *, where: str = "config", schema: Any = None
) -> tuple[Any, list[str]]:
    """Replace every `{env: NAME}` by the variable's value, and every `{literal: value}` by its value.

    Args:
        where: the name of the config in errors.
        schema: a `connectionSpecification`. Where it allows no string, the variable's text is parsed as JSON.

    Returns:
        The resolved config, and the texts of the variables' values.

    Raises:
        ConfigError: a variable is not set, is reserved, or does not have a type that the schema allows.
            The message has the variable's name and place, but not its value.
    """
    types = {
        place: allowed for place, value, allowed in types_at(config, schema) if is_reference(value)
    }
    return _resolve_value(config, (), where, types)


def is_reference(value: Any) -> bool:
    """Return whether a value of a config is `{env: NAME}`."""
    return isinstance(value, Mapping) and set(value) == {"env"} and isinstance(value["env"], str)


def refuse_reserved_references(config: Any, where: str) -> None:
    """Refuse references to reserved variables, without reading any variable that is referred to.

    Args:
        where: the name of the config in errors.

    Raises:
        ConfigError: as for `refuse_reserved`.
    """
    if is_reference(config):
        refuse_reserved(config["env"], where)
    elif isinstance(config, Mapping) and set(config) != {"literal"}:
        for name, value in config.items():
            refuse_reserved_references(value, f"{where}.{name}")
    elif isinstance(config, list):
        for number, value in enumerate(config):
            refuse_reserved_references(value, f"{where}[{number}]")


def _resolve_value(
    config: Any, place: Place, where: str, types: Mapping[Place, set[str]]
) -> tuple[Any, list[str]]:
    if is_reference(config):
        text, _ = _variable(config["env"], where)
        value = convert_type(text, types[place], config["env"], where)
        return value, _secret_texts(text, value)
    if isinstance(config, Mapping):
        if set(config) == {"literal"}:
            return config["literal"], []
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


def convert_type(text: str, types: Collection[str], name: str, where: str) -> Any:
    """Return the text of a variable as a value of one of the given JSON types.

    The text is returned unchanged if strings are allowed or `types` is empty.

    Args:
        name: the variable's name, for the error.
        where: the place of the reference, for the error.

    Raises:
        ConfigError: the value has none of these types.
    """
    if not types or "string" in types:
        return text
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        value = text
    if not _json_types(value) & set(types):
        expected = " or ".join(sorted(types))
        raise ConfigError(
            f"{where} must be of type {expected}, but the value of the environment variable {name} is not",
            guidance=f"set {name} to a JSON value of type {expected}",
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


def _secret_texts(text: str, value: Any) -> list[str]:
    """Return the texts of a variable's value that are secret; none for true, false and null."""
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
