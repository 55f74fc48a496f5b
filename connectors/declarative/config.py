"""The config of a manifest: which hosts the user has named in it, and the rules of the manifest for it.

    migrated = migrate(manifest.spec, written)
    usable = transform(manifest.spec, migrated)
    check_config(manifest.spec, usable)

Only hosts that the user has named may be on private networks: a manifest may come from anybody, and its
requests start on the user's machine. A value of the config is the user's unless the manifest or the API may
have put it there:

- what the manifest's migrations and transformations add is not in the config as it was given;
- what an earlier run has changed (migrations, tokens) is left out by its place, which the runner passes on;
- a host that the specification contains, as a default or an example, is copied by forms and by `elt new`.

Spec: Spec, ConfigNormalizationRules of Airbyte's low-code manifests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from connectors.declarative import paths
from connectors.declarative.manifest import components
from connectors.declarative.manifest.evaluation.literals import types_of
from connectors.declarative.manifest.evaluation.sandbox import allow_changes
from connectors.declarative.manifest.template import Template, TemplateMap, value
from connectors.sdk.http.addresses import hosts_in
from connectors.sdk.saved_config import report_config
from elt_assets.errors import ConfigError
from elt_assets.protocol.config_check import InvalidSpecification, violations

Place = Sequence[str | int]
"""The path to a value in a config: names of properties, and indexes of items."""


def find_user_hosts(
    config: Mapping[str, Any], changed: Sequence[Place], specification: Mapping[str, Any]
) -> frozenset[str]:
    """Return the hosts that the user has named in a config.

    Args:
        config: the config as it was given.
        changed: the places in it that the source itself has changed.
        specification: the `connectionSpecification` of the manifest.
    """
    left_out = {tuple(place) for place in changed}
    return hosts_in(_texts(config, left_out)) - hosts_in(_texts(specification))


def _texts(
    value: Any,
    left_out: set[tuple[str | int, ...]] | None = None,
    place: tuple[str | int, ...] = (),
) -> Iterator[str]:
    if left_out and place in left_out:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, left_out, (*place, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _texts(inner, left_out, (*place, position))


Config = dict[str, Any]
Rule = Callable[[Any, str], list[str]]
"""Function that takes a value and its place, and returns a line for each violation."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema that names none, as in the CDK."""
_CONFIG = re.compile(r"(^|; nearest: )config\b")
"""The name of the value in a line about a violation."""


def migrate(spec: components.Spec | None, raw_config: Mapping[str, Any]) -> Config:
    """Return a copy of a config after the migrations of a manifest. If they change it, it is reported, and so
    it is saved.

    Args:
        spec: the specification of the manifest; None if it has none.
        raw_config: the config.

    Raises:
        ConfigError: a rule cannot be applied. The message names its place in the manifest.
    """
    config = deepcopy(dict(raw_config))
    for migration in _rules(spec).config_migrations:
        for transformation in migration.transformations:
            _transform(transformation, config)
    if config != raw_config:
        report_config(deepcopy(config))
    return config


def transform(spec: components.Spec | None, migrated: Mapping[str, Any]) -> Config:
    """Return a copy of a config after the transformations of a manifest, which are not saved. Arguments and
    errors are those of `migrate`; the config is the one that it returns."""
    config = deepcopy(dict(migrated))
    for transformation in _rules(spec).transformations:
        _transform(transformation, config)
    return config


def check_config(spec: components.Spec | None, config: Mapping[str, Any]) -> None:
    """Check a config, as `transform` returns it, by the validations of a manifest.

    Raises:
        ConfigError: the config is not valid. The message names every violation, and quotes no value.
    """
    lines = [
        line for validator in _rules(spec).validations for line in _violations(validator, config)
    ]
    if lines:
        raise ConfigError(
            f"the config violates the rules of the manifest: {'; '.join(dict.fromkeys(lines))}",
            guidance="correct the config",
        )


def read_advanced_auth(spec: components.Spec | None) -> dict[str, Any] | None:
    """Return the `advanced_auth` of the SPEC message; None if the manifest has none."""
    return None if spec is None or spec.advanced_auth is None else dict(spec.advanced_auth)


def _rules(spec: components.Spec | None) -> components.ConfigNormalizationRules:
    rules = None if spec is None else spec.config_normalization_rules
    return components.ConfigNormalizationRules() if rules is None else rules


# --- changes --------------------------------------------------------------------------------------


