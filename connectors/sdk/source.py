"""A source, and the contract between it and its configuration.

spec: Actor Specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema import Draft7Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for

from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError


class Source(ABC):
    """Where streams come from. Every `config` that it is handed fits `connection_specification`."""

    name: str
    connection_specification: dict[str, Any]

    @abstractmethod
    def check(self, config: dict[str, Any]) -> None:
        """Return if the source can be reached and read with this config.

        Raises:
            EltError: why it cannot; the message is shown to the user.
        """

    @abstractmethod
    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        """The streams that this config gives access to.

        Raises:
            EltError: they cannot be listed.
        """


def validate(config: dict[str, Any], specification: dict[str, Any]) -> None:
    """Hold a config against a connection specification.

    Raises:
        ConfigError: names every violation. It quotes no value from the config: any part of it,
            or of what surrounds that part, may be secret.
    """
    validator = validator_for(specification, default=Draft7Validator)(specification)
    violations = sorted(_violation(error) for error in validator.iter_errors(config))
    if violations:
        raise ConfigError(
            "the config does not fit the specification: " + "; ".join(violations),
            guidance="the `spec` command shows what is expected",
        )


def secrets(config: Any, specification: dict[str, Any]) -> Iterator[str]:
    """Everything in a config, valid or not, that its specification marks `airbyte_secret`."""
    if specification.get("airbyte_secret"):
        yield from _scalars(config)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in specification.get(keyword, ()):
            yield from secrets(config, branch)
    if isinstance(config, dict):
        for name, schema in specification.get("properties", {}).items():
            yield from secrets(config.get(name), schema)
    elif isinstance(config, list) and isinstance(specification.get("items"), dict):
        for item in config:
            yield from secrets(item, specification["items"])


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _scalars(item)
    elif value is not None and not isinstance(value, bool) and value != "":
        yield str(value)


def _violation(error: ValidationError) -> str:
    if error.context:
        # One of several forms was meant: the nearest one's complaint is what helps.
        nearest = best_match([error])
        if nearest is not None and nearest is not error:
            return f"{_where(error)}: fits none of the allowed forms; {_violation(nearest)}"
    return f"{_where(error)}: {_complaint(error)}"


def _where(error: ValidationError) -> str:
    return ".".join(str(step) for step in error.absolute_path) or "config"


def _complaint(error: ValidationError) -> str:
    expected: Any = error.validator_value
    if error.validator == "type":
        return f"must be of type {expected if isinstance(expected, str) else ' or '.join(expected)}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(repr, expected))}"
    if error.validator in ("required", "additionalProperties"):
        return error.message  # holds names only
    if error.validator in ("oneOf", "anyOf", "not", "if", "allOf"):
        return f"breaks the rule {error.validator!r} of the specification"
    return f"breaks the rule {error.validator} {expected!r}"
