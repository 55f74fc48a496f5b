"""Tests of loading manifests, and of the errors for invalid ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.manifest.components import (
    AddFields,
    ApiKeyAuthenticator,
    CheckStream,
    CompositeErrorHandler,
    DatetimeBasedCursor,
    DeclarativeStream,
    DefaultErrorHandler,
    DefaultPaginator,
    DpathExtractor,
    HttpRequester,
    InlineSchemaLoader,
    JsonFileSchemaLoader,
    ListPartitionRouter,
    MinMaxDatetime,
    NoPagination,
    ParentStreamConfig,
    RecordSelector,
    RequestOption,
    SelectiveAuthenticator,
    SessionTokenAuthenticator,
    SessionTokenRequestApiKeyAuthenticator,
    SimpleRetriever,
    Spec,
    SubstreamPartitionRouter,
)
from connectors.declarative.manifest.loader import (
    KNOWN_VERSION,
    Manifest,
    find_refusal,
    load,
    refuse_for_all_engines,
)
from connectors.declarative.manifest.report import ManifestError
from connectors.declarative.manifest.template import Template, TemplateMap
from elt_assets.errors import ConfigError

REQUESTER: dict[str, Any] = {
    "type": "HttpRequester",
    "url_base": "https://api.example",
    "path": "/orders",
}
SELECTOR: dict[str, Any] = {
    "type": "RecordSelector",
    "extractor": {"type": "DpathExtractor", "field_path": ["data"]},
}
STREAM: dict[str, Any] = {
    "type": "DeclarativeStream",
    "name": "orders",
    "primary_key": "id",
    "retriever": {"type": "SimpleRetriever", "requester": REQUESTER, "record_selector": SELECTOR},
    "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object", "properties": {}}},
}


def source(*streams: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": ["orders"]},
        "streams": list(streams or (STREAM,)),
        **others,
    }


def changed(part: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a part of a manifest in which values are replaced; `a__b` stands for a path, None removes."""
    found = deepcopy(part)
    for name, value in changes.items():
        *within, last = name.split("__")
        place = found
        for key in within:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return found


def loaded(manifest: dict[str, Any], **options: Any) -> Manifest:
    return load(yaml.safe_dump(manifest, sort_keys=False), **options)


def stream_of(manifest: Manifest, index: int = 0) -> DeclarativeStream:
    found = manifest.source.streams[index]
    assert isinstance(found, DeclarativeStream)
    return found


def retriever_of(stream: DeclarativeStream) -> SimpleRetriever:
    assert isinstance(stream.retriever, SimpleRetriever)
    return stream.retriever


def requester_of(stream: DeclarativeStream) -> HttpRequester:
    found = retriever_of(stream).requester
    assert isinstance(found, HttpRequester)
    return found


def first(manifest: dict[str, Any]) -> DeclarativeStream:
    return stream_of(loaded(manifest))


def problems(manifest: dict[str, Any] | str, **options: Any) -> str:
    text = manifest if isinstance(manifest, str) else yaml.safe_dump(manifest, sort_keys=False)
    with pytest.raises(ConfigError) as caught:
        load(text, **options)
    return str(caught.value)


# --- what is loaded -------------------------------------------------------------------------------


def test_a_manifest_becomes_typed_components() -> None:
    manifest = loaded(source(spec={"type": "Spec", "connection_specification": {"type": "object"}}))
    stream = stream_of(manifest)
    assert stream.name == "orders"
    assert stream.primary_key == "id"
    assert isinstance(stream.schema_loader, InlineSchemaLoader)
    assert stream.schema_loader.schema == {"type": "object", "properties": {}}
    requester = requester_of(stream)
    assert requester.url_base == Template("https://api.example")
    assert requester.http_method == "GET"
    assert requester.place == "streams[0].retriever.requester"
    extractor = retriever_of(stream).record_selector.extractor
    assert isinstance(extractor, DpathExtractor)
    assert extractor.field_path == (Template("data"),)
    assert extractor.place == "streams[0].retriever.record_selector.extractor"
    assert extractor.field_path[0].place == f"{extractor.place}.field_path[0]"
    assert isinstance(manifest.source.check, CheckStream)
    assert isinstance(manifest.spec, Spec)
    assert manifest.warnings == []