def _transform(
    component: components.ConfigAddFields | components.ConfigRemoveFields, config: Config
) -> None:
    """Change a config in place.

    Raises:
        ConfigError: a template fails, or the change is not possible.
    """
    condition = component.condition
    if isinstance(component, components.ConfigRemoveFields):
        if not condition.text or condition.is_true({"config": config}):
            for pointer in component.field_pointers:
                paths.delete(config, pointer)
        return
    for field in component.fields:
        if not field.path:
            raise ConfigError(
                f"{field.place}.path is empty", guidance="write the name of the field"
            )
        value_of_field = _evaluate_field(field, config)
        variables = {"config": config, "value": value_of_field, "path": list(field.path)}
        if not condition.text or condition.is_true(variables):
            _put(config, field, value_of_field)


def _evaluate_field(field: components.AddedFieldDefinition, config: Config) -> Any:
    """Return the value of a field. Its template may change the lists and objects that it reads, as templates
    of real manifests do: it gets a copy of the config."""
    with allow_changes():
        return field.value.evaluate({"config": deepcopy(config)}, types_of(field.value_type))


def _put(config: Config, field: components.AddedFieldDefinition, value_of_field: Any) -> None:
    try:
        paths.put(config, field.path, value_of_field)
    except paths.BlockedPath:
        name = ".".join(field.path)
        raise ConfigError(
            f"{field.place}: the field {name!r} cannot be added to the config: a field on the way is neither "
            "an object nor a list",
            guidance="correct `path`, or the value of the config",
        ) from None


# --- checks ---------------------------------------------------------------------------------------


def _violations(
    component: components.DpathValidator | components.PredicateValidator, config: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a line for each violation of a validator.

    Raises:
        ConfigError: the validator cannot be applied.
    """
    rule = _rule(component.validation_strategy, config)
    if isinstance(component, components.PredicateValidator):
        yield from rule(_evaluate(component.value, {"config": config}), f"{component.place}.value")
        return
    path = [part.text_of({"config": config}) for part in component.field_path]
    if not path:
        raise ConfigError(
            f"{component.place}.field_path is empty", guidance="write the name of a field"
        )
    for checked_value in _values_at(component, config, path):
        yield from rule(checked_value, f"config.{'.'.join(path)}")


def _values_at(
    component: components.DpathValidator, config: Mapping[str, Any], path: list[str]
) -> list[Any]:
    """Return the values that a validator checks; none if the config does not have the field."""
    if paths.ANY in path:
        return paths.values_at(config, path)
    try:
        value_at_path = paths.value_at(config, path, paths.MISSING)
    except paths.AmbiguousPath:
        raise ConfigError(
            f"{component.place}.field_path matches several values of the config",
            guidance="write `*` for all items of a list or an object",
        ) from None
    return [] if value_at_path is paths.MISSING else [value_at_path]


def _rule(strategy: components.ValidateAdheresToSchema, config: Mapping[str, Any]) -> Rule:
    """Return the function that checks values."""
    schema = {"$schema": _DIALECT, **_schema(strategy, config)}
    return lambda checked_value, place: _schema_violations(checked_value, schema, place)


def _schema_violations(checked_value: Any, schema: Mapping[str, Any], place: str) -> list[str]:
    if isinstance(checked_value, str):
        try:
            checked_value = json.loads(checked_value)
        except ValueError:
            return [f"{place}: it is a text that is not JSON"]
    try:
        lines = violations(checked_value, schema)
    except InvalidSpecification as error:
        raise ConfigError(
            f"{place} cannot be checked: the schema in the manifest is not valid: {error}",
            guidance="correct the `base_schema` of the validation",
        ) from None
    return [_CONFIG.sub(lambda match: match[1] + place, line) for line in lines]


def _schema(
    strategy: components.ValidateAdheresToSchema, config: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a JSON schema. One that the manifest contains is not evaluated; one from the config is."""
    base_schema = strategy.base_schema
    if isinstance(base_schema, TemplateMap):
        schema: Mapping[str, Any] = _as_written(base_schema)
        return schema
    evaluated = base_schema.evaluate({"config": config})
    if isinstance(evaluated, str):
        try:
            evaluated = json.loads(evaluated)
        except ValueError:
            evaluated = None
    if not isinstance(evaluated, Mapping):
        raise ConfigError(
            f"{strategy.place}.base_schema does not give a JSON schema",
            guidance="write a JSON schema, or correct the value of the config that it uses",
        )
    return evaluated


def _as_written(content: Any) -> Any:
    if isinstance(content, Template):
        return content.text
    if isinstance(content, TemplateMap):
        return {name: _as_written(part) for name, part in content.items()}
    return [_as_written(part) for part in content] if isinstance(content, tuple) else content


def _evaluate(content: Any, variables: Mapping[str, Any]) -> Any:
    return (
        content.evaluate(variables) if isinstance(content, Template) else value(content, variables)
    )
