"""Streams over a JSON API, from the config to the messages, against an API on the loopback."""

from __future__ import annotations

import csv
import io
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sdk import Checkpoint, Parent, Source, Stream, Window
from connectors.sdk.http import (
    Cursor,
    HttpClient,
    HttpStream,
    LinkHeader,
    NextUrl,
    Offset,
    PageNumber,
    Paginator,
    RetryPolicy,
)
from connectors.sdk.http.body import Path
from connectors.sdk.items import Context, Item, Record
from connectors.sdk.saved_config import merge_objects
from connectors.sdk.state.bookmark import InvalidStreamSortException
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from tests.connectors import support
from tests.programs.json_api import Answer, JsonApi, serving
from tests.support.examples import examples

Json = dict[str, Any]
TIME = {"type": "string", "format": "date-time"}
SCHEMA: Json = {"properties": {"id": {"type": "integer"}, "updated_at": TIME}}


def order(number: int) -> Record:
    return {"id": number, "updated_at": f"2024-01-{number:02}T00:00:00Z"}


ORDERS = [order(number) for number in range(1, 8)]


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with serving(JsonApi({"orders": list(ORDERS)})) as found:
        yield found


@pytest.fixture
def client(api: JsonApi) -> Iterator[HttpClient]:
    with HttpClient(api.url, sleep=lambda _: None) as found:
        yield found


class Orders(HttpStream):
    """A stream as an author writes it."""

    name = "orders"
    path = "page/orders"
    records_path: Path = "data"
    primary_key = ("id",)
    replication_key = "updated_at"
    params: Mapping[str, Any] = {"updated_since": "{start}"}
    paginator: Paginator | None = PageNumber(3)
    json_schema = SCHEMA


class Shop(Source):
    """A source as an author writes it."""

    name = "shop"
    connection_specification: Json = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": {"type": "string"},
            "user_agent": {"type": "string"},
            "start_date": {"type": "string", "format": "date-time"},
        },
    }

    def check(self, config: Json) -> None:
        HttpClient(config["url"]).get("all/orders")

    def streams(self, config: Json) -> Sequence[Stream]:
        return [Orders(HttpClient(config["url"], user_agent=config.get("user_agent")))]


def test_a_source_of_twelve_lines_reads_an_api(api: JsonApi, tmp_path: pathlib.Path) -> None:
    config = {"url": api.url, "user_agent": "shop/1.0", "start_date": "2024-01-03T00:00:00Z"}
    described = json.loads(Orders(HttpClient(api.url)).describe().to_json())
    catalog = support.catalog(described, mode=INCREMENTAL)
    code, messages = support.call(Shop(), tmp_path, "read", config=config, catalog=catalog)
    assert code == 0, messages
    assert support.records(messages) == ORDERS[2:]
    assert {request.headers["user-agent"] for request in api.requests} == {"shop/1.0"}
    [state] = [each["state"] for each in messages if each["type"] == "STATE"]
    assert state["stream"]["stream_state"]["replication_key_value"] == ORDERS[-1]["updated_at"]


def records(stream: HttpStream, context: Context | None = None, start: Any = None) -> list[Record]:
    return list(stream.records(Window(start, partition=context)))


