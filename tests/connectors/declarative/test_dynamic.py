"""Streams that templates make: what lists them, which values they get, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.dynamic import make_streams, warn_of_mappings
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import DeclarativeStream
from connectors.declarative.manifest.loader import Manifest, Refusal, load
from connectors.declarative.requests.environment import Environment
from connectors.declarative.stream import Readers
from connectors.sdk.http.connections import Connections
from elt_assets.errors import ConfigError, EltError, SystemFailure
from tests.programs.json_api import Answer
from tests.programs.recording_api import RecordingApi, routes, serving

Json = dict[str, Any]

SELECTOR: Json = {
    "type": "RecordSelector",
    "extractor": {"type": "DpathExtractor", "field_path": ["data"]},
}
TEMPLATE: Json = {
    "type": "DeclarativeStream",
    "name": "",
    "primary_key": [],
    "retriever": {
        "type": "SimpleRetriever",
        "requester": {
            "type": "HttpRequester",
            "url_base": "{{ config['url'] }}",
            "path": "",
            "request_parameters": {"limit": "100"},
        },
        "record_selector": SELECTOR,
    },
    "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
}
PATH = ["retriever", "requester", "path"]
LIMIT = ["retriever", "requester", "request_parameters", "limit"]
NAMED = {"field_path": ["name"], "value": "{{ components_values['name'] }}"}


def mapping(path: list[str], value: str, **more: Any) -> Json:
    return {"type": "ComponentMappingDefinition", "field_path": path, "value": value, **more}


def from_api(*mappings: Json, **retriever: Any) -> Json:
    requester = {
        "type": "HttpRequester",
        "url_base": "{{ config['url'] }}",
        "path": "/tables",
    }
    whole = {"type": "SimpleRetriever", "requester": requester, "record_selector": SELECTOR}
    return {
        "type": "HttpComponentsResolver",
        "retriever": whole | retriever,
        "components_mapping": [NAMED, *mappings],
    }


def dynamic(resolver: Json, template: Json = TEMPLATE, **more: Any) -> Json:
    return {
        "type": "DynamicDeclarativeStream",
        "stream_template": template,
        "components_resolver": resolver,
        **more,
    }


def manifest(*dynamic_streams: Json) -> Manifest:
    document = {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": []},
        "dynamic_streams": list(dynamic_streams),
    }
    return load(yaml.safe_dump(document))


def list_streams(loaded: Manifest, environment: Environment) -> list[DeclarativeStream]:
    """Return the streams that are made of templates; the first refusal is raised."""
    streams = []
    for stream in make_streams(loaded, environment):
        if isinstance(stream, Refusal):
            raise stream.error()
        streams.append(stream)
    return streams


def made(*dynamic_parts: Json, items: Any = (), **config: Any) -> list[DeclarativeStream]:
    """The streams for the items that an API lists."""
    script = routes({"/tables": {"data": list(items)}})
    with serving(RecordingApi(script)) as api:
        environment = Environment({"url": api.url, **config}, connections=Connections(timeout=5))
        try:
            return list_streams(manifest(*dynamic_parts), environment)
        finally:
            environment.close()


def names(*dynamic_parts: Json, **more: Any) -> list[str]:
    return [stream.name for stream in made(*dynamic_parts, **more)]


def only(*mappings: Json, template: Json = TEMPLATE, **item: Any) -> DeclarativeStream:
    """The stream for one item of the API."""
    (stream,) = made(dynamic(from_api(*mappings), template), items=[{"name": "sales", **item}])
    return stream


def requester_of(stream: Any) -> components.HttpRequester:
    found = stream.retriever.requester
    assert isinstance(found, components.HttpRequester)
    return found


def path_of(stream: Any) -> str:
    """The path of the requester, as it is written."""
    found = requester_of(stream).path
    assert found is not None
    return found.text


def error_of(*dynamic_parts: Json, **more: Any) -> EltError:
    with pytest.raises(EltError) as caught:
        made(*dynamic_parts, **more)
    return caught.value


# --- what lists the streams -----------------------------------------------------------------------


def test_each_item_of_the_list_is_a_stream_in_its_order() -> None:
    resolver = from_api(mapping(PATH, "/v1/{{ components_values['path'] }}"))
    items = [{"name": "b", "path": "x"}, {"name": "a", "path": "y"}]
    found = made(dynamic(resolver), items=items)
    assert [stream.name for stream in found] == ["b", "a"]
    assert [path_of(each) for each in found] == ["/v1/x", "/v1/y"]


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as found:
        yield found


@pytest.fixture
def environment(api: RecordingApi) -> Iterator[Environment]:
    found = Environment(
        {"url": api.url}, connections=Connections(timeout=5), sleep=lambda _: None, on_wait=None
    )
    yield found
    found.close()


def test_each_record_of_an_api_is_a_stream(api: RecordingApi, environment: Environment) -> None:
    api.script = routes(
        {
            "/tables": {"data": [{"name": "users", "id": 7}, {"name": "orders", "id": 8}]},
            "/tables/8/rows": {"data": [{"n": 1}, {"n": 2}]},
        }
    )
    resolver = from_api(mapping(PATH, "/tables/{{ components_values['id'] }}/rows"))
    _, orders = list_streams(manifest(dynamic(resolver)), environment)
    assert isinstance(orders, components.DeclarativeStream)
    readers = Readers(environment)
    (each,) = readers.cursors.get(orders).begin({}).slices()
    assert [record for page in readers.pages(orders, each, ()) for record in page] == [
        {"n": 1},
        {"n": 2},
    ]
    assert api.urls == ["/tables", "/tables/8/rows?limit=100"]


def test_the_list_of_an_api_is_requested_once(api: RecordingApi, environment: Environment) -> None:
    api.script = routes({"/tables": {"data": [{"name": "users"}]}})
    loaded = manifest(dynamic(from_api()))
    for _ in range(3):
        assert [each.name for each in list_streams(loaded, environment)] == ["users"]
    assert api.urls == ["/tables"]


def test_an_api_may_list_streams_on_several_pages(
    api: RecordingApi, environment: Environment
) -> None:
    def page(request: Any) -> Json:
        number = int(request.params.get("page", 1))
        return {"data": [{"name": f"table_{number}"}] if number < 4 else []}

    api.script = routes({"/tables": page})
    paginator = {
        "type": "DefaultPaginator",
        "page_token_option": {
            "type": "RequestOption",
            "field_name": "page",
            "inject_into": "request_parameter",
        },
        "pagination_strategy": {"type": "PageIncrement", "start_from_page": 1, "page_size": 1},
    }
    found = list_streams(manifest(dynamic(from_api(paginator=paginator))), environment)
    assert [each.name for each in found] == ["table_1", "table_2", "table_3"]


def test_an_api_may_list_streams_for_each_record_of_a_parent(
    api: RecordingApi, environment: Environment
) -> None:
    api.script = routes(
        {
            "/bases": {"data": [{"id": "b1", "label": "First"}, {"id": "b2", "label": "Second"}]},
            "/bases/b1/tables": {"data": [{"name": "x"}]},
            "/bases/b2/tables": {"data": [{"name": "y"}, {"name": "z"}]},
        }
    )
    parent = deepcopy(TEMPLATE) | {"name": "bases"}
    parent["retriever"]["requester"] |= {"path": "/bases", "request_parameters": {}}
    router = {
        "type": "SubstreamPartitionRouter",
        "parent_stream_configs": [
            {
                "type": "ParentStreamConfig",
                "parent_key": "id",
                "partition_field": "base",
                "extra_fields": [["label"]],
                "stream": parent,
            }
        ],
    }
    resolver = from_api(partition_router=router)
    resolver["retriever"]["requester"] = {
        **resolver["retriever"]["requester"],
        "path": "/bases/{{ stream_partition.base }}/tables",
    }
    value = "{{ stream_slice.extra_fields['label'] }}/{{ stream_slice.base }}/"
    resolver["components_mapping"] = [mapping(["name"], value + "{{ components_values['name'] }}")]
    found = list_streams(manifest(dynamic(resolver)), environment)
    assert [each.name for each in found] == ["First/b1/x", "Second/b2/y", "Second/b2/z"]
    assert api.urls == ["/bases", "/bases/b1/tables", "/bases/b2/tables"]


def test_values_of_an_api_are_not_read_as_yaml_and_create_no_field(
    api: RecordingApi, environment: Environment
) -> None:
    """The manifest's author does not control what an API sends."""
    api.script = routes({"/tables": {"data": [{"name": "a", "path": "/x: # y", "new": "1"}]}})
    resolver = from_api(
        mapping(PATH, "{{ components_values['path'] }}"),
        mapping([*LIMIT[:-1], "new"], "{{ components_values['new'] }}", create_or_update=True),
    )
    (found,) = list_streams(manifest(dynamic(resolver)), environment)
    assert path_of(found) == "/x: # y"
    parameters = requester_of(found).request_parameters
    assert isinstance(parameters, Mapping)
    assert list(parameters) == ["limit"]


