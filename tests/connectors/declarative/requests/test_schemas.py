"""Schemas of streams: in the manifest, in files beside it, or described by the API."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from connectors.declarative.manifest import components
from connectors.declarative.requests.schemas import load_schema, open_schema
from connectors.sdk.reports import listen_to_warnings
from elt_assets.errors import ConfigError, SystemFailure
from tests.connectors.declarative.requests.support import Reading, component
from tests.programs.recording_api import routes

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def write(folder: Path, path: str, schema: Any) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(schema))


def of_file(reading: Reading, path: str, **parameters: Any) -> dict[str, Any]:
    loader = component(components.JsonFileSchemaLoader, {"file_path": path}, **parameters)
    return load_schema(loader, reading.environment, "orders")


def test_a_schema_may_be_in_the_manifest(reading: Reading) -> None:
    loader = component(components.InlineSchemaLoader, {"schema": SCHEMA})
    assert load_schema(loader, reading.environment, "orders") == SCHEMA


@pytest.mark.parametrize(
    "path",
    [
        "schemas/orders.json",
        "./schemas/orders.json",
        "./schemas/{{ parameters['name'] }}.json",
        "{folder}/schemas/orders.json",
    ],
)
def test_a_schema_may_be_in_a_file_beside_the_manifest(
    reading: Reading, tmp_path: Path, path: str
) -> None:
    write(tmp_path, "schemas/orders.json", SCHEMA)
    written = path.replace("{folder}", tmp_path.name)
    assert of_file(reading, written, name="orders") == SCHEMA


def test_a_stream_without_a_loader_has_the_file_with_its_name_or_an_open_schema(
    reading: Reading, tmp_path: Path
) -> None:
    assert load_schema(None, reading.environment, "orders") == open_schema()
    write(tmp_path, "schemas/orders.json", SCHEMA)
    assert load_schema(None, reading.environment, "orders") == SCHEMA
    assert load_schema(None, reading.environment, "../orders") == open_schema()


@pytest.mark.parametrize("path", ["missing.json", "../outside.json", "/etc/hostname"])
def test_without_a_file_in_the_folder_the_schema_is_unknown(
    reading: Reading, tmp_path: Path, path: str
) -> None:
    write(tmp_path.parent, "outside.json", SCHEMA)
    warnings: list[str] = []
    with listen_to_warnings(warnings.append):
        assert of_file(reading, path) == open_schema()
    (warning,) = warnings
    assert f"there is no file {path!r} beside the manifest" in warning


def test_references_that_multiply_are_an_error(reading: Reading, tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(40)]
    both = {
        name: {"properties": {key: {"$ref": f"#/definitions/{following}"} for key in "xy"}}
        for name, following in pairwise(names)
    }
    definitions = {**both, names[-1]: {"type": "string"}}
    write(tmp_path, "bomb.json", {"$ref": "#/definitions/a0", "definitions": definitions})
    with pytest.raises(ConfigError, match="more than 200000 parts"):
        of_file(reading, "bomb.json")


def test_references_to_other_files_are_resolved(reading: Reading, tmp_path: Path) -> None:
    user = {
        "type": "object",
        "properties": {"id": {"$ref": "#/definitions/id"}},
        "definitions": {"id": {"type": "integer"}},
    }
    write(tmp_path, "schemas/shared/user.json", user)
    write(
        tmp_path,
        "schemas/orders.json",
        {
            "properties": {"user": {"$ref": "user.json"}, "id": {"$ref": "#/definitions/id"}},
            "definitions": {"id": {"type": "string"}},
        },
    )
    found = of_file(reading, "schemas/orders.json")
    assert found["properties"]["user"]["properties"] == {"id": {"type": "integer"}}
    assert found["properties"]["id"] == {"type": "string"}
    assert "definitions" not in found


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#/a", "a": {"$ref": "#/a"}}, {"$ref": "gone.json"}, {"$ref": "#/gone"}, ["a"]],
)
def test_references_that_lead_nowhere_or_in_a_circle_are_an_error(
    reading: Reading, tmp_path: Path, schema: Any
) -> None:
    write(tmp_path, "orders.json", schema)
    with pytest.raises(ConfigError):
        of_file(reading, "orders.json")


def test_of_several_loaders_the_first_that_has_a_property_wins(reading: Reading) -> None:
    loaders = [
        component(components.InlineSchemaLoader, {"schema": {"properties": each}})
        for each in ({"a": {"type": "string"}}, {"a": {"type": "integer"}, "b": {}})
    ]
    assert load_schema(tuple(loaders), reading.environment, "orders") == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": ["null", "object"],
        "properties": {"a": {"type": "string"}, "b": {}},
    }


FIELDS = [
    {"name": "Id", "kind": "int"},
    {"name": "Name", "kind": "text"},
    {"name": "At", "kind": "timestamp_with_timezone"},
    {"name": "Tags", "kind": "list"},
    {"name": "Either", "kind": ["string", "integer"]},
    {"name": "Plain"},
]
DYNAMIC = """
    retriever:
      type: SimpleRetriever
      requester: {type: HttpRequester, url_base: "{{ config['url'] }}", path: fields}
      record_selector: {type: RecordSelector, extractor: {type: DpathExtractor, field_path: []}}
    schema_type_identifier:
      schema_pointer: ["{{ config.pointer }}"]
      key_pointer: [name]
      type_pointer: [kind]
      types_mapping:
        - {current_type: int, target_type: integer, condition: "{{ raw_schema.name == 'Id' }}"}
        - {current_type: text, target_type: string}
        - {current_type: list, target_type: {field_type: array, items: {field_type: array, items: string}}}
    """


def dynamic(reading: Reading, more: str = "") -> dict[str, Any]:
    reading.configure(pointer="fields")
    loader = component(components.DynamicSchemaLoader, DYNAMIC + more)
    return load_schema(loader, reading.environment, "orders")


def test_an_api_may_describe_the_schema(reading: Reading) -> None:
    reading.answer(routes({"/fields": {"fields": FIELDS}}))
    nullable = ["null", "string"]
    found = dynamic(reading)
    assert found["properties"] == {
        "Id": {"type": ["null", "integer"]},
        "Name": {"type": nullable},
        "At": {"type": nullable, "format": "date-time"},
        "Tags": {
            "type": ["null", "array"],
            "items": {"type": ["null", "array"], "items": {"type": nullable}},
        },
        "Either": {"oneOf": [{"type": nullable}, {"type": ["null", "integer"]}]},
        "Plain": {"type": nullable},
    }
    assert found["additionalProperties"] is True


def test_fields_of_a_described_schema_are_filtered_and_transformed(reading: Reading) -> None:
    reading.answer({"fields": FIELDS})
    more = """
    schema_filter: {type: RecordFilter, condition: "{{ 'Plain' not in record }}"}
    schema_transformations: [{type: KeysToLower}]
    """
    assert list(dynamic(reading, more)["properties"]) == ["id", "name", "at", "tags", "either"]


def test_a_described_schema_is_requested_once(reading: Reading) -> None:
    reading.answer({"fields": FIELDS})
    assert dynamic(reading) == dynamic(reading)
    assert len(reading.api.requests) == 1


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({"fields": [{"name": "a", "kind": "blob"}]}, ConfigError, "does not know: 'blob'"),
        ({"fields": [{"kind": "text"}]}, SystemFailure, "a field has no name"),
        ({"fields": {"a": 1}}, SystemFailure, "is not a list"),
    ],
)
def test_a_description_that_is_not_understood_is_a_clear_error(
    reading: Reading, body: Any, kind: type[Exception], message: str
) -> None:
    reading.answer(body)
    with pytest.raises(kind, match=message):
        dynamic(reading)


def test_no_description_is_a_schema_without_fields(reading: Reading) -> None:
    reading.answer({})
    assert dynamic(reading)["properties"] == {}