PAGINATORS: dict[str, Callable[[int], tuple[Paginator, Json]]] = {
    "offset": lambda size: (Offset(size), {}),
    "page": lambda size: (PageNumber(size), {}),
    "cursor": lambda size: (Cursor("meta.next"), {"limit": size}),
    "next": lambda size: (NextUrl("links.next"), {"limit": size}),
    "link": lambda size: (LinkHeader(), {"limit": size}),
}
VARIANTS: dict[str, tuple[str, Callable[[int], tuple[Paginator, Json]]]] = {
    **{kind: (kind, made) for kind, made in PAGINATORS.items()},
    "offset with a total": ("offset", lambda size: (Offset(size, total="total"), {})),
    "offset up to an empty page": (
        "offset",
        lambda size: (Offset(size, ends_at_short_page=False), {}),
    ),
    "offset in the body": ("offset", lambda size: (Offset(size, sent_in="json"), {})),
    "page with the number of pages": ("page", lambda size: (PageNumber(size, pages="pages"), {})),
    "page without a known limit": ("page", lambda size: (PageNumber(), {"per_page": size})),
    "cursor in a header": (
        "cursor",
        lambda size: (Cursor(header="X-Next-Cursor"), {"limit": size}),
    ),
    "cursor with a flag": (
        "cursor",
        lambda size: (Cursor("meta.next", more="meta.more"), {"limit": size}),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(0, 12), size=st.integers(1, 7))
def test_every_paginator_reads_exactly_the_records_of_the_api(
    api: JsonApi, client: HttpClient, variant: str, count: int, size: int
) -> None:
    kind, made = VARIANTS[variant]
    api.resources["things"] = [{"id": number} for number in range(count)]
    stream = Orders(client)
    stream.path = f"{kind}/things"
    stream.records_path = () if kind == "link" else "data"
    stream.paginator, stream.params = made(size)
    stream.method = "POST" if "body" in variant else "GET"
    assert records(stream) == api.resources["things"]


def test_a_page_is_requested_only_when_it_is_needed(api: JsonApi, client: HttpClient) -> None:
    found = Orders(client).records(Window())
    assert api.requests == []
    taken = [next(found) for _ in range(3)]
    assert taken == ORDERS[:3] and len(api.requests) == 1
    next(found)
    assert len(api.requests) == 2


def test_a_consumer_may_change_records(client: HttpClient) -> None:
    stream = Orders(client)
    stream.path, stream.params = "cursor/orders", {"limit": 3}
    stream.paginator = Cursor("data.-1.id", more="meta.more")
    taken = [record.pop("id") for record in stream.records(Window())]
    assert taken == list(range(1, 8))


def test_the_start_is_sent_to_an_api_that_can_filter(api: JsonApi, client: HttpClient) -> None:
    start = ORDERS[4]["updated_at"]
    assert records(Orders(client), None, start) == ORDERS[4:]
    assert api.requests[0].query["updated_since"] == [start]
    assert records(Orders(client)) == ORDERS
    assert "updated_since" not in api.requests[-1].query


def read(stream: Stream, start: str | None = None) -> Iterator[Item]:
    described = json.loads(stream.describe().to_json())
    written = {"stream": described, "sync_mode": INCREMENTAL, "destination_sync_mode": "append"}
    configured = ConfiguredStream.from_json(json.dumps(written).encode())
    return stream.read(configured, None if start is None else {"updated_at": start})


def incremental(stream: Stream, start: str) -> list[Record]:
    return [item for item in read(stream, start) if isinstance(item, dict)]


class Unfiltered(Orders):
    params: Mapping[str, Any] = {"sort": "id"}


def test_records_before_the_start_are_omitted_if_the_api_cannot_filter(
    api: JsonApi, client: HttpClient
) -> None:
    start = ORDERS[4]["updated_at"]
    assert incremental(Unfiltered(client), start) == ORDERS[4:]
    assert all(list(request.query) == ["sort", "per_page", "page"] for request in api.requests)


def test_what_the_parameters_name_is_what_the_api_filters_by(
    api: JsonApi, client: HttpClient
) -> None:
    """Here the API filters by another time than that of the records, and the SDK does not filter again."""

    class ByOther(Orders):
        params: Mapping[str, Any] = {"changed_since": "{start}"}

    assert incremental(ByOther(client), ORDERS[4]["updated_at"]) == ORDERS


def test_a_key_that_is_set_after_the_stream_is_made_filters_too(client: HttpClient) -> None:
    class Table(HttpStream):
        name, path, records_path, paginator = "orders", "page/orders", "data", PageNumber(3)
        json_schema = SCHEMA

    stream = Table(client)
    stream.replication_key = "updated_at"
    assert incremental(stream, ORDERS[4]["updated_at"]) == ORDERS[4:]


def test_a_step_without_an_end_in_the_parameters_is_an_error(client: HttpClient) -> None:
    class Stepped(Orders):
        step, end_date = "P2D", "2024-01-06"

    with pytest.raises(SystemFailure, match="does not ask for the end") as caught:
        incremental(Stepped(client), ORDERS[0]["updated_at"])
    assert "{end}" in (caught.value.guidance or "")


def test_an_interval_is_sent_to_an_api_that_can_filter(api: JsonApi, client: HttpClient) -> None:
    class Stepped(Orders):
        params: Mapping[str, Any] = {"updated_since": "{start}", "updated_until": "{end}"}
        step, end_date = "P2D", "2024-01-06"

    assert (
        incremental(Stepped(client), ORDERS[2]["updated_at"]) == ORDERS[2:5]
    )  # it counts the end in
    asked = [(*r.query["updated_since"], *r.query["updated_until"]) for r in api.requests]
    assert list(dict.fromkeys(asked)) == [
        ("2024-01-03T00:00:00Z", "2024-01-05T00:00:00Z"),
        ("2024-01-05T00:00:00Z", "2024-01-06"),
    ]


class Newest(Unfiltered):
    order = "descending"


def test_no_page_is_requested_after_the_one_with_the_bookmark(
    api: JsonApi, client: HttpClient
) -> None:
    api.resources["orders"] = ORDERS[::-1]
    assert incremental(Newest(client), ORDERS[4]["updated_at"]) == ORDERS[:3:-1]
    assert len(api.requests) == 2  # of three: the second page has a record before the bookmark
    assert incremental(Newest(client), ORDERS[6]["updated_at"]) == ORDERS[6:]
    assert len(api.requests) == 3


def test_a_page_that_is_not_in_descending_order_is_an_error(
    api: JsonApi, client: HttpClient
) -> None:
    """As with a pinned record first: the read would end before what is new."""
    api.resources["orders"] = [ORDERS[0], ORDERS[6], ORDERS[5], *ORDERS[4::-1]]
    with pytest.raises(InvalidStreamSortException, match="comes after '2024-01-01T00:00:00Z'"):
        incremental(Newest(client), ORDERS[4]["updated_at"])


def test_the_records_that_an_author_selects_end_a_descending_read(
    api: JsonApi, client: HttpClient
) -> None:
    class Own(Newest):
        def records(self, window: Window) -> Iterator[Record]:
            return (record for record in super().records(window) if record["id"] != 6)

    api.resources["orders"] = ORDERS[::-1]
    stream = Own(client)
    stream.end_date = "2024-01-07"
    assert [record["id"] for record in incremental(stream, ORDERS[4]["updated_at"])] == [5]
    assert len(api.requests) == 2


class Stores(HttpStream):
    name = "stores"
    path = "all/stores"
    primary_key = ("id",)
    json_schema = SCHEMA


class StoreOrders(Orders):
    path = "page/stores/{stores.id}/orders"
    parent: Parent | None = Parent(Stores, {"id": "store_id"})
    json_schema: Json = {"properties": {**SCHEMA["properties"], "store_id": {}}}  # noqa: RUF012


def test_a_child_stream_is_read_for_each_record_of_its_parent(
    api: JsonApi, client: HttpClient
) -> None:
    api.resources.update(
        {
            "stores": [{"id": 1}, {"id": "a/b ?"}, {"id": 3}],
            "stores/1/orders": ORDERS[:4],
            "stores/a/b ?/orders": ORDERS[4:],
            "stores/3/orders": [],
        }
    )
    stream = StoreOrders(client)
    stream.parent = Parent(Stores(client), {"id": "store_id"})
    found = incremental(stream, "2024-01-01T00:00:00Z")
    first = [{**each, "store_id": 1} for each in ORDERS[:4]]
    assert found == [*first, *({**each, "store_id": "a/b ?"} for each in ORDERS[4:])]
    assert "/page/stores/a%2Fb%20%3F/orders" in {request.path for request in api.requests}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"path": "stores/{stores.ident}/orders"}, "names {stores.ident}, .* has 'id', 'updated"),
        ({"params": {"of": "{stores.ident.no}"}}, "names {stores.ident.no}, .* has 'id'"),
        ({"replication_key": "updated"}, "no field 'updated', .* it has 'id', 'updated_at'"),
    ],
)
def test_a_field_that_no_schema_has_is_an_error_before_a_request(
    attributes: Json, reason: str, api: JsonApi, client: HttpClient
) -> None:
    stream = StoreOrders(client)
    stream.parent = Parent(Stores(client), {"id": "store_id"})
    for name, value in attributes.items():
        setattr(stream, name, value)
    with pytest.raises(SystemFailure, match=reason):
        incremental(stream, "2024-01-01T00:00:00Z")
    assert not api.requests


