"""The validation of a config by its specification: secrets, errors, unknown fields."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.protocol.config_check import violations
from elt_assets.protocol.specification import secret_values, unknown_fields

SECRET = {"type": "string", "airbyte_secret": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"key": SECRET}},
        {"definitions": {"s": SECRET}, "properties": {"key": {"$ref": "#/definitions/s"}}},
        {"patternProperties": {"^k": SECRET}},
        {"additionalProperties": SECRET},
        {"if": {}, "then": {"properties": {"key": SECRET}}},
        {"oneOf": [{"properties": {"key": SECRET}}]},
    ],
)
def test_a_secret_is_found(schema: dict[str, Any]) -> None:
    assert list(secret_values({"key": "hunter2"}, schema)) == ["hunter2"]


def test_a_secret_in_items_by_position_is_found() -> None:
    schema = {"properties": {"keys": {"items": [{}, SECRET]}}}
    assert list(secret_values({"keys": ["open", "shut", "more"]}, schema)) == ["shut"]


def test_a_circular_reference_is_not_followed_forever() -> None:
    schema = {"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}
    assert list(secret_values({"key": "x"}, schema)) == []


@pytest.mark.spec("protocol.41")
def test_violations_do_not_quote_values() -> None:
    schema = {
        "oneOf": [{"title": "Key", "required": ["key"], "properties": {"key": {"minLength": 9}}}],
        "properties": {"port": {"type": "integer"}},
    }
    lines = violations({"key": "hunter2", "port": "eighty"}, schema)
    assert len(lines) == 2
    assert not any("hunter2" in line or "eighty" in line for line in lines)
    assert any("config.port: is not of type" in line for line in lines)


PORT: dict[str, Any] = {"properties": {"port": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {**PORT, "additionalProperties": True},
        {**PORT, "additionalProperties": False},  # that is a violation, and reported as one
        {**PORT, "patternProperties": {"^p": {}}},
        {**PORT, "oneOf": [{"properties": {"prot": {}}}, {}]},
        {**PORT, "oneOf": [{"additionalProperties": {}}]},
        {"definitions": {"d": {"properties": {"prot": {}}}}, "$ref": "#/definitions/d"},
        {"definitions": {"d": {"$ref": "#/definitions/d"}}, "$ref": "#/definitions/d"},
    ],
)
def test_an_allowed_field_is_not_reported_as_unknown(schema: dict[str, Any]) -> None:
    assert unknown_fields({"prot": "hunter2"}, schema) == []


def test_an_undeclared_field_is_reported_with_a_suggestion() -> None:
    (message,) = unknown_fields({"prot": "hunter2", "port": 1, "__platform": {}}, PORT)
    assert (
        "config.prot" in message and "did you mean 'port'?" in message and "hunter2" not in message
    )
    (message,) = unknown_fields({"x": 1}, PORT)
    assert "it has port" in message
