"""JSON schemas → columns."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.types import columns, spark_type, table_schema

TIME = {"type": "string", "format": "time"}
STAMP = {"type": "string", "format": "date-time"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number", "airbyte_type": "integer"}, "bigint"),
        ({"type": "integer", "airbyte_type": "big_integer"}, "decimal(38,0)"),
        ({"type": "number", "airbyte_type": "big_integer"}, "decimal(38,0)"),
        ({"type": "number"}, "double"),
        ({"type": "number", "airbyte_type": "big_number"}, "decimal(38,9)"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "string", "format": "date"}, "date"),
        (STAMP, "timestamp"),
        ({**STAMP, "airbyte_type": "timestamp_with_timezone"}, "timestamp"),
        ({**STAMP, "airbyte_type": "timestamp_without_timezone"}, "timestamp_ntz"),
        ({**TIME, "airbyte_type": "time_with_timezone"}, "string"),
        ({**TIME, "airbyte_type": "time_without_timezone"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array", "items": {"type": "array", "items": STAMP}}, "array<array<timestamp>>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": {}}, "string"),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "struct<a:bigint>"),
        ({"properties": {"a": {"type": "integer"}}}, "struct<a:bigint>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "properties": {}}, "string"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": "null"}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_each_type_has_its_column(schema: Any, expected: str) -> None:
    assert spark_type(schema).simpleString() == expected


def test_columns_keep_the_schemas_order_and_both_names() -> None:
    found = columns({"properties": {"z": {"type": "integer"}, "a b": {"type": "string"}, "": {}}})
    assert [(column.source, column.name) for column in found] == [
        ("z", "z"),
        ("a b", "a_b"),
        ("", "_"),
    ]


def test_names_are_cleaned_all_the_way_down() -> None:
    inner = {"type": "object", "properties": {"x-y": {"type": "integer"}}}
    [column] = columns({"properties": {"o": {"type": "array", "items": inner}}})
    assert column.type.simpleString() == "array<struct<x_y:bigint>>"
    assert column.read_type.simpleString() == "array<struct<x-y:bigint>>"


@pytest.mark.parametrize(
    "properties",
    [
        {"id": {}, "ID": {}},
        {"a b": {}, "a-b": {}},
        {"o": {"type": "object", "properties": {"x": {}, "X": {}}}},
        {"_airbyte_meta": {}},
    ],
)
def test_names_that_collide_are_refused(properties: Any) -> None:
    with pytest.raises(ConfigError, match="would"):
        columns({"properties": properties})


def test_a_schema_without_properties_has_no_columns_of_its_own() -> None:
    assert columns({}) == []
    assert columns({"properties": None}) == []


def test_a_table_ends_with_this_projects_columns() -> None:
    schema = table_schema(columns({"properties": {"id": {"type": "integer"}}}))
    assert {field.name: field.dataType.simpleString() for field in schema.fields} == {
        "id": "bigint",
        "_airbyte_raw_id": "string",
        "_airbyte_extracted_at": "timestamp",
        "_airbyte_generation_id": "bigint",
        "_airbyte_meta": "struct<sync_id:bigint,"
        "changes:array<struct<field:string,change:string,reason:string>>>",
    }
    assert isinstance(schema["id"].dataType, t.LongType)