def test_a_missing_child_may_be_ignored(api: JsonApi) -> None:
    api.resources.update({"stores/1/orders": ORDERS[:1]})
    with HttpClient(api.url, retry=RetryPolicy(ignored_statuses={404})) as client:
        stream = StoreOrders(client)
        stream.parent = None
        stream.path = "page/stores/{store_id}/orders"
        assert records(stream, {"store_id": 2}) == []
        assert records(stream, {"store_id": 1}) == ORDERS[:1]


class Ledger(HttpStream):
    """A stream that overrides each hook."""

    name = "ledger"
    path = "all/ledger"
    method = "POST"
    json: Mapping[str, Any] | None = {"query": "{ all }", "page": {"size": 2}, "from": "{start}"}
    headers: Mapping[str, str] = {"X-Kind": "ledger"}
    paginator = Cursor(header="X-Next", parameter="page.after", sent_in="json")
    json_schema: Json = {}  # noqa: RUF012

    def parse(self, response: httpx.Response) -> Iterable[Record]:
        for record in csv.DictReader(io.StringIO(response.text)):
            if record["id"] != "2":
                yield {**record, "amount": Decimal(record["amount"])}


def test_a_stream_may_customize_requests_and_records(api: JsonApi, client: HttpClient) -> None:
    api.answers.extend(
        [
            Answer(body=b"id,amount\n1,1.10\n2,2.20\n", headers={"X-Next": "abc"}),
            Answer(body=b"id,amount\n3,3.30\n"),
        ]
    )
    found = records(Ledger(client), None, 5)
    assert found == [
        {"id": "1", "amount": Decimal("1.10")},
        {"id": "3", "amount": Decimal("3.30")},
    ]
    bodies = [json.loads(request.body) for request in api.requests]
    assert bodies == [
        {"query": "{ all }", "page": {"size": 2}, "from": 5},
        {"query": "{ all }", "page": {"size": 2, "after": "abc"}, "from": 5},
    ]
    assert {request.headers["x-kind"] for request in api.requests} == {"ledger"}