def test_a_manifest_is_read_from_a_file_or_a_text(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump(source()), encoding="utf-8")
    assert load(path).path == path
    assert load(str(path)).path == path
    assert load(path.read_text(encoding="utf-8")).path is None
    flow = yaml.safe_dump(source(), default_flow_style=True, width=100_000).strip()
    assert load(flow).source.version == "6.0.0"


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "binary.yaml")


def test_dates_stay_text() -> None:
    text = yaml.safe_dump(source()).replace("name: orders", "name: 2024-01-01")
    assert stream_of(load(text)).name == "2024-01-01"


def test_request_options_are_templates_at_any_depth() -> None:
    body = {"a": {"b": ["{{ config['x'] }}", 1, True]}, "{{ config['x'] }}": "k"}
    stream = changed(STREAM, retriever__requester={**REQUESTER, "request_body_json": body})
    found = requester_of(first(source(stream))).request_body_json
    assert isinstance(found, TemplateMap)
    assert found.evaluate({"config": {"x": "v"}}) == {"a": {"b": ["v", 1, True]}, "v": "k"}
    assert found["a"]["b"][0].place == "streams[0].retriever.requester.request_body_json.a.b[0]"


def test_classes_are_distinguished_by_short_types() -> None:
    authenticator = {
        "type": "SessionTokenAuthenticator",
        "login_requester": REQUESTER,
        "session_token_path": ["token"],
        "request_authentication": {
            "type": "ApiKey",
            "inject_into": {"type": "RequestOption", "inject_into": "header", "field_name": "X"},
        },
    }
    stream = changed(STREAM, retriever__requester={**REQUESTER, "authenticator": authenticator})
    found = requester_of(first(source(stream))).authenticator
    assert isinstance(found, SessionTokenAuthenticator)
    assert isinstance(found.request_authentication, SessionTokenRequestApiKeyAuthenticator)


def test_a_mapping_of_components_is_built() -> None:
    authenticator = {
        "type": "SelectiveAuthenticator",
        "authenticator_selection_path": ["kind"],
        "authenticators": {
            "key": {"type": "ApiKeyAuthenticator", "api_token": "t"},
            "none": {"type": "NoAuth"},
        },
    }
    stream = changed(STREAM, retriever__requester={**REQUESTER, "authenticator": authenticator})
    found = requester_of(first(source(stream))).authenticator
    assert isinstance(found, SelectiveAuthenticator)
    assert isinstance(found.authenticators["key"], ApiKeyAuthenticator)
    assert found.authenticators["key"].place.endswith("authenticator.authenticators.key")


# --- types ----------------------------------------------------------------------------------------


