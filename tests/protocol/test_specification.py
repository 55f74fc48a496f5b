"""What is secret in a config, wherever its specification says so."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.protocol.specification import secret_values, violations

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


def test_items_by_position() -> None:
    schema = {"properties": {"keys": {"items": [{}, SECRET]}}}
    assert list(secret_values({"keys": ["open", "shut", "more"]}, schema)) == ["shut"]


def test_a_reference_to_itself_ends() -> None:
    schema = {"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}
    assert list(secret_values({"key": "x"}, schema)) == []


def test_violations_quote_no_value() -> None:
    schema = {
        "oneOf": [{"title": "Key", "required": ["key"], "properties": {"key": {"minLength": 9}}}],
        "properties": {"port": {"type": "integer"}},
    }
    found = violations({"key": "hunter2", "port": "eighty"}, schema)
    assert len(found) == 2
    assert not any("hunter2" in line or "eighty" in line for line in found)
    assert any("config.port: is not of type" in line for line in found)
