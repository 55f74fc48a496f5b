"""The config that is given for a new connection: its check, and its secrets."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import Place
from elt_assets.runner.connector import Connector
from elt_assets.runner.references import RESERVED, is_reference, resolve_references


def check_config(connector: Connector, config: Mapping[str, Any]) -> None:
    """Check a config against the specification of its connector.

    Raises:
        ConfigError: required config is missing, an environment variable is not set, or a value is not valid.
    """
    schema = connector.specification.connectionSpecification
    properties = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or [] if name not in config]
    if missing:
        lines = "\n".join(f"  - {name}{about(properties.get(name))}" for name in missing)
        raise ConfigError(
            f"{connector.name} needs config that is not given:\n{lines}",
            guidance="add it with --config JSON or --config @FILE; write a secret as "
            '{"env": "NAME"}, the name of an environment variable',
        )
    resolve_references(config)
    try:
        _ = connector.config
    except ConfigError as error:
        error.guidance = "correct --config"
        raise


def about(schema: Any) -> str:
    """Return the type and the title of a field from its specification."""
    if not isinstance(schema, Mapping):
        return ""
    words = [str(schema["type"])] if isinstance(schema.get("type"), str) else []
    words += ["secret"] if schema.get("airbyte_secret") else []
    kind = f" ({', '.join(words)})" if words else ""
    title = schema.get("title") or schema.get("description")
    return f"{kind}: {title}" if title else kind


def replace_secrets(
    config: Mapping[str, Any],
    secrets: Iterable[tuple[Place, Any]],
    name: str,
    taken: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the config with each secret value replaced by a reference to an environment variable.

    Args:
        name: the name of the connection, with which the names of the variables begin.
        taken: the names of variables that are used already.

    Returns:
        The config, and for each environment variable the field of the config that it replaces.

    Raises:
        ConfigError: a secret is not text.
    """
    public = copy.deepcopy(dict(config))
    variables: dict[str, str] = {}
    for place, value in secrets:
        if value is None or isinstance(value, bool) or value == "":
            continue
        parent: Any = public
        for step in place[:-1]:
            parent = parent[step]
        dotted = ".".join(map(str, place))
        if is_reference(parent) or is_reference(value):
            continue
        if not isinstance(value, str):
            raise ConfigError(
                f"config.{dotted} is a secret and is not a text, and only a text can be read from "
                "an environment variable",
                guidance="write the defs.yaml of the connection without `elt new`, with this value in "
                "`source.config`",
            )
        # A secret that several forms of the schema list is replaced only once.
        if parent[place[-1]] == value:
            variable = variable_name([name, *map(str, place)], {*taken, *variables})
            parent[place[-1]] = {"env": variable}
            variables[variable] = f"config.{dotted}"
    return public, variables


def variable_name(words: Sequence[str], taken: Collection[str]) -> str:
    """Return a name for an environment variable, made of the words, that is not among the taken names."""
    first = name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII).upper()
    if RESERVED.fullmatch(first):
        first = name = f"SOURCE_{first}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    return name