def test_types_are_inferred_from_where_components_stand() -> None:
    manifest = {
        "version": "0.1.0",
        "check": {"stream_names": ["orders"]},
        "streams": [
            {
                "name": "orders",
                "retriever": {
                    "requester": {
                        "url_base": "https://api.example",
                        "path": "/",
                        "error_handler": {
                            "response_filters": [{"http_codes": [404], "action": "IGNORE"}]
                        },
                    },
                    "record_selector": {
                        "extractor": {"field_path": []},
                        "record_filter": {"condition": "x"},
                    },
                    "paginator": {},
                    "partition_router": {
                        "type": "SubstreamPartitionRouter",
                        "parent_stream_configs": [
                            {"stream": STREAM, "parent_key": "id", "partition_field": "parent"}
                        ],
                    },
                },
                "schema_loader": {},
                "incremental_sync": {
                    "type": "DatetimeBasedCursor",
                    "cursor_field": "at",
                    "datetime_format": "%s",
                    "start_datetime": {"datetime": "2024-01-01"},
                    "start_time_option": {"inject_into": "header", "field_name": "since"},
                },
                "transformations": [
                    {"type": "AddFields", "fields": [{"path": ["a"], "value": "b"}]}
                ],
            }
        ],
    }
    stream = first(manifest)
    assert isinstance(retriever_of(stream).record_selector, RecordSelector)
    assert isinstance(retriever_of(stream).paginator, NoPagination)
    assert isinstance(requester_of(stream).error_handler, DefaultErrorHandler)
    assert isinstance(stream.schema_loader, JsonFileSchemaLoader)
    assert isinstance(stream.incremental_sync, DatetimeBasedCursor)
    assert isinstance(stream.incremental_sync.start_datetime, MinMaxDatetime)
    assert isinstance(stream.incremental_sync.start_time_option, RequestOption)
    assert isinstance(stream.transformations[0], AddFields)
    router = retriever_of(stream).partition_router
    assert isinstance(router, SubstreamPartitionRouter)
    assert isinstance(router.parent_stream_configs[0], ParentStreamConfig)


def test_a_type_may_be_the_name_of_the_cdks_class() -> None:
    name = (
        "airbyte_cdk.sources.declarative.requesters.paginators.default_paginator.DefaultPaginator"
    )
    strategy = {"type": "PageIncrement", "page_size": 5}
    for key in ("type", "class_name"):
        paginator = {key: name, "pagination_strategy": strategy}
        stream = changed(STREAM, retriever__paginator=paginator)
        assert isinstance(retriever_of(first(source(stream))).paginator, DefaultPaginator)


def test_a_composite_may_contain_composites() -> None:
    handler = {
        "type": "CompositeErrorHandler",
        "error_handlers": [
            {"type": "CompositeErrorHandler", "error_handlers": [{"max_retries": 1}]}
        ],
    }
    stream = changed(STREAM, retriever__requester={**REQUESTER, "error_handler": handler})
    found = requester_of(first(source(stream))).error_handler
    assert isinstance(found, CompositeErrorHandler)
    assert isinstance(found.error_handlers[0], CompositeErrorHandler)
    inner = found.error_handlers[0].error_handlers[0]
    assert isinstance(inner, DefaultErrorHandler) and inner.max_retries == 1


def test_one_or_several_components_may_stand_where_both_are_allowed() -> None:
    router = {"type": "ListPartitionRouter", "cursor_field": "region", "values": ["eu", "us"]}
    one = retriever_of(first(source(changed(STREAM, retriever__partition_router=router))))
    several = retriever_of(first(source(changed(STREAM, retriever__partition_router=[router] * 2))))
    assert isinstance(one.partition_router, ListPartitionRouter)
    assert one.partition_router.values == ("eu", "us")
    assert isinstance(several.partition_router, tuple)
    assert [each.place for each in several.partition_router] == [
        "streams[0].retriever.partition_router[0]",
        "streams[0].retriever.partition_router[1]",
    ]


# --- parameters -----------------------------------------------------------------------------------


def test_parameters_reach_the_fields_of_components_within() -> None:
    stream = changed(STREAM, name=None, retriever__requester__path=None)
    stream["$parameters"] = {"name": "invoices", "path": "/invoices", "unknown": 1}
    found = first(source(stream))
    assert found.name == "invoices"
    assert requester_of(found).path == Template("/invoices")
    assert requester_of(found).parameters == {"name": "invoices", "path": "/invoices", "unknown": 1}


def test_a_field_and_a_nearer_parameter_win() -> None:
    stream = changed(
        STREAM, retriever__requester={"type": "HttpRequester", "$parameters": {"path": "/near"}}
    )
    stream["$parameters"] = {"path": "/far", "name": "other", "url_base": "https://far.example"}
    found = first(source(stream))
    assert found.name == "orders"
    assert requester_of(found).path == Template("/near")
    assert requester_of(found).url_base == Template("https://far.example")


