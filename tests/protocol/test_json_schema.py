"""The composition of JSON schemas: which fields a stream has."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection.files import save_catalog
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import AirbyteStream, Catalog, load_catalog
from elt_assets.protocol.codec import decode
from elt_assets.protocol.json_schema import (
    MAX_LEVELS,
    broken_references,
    compose_schema,
    explain_lost_fields,
    shallow,
)
from elt_assets.protocol.messages import Message
from elt_assets.protocol.singer import Translator
from elt_assets.protocol.singer_catalog import read_catalog

TEXT, WHOLE, DATE = {"type": "string"}, {"type": "integer"}, {"type": "string", "format": "date"}
BOTH = {"a": TEXT, "b": WHOLE}
NODE = {"type": "object", "properties": {"id": WHOLE, "kids": {"items": {"$ref": "#/$defs/node"}}}}


def fields(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(compose_schema(schema)["properties"])


def field(schema: Any, **root: Any) -> Any:
    return fields({"properties": {"x": schema}, **root})["x"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/row", "definitions": {"row": {"properties": {"a": TEXT, "b": WHOLE}}}},
        {"$ref": "#/$defs/row", "$defs": {"row": {"properties": {"a": TEXT}}}, "properties": {"b": WHOLE}},
        {"$id": "https://x/y", "$ref": "https://x/y#/$defs/a", "$defs": {"a": {"properties": BOTH}}},
        {"allOf": [{"properties": {"a": TEXT}}, {"properties": {"b": WHOLE}}]},
        {"allOf": [{"allOf": [{"properties": {"a": TEXT}}]}], "anyOf": [{"properties": {"b": WHOLE}}]},
        {"anyOf": [{"properties": {"a": TEXT}}, {"type": "null"}, {"properties": {"a": TEXT, "b": WHOLE}}]},
        {"oneOf": [{"$ref": "#/oneOf/1"}, {"properties": {"a": TEXT, "b": WHOLE}}, {"$ref": "#"}]},
        {"properties": {"a": {}}, "oneOf": [{"properties": {"a": TEXT, "b": WHOLE}}]},
        {"properties": {"a": TEXT}, "if": {"required": ["a"]}, "then": {"properties": {"b": WHOLE}}},
        {"allOf": [{"if": {}, "then": {}}, {"if": {}, "else": {"properties": BOTH}}]},
        {"type": ["null", "object"], "anyOf": [{"required": ["a"]}], "properties": {"a": TEXT, "b": WHOLE}},
    ],
)  # fmt: skip
def test_the_fields_of_a_record_are_those_of_all_parts(schema: dict[str, Any]) -> None:
    assert fields(schema) == BOTH
    assert AirbyteStream(name="a", json_schema=schema).json_schema == compose_schema(schema)
    assert compose_schema(compose_schema(schema)) == compose_schema(schema)


@pytest.mark.parametrize(
    ("schemas", "expected"),
    [
        ([{"type": ["string", "null"]}, {"type": ["integer", "string"]}], TEXT),
        ([{"type": ["number", "null"]}, {"type": "integer"}], WHOLE),
        ([{"type": "integer"}, {"type": ["string", "number"]}], WHOLE),
        ([TEXT, {"format": "date"}], DATE),
        ([TEXT, WHOLE], {}),
        ([TEXT, WHOLE, TEXT], {}),
        ([{"enum": ["a", "b"]}, {"enum": ["b", "c"]}], {"enum": ["b"]}),
        ([{"items": TEXT}, {"items": {"format": "date"}}], {"items": DATE}),
        ([{"type": []}, {"type": "string"}, {"type": 5}], TEXT),
    ],
)
def test_a_field_that_is_declared_twice_is_what_both_allow(
    schemas: list[Any], expected: Any
) -> None:
    assert fields({"allOf": [{"properties": {"x": schema}} for schema in schemas]})["x"] == expected


@pytest.mark.parametrize("part", [TEXT, WHOLE, {"$ref": "#/$defs/day"}, {"enum": ["a"]}])
def test_a_value_without_fields_in_an_all_of_stays_json_text(part: Any) -> None:
    for schema in (
        {"allOf": [part]},
        {"allOf": [True, {"allOf": [part]}]},
        {"$ref": "#/$defs/all"},
    ):
        definitions = {"day": DATE, "all": {"allOf": [part]}}
        assert field({"title": "t", **schema}, **{"$defs": definitions}) == {"title": "t"}
    assert field({"type": "string", "allOf": [{"format": "date"}]}) == DATE


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [{"items": TEXT}, {"items": {"format": "date"}}]}, {"items": DATE}),
        ({"$ref": "#/$defs/a~1b~0c%20d", "title": "t"}, {"title": "t", **DATE}),
        ({"$ref": "#/$defs/yes"}, {}),
        ({"allOf": [{"items": True}, {"items": [TEXT, {"$ref": "#/$defs/yes"}]}]}, {"items": [TEXT, {}]}),
        ({"type": "string", "oneOf": [{"const": n} for n in "abc"]},
         {"type": "string", "oneOf": [{"const": n} for n in "abc"]}),
        ({"anyOf": [{"required": ["a"]}, TEXT], "oneOf": [DATE, {"required": ["a"]}]}, {}),
        ({"anyOf": [{"minimum": 1}, TEXT], "oneOf": [DATE]}, {"anyOf": [{**DATE, "minimum": 1}, DATE]}),
        ({"anyOf": [WHOLE, {"const": "none"}, {"const": None}, False]},
         {"anyOf": [WHOLE, {"const": "none", **TEXT}, {"const": None, "type": "null"}]}),
        ({"anyOf": [WHOLE, {"title": "any"}]}, {}),
        ({"type": "integer", "anyOf": [WHOLE, {"minimum": 1}]},
         {"type": "integer", "anyOf": [WHOLE, {"minimum": 1, "type": "integer"}]}),
        ({"type": ["number"], "anyOf": [WHOLE, {}]},
         {"type": ["number"], "anyOf": [WHOLE, {"type": ["number"]}]}),
        ({"type": ["integer", "string"], "anyOf": [WHOLE, {"minimum": 1}]},
         {"type": ["integer", "string"], "anyOf": [WHOLE, {"minimum": 1, "type": ["integer", "string"]}]}),
        ({"anyOf": [WHOLE] * 70}, {"anyOf": [WHOLE] * 70}),
        ({"anyOf": [WHOLE] * 70, "oneOf": [WHOLE, TEXT]}, {}),
        ({"type": ["null", "object"], "anyOf": [{"$ref": "#/$defs/row"}, TEXT]},
         {"type": ["null", "object"], "anyOf": [{"type": "object", "properties": {"a": DATE}}]}),
        ({"properties": {"a": TEXT}, "anyOf": [{"properties": {"b": TEXT}}]},
         {"properties": {"a": TEXT}, "anyOf": [{"properties": {"a": TEXT, "b": TEXT}}]}),
        ({"anyOf": [TEXT, {"type": "null"}], "oneOf": [DATE, WHOLE]}, {"anyOf": [DATE]}),
    ],
)  # fmt: skip
def test_a_field_is_described_in_one_place(schema: Any, expected: Any) -> None:
    definitions = {
        "a/b~c d": DATE,
        "yes": True,
        "row": {"type": "object", "properties": {"a": DATE}},
    }
    assert field(schema, **{"$defs": definitions}) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": TEXT, "allOf": {"items": WHOLE}}, "additionalProperties": True},
        {"properties": {"x": {"anyOf": [TEXT, {"type": "null"}]}, "y": {"oneOf": [{"required": ["a"]}]}}},
        {"properties": {"x": {"$ref": "WellKnownTypes.json#/definitions/Date"}}},
        {},
    ],
)  # fmt: skip
def test_a_schema_without_parts_to_compose_is_unchanged(schema: dict[str, Any]) -> None:
    assert json.dumps(compose_schema(schema)) == json.dumps(schema)


def test_a_schema_that_contains_itself_stays_a_reference() -> None:
    definitions = {"node": NODE, "a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}
    own = {"$ref": "#/$defs/node", "$defs": definitions, "properties": {"self": {"$ref": "#"}}}
    reference = {"$ref": "#/$defs/node"}
    assert fields(own) == {"self": {"$ref": "#"}, "id": WHOLE, "kids": {"items": reference}}
    assert list(broken_references(compose_schema(own))) == []
    for schema, expected in [
        ({"allOf": [reference], "title": "t"}, {"title": "t", **reference}),
        ({"anyOf": [reference, TEXT]}, {"anyOf": [reference, TEXT]}),
        ({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}),
    ]:
        assert field(schema, **{"$defs": definitions}) == expected


def test_references_to_nothing_are_named() -> None:
    inner = {"properties": {"b": {"items": {"anyOf": [{"$ref": "other.json#/b"}, TEXT]}}}}
    date = {"$ref": "https://x/WellKnownTypes.json#/definitions/Date"}
    schema = {"allOf": [{"$ref": "#/nowhere"}], "properties": {"a": inner, "date": date}}
    assert dict(broken_references(compose_schema(schema))) == {
        "": "#/nowhere",
        "a.b": "other.json#/b",
    }
    assert fields(schema) == {"a": inner, "date": date}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "orders.json"}, "'orders.json'"),
        ({"allOf": [{"anyOf": [{"$ref": "#/$defs/row"}]}]}, "'#/$defs/row'"),
        ({"properties": ["a"]}, "not an object"),
        ({"id": WHOLE, "at": DATE}, "'id' is not under `properties`"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"properties": {"a": TEXT}}}}, "an array"),
        ({"$ref": "orders.json", "properties": {"a": TEXT}}, None),
        ({"type": "object", "additionalProperties": {"properties": {"a": TEXT}}}, None),
        ({"properties": {}, "patternProperties": {"^a": TEXT}}, None),
        ({"$ref": "#", "anyOf": [{"$ref": "#"}]}, None),
        ({}, None),
    ],
)
def test_fields_that_are_declared_but_cannot_be_found_are_lost(
    schema: Any, reason: str | None
) -> None:
    explanation = explain_lost_fields(compose_schema(schema))
    assert explanation is None if reason is None else reason in str(explanation)


KEYWORDS = st.sampled_from(
    [
        *(
            "$ref",
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "then",
            "else",
            "type",
            "properties",
            "items",
            "enum",
        ),
        *("definitions", "required", "$id", "format", "a"),
    ]
)
REFERENCES = ("#", "#/a", "#/definitions/a", "#/allOf/0")
VALUES = st.sampled_from(
    [None, True, False, "object", "string", "number", "integer", "null", *REFERENCES]
)
JSON = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(KEYWORDS, JSON, max_size=5))
def test_any_object_is_composed(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    composed = compose_schema(schema)
    assert schema == before
    assert json.loads(json.dumps(composed)) == composed
    explain_lost_fields(composed)
    list(broken_references(composed))


@pytest.mark.parametrize(
    "part",
    [
        {"properties": {name: {"$ref": "#/$defs/NEXT"} for name in "abcd"}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/NEXT"}, {"allOf": [{"$ref": "#/$defs/NEXT"}]}]}}},
        {"anyOf": [{"$ref": "#/$defs/NEXT"}, {"properties": {"a": TEXT}}]},
        {"anyOf": [{"$ref": "#/$defs/NEXT"}, {"$ref": "#/$defs/FIRST"}], "properties": {"a": TEXT}},
        {"allOf": [{"$ref": "#/$defs/NEXT"}, {"$ref": "#/$defs/NEXT"}], "properties": {"a": TEXT}},
        {"properties": {"a": {"$ref": "#/$defs/NEXT"}}, "anyOf": [{"type": "object"}, {"items": {}}]},
    ],
)  # fmt: skip
def test_parts_that_multiply_are_composed_in_limited_time(part: Any) -> None:
    text = json.dumps(part).replace("FIRST", "d0")
    definitions = {f"d{n}": json.loads(text.replace("NEXT", f"d{n + 1}")) for n in range(2_000)}
    start = time.process_time()
    assert "a" in fields({"$defs": definitions, "$ref": "#/$defs/d0"})
    assert time.process_time() - start < 5


def fill_deep_schema(levels: int, text: str) -> str:
    """Return the JSON text of a schema with objects of many levels, put into another text."""
    inner = '{"type":"object","properties":{"a":' * levels + "{}" + "}}" * levels
    return text.replace(
        "DEEP", '{"type":"object","properties":{"id":{"type":"integer"},"a":' + inner + "}}"
    )


@pytest.mark.parametrize("levels", [90, 480, 5_000])
def test_a_schema_of_any_depth_is_read(levels: int, tmp_path: Path) -> None:
    catalog = fill_deep_schema(levels, '{"streams":[{"name":"a","json_schema":DEEP}]}')
    message = decode(f'{{"type":"CATALOG","catalog":{catalog}}}'.encode())
    assert isinstance(message, Message) and message.catalog is not None
    line = fill_deep_schema(
        levels, '{"type":"SCHEMA","stream":"a","key_properties":[],"schema":DEEP}'
    )
    [sent] = list(Translator().messages(line.encode()))
    assert isinstance(sent, Message) and sent.catalog is not None
    entry = fill_deep_schema(levels, '{"streams":[{"tap_stream_id":"a","schema":DEEP}]}')
    modes = '"sync_mode":"full_refresh","destination_sync_mode":"append"'
    path = tmp_path / "catalog.json"
    path.write_text(
        fill_deep_schema(
            levels, f'{{"streams":[{{"stream":{{"name":"a","json_schema":DEEP}},{modes}}}]}}'
        )
    )
    streams = [
        *Catalog.from_json(catalog).streams,
        *message.catalog.streams,
        *sent.catalog.streams,
        *read_catalog(entry.encode()).streams,
        *(stream.stream for stream in load_catalog(str(path)).streams),
    ]
    assert len(streams) == 5
    for stream in streams:
        assert stream.json_schema["properties"]["id"] == WHOLE
        assert (
            copy.deepcopy(stream) == stream and AirbyteStream.from_json(stream.to_json()) == stream
        )


@pytest.mark.parametrize("bad_text", [rb"\ud83d", b"\xff"], ids=["half pair", "no UTF-8"])
def test_a_deep_catalog_with_a_text_that_is_no_text_can_be_saved(
    bad_text: bytes, tmp_path: Path
) -> None:
    deep = b'{"items":' * 5_000 + b"{}" + b"}" * 5_000
    stream = b'{"name":"a","note":"%b","json_schema":{"properties":{"deep":%b}}}' % (bad_text, deep)
    message = decode(b'{"type":"CATALOG","catalog":{"streams":[%b]}}' % stream)
    assert isinstance(message, Message) and message.catalog is not None
    saved = json.loads(save_catalog(tmp_path, message.catalog).read_text(encoding="utf-8"))
    assert saved["streams"][0]["note"] == "\ufffd"


def test_other_messages_that_are_nested_too_deeply_are_errors() -> None:
    blob = b'{"a":' * 5_000 + b"{}" + b"}" * 5_000
    for line in (
        b'{"type":"STATE","state":%b}',
        b'{"type":"CATALOG","catalog":%b',
        b'{"type":"X","x":%b}',
    ):
        with pytest.raises(SystemFailure, match="too deeply"):
            decode(line % blob)
    with pytest.raises(SystemFailure, match="too deeply"):
        list(Translator().messages(b'{"type":"STATE","value":%b}' % blob))


BRACKETS = st.text(alphabet='[]{}"\\a', max_size=5)


@given(
    st.recursive(
        BRACKETS, lambda inner: st.lists(inner) | st.dictionaries(BRACKETS, inner), max_leaves=9
    )
)
def test_a_text_that_is_not_deep_is_unchanged(value: Any) -> None:
    text = json.dumps(value).encode()
    assert shallow(text) is text


@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"}]":', "}"), ('[{"a[":', ',"b":2}, 1]')]
)
@pytest.mark.parametrize("levels", [MAX_LEVELS - 2, MAX_LEVELS, 30_000])
def test_a_deep_text_is_empty_below_its_limit(opening: str, closing: str, levels: int) -> None:
    count = levels // (2 if "," in closing else 1)
    text = f"[{opening * count}5{closing * count},6]".encode()
    value = json.loads(shallow(text))
    assert value[-1] == 6 and value[0]
    assert (shallow(text) == text) == (levels < MAX_LEVELS)
    assert shallow(shallow(text)) == shallow(text)
    depth, part = 0, value
    while isinstance(part, (list, dict)):
        depth += 1
        part = next(iter(part.values() if isinstance(part, dict) else part), None)
    assert depth == min(levels + 1, MAX_LEVELS)
