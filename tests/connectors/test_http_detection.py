"""Pages of streams that name no paginator: all records are read, or it is said that some are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sdk import SystemFailure, Window
from connectors.sdk.http import HttpClient, HttpStream, SinglePage
from connectors.sdk.items import Record
from connectors.sdk.reports import STREAM_WARNINGS
from tests.programs.json_api import Answer, JsonApi, Request, serving
from tests.support.examples import examples

Json = dict[str, Any]
Style = Callable[[list[Record], int, dict[str, str]], Json]


def take_part(rows: list[Record], begin: int, size: int) -> Json:
    return {"data": rows[begin : begin + size]}


def make_cursors(name: str, parameter: str, *outer: str) -> Style:
    def answer(rows: list[Record], size: int, query: dict[str, str]) -> Json:
        begin = int(query.get(parameter, "c0")[1:])
        last = begin + size >= len(rows)
        inner: Any = {name: None if last else f"c{begin + size}"}
        for outer_name in reversed(outer):
            inner = {outer_name: inner}
        return {**take_part(rows, begin, size), **inner}

    return answer


def make_urls(*path: str, base: str = "") -> Style:
    def answer(rows: list[Record], size: int, query: dict[str, str]) -> Json:
        begin = int(query.get("at", 0))
        inner: Any = None if begin + size >= len(rows) else f"{base}?at={begin + size}"
        for step in reversed(path):
            inner = {step: inner}
        return {**take_part(rows, begin, size), **inner}

    return answer


def make_pages(present: str, total: str, *, first: int = 1, last: bool = False) -> Style:
    def answer(rows: list[Record], size: int, query: dict[str, str]) -> Json:
        number = int(query.get("page", first))
        pages = max(1, -(-len(rows) // size))
        total_pages = first + pages - 1 if last else pages
        return {
            **take_part(rows, (number - first) * size, size),
            "meta": {present: number, total: total_pages},
        }

    return answer


def make_offsets(name: str, total: str) -> Style:
    def answer(rows: list[Record], size: int, query: dict[str, str]) -> Json:
        begin = int(query.get(name, 0))
        return {**take_part(rows, begin, size), name: begin, total: len(rows)}

    return answer


def add_flag(style: Style) -> Style:
    """A cursor on each page, also on the last one, and a flag."""

    def answer(rows: list[Record], size: int, query: dict[str, str]) -> Json:
        body = style(rows, size, query)
        more = body["next_cursor"] is not None
        return {**body, "next_cursor": body["next_cursor"] or "c0", "has_more": more}

    return answer


STYLES: dict[str, Style] = {
    "next_cursor": make_cursors("next_cursor", "cursor"),
    "slack": make_cursors("next_cursor", "cursor", "response_metadata"),
    "google": make_cursors("nextPageToken", "pageToken"),
    "hubspot": make_cursors("after", "after", "paging", "next"),
    "flag": add_flag(make_cursors("next_cursor", "cursor")),
    "links": make_urls("links", "next"),
    "hal": make_urls("_links", "next", "href", base="/x/things"),
    "odata": make_urls("@odata.nextLink"),
    "django": make_urls("next"),
    "page": make_pages("page", "total_pages"),
    "laravel": make_pages("current_page", "last_page", last=True),
    "from 0": make_pages("page", "pages", first=0),
    "from 0, with the last": make_pages("currentPage", "lastPage", first=0, last=True),
    "offset": make_offsets("offset", "total"),
    "jira": make_offsets("startAt", "total"),
}


class StyledApi(JsonApi):
    style: Style
    size = 3

    def answer(self, request: Request) -> Answer:
        query = {name: values[-1] for name, values in request.query.items()}
        return Answer(body=self.style(self.resources["things"], self.size, query))


class Things(HttpStream):
    name, path, records_path = "things", "x/things", "data"
    json_schema: Json = {}  # noqa: RUF012 - as authors write it


@pytest.fixture(scope="module")
def api() -> Iterator[StyledApi]:
    with serving(StyledApi({"things": []})) as served:
        assert isinstance(served, StyledApi)
        yield served


@pytest.fixture(scope="module")
def client(api: StyledApi) -> Iterator[HttpClient]:
    with HttpClient(api.url, sleep=lambda _: None) as client:
        yield client


def read(client: HttpClient, **attributes: Any) -> tuple[list[Record], list[str]]:
    stream, warnings = Things(client), list[str]()
    for name, value in attributes.items():
        setattr(stream, name, value)
    with STREAM_WARNINGS.listen(lambda _, text: warnings.append(text)):
        return list(stream.records(Window())), warnings


@pytest.mark.parametrize("style", STYLES)
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(0, 11), size=st.integers(1, 5))
def test_what_the_pages_say_is_followed(
    style: str, count: int, size: int, api: StyledApi, client: HttpClient
) -> None:
    api.style, api.size = STYLES[style], size
    api.resources["things"] = rows = [{"id": number} for number in range(count)]
    assert read(client) == (rows, [])


def make_page(count: int, **rest: Any) -> Style:
    return lambda *_: {"data": [{"id": number} for number in range(count)], **rest}


@pytest.mark.parametrize(
    "rest",
    [
        {"has_more": True},
        {"meta": {"hasNextPage": True, "endCursor": "x"}},
        {"meta": {"next": "c5"}},
        {"pages": 2},
        {"pagination": {"lastPage": 7}},
        {"page": 1, "total_pages": 3},  # and always the first one
        {"offset": 0, "total": 50},
        {"next_cursor": "c5"},
    ],
    ids=json.dumps,
)
def test_a_page_that_has_another_one_which_cannot_be_had_is_an_error(
    rest: Json, api: StyledApi, client: HttpClient
) -> None:
    api.style = make_page(5, **rest)
    with pytest.raises(SystemFailure) as caught:
        read(client)
    assert "paginator" in (caught.value.guidance or "")
    assert read(client, paginator=SinglePage()) == ([{"id": n} for n in range(5)], [])


@pytest.mark.parametrize(
    ("count", "rest", "params", "text"),
    [
        (7, {"total": 8}, {}, "7 of 8 records"),
        (100, {}, {}, "100 records, as a full page has"),
        (7, {}, {"per_page": 7}, "7 records, as a full page has"),
    ],
)
def test_a_page_that_looks_full_is_a_warning_with_a_remedy(
    count: int, rest: Json, params: Json, text: str, api: StyledApi, client: HttpClient
) -> None:
    api.style = make_page(count, **rest)
    rows, [warning] = read(client, params=params)
    assert len(rows) == count and text in warning and "SinglePage()" in warning
    assert read(client, params=params, paginator=SinglePage()) == (rows, [])


@pytest.mark.parametrize(("count", "rest"), [(7, {}), (100, {"total": 100}), (0, {"total": 0})])
def test_a_page_that_may_be_the_only_one_is_no_warning(
    count: int, rest: Json, api: StyledApi, client: HttpClient
) -> None:
    api.style = make_page(count, **rest)
    rows, warnings = read(client)
    assert (len(rows), warnings) == (count, [])


def test_a_body_of_requests_is_not_guessed(api: StyledApi, client: HttpClient) -> None:
    api.style = STYLES["next_cursor"]
    api.resources["things"] = [{"id": number} for number in range(9)]
    with pytest.raises(SystemFailure, match="a next page after a POST request"):
        read(client, method="POST")


def test_a_record_that_is_the_body_tells_nothing_about_pages(
    api: StyledApi, client: HttpClient
) -> None:
    api.style = lambda *_: {"id": 1, "next": "/somewhere", "has_more": True}
    assert read(client, records_path=()) == (
        [{"id": 1, "next": "/somewhere", "has_more": True}],
        [],
    )


def test_a_stream_warns_once_however_many_partitions_look_full(
    api: StyledApi, client: HttpClient
) -> None:
    api.style = make_page(100)
    stream, warnings = Things(client), list[str]()
    with STREAM_WARNINGS.listen(lambda _, text: warnings.append(text)):
        for number in range(3):
            assert len(list(stream.records(Window(partition={"n": number})))) == 100
    assert len(warnings) == 1