def test_templates_know_the_parameters_of_their_component() -> None:
    stream = changed(STREAM, retriever__requester__path="/{{ parameters['entity'] }}")
    stream["$parameters"] = {"entity": "orders"}
    path = requester_of(first(source(stream))).path
    assert path is not None and path.text_of({}) == "/orders"


def test_a_parameter_may_be_a_component_and_does_not_reach_into_itself() -> None:
    stream = changed(STREAM, schema_loader=None)
    stream["$parameters"] = {
        "schema_loader": {"type": "JsonFileSchemaLoader", "file_path": "./a.json"}
    }
    found = first(source(stream))
    assert isinstance(found.schema_loader, JsonFileSchemaLoader)
    assert found.schema_loader.parameters == {}


def test_a_parameter_of_another_type_than_the_field_is_not_used() -> None:
    option = {"type": "RequestOption", "inject_into": "header", "field_name": "X"}
    stream = changed(
        STREAM,
        retriever__requester__authenticator={"type": "ApiKeyAuthenticator", "inject_into": option},
    )
    stream["$parameters"] = {"field_path": "data", "name": "orders"}
    manifest = loaded(source(stream))
    authenticator = requester_of(stream_of(manifest)).authenticator
    assert isinstance(authenticator, ApiKeyAuthenticator)
    assert authenticator.inject_into is not None and authenticator.inject_into.field_path is None
    assert any("`field_path` is not used here" in each for each in manifest.warnings)


def test_mappings_without_a_type_get_no_parameters() -> None:
    budget = {
        "type": "HTTPAPIBudget",
        "$parameters": {"limit": 5, "interval": "PT1S", "method": "POST"},
        "policies": [
            {
                "type": "MovingWindowCallRatePolicy",
                "rates": [{"limit": 1, "interval": "PT1M"}],
                "matchers": [{}],
            }
        ],
    }
    found = loaded(source(api_budget=budget)).source.api_budget
    assert found is not None
    assert found.policies[0].matchers[0].method is None


names = st.sampled_from(["name", "path", "url_base", "other"])
values = st.sampled_from(["a", "b", "", None])
layers = st.lists(st.dictionaries(names, values, max_size=3), min_size=3, max_size=3)


@given(layers, st.dictionaries(st.sampled_from(["path", "url_base"]), values, max_size=2))
def test_parameters_are_merged_as_the_rules_say(
    layers: list[dict[str, Any]], own: dict[str, Any]
) -> None:
    outer, middle, inner = layers
    stream = changed(
        STREAM, retriever__requester={"type": "HttpRequester", "$parameters": inner, **own}
    )
    stream["$parameters"] = outer
    stream["retriever"]["$parameters"] = middle
    requester = requester_of(first(source(stream)))
    effective = {**outer, **middle, **inner}
    assert requester.parameters == effective
    for field in ("path", "url_base"):
        expected = own.get(field) or (effective[field] if field in effective else own.get(field))
        found = getattr(requester, field)
        assert (found.text if found is not None else None) == expected


# --- references -----------------------------------------------------------------------------------


def test_references_are_resolved_before_components_are_built() -> None:
    manifest = source(
        {"$ref": "#/definitions/stream", "$parameters": {"name": "a", "path": "/a"}},
        "#/definitions/other",  # type: ignore[arg-type]
        definitions={
            "requester": {"type": "HttpRequester", "url_base": "https://api.example"},
            "stream": {
                "type": "DeclarativeStream",
                "retriever": {
                    "type": "SimpleRetriever",
                    "requester": {"$ref": "#/definitions/requester", "http_method": "POST"},
                    "record_selector": "#/definitions/selector",
                },
            },
            "selector": SELECTOR,
            "other": {"$ref": "#/definitions/stream", "name": "b", "$parameters": {"path": "/b"}},
            "anything": ["#/definitions/nowhere", {"type": "Unknown"}],
        },
    )
    found = loaded(manifest)
    streams = [stream_of(found, index) for index in range(2)]
    assert [each.name for each in streams] == ["a", "b"]
    assert [requester_of(each).http_method for each in streams] == ["POST", "POST"]
    assert requester_of(streams[1]).path == Template("/b")
    assert requester_of(streams[1]).place == "streams[1].retriever.requester"


