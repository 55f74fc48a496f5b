"""Streams that templates make: what lists them, which values they get, and what is wrong with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.dynamic import make_streams, warn_of_mappings
from connectors.declarative.manifest import components
from connectors.declarative.manifest.loader import Manifest, Refusal, load
from connectors.declarative.readers import AnyStream, Readers
from connectors.declarative.requests import Environment
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


def from_config(*mappings: Json, lists: Any = ("reports",), **more: Any) -> Json:
    """A resolver that lists what is at a path of the config."""
    stream_config = {"type": "StreamConfig", "configs_pointer": list(lists)} | more
    return {
        "type": "ConfigComponentsResolver",
        "stream_config": stream_config,
        "components_mapping": [NAMED, *mappings],
    }


def from_lists(*paths: list[str]) -> Json:
    """A resolver that combines the items of several lists."""
    resolver = from_config()
    resolver["stream_config"] = [
        {"type": "StreamConfig", "configs_pointer": path} for path in paths
    ]
    return resolver


def from_manifest(items: list[Json], *mappings: Json) -> Json:
    return {
        "type": "ParametrizedComponentsResolver",
        "stream_parameters": {
            "type": "StreamParametersDefinition",
            "list_of_parameters_for_stream": items,
        },
        "components_mapping": [NAMED, *mappings],
    }


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


def list_streams(loaded: Manifest, environment: Environment) -> list[AnyStream]:
    """Return the streams that are made of templates; the first refusal is raised."""
    streams = []
    for stream in make_streams(loaded, environment):
        if isinstance(stream, Refusal):
            raise stream.error()
        streams.append(stream)
    return streams


def made(*dynamic_parts: Json, **config: Any) -> list[AnyStream]:
    return list_streams(manifest(*dynamic_parts), Environment(config))


def names(*dynamic_parts: Json, **config: Any) -> list[str]:
    return [stream.name for stream in made(*dynamic_parts, **config)]


def only(*mappings: Json, template: Json = TEMPLATE, **item: Any) -> components.DeclarativeStream:
    """The stream for one item of the config."""
    resolver = from_config(*mappings)
    (stream,) = made(dynamic(resolver, template), reports=[{"name": "sales", **item}])
    assert isinstance(stream, components.DeclarativeStream)
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


def error_of(*dynamic_parts: Json, **config: Any) -> EltError:
    with pytest.raises(EltError) as caught:
        made(*dynamic_parts, **config)
    return caught.value


# --- what lists the streams -----------------------------------------------------------------------


def test_each_item_of_a_list_in_the_config_is_a_stream_in_the_order_of_the_list() -> None:
    resolver = from_config(mapping(PATH, "/v1/{{ components_values['path'] }}"))
    items = [{"name": "b", "path": "x"}, {"name": "a", "path": "y"}]
    found = made(dynamic(resolver), reports=items)
    assert [stream.name for stream in found] == ["b", "a"]
    assert [path_of(each) for each in found] == ["/v1/x", "/v1/y"]


@pytest.mark.parametrize("config", [{}, {"reports": None}, {"reports": []}])
def test_a_list_that_the_config_does_not_have_makes_no_stream(config: Json) -> None:
    assert made(dynamic(from_config()), **config) == []


def test_a_single_object_in_the_config_is_one_stream() -> None:
    assert names(dynamic(from_config()), reports={"name": "one"}) == ["one"]


def test_the_path_of_the_list_may_use_the_config_and_the_parameters() -> None:
    resolver = from_config(lists=["{{ config['kind'] }}", "{{ parameters['where'] }}"])
    resolver["$parameters"] = {"where": "inner"}
    config = {"kind": "custom", "custom": {"inner": [{"name": "a"}]}}
    assert names(dynamic(resolver), **config) == ["a"]


def test_a_path_that_matches_several_lists_is_an_error_that_names_its_place() -> None:
    error = error_of(dynamic(from_config(lists=["*"])), a=[], b=[])
    assert isinstance(error, ConfigError)
    assert "dynamic_streams[0].components_resolver.stream_config.configs_pointer" in str(error)


def test_default_values_come_after_those_of_the_config() -> None:
    resolver = from_config(default_values=[{"name": "standard"}])
    assert names(dynamic(resolver)) == ["standard"]
    assert names(dynamic(resolver), reports=[{"name": "own"}]) == ["own", "standard"]


def test_several_lists_make_a_stream_for_each_combination() -> None:
    resolver = from_lists(["reports"], ["ids"])
    value = (
        "{{ components_values['name'] }}_{{ components_values['source_config_1'][0] }}"
        "_{{ components_values['source_config_1'][1] }}"
    )
    resolver["components_mapping"] = [mapping(["name"], value)]
    found = names(dynamic(resolver), reports=[{"name": "a"}, {"name": "b"}], ids=["x", "y"])
    assert found == ["a_0_x", "a_1_y", "b_0_x", "b_1_y"]


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=3))
def test_combinations_are_those_of_nested_loops(numbers: list[list[int]]) -> None:
    """The fields of later lists win over those of earlier ones."""
    keys = [f"list_{index}" for index in range(len(numbers))]
    resolver = from_lists(*([key] for key in keys))
    fields = "-".join(f"{{{{ components_values['f{index}'] }}}}" for index in range(len(keys)))
    resolver["components_mapping"] = [
        mapping(["name"], "{{ components_values['last'] }}:" + fields),
        mapping(PATH, fields),
    ]
    config = {
        key: [{f"f{index}": place, "last": f"{index}.{place}"} for place, _ in enumerate(values)]
        for index, (key, values) in enumerate(zip(keys, numbers, strict=True))
    }
    expected = [
        f"{len(keys) - 1}.{combination[-1]}:{'-'.join(map(str, combination))}"
        for combination in itertools.product(*(range(len(values)) for values in numbers))
    ]
    assert names(dynamic(resolver), **config) == expected


def test_each_item_of_a_list_in_the_manifest_is_a_stream() -> None:
    items = [{"name": "a", "columns": ["x", "y"]}, {"name": "b", "columns": ["z"]}]
    resolver = from_manifest(items, mapping(["primary_key"], "{{ components_values['columns'] }}"))
    found = made(dynamic(resolver))
    assert [(each.name, getattr(each, "primary_key", None)) for each in found] == [
        ("a", ("x", "y")),
        ("b", ("z",)),
    ]


def test_templates_make_their_streams_one_after_the_other() -> None:
    first = dynamic(from_config())
    second = dynamic(from_manifest([{"name": "fixed"}]))
    assert names(first, second, reports=[{"name": "a"}, {"name": "b"}]) == ["a", "b", "fixed"]


# --- what an API lists ----------------------------------------------------------------------------


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
        ("007", None, 7),
        ("007", "string", "007"),
        ("{{ [1, 2] }}", "string", "[1, 2]"),
    ],
)
def test_a_value_type_decides_what_a_text_becomes(
    value: str, value_type: str | None, expected: Any
) -> None:
    place = ["schema_loader", "schema", "example"]
    more = {"value_type": value_type} if value_type else {}
    stream = only(mapping(place, value, create_or_update=True, **more))
    loader = stream.schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema["example"] == expected
    assert type(loader.schema["example"]) is type(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a: 1\nb: [x, y]\n", {"a": 1, "b": ["x", "y"]}),
        ("{% if true %}\n- one\n- two\n{% endif %}", ["one", "two"]),
        ("yes", True),
        ("2024-01-31", "2024-01-31"),
        ("%Y-%m-%d", "%Y-%m-%d"),
        ("{% raw %}{{ record['id'] }}{% endraw %}", "{{ record['id'] }}"),
        ("{% raw %}{{ record[0] in ['a'] }}{% endraw %}", "{{ record[0] in ['a'] }}"),
        ("a: b: c", "a: b: c"),
        ("!!python/name:os.system", "!!python/name:os.system"),
    ],
)
def test_a_text_that_is_yaml_becomes_what_it_describes(value: str, expected: Any) -> None:
    place = ["schema_loader", "schema", "example"]
    stream = only(mapping(place, value, create_or_update=True))
    loader = stream.schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema["example"] == expected


def test_a_text_of_a_list_in_the_manifest_is_read_as_yaml_even_if_it_is_to_be_a_text() -> None:
    """The CDK does so, and manifests may rely on it."""
    value = mapping(["primary_key"], "[a, b]", value_type="string")
    for resolver, expected in (
        (from_manifest([{"name": "x"}], value), ("a", "b")),
        (from_config(value), "[a, b]"),
    ):
        (stream,) = made(dynamic(resolver), reports=[{"name": "x"}])
        assert isinstance(stream, components.DeclarativeStream)
        assert stream.primary_key == expected


@pytest.mark.parametrize("name", ["2024", "1.10", "no", "Sales: EU", "[a]", "a/b 1", "é"])
def test_the_name_of_a_stream_is_the_text_that_it_is_made_of(name: str) -> None:
    assert names(dynamic(from_config()), reports=[{"name": name}]) == [name]


def test_a_mapping_may_use_the_config_and_the_template() -> None:
    value = "{{ config['version'] }}/{{ stream_template_config['retriever']['type'] }}"
    (stream,) = made(
        dynamic(from_config(mapping(PATH, value))), reports=[{"name": "a"}], version="v2"
    )
    assert path_of(stream) == "v2/SimpleRetriever"


def test_what_one_stream_gets_does_not_reach_the_next_one() -> None:
    resolver = from_config(
        mapping(
            ["retriever", "requester", "request_headers"],
            "{{ {components_values['name']: 'x'} }}",
            create_or_update=True,
        )
    )
    found = made(dynamic(resolver), reports=[{"name": "a"}, {"name": "b"}])
    headers = [requester_of(each).request_headers for each in found]
    assert [list(each) for each in headers if isinstance(each, Mapping)] == [["a"], ["b"]]


# --- where values go ------------------------------------------------------------------------------


def test_a_field_that_is_missing_is_created_only_if_the_mapping_says_so() -> None:
    below = ["retriever", "requester", "request_parameters"]
    stream = only(
        mapping([*below, "made"], "1", create_or_update=True),
        mapping([*below, "ignored"], "2"),
        mapping([*below, "empty"], "{{ '' }}", create_or_update=True),
        mapping([*below, "limit"], "{{ 5 }}"),
    )
    found = requester_of(stream).request_parameters
    assert isinstance(found, Mapping)
    assert {name: str(getattr(each, "text", each)) for name, each in found.items()} == {
        "limit": "5",
        "made": "1",
    }


def test_fields_on_the_way_to_a_new_field_are_created() -> None:
    place = ["schema_loader", "schema", "items", "1", "name"]
    loader = only(mapping(place, "x", create_or_update=True)).schema_loader
    assert isinstance(loader, components.InlineSchemaLoader)
    assert loader.schema["items"] == [None, {"name": "x"}]


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


def test_a_mapping_with_a_condition_applies_only_where_it_holds() -> None:
    resolver = from_config(
        mapping(PATH, "/old", condition="{{ not components_values.get('is_new') }}"),
        mapping(PATH, "/new", condition="{{ components_values.get('is_new', False) }}"),
    )
    found = made(dynamic(resolver), reports=[{"name": "a"}, {"name": "b", "is_new": True}])
    assert [path_of(each) for each in found] == ["/old", "/new"]


@pytest.mark.parametrize(("wins", "expected"), [(True, "outer"), (False, "inner")])
def test_parameters_of_the_stream_override_inner_ones_unless_declared_otherwise(
    wins: bool, expected: str
) -> None:
    template = deepcopy(TEMPLATE)
    template["retriever"]["requester"] |= {
        "path": "/{{ parameters['entity'] }}",
        "$parameters": {"entity": "inner"},
    }
    resolver = from_config(mapping(["$parameters", "entity"], "outer", create_or_update=True))
    (stream,) = made(
        dynamic(resolver, template, use_parent_parameters=wins), reports=[{"name": "a"}]
    )
    requester = requester_of(stream)
    assert requester.path is not None
    assert requester.path.text_of({"parameters": requester.parameters}) == f"/{expected}"


def test_a_template_may_delegate_to_two_streams() -> None:
    template = {
        "type": "StateDelegatingStream",
        "name": "",
        "full_refresh_stream": TEMPLATE,
        "incremental_stream": TEMPLATE,
    }
    resolver = from_config()
    resolver["components_mapping"] = [mapping(["**", "name"], "{{ components_values['name'] }}")]
    (stream,) = made(dynamic(resolver, template), reports=[{"name": "a"}])
    assert isinstance(stream, components.StateDelegatingStream)
    assert {stream.name, stream.full_refresh_stream.name, stream.incremental_stream.name} == {"a"}


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resolver", "kind", "guidance"),
    [
        (from_config(), ConfigError, "config"),
        (from_manifest([{"name": "a"}, {"name": "a"}]), ConfigError, "list_of_parameters_for_stream"),
    ],
)  # fmt: skip
def test_two_streams_with_one_name_are_an_error(
    resolver: Json, kind: type[EltError], guidance: str
) -> None:
    error = error_of(dynamic(resolver), reports=[{"name": "a"}, {"name": "a"}])
    assert type(error) is kind
    assert error.message.startswith("dynamic_streams[0]: two of the streams")
    assert "'a'" in error.message
    assert guidance in str(error.guidance)


def test_two_streams_with_one_name_of_an_api_are_an_error_of_the_manifest(
    api: RecordingApi, environment: Environment
) -> None:
    api.script = routes({"/tables": {"data": [{"name": "a"}, {"name": "a"}]}})
    with pytest.raises(SystemFailure, match=r"dynamic_streams\[0\]: two of the streams"):
        list_streams(manifest(dynamic(from_api())), environment)


def test_two_templates_may_not_make_streams_with_one_name() -> None:
    error = error_of(
        dynamic(from_config()), dynamic(from_manifest([{"name": "a"}])), reports=[{"name": "a"}]
    )
    assert error.message.startswith("dynamic_streams[1]: two of the streams")


@pytest.mark.parametrize("item", [{}, {"name": ""}, {"name": None}, {"name": "# none"}])
def test_a_stream_without_a_name_is_an_error(item: Json) -> None:
    error = error_of(dynamic(from_config()), reports=[item])
    assert "dynamic_streams[0]: a stream that is made of the template has no name" in str(error)


def test_a_template_that_fails_is_an_error_with_its_place_and_the_item() -> None:
    resolver = from_config(mapping(PATH, "{{ components_values['x']['secret'] }}"))
    items = [{"name": "a", "x": {"secret": "s3cr3t"}}, {"name": "b"}]
    error = error_of(dynamic(resolver), reports=items)
    assert isinstance(error, ConfigError)
    assert "dynamic_streams[0].components_resolver.components_mapping[1].value" in str(error)
    assert "item 2 of the list of streams" in str(error)
    assert "s3cr3t" not in str(error)


def test_a_value_of_the_wrong_type_is_an_error_and_not_the_text_of_the_template() -> None:
    resolver = from_config(mapping(PATH, "{{ components_values['n'] + 'x' }}"))
    assert "wrong type" in str(error_of(dynamic(resolver), reports=[{"name": "a", "n": 1}]))


def test_a_stream_that_is_not_valid_is_an_error_that_names_it_and_the_place() -> None:
    resolver = from_config(mapping(["retriever"], "{{ components_values['retriever'] }}"))
    error = error_of(dynamic(resolver), reports=[{"name": "a", "retriever": {"type": "Nothing"}}])
    assert isinstance(error, ConfigError)
    assert "'a'" in str(error)
    assert "dynamic_streams[0].stream_template.retriever" in str(error)


def test_a_field_within_a_text_cannot_be_created() -> None:
    resolver = from_config(mapping([*PATH, "inner"], "x", create_or_update=True))
    template = deepcopy(TEMPLATE)
    template["retriever"]["requester"]["path"] = "/there"
    error = error_of(dynamic(resolver, template), reports=[{"name": "a"}])
    assert "dynamic_streams[0].components_resolver.components_mapping[1]" in str(error)
    assert "'retriever.requester.path.inner' cannot be created" in str(error)


def test_a_mapping_without_a_path_is_an_error() -> None:
    error = error_of(dynamic(from_config(mapping([], "x"))), reports=[])
    assert "components_mapping[1].field_path is empty" in str(error)


@pytest.mark.parametrize("resolver", [from_api, lambda *each: from_manifest([], *each)])
def test_only_streams_of_the_config_can_have_conditions(resolver: Any) -> None:
    error = error_of(dynamic(resolver(mapping(PATH, "x", condition="{{ true }}"))), url="http://x")
    assert "components_mapping[1].condition: only a ConfigComponentsResolver" in str(error)


def test_a_mapping_that_has_no_effect_is_a_warning_with_its_place() -> None:
    resolver = from_config(
        mapping(["retriever", "requester", "headers"], "x"),
        mapping(["retriever", "requester", "*", "x"], "x"),
        mapping(["retriever", "{{ config['part'] }}"], "x"),
        mapping(["retriever", "made"], "x", create_or_update=True),
        mapping(["retriever", "made", "inner"], "x"),
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


@given(JSON_VALUES)
def test_whatever_the_config_lists_ends_in_streams_or_in_an_error_for_the_user(item: Any) -> None:
    resolver = from_config(
        mapping(["schema_loader", "schema"], "{{ components_values.get('s', {}) }}"),
        mapping(PATH, "{{ components_values.get('p') }}"),
    )
    try:
        outcome = "".join(each.name for each in made(dynamic(resolver), reports=[item])) or "none"
    except ConfigError as error:
        outcome = error.message if "dynamic_streams[0]" in error.message else ""
    assert outcome
