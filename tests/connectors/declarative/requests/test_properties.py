"""Query properties: the fields that a request asks for, in several requests if they are many."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.cursors.slices import Slice
from elt_assets.errors import ConfigError
from tests.connectors.declarative.requests.support import Reading, together
from tests.programs.recording_api import Received


def query(text: str, listed: str = "[a, b, c, d]") -> str:
    return f"""
        requester:
          request_parameters:
            fields: {{type: QueryProperties, property_list: {listed}, {text}}}
            limit: 5
        """


def chunking(text: str) -> str:
    return f"property_chunking: {{type: PropertyChunking, {text}}}"


TWO = chunking("property_limit_type: property_count, property_limit: 2")


def echo(request: Received) -> Any:
    """Two records with the fields that the request asks for."""
    names = request.params["fields"].split(",")
    return {"data": [{"id": n, **{name: f"{name}{n}" for name in names}} for n in range(2)]}


def asked(reading: Reading) -> list[str]:
    return [request.params["fields"] for request in reading.api.requests]


def test_the_properties_are_a_parameter(reading: Reading) -> None:
    reading.answer(echo)
    reading.records(query("always_include_properties: [x]"))
    assert [request.url for request in reading.api.requests] == ["/orders?limit=5&fields=x,a,b,c,d"]


def test_the_records_of_several_requests_are_merged_by_their_key(reading: Reading) -> None:
    reading.answer(echo)
    found = reading.pages(query(f"always_include_properties: [x], {TWO}"))
    assert asked(reading) == ["x,a,b", "x,c,d"]
    assert found == [
        [{"id": n, **{name: f"{name}{n}" for name in "xabcd"}} for n in range(2)],
    ]


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        (chunking("property_limit_type: property_count, property_limit: 3"), ["a,b,c", "d"]),
        (chunking("property_limit_type: property_count, property_limit: 4"), ["a,b,c,d"]),
        (chunking("property_limit_type: characters, property_limit: 8"), ["a,b", "c,d"]),
        (chunking("property_limit_type: characters, property_limit: 1"), ["a", "b", "c", "d"]),
        (chunking("property_limit_type: property_count"), ["a,b,c,d"]),
    ],
)
def test_the_number_or_the_length_of_properties_is_limited(
    reading: Reading, text: str, chunks: list[str]
) -> None:
    reading.answer(echo)
    reading.records(query(text))
    assert asked(reading) == chunks


def test_records_may_have_a_key_of_several_fields_or_none(reading: Reading) -> None:
    def script(request: Received) -> Any:
        name = request.params["fields"]
        return {"data": [{"x": 1, "y": 0, "deep": {name: 1}}, {"x": 1, name: 2}]}

    reading.answer(script)
    merge = "record_merge_strategy: {type: GroupByKeyMergeStrategy, key: [x, y]}"
    text = chunking(f"property_limit_type: property_count, property_limit: 1, {merge}")
    assert reading.records(query(text, "[a, b]")) == [
        {"x": 1, "y": 0, "deep": {"a": 1, "b": 1}},
        {"x": 1, "a": 2},
        {"x": 1, "b": 2},
    ]


def test_each_page_takes_all_requests(reading: Reading) -> None:
    def script(request: Received) -> Any:
        begin = int(request.params.get("offset", 0))
        number = max(0, min(2, 3 - begin))
        return {"data": [{"id": begin + n, request.params["fields"]: 1} for n in range(number)]}

    reading.answer(script)
    paged = """
        paginator:
          type: DefaultPaginator
          page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: offset}
          pagination_strategy: {type: OffsetIncrement, page_size: 2}
        """
    text = chunking("property_limit_type: property_count, property_limit: 1")
    pages = reading.pages(together(query(text, "[a, b]"), paged))
    assert pages == [
        [{"id": 0, "a": 1, "b": 1}, {"id": 1, "a": 1, "b": 1}],
        [{"id": 2, "a": 1, "b": 1}],
    ]
    assert [request.params.get("offset") for request in reading.api.requests] == [
        None,
        None,
        "2",
        "2",
    ]


FETCHED = """
    type: PropertiesFromEndpoint
    property_field_path: [meta, name]
    retriever:
      type: SimpleRetriever
      requester: {type: HttpRequester, url_base: "{{ config['url'] }}", path: fields}
      record_selector: {type: RecordSelector, extractor: {type: DpathExtractor, field_path: []}}
    """


def fields(request: Received) -> Any:
    return (
        [{"meta": {"name": "a"}}, {"meta": {"name": "b"}}]
        if request.path == "/fields"
        else {"data": []}
    )


def test_the_properties_may_come_from_the_api(reading: Reading) -> None:
    reading.answer(fields)
    indented = FETCHED.replace("\n    ", "\n            ")
    written = f"""
        requester:
          fetch_properties_from_endpoint: {indented}
          request_parameters: {{select: "{{{{ query_properties | join(';') }}}}"}}
        """
    orders = reading.retriever(written)
    for _ in range(2):
        list(orders.pages(Slice()))
    assert reading.api.urls == ["/fields", "/orders?select=a;b", "/orders?select=a;b"]


def test_the_properties_may_be_those_that_the_catalog_selects(reading: Reading) -> None:
    reading.answer(echo)
    reading.environment.selected = lambda name: {"B": {}, "D": {}} if name == "orders" else None
    text = "property_selector: {type: JsonSchemaPropertySelector, transformations: [{type: KeysToLower}]}"
    reading.records(query(text))
    reading.records(query(f"{text}, {TWO}"))
    reading.environment.selected = lambda name: None
    reading.records(query(text))
    assert asked(reading) == ["b,d", "b,d", "a,b,c,d"]


def test_properties_are_named_once(reading: Reading) -> None:
    twice = "a: {type: QueryProperties, property_list: [a]}, b: {type: QueryProperties, property_list: [b]}"
    with pytest.raises(ConfigError, match="named more than once"):
        reading.retriever(f"requester: {{request_parameters: {{{twice}}}}}")