def test_an_api_that_fails_is_an_error_that_names_the_dynamic_stream(
    api: RecordingApi, environment: Environment
) -> None:
    api.script = routes({"/tables": Answer(403, {"message": "no"})})
    with pytest.raises(EltError) as caught:
        list_streams(manifest(dynamic(from_api(), name="tables of a base")), environment)
    assert "'tables of a base'" in str(caught.value)
    assert "403" in str(caught.value)


def test_an_api_that_lists_nothing_makes_no_stream(
    api: RecordingApi, environment: Environment
) -> None:
    api.script = routes({"/tables": {"data": []}})
    assert list_streams(manifest(dynamic(from_api())), environment) == []


# --- values ---------------------------------------------------------------------------------------


def test_a_value_has_the_type_that_it_looks_like() -> None:
    schema = ["schema_loader", "schema"]
    written = {"type": "object", "properties": {"id": {"type": "integer"}}}
    stream = only(mapping(schema, "{{ components_values['schema'] }}"), schema=written)
    loader = stream.schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema == written


@pytest.mark.parametrize(
    ("value", "value_type", "expected"),
    [
        ("10", None, 10),
        ("10", "integer", 10),
        ("10", "number", 10),
        ("10", "string", "10"),
        ("true", "string", "true"),
        ("{{ true }}", "boolean", True),
        ("1.5", "number", 1.5),
        ("007", None, "007"),
        ("{{ [1, 2] }}", "string", "[1, 2]"),
        ("a: 1", None, "a: 1"),
        ("2024-01-31", None, "2024-01-31"),
        ("{% raw %}{{ record['id'] }}{% endraw %}", None, "{{ record['id'] }}"),
    ],
)
def test_a_value_type_decides_what_a_text_becomes(
    value: str, value_type: str | None, expected: Any
) -> None:
    template = deepcopy(TEMPLATE)
    template["schema_loader"]["schema"] = {"example": None}
    more = {"value_type": value_type} if value_type else {}
    stream = only(mapping(["schema_loader", "schema", "example"], value, **more), template=template)
    loader = stream.schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema["example"] == expected
    assert type(loader.schema["example"]) is type(expected)