# --- Python ---------------------------------------------------------------------------------------

EXTRACTOR = {
    "type": "CustomRecordExtractor",
    "class_name": "source_x.components.Extractor",
    "depth": 3,
    "requester": REQUESTER,
    "nested": {"options": [REQUESTER], "schema": {"type": "object"}},
}


def test_python_is_refused_unless_its_module_is_trusted() -> None:
    stream = changed(STREAM, retriever__record_selector__extractor=EXTRACTOR)
    text = problems(source(stream))
    assert "streams[0].retriever.record_selector.extractor" in text
    assert "'source_x.components.Extractor'" in text
    for other in ("source", "source_x.comp", "source_x.components.Extractor", "components"):
        assert "runs only if its module is trusted" in problems(source(stream), trusted=[other])


def reasons_for_airbyte(manifest: dict[str, Any], **options: Any) -> list[str]:
    """Return why Airbyte's engine runs a manifest without other streams."""
    with pytest.raises(ManifestError) as caught:
        loaded(manifest, **options)
    return list(caught.value.reasons_for_airbyte)


@pytest.mark.parametrize("trusted", ["source_x", "source_x.components"])
def test_python_that_is_trusted_is_for_the_engine_of_airbyte(trusted: str) -> None:
    """With `engine: ours`, it refuses only the streams that use it."""
    stream = changed(STREAM, retriever__record_selector__extractor=EXTRACTOR)
    (reason,) = reasons_for_airbyte(source(stream), trusted=[trusted])
    place, _, what = reason.partition(": ")
    assert place == "streams[0].retriever.record_selector.extractor"
    assert what == "the class 'source_x.components.Extractor' is Python, for Airbyte's engine"
    manifest = loaded(source(stream, {**STREAM, "name": "other"}), trusted=[trusted])
    assert manifest.reasons_for_airbyte == [reason]
    assert len(manifest.source.streams) == 1 and stream_of(manifest).name == "other"
    assert "is Python, for Airbyte's engine" in str(find_refusal(manifest.refusals, "orders"))


@pytest.mark.parametrize("options", [
    {"requester": {"type": "CustomRequester", "class_name": "x.Inner"}},
    {"nested": {"options": [{"requester": {"class_name": "x.Inner", "a": 1}}]}},
    {"$parameters": {"login": {"type": "CustomAuthenticator", "class_name": "x.Inner"}}},
])  # fmt: skip
def test_python_in_the_options_of_trusted_python_must_be_trusted_too(
    options: dict[str, Any],
) -> None:
    stream = changed(STREAM, retriever__record_selector__extractor={**EXTRACTOR, **options})
    text = problems(source(stream), trusted=["source_x"])
    assert "the class 'x.Inner' is Python; it runs only if its module is trusted" in text
    with pytest.raises(ConfigError, match=r"'x\.Inner' is Python"):
        refuse_for_all_engines(yaml.safe_dump(source(stream)), ["source_x"])
    assert reasons_for_airbyte(source(stream), trusted=["source_x", "x"])


def test_python_in_what_only_the_engine_of_airbyte_knows_must_be_trusted() -> None:
    reduction = {"type": "PageSizeReduction", "strategy": {"class_name": "x.Strategy"}}
    stream = changed(STREAM, retriever__page_size_reduction=reduction)
    text = problems(source(stream))
    assert "page_size_reduction.strategy: the class 'x.Strategy' is Python" in text
    assert reasons_for_airbyte(source(stream), trusted=["x"])


