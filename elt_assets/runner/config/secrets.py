"""References to environment variables in a config, and the values that they bring.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.protocol.config_places import Place
from elt_assets.protocol.specification import types_at
from elt_assets.runner.config.credentials import refuse_reserved
from elt_assets.runner.config.updates import strings


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
