"""JSON schemas → columns."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as t

from elt_assets.lake.columns.from_json_schema import columns, kind_of, read_names
from elt_assets.lake.columns.logical_types import (
    JSON_TEXT,
    SOURCE,
    column_of,
    column_type,
    to_stored,
)
from elt_assets.lake.columns.metadata_columns import table_schema

TIME = {"type": "string", "format": "time"}
STAMP = {"type": "string", "format": "date-time"}


WELL_KNOWN = {
    "String": "string",
    "BinaryData": "binary",
    "Date": "date",
    "TimestampWithTimezone": "timestamp",
    "TimestampWithoutTimezone": "timestamp_ntz",
    "TimeWithTimezone": "string",
    "TimeWithoutTimezone": "string",
    "Number": "double",
    "Integer": "bigint",
    "Boolean": "boolean",
}


def known(name: str) -> dict[str, str]:
    return {"$ref": f"WellKnownTypes.json#/definitions/{name}"}


@pytest.mark.spec("protocol.62", "protocol.63")
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
        ({"type": "array", "items": [{"type": "integer"}, {"type": "null"}]}, "array<bigint>"),
        ({"items": {"type": "integer"}}, "array<bigint>"),
        ({"oneOf": [known("Integer"), {"type": "null"}]}, "bigint"),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "oneOf": [{"required": ["a"]}],
            },
            "struct<a:bigint>",
        ),
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
        ({"type": "array", "prefixItems": [STAMP], "items": {"type": "integer"}}, "string"),
        *((known(name), kind) for name, kind in WELL_KNOWN.items()),
        ({"oneOf": [{"type": "null"}, {"$ref": "WellKnownTypes.json#/definitions/Date"}]}, "date"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_each_json_type_has_a_column_type(schema: Any, expected: str) -> None:
    assert column_type(kind_of(schema)).simpleString() == expected


def test_columns_keep_the_order_of_the_schema_and_both_names() -> None:
    found = columns({"properties": {"z": {"type": "integer"}, "a b": {"type": "string"}, "": {}}})
    assert [(column.source, column.name) for column in found] == [
        ("z", "z"),
        ("a b", "a_b"),
        ("", "_"),
    ]


def test_nested_names_are_cleaned() -> None:
    inner = {"type": "object", "properties": {"x-y": {"type": "integer"}}}
    [column] = columns({"properties": {"o": {"type": "array", "items": inner}}})
    assert column.type.simpleString() == "array<struct<x_y:bigint>>"
    (inner_field,) = column.type.elementType.fields  # type: ignore[attr-defined]
    assert inner_field.metadata == {SOURCE: "x-y"}


def test_nested_names_that_collide_are_made_unique() -> None:
    inner = {"type": "object", "properties": {"x": {}, "X": {}}}
    found = columns({"properties": {"id": {}, "ID": inner, "_airbyte_meta": {}}})
    assert [c.name.casefold() == c.source.casefold() for c in found] == [True, False, False]
    assert isinstance(found[1].type, t.StructType)
    assert len({name.casefold() for name in found[1].type.names}) == 2


def test_a_table_schema_keeps_the_names_of_the_source() -> None:
    inner = {"type": "object", "properties": {"x y": {}, "z": {}}}
    schema = {"properties": {"A b": {"type": "array", "items": inner}, "a-b": {}, "c": {}}}
    found = table_schema(columns(schema))
    assert found["A_b"].metadata == {SOURCE: "A b"}
    names = read_names(t.StructType.fromJson(found.jsonValue()))
    assert names["A b"].name == "A_b" and names["A b"].inner["x y"].name == "x_y"
    later = {"properties": {"a b": {}, "a_b": {}, "x": {}, **schema["properties"]}}
    assert columns(later, names)[-3:] == columns(schema)


@pytest.mark.parametrize(
    ("schema", "is_json"),
    [
        ({}, True),
        ({"type": ["string", "integer"]}, True),
        ({"type": "object"}, True),
        ({"type": "array", "items": {"type": "array"}}, True),
        ({"type": "string"}, False),
        (TIME, False),
        ({"anyOf": [STAMP, {"type": ["string", "null"]}]}, False),
        ({"anyOf": [STAMP, {"type": "string", "format": "date"}]}, True),
        ({"type": "array", "items": {"type": "string"}}, False),
    ],
)
def test_a_column_of_json_text_is_marked_in_its_metadata(schema: Any, is_json: bool) -> None:
    [column] = columns({"properties": {"x": schema}})
    assert (JSON_TEXT in column.field.metadata) == is_json
    assert column_of(column.field).kind == to_stored(column.kind)


def test_a_schema_without_properties_has_no_columns_of_its_own() -> None:
    assert columns({}) == []
    assert columns({"properties": None}) == []


def test_a_table_ends_with_the_columns_of_this_project() -> None:
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
