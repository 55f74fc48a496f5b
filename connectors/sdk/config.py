"""The config of a source: its specification, made from a pydantic model, and the check of what a user wrote.

Spec: Actor Specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel  # a source that uses models imports it itself

Json = dict[str, Any]
_CHECK = "elt_assets.protocol.config_check"
"""The module is imported if a config is checked: jsonschema takes a fifth of a source's start."""
_VALUES = ("default", "enum", "const", "examples")
"""Keywords of JSON Schema whose values are not schemas."""


def specification(model: type[BaseModel]) -> Json:
    """Return the JSON schema of a model as a `connectionSpecification`.

    Definitions stand where they are used, an optional field has the type of its value, and a secret
    (`SecretStr`) is marked with `airbyte_secret`.

    Raises:
        TypeError: the model contains itself.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    plain: Json = _plain(schema, definitions, ())
    return {"$schema": "http://json-schema.org/draft-07/schema#", **plain}


def parse(model: type[BaseModel], config: Mapping[str, Any]) -> BaseModel:
    """Return a config as an instance of its model.

    Raises:
        ConfigError: the config is not valid. The message names every violation, and quotes no value.
    """
    try:
        return model.model_validate(config)
    except ValueError as error:
        details = getattr(error, "errors", None)
        if details is None:
            raise
        raise _invalid(map(_violation, details(include_url=False, include_input=False))) from None


def validate(config: Mapping[str, Any], specification: Mapping[str, Any]) -> None:
    """Check a config against a connection specification.

    One that is not valid JSON Schema is not used, with a warning.

    Raises:
        ConfigError: the config is not valid. The message names every violation, and quotes no value.
    """
    check = import_module(_CHECK)
    try:
        problems = check.violations(config, specification)
    except check.InvalidSpecification as error:
        report_warning(f"the config is not checked: its specification is not valid: {error}")
        return
    except RecursionError:
        raise ConfigError(
            "the config is not checked: its specification is nested too deeply, or its references multiply",
            guidance="this is a defect of the specification: correct it, or report it to its maintainer",
        ) from None
    if problems:
        raise _invalid(problems)


def _invalid(problems: Iterable[str]) -> ConfigError:
    return ConfigError(
        "the config violates the specification: " + "; ".join(problems),
        guidance="correct the config; the `spec` command prints the specification",
    )


def _violation(error: Mapping[str, Any]) -> str:
    """Return a line about a violation. The texts of pydantic's own rules quote no value."""
    place = ".".join(["config", *map(str, error["loc"])])
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def _plain(part: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """Return a part of a schema without references and without alternatives that are only null."""
    if isinstance(part, list):
        return [_plain(item, definitions, within) for item in part]
    if not isinstance(part, Mapping):
        return part
    part = dict(part)
    reference = part.pop("$ref", None)
    if reference is not None:
        name = str(reference).rpartition("/")[2]
        if name in within:
            raise TypeError(f"the config model {name} contains itself")
        return {
            **_plain(definitions[name], definitions, (*within, name)),
            **_plain(part, definitions, within),
        }
    choices = part.get("anyOf")
    if isinstance(choices, list):
        values = [choice for choice in choices if choice != {"type": "null"}]
        if len(values) == 1 and len(choices) == 2:
            del part["anyOf"]
            part = {**values[0], **part}
            if part.get("default", 0) is None:
                del part["default"]
            return _plain(part, definitions, within)
    part.pop("discriminator", None)
    if part.pop("writeOnly", False) and part.get("format") == "password":
        del part["format"]
        part["airbyte_secret"] = True
    return {name: _inner(name, value, definitions, within) for name, value in part.items()}


def _inner(name: str, value: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """Return the value of a keyword; those of some keywords contain no schemas, or schemas by name."""
    if name in _VALUES:
        return value
    if name == "properties":
        return {field: _plain(inner, definitions, within) for field, inner in value.items()}
    return _plain(value, definitions, within)