def test_changes_to_a_body_are_merged_at_any_depth() -> None:
    body = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert merge_objects(body, {"a": {"c": {"f": 4}}, "e": {"g": 5}}) == {
        "a": {"b": 1, "c": {"d": 2, "f": 4}},
        "e": {"g": 5},
    }
    assert body == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


def test_a_response_without_content_has_no_records(api: JsonApi, client: HttpClient) -> None:
    api.answers.append(Answer(204))
    assert records(Orders(client)) == []


def test_an_api_that_ignores_the_number_of_the_page_is_an_error(
    api: JsonApi, client: HttpClient
) -> None:
    api.answers.extend([Answer(body={"data": ORDERS[:3]})] * 50)
    found = Orders(client).records(Window())
    with pytest.raises(SystemFailure, match="do not end"):
        list(found)
    assert len(api.requests) == 10


class Sorted(Orders):
    order = "ascending"
    STATE_MSG_FREQUENCY = 3


def test_a_failure_on_a_later_page_keeps_the_preceding_state(
    api: JsonApi, client: HttpClient
) -> None:
    api.answers.extend([None, Answer(400)])
    items = read(Sorted(client))
    kinds = [type(next(items)) for _ in range(4)]
    assert kinds == [dict, dict, dict, Checkpoint]
    with pytest.raises(SystemFailure, match="400"):
        next(items)