def test_a_class_name_without_a_type_is_python_of_the_kind_that_stands_there() -> None:
    stream = changed(STREAM, retriever__requester={"class_name": "x.Requester", "a": 1})
    (reason,) = reasons_for_airbyte(source(stream), trusted=["x"])
    assert "requester: the class 'x.Requester' is Python" in reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"retriever__page_size_reduction": {"type": "PageSizeReduction"}},
            "streams[0].retriever.page_size_reduction: `page_size_reduction` of SimpleRetriever",
        ),
        (
            {
                "retriever__requester__error_handler": {
                    "type": "DefaultErrorHandler",
                    "response_filters": [
                        {"type": "HttpResponseFilter", "action": "REDUCE_PAGE_SIZE"}
                    ],
                }
            },
            "response_filters[0].action: REDUCE_PAGE_SIZE",
        ),
    ],
)
def test_what_only_the_engine_of_airbyte_knows_is_named(
    fields: dict[str, Any], reason: str
) -> None:
    """Other problems are for that engine to judge, but never Python that is not trusted."""
    stream = changed(STREAM, **fields)
    for faulty in (stream, {**stream, "transformations": [{"type": "NoTransformation"}]}):
        (line,) = reasons_for_airbyte(source(faulty))
        assert f"{reason} is not supported by this engine, but by Airbyte's" in line
        refuse_for_all_engines(yaml.safe_dump(source(faulty)), [])
    python = {**stream, "transformations": [{"type": "CustomTransformation", "class_name": "x.Y"}]}
    assert reasons_for_airbyte(source(python)) == []
    with pytest.raises(
        ConfigError, match=r"'x\.Y' is Python; it runs only if its module is trusted"
    ):
        refuse_for_all_engines(yaml.safe_dump(source(python)), [])


def test_a_component_that_no_engine_has_is_refused() -> None:
    sync = {"type": "CustomIncrementalSync", "class_name": "x.Sync", "cursor_field": "a"}
    text = problems(source(changed(STREAM, incremental_sync=sync)), trusted=["x"])
    assert "streams[0].incremental_sync: CustomIncrementalSync is not supported" in text


# --- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        (changed(STREAM, type="Strem"), "streams[0]: 'Strem' is not a known component type"),
        (
            changed(STREAM, retriever__requester__type="CheckStream"),
            "CheckStream cannot stand here",
        ),
        (changed(STREAM, retriever__requester__type=5), "requester.type: it must be a text"),
        (changed(STREAM, retriever=None), "streams[0]: the required field `retriever` is missing"),
        (changed(STREAM, retriever="x"), "streams[0].retriever: 'x' is not SimpleRetriever or"),
        (changed(STREAM, retriever__requester__http_method="PUT"), "'PUT' is not one of GET, POST"),
        (changed(STREAM, retriever__requester__path=["a"]), "requester.path: ['a'] is not a text"),
        (changed(STREAM, name=["a"]), "streams[0].name: ['a'] is not a text"),
        (changed(STREAM, transformations={"type": "AddFields"}), "transformations"),
        (changed(STREAM, transformations=[{"fields": []}]), "transformations[0]: it has no `type`"),
        (changed(STREAM, retriever__requester__path="{{ config['a' }}"), "path: the template"),
        (changed(STREAM, retriever__requester__path="{{ 1 | nothing }}"), "no filter 'nothing'"),
        (changed(STREAM, retriever__requester__path="{{ 1 is nothing }}"), "no test 'nothing'"),
        (changed(STREAM, retriever__requester__path="{% for %}"), "does not compile"),
        (changed(STREAM, retriever__requester={"$ref": "#/x/y"}), "there is nothing at '#/x/y'"),
        (changed(STREAM, retriever__requester__use_cache="maybe"), "'maybe' is not true or false"),
    ],
)
def test_a_problem_is_named_with_its_place(stream: dict[str, Any], what: str) -> None:
    assert what in problems(source(stream))


