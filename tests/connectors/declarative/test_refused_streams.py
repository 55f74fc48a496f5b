"""Streams whose part of the manifest has problems: they alone are refused, by name, in entry command."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.declarative.manifest.loader import find_refusal, load
from connectors.declarative.source import ManifestSource
from elt_assets.errors import ConfigError
from tests.connectors.support import call, catalog, errors, output_of, records
from tests.programs.recording_api import RecordingApi, routes, serving

Json = dict[str, Any]


def stream(name: str, **requester: Any) -> Json:
    return {
        "type": "DeclarativeStream",
        "name": name,
        "retriever": {
            "type": "SimpleRetriever",
            "requester": {
                "type": "HttpRequester",
                "url_base": "{{ config['url'] }}",
                "path": name,
                **requester,
            },
            "record_selector": {
                "type": "RecordSelector",
                "extractor": {"type": "DpathExtractor", "field_path": ["data"]},
            },
        },
        "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
    }


GOOD = stream("good")
ONE = {"data": [{"id": 1}]}
UNKNOWN_TYPE = stream("unknown_type", authenticator={"type": "NewAuthenticator"})
UNKNOWN_VALUE = stream(
    "unknown_value",
    error_handler={
        "type": "DefaultErrorHandler",
        "response_filters": [{"type": "HttpResponseFilter", "action": "SING"}],
    },
)
BROKEN_REFERENCE = stream("broken_reference", error_handler={"$ref": "#/definitions/none"})
BROKEN_SCHEMA = {
    **stream("broken_schema"),
    "schema_loader": {"type": "InlineSchemaLoader", "schema": {"a": "#/definitions/none"}},
}
BAD = [UNKNOWN_TYPE, UNKNOWN_VALUE, BROKEN_REFERENCE, BROKEN_SCHEMA]
REASONS = {
    "unknown_type": "streams[1].retriever.requester.authenticator: 'NewAuthenticator' is not a known",
    "unknown_value": "error_handler.response_filters[0].action: 'SING' is not one of SUCCESS, FAIL",
    "broken_reference": "error_handler.$ref: there is nothing at '#/definitions/none'",
    "broken_schema": "schema_loader.schema.a: there is nothing at '#/definitions/none'",
}


def manifest(*streams: Json, checked: str = "good", **others: Any) -> str:
    document = {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": [checked]},
        "streams": list(streams),
        **others,
    }
    return yaml.safe_dump(document)


def test_only_the_streams_with_problems_are_refused_and_each_is_named_with_its_reason() -> None:
    manifest_of_five = load(manifest(GOOD, *BAD))
    assert [entry.name for entry in manifest_of_five.source.streams] == ["good"]
    for name, reason in REASONS.items():
        error = find_refusal(manifest_of_five.refusals, name)
        assert error is not None and reason in str(error) and f"the stream {name!r}" in str(error)
        assert "engine: airbyte" in str(error.guidance)
        assert any(name in line and reason in line for line in manifest_of_five.warnings)
    assert find_refusal(manifest_of_five.refusals, "good") is None
    assert find_refusal(manifest_of_five.refusals, "other") is None


def test_a_definition_with_a_problem_refuses_each_stream_that_refers_to_it() -> None:
    shared = {"type": "HttpRequester", "url_base": "x", "authenticator": "#/definitions/none"}
    streams = [stream(name) for name in "abc"]
    for entry in streams[:2]:
        entry["retriever"]["requester"] = {"$ref": "#/definitions/requester", "path": entry["name"]}
    loaded = load(manifest(*streams, checked="c", definitions={"requester": shared}))
    assert [refusal.name for refusal in loaded.refusals] == ["a", "b"]
    assert [entry.name for entry in loaded.source.streams] == ["c"]


RESOLVER: Json = {
    "type": "HttpComponentsResolver",
    "retriever": stream("tables")["retriever"],
    "components_mapping": [],
}


def test_a_template_is_refused_alone() -> None:
    template = {
        "type": "DynamicDeclarativeStream",
        "stream_template": UNKNOWN_VALUE,
        "components_resolver": RESOLVER,
    }
    loaded = load(manifest(GOOD, dynamic_streams=[template]))
    assert [refusal.place for refusal in loaded.refusals] == ["dynamic_streams[0]"]
    assert [entry.name for entry in loaded.source.streams] == ["good"]
    assert loaded.source.dynamic_streams == ()
    assert "'SING'" in str(find_refusal(loaded.refusals, "a stream of the template"))


def test_a_value_of_the_api_that_does_not_fit_refuses_only_the_stream_that_it_defines(
    tmp_path: Path,
) -> None:
    item = "{{ components_values['VALUE'].strip() }}"
    mappings = {
        "name": ["name"],
        "path": ["retriever", "requester", "path"],
        "method": ["retriever", "requester", "http_method"],
    }
    template = {
        "type": "DynamicDeclarativeStream",
        "stream_template": stream("", http_method="GET"),
        "components_resolver": {
            **RESOLVER,
            "components_mapping": [
                {
                    "type": "ComponentMappingDefinition",
                    "field_path": path,
                    "value": item.replace("VALUE", field),
                }
                for field, path in mappings.items()
            ],
        },
    }
    tables = [
        {"name": "sales", "path": "x", "method": "GET"},
        {"name": "singing", "path": "x", "method": "SING"},
        {"name": "no_method", "path": "x"},
    ]
    script = routes({"/tables": lambda _: {"data": tables}, "/good": ONE, "/x": ONE})
    with serving(RecordingApi(script)) as api:
        source = ManifestSource(manifest(GOOD, dynamic_streams=[template]))
        config = {"url": api.url}
        code, messages = call(source, tmp_path, "discover", config=config)
        logs = [entry["log"]["message"] for entry in messages if entry["type"] == "LOG"]
        names = [entry["name"] for entry in messages[-1]["catalog"]["streams"]]
        assert code == 0 and names == ["good", "sales"]
        assert any("'singing' cannot be read" in line and "'SING' is not" in line for line in logs)
        assert any("item 3 of the list of streams" in line for line in logs)

        _, messages = call(source, tmp_path, "check", config=config)
        assert messages[-1]["connectionStatus"]["status"] == "SUCCEEDED", messages[-1]
        selection = catalog("sales", "singing", "no_method")
        code, messages = call(source, tmp_path, "read", config=config, catalog=selection)
        failures = {
            entry["stream_descriptor"]["name"]: entry["message"] for entry in errors(messages)
        }
        assert code == 1 and records(messages) == [{"id": 1}]
        assert failures.keys() == {"singing", "no_method"}
        assert "'SING' is not one of" in failures["singing"]
        assert "item 3 of the list of streams" in failures["no_method"]

        del tables[0]
        template["name"] = "tables"
        alone = manifest(checked="sales", dynamic_streams=[template])
        code, messages = call(ManifestSource(alone), tmp_path, "discover", config=config)
        assert code == 1 and "'SING' is not one of" in str(messages[-1])


def test_a_manifest_without_a_stream_that_can_be_read_is_refused_with_all_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        load(manifest(*BAD, checked="unknown_type"))
    assert str(caught.value).startswith("the manifest has 3 problems")


def test_python_that_is_not_trusted_refuses_the_manifest() -> None:
    authenticator = {"type": "CustomAuthenticator", "class_name": "x.Login"}
    login = {**stream("python"), "$parameters": {"authenticator": authenticator}}
    with pytest.raises(ConfigError, match=r"'x\.Login' is Python"):
        load(manifest(GOOD, login))


def test_what_is_wrong_outside_of_streams_refuses_the_manifest() -> None:
    with pytest.raises(ConfigError, match=r"api_budget: the required field `policies`") as caught:
        load(manifest(GOOD, UNKNOWN_TYPE, api_budget={"type": "HTTPAPIBudget"}))
    assert "NewAuthenticator" in str(caught.value)


def test_commands_read_the_other_streams_and_fail_for_those_that_are_refused(
    tmp_path: Path,
) -> None:
    with serving(RecordingApi(lambda _: {"data": [{"id": 1}]})) as api:
        config = {"url": api.url}

        def source(checked: str = "good") -> ManifestSource:
            return ManifestSource(manifest(GOOD, *deepcopy(BAD), checked=checked))

        code, messages = call(source(), tmp_path, "discover", config=config)
        logs = [entry["log"]["message"] for entry in messages if entry["type"] == "LOG"]
        assert [entry["name"] for entry in messages[-1]["catalog"]["streams"]] == ["good"]
        assert code == 0 and all(
            any(reason in line for line in logs) for reason in REASONS.values()
        )

        _, messages = call(source(), tmp_path, "check", config=config)
        assert messages[-1]["connectionStatus"]["status"] == "SUCCEEDED", messages[-1]
        _, messages = call(source("unknown_type"), tmp_path, "check", config=config)
        assert REASONS["unknown_type"] in messages[-1]["connectionStatus"]["message"]

        selection = catalog("good", *REASONS)
        code, messages = call(source(), tmp_path, "read", config=config, catalog=selection)
        assert code == 1 and records(messages) == [{"id": 1}]
        failures = {
            entry["stream_descriptor"]["name"]: entry["message"] for entry in errors(messages)
        }
        assert failures.keys() == REASONS.keys()
        assert all(reason in failures[name] for name, reason in REASONS.items())

        entries: list[Json] = [
            {"tap_stream_id": name, "stream": name, "schema": {}, "selected": True}
            for name in ("good", "unknown_type")
        ]
        code, output = output_of(source(), tmp_path, config=config, catalog={"streams": entries})
        assert code == 1 and b'"id":1' in output.replace(b" ", b"")
