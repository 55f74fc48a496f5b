"""JSON schemas in several parts → the columns of the equal schema in one part."""

from __future__ import annotations

import copy
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection.catalog_diff import changes
from elt_assets.errors import ConfigError
from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.columns.logical_types import Array, Column, LogicalType, Struct
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.protocol.catalog import AirbyteStream, Catalog, ConfiguredStream
from elt_assets.sync.field_selection import FieldSelection, keep_undeclared, land_stream

Schema = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c", "$ref", "allOf", "items"])
LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": ["null", "string"], "format": "date"},
        {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
        {"type": ["integer", "null"]},
        {"type": "number", "airbyte_type": "big_number"},
        {"type": ["integer", "number"]},
        {"type": ["string", "boolean", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"$ref": "WellKnownTypes.json#/definitions/Date"},
        {"type": "null"},
        {"enum": ["a", "b"]},
        {"type": "object"},
        {},
    ]
)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(
            lambda kind, fields: {"type": kind, "properties": fields},
            st.sampled_from(["object", ["null", "object"]]),
            st.dictionaries(NAMES, inner, max_size=3),
        )
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
    ),
    max_leaves=8,
)


class Rewriting:
    """A rewriting of schemas as equal ones, by random choices."""

    def __init__(self, draw: st.DrawFn):
        self._draw = draw
        self.definitions: dict[str, Any] = {}
        self._targets: dict[str, Schema] = {}

    def of(self, schema: Schema) -> Schema:
        schema = dict(schema)
        if "properties" in schema:
            schema["properties"] = {
                name: self.of(part) for name, part in schema["properties"].items()
            }
        if "items" in schema:
            schema["items"] = self.of(schema["items"])
        for _ in range(self._draw(st.integers(0, 2))):
            schema = self._draw(
                st.sampled_from([self._reference, self._all, self._split, self._any])
            )(schema)
        return schema

    def _reference(self, schema: Schema) -> Schema:
        name = (
            f"{self._draw(st.sampled_from(['d', 'a/b', '~1', 'ä %', '']))}{len(self.definitions)}"
        )
        self.definitions[name] = schema
        pointer = name.replace("~", "~0").replace("/", "~1")
        is_quoted = "%" in name or self._draw(st.booleans())
        reference = f"#/$defs/{quote(pointer) if is_quoted else pointer}"
        self._targets[reference] = self._targets.get(schema.get("$ref", ""), schema)
        return {"$ref": reference}

    def _all(self, schema: Schema) -> Schema:
        if not {"properties", "items"} & {*schema}:
            return schema
        return {
            "allOf": [
                schema,
                *self._draw(st.lists(st.sampled_from([True, {}, schema]), max_size=2)),
            ]
        }

    def _split(self, schema: Schema) -> Schema:
        """Return the schema with its keywords and properties in several parts."""
        if not {"properties", "items"} & {*schema}:
            return schema
        parts: list[Schema] = [{}, {}, {}]
        for keyword, value in schema.items():
            if keyword == "properties":
                for name, part in value.items():
                    self._draw(st.sampled_from(parts)).setdefault("properties", {})[name] = part
            elif keyword in ("allOf", "anyOf", "$ref"):
                parts[0][keyword] = value
            else:
                self._draw(st.sampled_from(parts))[keyword] = value
        own, *others = self._draw(st.permutations(parts))
        if "allOf" in own:
            return {"allOf": [own, *others]}
        return {**own, "allOf": others}

    def _any(self, schema: Schema) -> Schema:
        """Return the schema as the only option that is not null."""
        described = self._targets.get(schema.get("$ref", ""), schema)
        if described.get("type") == "null" or not {"type", "$ref", "enum"} & {*described}:
            return schema
        keyword = self._draw(st.sampled_from(["anyOf", "oneOf"]))
        return {keyword: self._draw(st.permutations([schema, {"type": "null"}]))}


@st.composite
def equal_schemas(draw: st.DrawFn) -> tuple[Schema, Schema]:
    fields = draw(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=4))
    plain = {"type": "object", "properties": fields}
    rewriting = Rewriting(draw)
    schema = rewriting.of(plain)
    return plain, {**schema, "$defs": rewriting.definitions}


def shape(fields: list[Column] | tuple[Column, ...]) -> dict[str, Any]:
    """Return the types of columns by the source's names, whatever their order."""

    def of(kind: LogicalType) -> Any:
        if isinstance(kind, Array):
            return [of(kind.items)]
        return shape(kind.fields) if isinstance(kind, Struct) else kind

    return {column.source: of(column.kind) for column in fields}


@pytest.mark.spec("protocol.52")
@given(equal_schemas())
def test_equal_schemas_have_equal_columns(pair: tuple[Schema, Schema]) -> None:
    plain, schema = pair
    stream = AirbyteStream(name="s", json_schema=schema)
    assert shape(columns(stream.json_schema)) == shape(columns(plain))
    assert AirbyteStream.from_json(stream.to_json()) == stream


def configured(schema: Schema) -> ConfiguredStream:
    return ConfiguredStream(stream=AirbyteStream(name="s", json_schema=schema))


def test_a_stream_that_would_lose_all_its_fields_is_refused() -> None:
    stream = configured({"$ref": "orders.json"})
    with pytest.raises(ConfigError, match=r"stream 's': .* no column .* 'orders.json'"):
        check_columns(stream)
    check_columns(keep_undeclared(stream))
    check_columns(configured({"type": "object", "additionalProperties": True}))


def test_fields_of_a_reference_are_selected_like_others() -> None:
    row = {"properties": {"id": {"type": "integer"}, "user": {"$ref": "#/$defs/user"}}}
    user = {"type": "object", "properties": {"name": {"type": "string"}, "ssn": {"type": "string"}}}
    stream = configured({"allOf": [{"$ref": "#/$defs/row"}], "$defs": {"row": row, "user": user}})
    [number, person] = columns(
        land_stream(stream, FieldSelection(exclude=(("user", "ssn"),))).stream.json_schema
    )
    assert (number.name, person.type.simpleString()) == ("id", "struct<name:string>")


@pytest.mark.parametrize(
    "wrapping", ['{"properties":{"a":%s}}', '{"items":%s}', '{"allOf":[%s]}', '{"anyOf":[%s]}']
)
def test_a_schema_of_any_depth_has_columns(wrapping: str) -> None:
    before, after = wrapping.split("%s")
    for levels in (60, 500, 3_000):
        deep = before * levels + '{"type":"string"}' + after * levels
        chain = {
            f"d{n}": json.loads(wrapping % f'{{"$ref":"#/$defs/d{n + 1}"}}') for n in range(levels)
        }
        text = '{"properties":{"id":{"type":"integer"},"deep":%s,"chain":{"$ref":"#/$defs/d0"}},"$defs":%s}'
        text = '{"streams":[{"name":"s","json_schema":%s}]}' % (text % (deep, json.dumps(chain)))
        catalog = Catalog.from_json(text)
        [stream] = catalog.streams
        assert [column.name for column in columns(stream.json_schema)] == ["id", "deep", "chain"]
        assert changes(catalog, copy.deepcopy(catalog)) == []
        excluded = FieldSelection(exclude=(("deep", *"aaaa"), ("chain", "a")))
        found = land_stream(ConfiguredStream(stream=stream), excluded)
        assert json.loads(json.dumps(found.stream.json_schema)) == found.stream.json_schema