def test_all_problems_are_listed_in_one_error() -> None:
    bad = changed(
        STREAM,
        name=None,
        retriever__requester__http_method="PUT",
        retriever__record_selector__extractor={"type": "Nope"},
        incremental_sync={"type": "DatetimeBasedCursor", "cursor_field": "{{ x"},
    )
    text = problems({**source(bad, bad, {"$ref": "#/none"}), "check": None})
    assert text.splitlines()[0] == "the manifest has 7 problems:"
    for what in (
        "the manifest: the required field `check` is missing",
        "streams[0].retriever.requester.http_method: 'PUT' is not one of GET, POST (also at streams[1]",
        "streams[0].retriever.record_selector.extractor: 'Nope' is not a known component type",
        "the required field `datetime_format` is missing",
        "the required field `start_datetime` is missing",
        "incremental_sync.cursor_field: the template '{{ x' does not compile",
        "streams[2].$ref: there is nothing at '#/none'",
    ):
        assert what in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("just text\n", "must be a mapping"),
        ("", "cannot be read"),
        ("# nothing\n", "must be a mapping"),
        ("type: Other\nstreams: []\ncheck: {}\n", "it must be DeclarativeSource"),
        ("check: {}\nversion: 1\n", "neither `streams` nor `dynamic_streams`"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, what: str) -> None:
    assert what in problems(text)


def test_a_bomb_of_references_is_refused() -> None:
    definitions: dict[str, Any] = {"d0": {"a": ["x"] * 10}}
    for number in range(1, 9):
        definitions[f"d{number}"] = {"a": [f"#/definitions/d{number - 1}"] * 10}
    manifest = source(schemas={"orders": "#/definitions/d8"}, definitions=definitions)
    assert "more than" in problems(manifest)


def test_a_long_chain_of_references_is_an_error() -> None:
    definitions: dict[str, Any] = {
        f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(5000)
    }
    assert "deep" in problems(source("#/definitions/d0", definitions=definitions))  # type: ignore[arg-type]


# --- warnings -------------------------------------------------------------------------------------


def test_an_unknown_or_misplaced_field_is_a_warning_with_its_place() -> None:
    stream = changed(
        STREAM, retriever__paginatr={"type": "NoPagination"}, retriever__requester__paginator={}
    )
    manifest = loaded(source(stream, unknown=1))
    assert manifest.warnings == [
        "streams[0].retriever.requester: HttpRequester has no field `paginator`; it is ignored",
        "streams[0].retriever: SimpleRetriever has no field `paginatr`; it is ignored",
        "the manifest: DeclarativeSource has no field `unknown`; it is ignored",
    ]


def test_a_parameter_that_is_written_out_is_no_unknown_field() -> None:
    stream = changed(STREAM, retriever__requester__entity="a", retriever__requester__parent="b")
    stream["retriever"]["requester"]["$parameters"] = {"entity": "a"}
    assert [each.split(": ")[1] for each in loaded(source(stream)).warnings] == [
        "HttpRequester has no field `parent`; it is ignored"
    ]


def test_a_repeated_key_is_a_warning() -> None:
    text = yaml.safe_dump(source()).replace("name: orders", "name: first\n  name: orders")
    manifest = load(text)
    assert manifest.warnings == ["streams[0]: the key 'name' is there twice; the last one counts"]
    assert stream_of(manifest).name == "orders"


def test_the_variables_of_a_condition_are_known() -> None:
    condition = "{{ value is not none and path[0] != property }}"
    added = {"type": "AddFields", "condition": condition, "fields": []}
    assert loaded(source(changed(STREAM, transformations=[added]))).warnings == []


def test_an_unknown_variable_is_a_warning() -> None:
    manifest = loaded(source(changed(STREAM, retriever__requester__path="/{{ recrod['x'] }}")))
    assert "streams[0].retriever.requester.path" in manifest.warnings[0]
    assert "unknown variable 'recrod'" in manifest.warnings[0]