@pytest.mark.parametrize("name", ["2024", "1.10", "no", "Sales: EU", "[a]", "a/b 1", "é"])
def test_the_name_of_a_stream_is_the_text_that_it_is_made_of(name: str) -> None:
    assert names(dynamic(from_api()), items=[{"name": name}]) == [name]


def test_a_mapping_may_use_the_config_and_the_template() -> None:
    value = "{{ config['version'] }}/{{ stream_template_config['retriever']['type'] }}"
    (stream,) = made(dynamic(from_api(mapping(PATH, value))), items=[{"name": "a"}], version="v2")
    assert path_of(stream) == "v2/SimpleRetriever"


def test_what_one_stream_gets_does_not_reach_the_next_one() -> None:
    template = deepcopy(TEMPLATE)
    template["retriever"]["requester"]["request_headers"] = {"x": "y"}
    headers = ["retriever", "requester", "request_headers"]
    resolver = from_api(mapping(headers, "{{ {components_values['name']: 'x'} }}"))
    found = made(dynamic(resolver, template), items=[{"name": "a"}, {"name": "b"}])
    headers_found = [requester_of(each).request_headers for each in found]
    assert [list(each) for each in headers_found if isinstance(each, Mapping)] == [["a"], ["b"]]


# --- where values go ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["schema_loader", "schema", "**", "type"], {"type": "X", "p": [{"type": "X"}, {"q": 1}]}),
        (["schema_loader", "schema", "p", "*"], {"type": "object", "p": ["X", "X"]}),
        (["schema_loader", "schema", "p", "1", "q"], {"type": "object", "p": [{"type": 1}, {"q": "X"}]}),
        (["**", "q"], {"type": "object", "p": [{"type": 1}, {"q": "X"}]}),
        (["schema_loader", "schema", "p", "-1"], {"type": "object", "p": [{"type": 1}, "X"]}),
        (["schema_loader", "schema", "none", "*"], {"type": "object", "p": [{"type": 1}, {"q": 1}]}),
    ],
)  # fmt: skip
def test_a_path_may_have_globs_and_indexes(path: list[str], expected: Json) -> None:
    template = deepcopy(TEMPLATE)
    template["schema_loader"]["schema"] = {"type": "object", "p": [{"type": 1}, {"q": 1}]}
    loader = only(mapping(path, "X"), template=template).schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema == expected


def test_a_part_of_a_path_may_be_a_template() -> None:
    path = [*LIMIT[:-1], "{{ components_values['parameter'] }}"]
    stream = only(mapping(path, "7"), parameter="limit")
    found = requester_of(stream).request_parameters
    assert isinstance(found, Mapping)
    assert found["limit"] == 7


