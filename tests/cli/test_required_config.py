"""The required config of a new connection: it is valid for the specification that it is made from."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.cli.commands.new.connection import config_lines
from elt_assets.cli.commands.new.required_config import RequiredConfig, add_required_config
from elt_assets.cli.commands.new.source import variable_name
from elt_assets.protocol.config_check import InvalidSpecification, violations
from elt_assets.protocol.specification import secret_places
from tests.cli.test_manifest import OPTIONS

pytestmark = pytest.mark.unit

NAMES = st.sampled_from(["a", "b", "a_b", "c d", "env"])
FIELDS = st.one_of(
    st.just({"type": "string"}),
    st.just({"type": "string", "airbyte_secret": True, "title": "Key"}),
    st.just({"type": ["null", "string"], "format": "date-time"}),
    st.just({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}),
    st.just({"type": "string", "pattern": "^(unclosed", "enum": ["x"]}),
    st.just({"type": "string", "enum": ["eu", "us"], "description": "Two\nlines"}),
    st.just({"type": "integer", "minimum": 3}),
    st.just({"type": "integer", "examples": ["5", 7]}),
    st.just({"type": "number", "default": 0.5}),
    st.just({"type": "boolean"}),
    st.just({"type": "array", "items": {"type": "integer"}, "minItems": 2}),
    st.just({"type": "object"}),
    st.just({"const": "fixed"}),
)


def objects(fields: Any) -> Any:
    properties = st.dictionaries(NAMES, fields, max_size=4)
    return properties.flatmap(
        lambda properties: st.builds(
            lambda required: {"type": "object", "properties": properties, "required": required},
            st.lists(st.sampled_from(sorted(properties)), unique=True)
            if properties
            else st.just([]),
        )
    )


def build_options(fields: Any) -> Any:
    """An object of one of two kinds, which differ in a constant and have no other field in common: a field
    that is a secret in one of them would count as a secret in the other too."""

    def option(number: int, schema: dict[str, Any]) -> dict[str, Any]:
        kind = {"type": "string", "const": f"kind {number}"}
        own = {f"{name} {number}": field for name, field in schema["properties"].items()}
        required = [f"{name} {number}" for name in schema["required"]]
        return {**schema, "properties": {**own, "kind": kind}, "required": [*required, "kind"]}

    return st.builds(
        lambda first, second: {"type": "object", "oneOf": [option(1, first), option(2, second)]},
        objects(fields),
        objects(fields),
    )


SPECIFICATIONS = objects(
    st.recursive(
        FIELDS, lambda inner: st.one_of(objects(inner), build_options(inner)), max_leaves=8
    )
)


def add_required(specification: Any, config: Any = None) -> RequiredConfig:
    return add_required_config(
        config or {}, specification, lambda words, taken: variable_name(["x", *words], taken)
    )


@given(SPECIFICATIONS)
def test_the_config_with_examples_is_valid(specification: dict[str, Any]) -> None:
    required = add_required(specification)
    config = required.fill_examples(list(required.variables))
    with contextlib.suppress(InvalidSpecification):  # it may have a pattern that is none
        assert violations(config, specification) == []
    assert add_required(specification, config).config == config
    assert not add_required(specification, config).examples


@given(SPECIFICATIONS)
def test_each_secret_is_a_variable_of_its_own(specification: dict[str, Any]) -> None:
    required = add_required(specification)
    config = required.fill_examples(list(required.variables))
    secrets = {place for place, _ in secret_places(config, specification)}
    assert {place for place, _ in required.variables.values()} == secrets
    for variable, (place, _) in required.variables.items():
        value: Any = required.config
        for step in place:
            value = value[step]
        assert value == {"env": variable}


@given(SPECIFICATIONS)
def test_the_config_is_read_back_from_its_yaml(specification: dict[str, Any]) -> None:
    required = add_required(specification)
    text = "\n".join(config_lines(required.config, required.notes))
    assert (yaml.safe_load(text) or {}) == required.config


@pytest.mark.parametrize(
    "specification", [{}, {"required": ["x"]}, {"required": 5, "properties": []}]
)
def test_an_unusual_specification_is_accepted(specification: Any) -> None:
    assert json.dumps(add_required(specification).config) in ("{}", '{"x": "example"}')


def test_an_option_that_is_given_is_completed() -> None:
    required = add_required(OPTIONS, {"login": {"kind": "user"}, "region": "us"})
    assert required.config["login"] == {"kind": "user", "user": "example"}
    assert required.config["region"] == "us"
    assert ("login", "user") in required.examples and not required.variables