def test_a_newer_version_is_a_warning() -> None:
    major, minor = KNOWN_VERSION
    assert "newer" in loaded(source(version=f"{major}.{minor + 1}.0")).warnings[0]
    assert loaded(source(version=f"{major}.{minor}.9")).warnings == []
    assert loaded(source(version=1.5)).source.version == "1.5"


def test_numbers_as_text_are_taken_with_a_warning() -> None:
    paginator = {
        "type": "DefaultPaginator",
        "pagination_strategy": {
            "type": "PageIncrement",
            "start_from_page": "1",
            "inject_on_first_request": "true",
        },
    }
    manifest = loaded(source(changed(STREAM, retriever__paginator=paginator)))
    found = retriever_of(stream_of(manifest)).paginator
    assert isinstance(found, DefaultPaginator)
    strategy = found.pagination_strategy
    assert (strategy.start_from_page, strategy.inject_on_first_request) == (1, True)  # type: ignore[union-attr]
    assert len(manifest.warnings) == 2


# --- dynamic streams ------------------------------------------------------------------------------

DYNAMIC: dict[str, Any] = {
    "type": "DynamicDeclarativeStream",
    "name": "tables",
    "$parameters": {"entity": "outer"},
    "stream_template": {
        **changed(STREAM, name=None, type=None),
        "$parameters": {"name": "placeholder", "entity": "inner"},
    },
    "components_resolver": {
        "type": "HttpComponentsResolver",
        "retriever": STREAM["retriever"],
        "components_mapping": [
            {"field_path": ["name"], "value": "{{ components_values['name'] }}"}
        ],
    },
}


def dynamic_source(**changes: Any) -> Manifest:
    manifest = source(dynamic_streams=[{**DYNAMIC, **changes}])
    return loaded({key: value for key, value in manifest.items() if key != "streams"})


def test_a_template_of_streams_can_be_filled_in() -> None:
    manifest = dynamic_source()
    dynamic = manifest.source.dynamic_streams[0]
    template = manifest.stream_template(dynamic)
    assert template["type"] == "DeclarativeStream"
    assert template["retriever"]["requester"]["$parameters"] == {
        "name": "placeholder",
        "entity": "inner",
    }
    template["name"] = "orders"
    template["retriever"]["requester"]["path"] = "/{{ parameters['entity'] }}"
    stream = manifest.build_stream(dynamic, template)
    assert isinstance(stream, DeclarativeStream)
    assert stream.name == "orders"
    assert stream.place == "dynamic_streams[0].stream_template"
    path = requester_of(stream).path
    assert path is not None and path.text_of({}) == "/inner"
    again = manifest.stream_template(dynamic)
    assert again["name"] == "placeholder"


def test_the_parameters_of_a_filled_in_stream_win_over_those_within_it() -> None:
    for wins in (True, False):
        manifest = dynamic_source(use_parent_parameters=wins)
        dynamic = manifest.source.dynamic_streams[0]
        template = manifest.stream_template(dynamic)
        template["$parameters"]["entity"] = "new"
        stream = manifest.build_stream(dynamic, template)
        assert isinstance(stream, DeclarativeStream)
        assert requester_of(stream).parameters["entity"] == ("new" if wins else "inner")


def test_a_filled_in_stream_with_problems_is_an_error() -> None:
    manifest = dynamic_source()
    dynamic = manifest.source.dynamic_streams[0]
    template = manifest.stream_template(dynamic)
    template["retriever"]["requester"]["http_method"] = "PUT"
    with pytest.raises(ConfigError, match=r"requester\.http_method: 'PUT' is not one of"):
        manifest.build_stream(dynamic, template)


def test_a_template_sees_the_parameter_that_has_the_name_of_its_field() -> None:
    stream = changed(STREAM, retriever__requester__path="{{ parameters['path'] }}")
    stream["$parameters"] = {"path": "v1/orders"}
    path = requester_of(first(source(stream))).path
    assert path is not None and path.text_of({}) == "v1/orders"