@pytest.mark.parametrize(("wins", "expected"), [(True, "outer"), (False, "inner")])
def test_parameters_of_the_stream_override_inner_ones_unless_declared_otherwise(
    wins: bool, expected: str
) -> None:
    template = deepcopy(TEMPLATE)
    template["retriever"]["requester"] |= {
        "path": "/{{ parameters['entity'] }}",
        "$parameters": {"entity": "inner"},
    }
    template["$parameters"] = {"entity": "of the template"}
    resolver = from_api(mapping(["$parameters", "entity"], "outer"))
    (stream,) = made(dynamic(resolver, template, use_parent_parameters=wins), items=[{"name": "a"}])
    requester = requester_of(stream)
    assert requester.path is not None
    assert requester.path.text_of({"parameters": requester.parameters}) == f"/{expected}"


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "names_listed", "place"),
    [([dynamic(from_api())], "aa", 0), ([dynamic(from_api()), dynamic(from_api())], "a", 1)],
)
def test_two_streams_with_one_name_are_an_error_of_the_manifest(
    parts: list[Json], names_listed: str, place: int
) -> None:
    error = error_of(*parts, items=[{"name": name} for name in names_listed])
    assert isinstance(error, SystemFailure)
    assert error.message.startswith(f"dynamic_streams[{place}]: two of the streams")
    assert "'a'" in error.message and "unique in the API" in str(error.guidance)


@pytest.mark.parametrize("item", [{}, {"name": ""}, {"name": None}])
def test_a_stream_without_a_name_is_an_error(item: Json) -> None:
    error = error_of(dynamic(from_api()), items=[item])
    assert "dynamic_streams[0]: a stream that is made of the template has no name" in str(error)


def test_a_template_that_fails_is_an_error_with_its_place_and_the_item() -> None:
    resolver = from_api(mapping(PATH, "{{ components_values['x']['secret'] }}"))
    items = [{"name": "a", "x": {"secret": "s3cr3t"}}, {"name": "b"}]
    error = error_of(dynamic(resolver), items=items)
    assert isinstance(error, ConfigError)
    assert "dynamic_streams[0].components_resolver.components_mapping[1].value" in str(error)
    assert "item 2 of the list of streams" in str(error)
    assert "s3cr3t" not in str(error)


def test_a_value_of_the_wrong_type_is_an_error_and_not_the_text_of_the_template() -> None:
    resolver = from_api(mapping(PATH, "{{ components_values['n'] + 'x' }}"))
    assert "wrong type" in str(error_of(dynamic(resolver), items=[{"name": "a", "n": 1}]))


def test_a_stream_that_is_not_valid_is_an_error_that_names_it_and_the_place() -> None:
    resolver = from_api(mapping(["retriever"], "{{ components_values['retriever'] }}"))
    error = error_of(dynamic(resolver), items=[{"name": "a", "retriever": {"type": "Nothing"}}])
    assert isinstance(error, ConfigError)
    assert "'a'" in str(error)
    assert "dynamic_streams[0].stream_template.retriever" in str(error)


def test_a_mapping_without_a_path_is_an_error() -> None:
    error = error_of(dynamic(from_api(mapping([], "x"))), items=[])
    assert "components_mapping[1].field_path is empty" in str(error)


def test_only_streams_of_the_config_can_have_conditions() -> None:
    error = error_of(dynamic(from_api(mapping(PATH, "x", condition="{{ true }}"))))
    assert "components_mapping[1].condition: only a ConfigComponentsResolver" in str(error)


def test_a_mapping_that_has_no_effect_is_a_warning_with_its_place() -> None:
    resolver = from_api(
        mapping(["retriever", "requester", "headers"], "x"),
        mapping(["retriever", "requester", "*", "x"], "x"),
        mapping(["retriever", "{{ config['part'] }}"], "x"),
        mapping(["retriever", "requester", "headers", "inner"], "x"),
    )
    (warning,) = warn_of_mappings(manifest(dynamic(resolver)))
    place = "dynamic_streams[0].components_resolver.components_mapping[1]"
    what = "the template has no field 'retriever.requester.headers'; nothing is set"
    assert warning == f"{place}: {what}"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["name", "s", "p"]), JSON_VALUES))
def test_whatever_the_api_lists_ends_in_streams_or_in_an_error_for_the_user(item: Json) -> None:
    resolver = from_api(
        mapping(["schema_loader", "schema"], "{{ components_values.get('s', {}) }}"),
        mapping(PATH, "{{ components_values.get('p') }}"),
    )
    try:
        outcome = "".join(each.name for each in made(dynamic(resolver), items=[item])) or "none"
    except ConfigError as error:
        outcome = error.message if "dynamic_streams[0]" in error.message else ""
    assert outcome
