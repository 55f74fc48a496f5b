"""The pages of a slice: each is read exactly once, and pages that do not end are an error."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.requests.pages import HeaderValues, links
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.http.places import Place
from elt_assets.errors import ConfigError, SystemFailure
from tests.connectors.declarative.requests.support import Reading, together
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, in_turn
from tests.support.examples import examples

OFFSET = """
    paginator:
      type: DefaultPaginator
      page_size_option: {type: RequestOption, inject_into: request_parameter, field_name: limit}
      page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: offset}
      pagination_strategy: {type: OffsetIncrement, page_size: 2}
    """
PAGE = """
    paginator:
      type: DefaultPaginator
      page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: page}
      pagination_strategy: {type: PageIncrement, page_size: 2, start_from_page: 1}
    """
CURSOR = """
    paginator:
      type: DefaultPaginator
      page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: after}
      pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
    """
LINK = """
    paginator:
      type: DefaultPaginator
      page_token_option: {type: RequestPath}
      pagination_strategy:
        type: CursorPagination
        cursor_value: "{{ headers['link']['next']['url'] }}"
        stop_condition: "{{ 'next' not in headers['link'] }}"
    """


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": n} for n in range(number)]


def by_offset(number: int) -> Callable[[Received], Any]:
    def script(request: Received) -> Any:
        begin, limit = int(request.params.get("offset", 0)), int(request.params.get("limit", 2))
        return {"data": rows(number)[begin : begin + limit]}

    return script


def by_page(number: int, first: int = 1) -> Callable[[Received], Any]:
    def script(request: Received) -> Any:
        begin = 2 * (int(request.params.get("page", first)) - first)
        return {"data": rows(number)[begin : begin + 2]}

    return script


def by_cursor(number: int) -> Callable[[Received], Any]:
    def script(request: Received) -> Any:
        begin = int(request.params.get("after", "c0")[1:])
        following = f"c{begin + 2}" if begin + 2 < number else None
        return {"data": rows(number)[begin : begin + 2], "next": following}

    return script


def by_link(api: RecordingApi, number: int) -> Callable[[Received], Any]:
    def script(request: Received) -> Any:
        begin = int(request.params.get("at", 0))
        link = f'<{api.url}/orders?at={begin + 2}>; rel="next"' if begin + 2 < number else ""
        return Answer(body={"data": rows(number)[begin : begin + 2]}, headers={"Link": link})

    return script


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(number=st.integers(0, 9), kind=st.sampled_from(["offset", "page", "cursor", "link"]))
def test_every_record_is_read_exactly_once(reading: Reading, number: int, kind: str) -> None:
    written, script = {
        "offset": (OFFSET, by_offset(number)),
        "page": (PAGE, by_page(number)),
        "cursor": (CURSOR, by_cursor(number)),
        "link": (LINK, by_link(reading.api, number)),
    }[kind]
    reading.answer(script)
    assert reading.records(written) == rows(number)


def test_an_offset_grows_by_the_number_of_records(reading: Reading) -> None:
    reading.answer(by_offset(5))
    assert [len(page) for page in reading.pages(OFFSET)] == [2, 2, 1]
    assert reading.api.urls == [
        "/orders?limit=2",
        "/orders?limit=2&offset=2",
        "/orders?limit=2&offset=4",
    ]


def test_the_first_request_may_have_the_token_too(reading: Reading) -> None:
    reading.answer(by_offset(1))
    reading.records(OFFSET.replace("page_size: 2", "page_size: 2, inject_on_first_request: true"))
    reading.answer(by_page(1))
    reading.records(PAGE.replace("page_size: 2", "page_size: 2, inject_on_first_request: true"))
    assert reading.api.urls == ["/orders?limit=2&offset=0", "/orders?page=1"]


def test_pages_have_numbers(reading: Reading) -> None:
    reading.answer(by_page(4))
    assert [len(page) for page in reading.pages(PAGE)] == [2, 2, 0]
    assert reading.api.urls == ["/orders", "/orders?page=2", "/orders?page=3"]


def test_without_a_page_size_the_last_page_is_an_empty_one(reading: Reading) -> None:
    reading.answer(by_page(3))
    written = PAGE.replace("page_size: 2, ", "")
    assert [len(page) for page in reading.pages(written)] == [2, 1, 0]


def test_the_page_size_may_come_from_the_config_or_the_response(reading: Reading) -> None:
    reading.configure(size=2)
    reading.answer(by_offset(3))
    written = OFFSET.replace("page_size: 2", "page_size: \"{{ config['size'] }}\"")
    assert len(reading.records(written)) == 3
    assert reading.api.urls == ["/orders?limit=2", "/orders?limit=2&offset=2"]
    reading.answer(lambda request: {**by_offset(5)(request), "per_page": 2})
    written = OFFSET.replace("page_size: 2", 'page_size: "{{ response.per_page }}"')
    written = "\n".join(line for line in written.splitlines() if "page_size_option" not in line)
    assert len(reading.records(written)) == 5


def test_filtered_records_count_for_the_page_size(reading: Reading) -> None:
    reading.answer(by_offset(5))
    kept = 'record_selector: {record_filter: {condition: "{{ record.id == 4 }}"}}'
    assert reading.records(together(kept, OFFSET)) == [{"id": 4}]


def test_a_page_that_is_empty_but_has_a_cursor_is_not_the_last_one(reading: Reading) -> None:
    pages = iter([{"data": [], "next": "a"}, {"data": [{"id": 1}]}])
    reading.answer(lambda _: next(pages))
    assert reading.records(CURSOR) == [{"id": 1}]


def test_the_last_record_and_the_size_of_the_page_are_known(reading: Reading) -> None:
    def script(request: Received) -> Any:
        begin = int(request.params.get("after", -1)) + 1
        return {"data": rows(5)[begin : begin + 2]}

    reading.answer(script)
    written = CURSOR.replace("response.next", "last_record['id']").replace(
        "CursorPagination,", 'CursorPagination, stop_condition: "{{ last_page_size < 2 }}",'
    )
    assert reading.records(written) == rows(5)


def test_the_paginator_sees_the_response_as_it_was_before_the_transformations(
    reading: Reading,
) -> None:
    def script(request: Received) -> Any:
        begin = int(request.params.get("after", -1)) + 1
        return {"data": rows(5)[begin : begin + 2], "meta": [{"x": 1}]}

    reading.answer(script)
    written = CURSOR.replace(
        "response.next", "response['data'][-1]['id'] if last_page_size == 2 else ''"
    )
    removed = "transformations: [{type: RemoveFields, field_pointers: [[id]]}]"
    assert reading.records(together(removed, written)) == [{}] * 5


def test_a_list_as_the_body_is_shown_by_its_first_element(reading: Reading) -> None:
    pages = iter([[{"id": 1, "next": "a"}, {"id": 2, "next": "b"}], [{"id": 3}]])
    reading.answer(lambda _: next(pages))
    whole = "record_selector: {extractor: {type: DpathExtractor, field_path: []}}"
    assert len(reading.records(together(whole, CURSOR))) == 3
    assert reading.api.requests[1].params == {"after": "a"}


def test_the_link_may_be_relative_or_have_parameters_of_its_own(reading: Reading) -> None:
    pages = iter([{"next": "/orders?at=2&size=9"}, {"next": "more?at=4"}, {}])
    reading.answer(lambda _: {"data": [{"id": 1}], **next(pages)})
    written = CURSOR.replace(
        "page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: after}",
        "page_token_option: {type: RequestPath}",
    )
    reading.records(together("requester: {request_parameters: {size: 9, q: x}}", written))
    assert reading.api.urls == [
        "/orders?size=9&q=x",
        "/orders?at=2&size=9&q=x",
        "/more?at=4&size=9&q=x",
    ]


def test_a_token_may_be_a_header_or_a_part_of_the_body(reading: Reading) -> None:
    reading.answer(by_cursor(3))
    for place in (
        "{type: RequestOption, inject_into: header, field_name: X-After}",
        "{type: RequestOption, inject_into: body_json, field_path: [page, after]}",
    ):
        pages = [{"data": [], "next": "c2"}, {"data": []}]
        reading.answer(in_turn(*pages))
        reading.records(
            CURSOR.replace(
                "{type: RequestOption, inject_into: request_parameter, field_name: after}", place
            )
        )
    assert reading.api.requests[1].headers["x-after"] == "c2"
    assert reading.api.requests[3].json == {"page": {"after": "c2"}}


def test_the_values_of_the_slice_may_be_left_out_of_the_next_pages(reading: Reading) -> None:
    reading.answer(by_offset(3))
    added = (Option(Place("params", ("since",)), 1),)
    reading.pages(OFFSET, Slice(), added)
    flag = "ignore_stream_slicer_parameters_on_paginated_requests: true"
    reading.pages(together(flag, OFFSET), Slice(), added)
    assert reading.api.urls == [
        "/orders?since=1&limit=2",
        "/orders?since=1&limit=2&offset=2",
        "/orders?since=1&limit=2",
        "/orders?limit=2&offset=2",
    ]


def test_a_link_to_another_host_is_followed_without_credentials_parameters_and_headers(
    reading: Reading, other: RecordingApi
) -> None:
    other.script = lambda _: {"data": [{"id": 2}]}
    reading.answer({"data": [{"id": 1}], "next": f"{other.url}/orders?at=2"})
    written = """
        requester:
          authenticator: {type: BearerAuthenticator, api_token: hunter2}
          request_parameters: {key: hunter3}
          request_headers: {X-Key: hunter4}
        paginator:
          type: DefaultPaginator
          page_token_option: {type: RequestPath}
          pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
        """
    assert reading.records(written) == [{"id": 1}, {"id": 2}]
    (request,) = other.requests
    assert request.target == "/orders?at=2"
    assert "hunter" not in f"{request.headers}{request.body!r}"
    reading.environment.trusted_origins = [other.url]
    reading.records(written)
    trusted = other.requests[1]
    assert trusted.headers["authorization"] == "Bearer hunter2"
    assert (trusted.headers["x-key"], trusted.params["key"]) == ("hunter4", "hunter3")
    posts = written.replace(
        "requester:",
        "requester:\n          http_method: POST\n          request_body_json: {key: hunter5}",
    )
    reading.records(posts)
    assert (other.requests[2].method, other.requests[2].json) == ("POST", {"key": "hunter5"})


def test_tokens_that_return_are_an_error_and_no_endless_loop(reading: Reading) -> None:
    given = iter("abcdbcdbcd")
    reading.answer(
        lambda _: {"data": [{"id": 1}], "next": next(given), "took": len(reading.api.requests)}
    )
    error = reading.error(CURSOR)
    assert isinstance(error, SystemFailure)
    assert "the pages of the API do not end: after GET" in error.message
    assert "condition to stop" in str(error.guidance)


@pytest.mark.parametrize(
    ("token", "sent"),
    [("1e5", "1e5"), ("1_000", "1_000"), ("12e4567", "12e4567"), ("123", "123"), (7, "7")],
)
def test_a_token_that_looks_like_a_number_is_sent_as_the_api_has_written_it(
    reading: Reading, token: Any, sent: str
) -> None:
    reading.answer(in_turn({"data": rows(1), "next": token}, {"data": rows(2)}))
    assert len(reading.records(CURSOR)) == 3
    assert reading.api.requests[1].params == {"after": sent}


def test_an_api_that_ignores_the_page_is_an_error(reading: Reading) -> None:
    reading.answer({"data": rows(2)})
    assert "10 pages in succession are equal" in reading.error(PAGE).message
    assert len(reading.api.requests) == 10


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (OFFSET.replace("page_size: 2", ""), "page_size_option needs a page size"),
        (
            OFFSET.replace("page_size: 2", 'page_size: "{{ config.url }}"'),
            "page_size is not a number",
        ),
    ],
)
def test_a_page_size_that_is_missing_or_none_is_an_error(
    reading: Reading, written: str, message: str
) -> None:
    error = reading.error(written)
    assert isinstance(error, ConfigError)
    assert message in error.message


def test_a_cursor_that_cannot_be_evaluated_is_an_error_unless_the_pages_stop_before(
    reading: Reading,
) -> None:
    reading.answer({"data": rows(1)})
    written = CURSOR.replace("response.next", "response.data + 1")
    assert "cursor_value cannot be evaluated" in reading.error(written).message
    stopped = written.replace(
        "CursorPagination,", 'CursorPagination, stop_condition: "{{ not response.links }}",'
    )
    assert reading.records(stopped) == rows(1)


def test_a_page_is_requested_when_it_is_needed_and_one_is_in_memory(reading: Reading) -> None:
    reading.answer(by_offset(6))
    found = reading.retriever(OFFSET).pages(Slice())
    kept = [Page(next(found))]
    assert len(reading.api.requests) == 1
    references = [weakref.ref(kept.pop())]
    next(found)
    gc.collect()
    assert references[0]() is None
    assert len(reading.api.requests) == 2


class Page(list[Any]):
    """A list that can be referred to weakly."""


def test_the_links_of_a_header_are_found_by_their_relation() -> None:
    header = '<https://a/x?y=1,2>; rel="next"; title="a", <https://a/z>; rel=last, <https://a/q>'
    assert links(header) == {
        "next": {"url": "https://a/x?y=1,2", "rel": "next", "title": "a"},
        "last": {"url": "https://a/z", "rel": "last"},
        "https://a/q": {"url": "https://a/q"},
    }
    assert links("") == {}


def test_headers_are_found_in_any_case_and_link_is_parsed() -> None:
    response = Response(
        200,
        headers=[("X-Next", "5"), ("Link", "<https://a>; rel=next")],
        request=Request("GET", "https://a"),
    )
    found = HeaderValues(response)
    assert (found["x-next"], found["X-Next"], found.get("X-NEXT")) == ("5", "5", "5")
    assert (found["Link"], found["link"]["next"]["url"]) == ("<https://a>; rel=next", "https://a")
    assert "x-NEXT" in found and "other" not in found and found.get("other", 1) == 1


CHOSEN = """
    record_selector: {record_filter: {condition: "{{ record['id'] in config['chosen'] }}"}}
    transformations:
      - type: AddFields
        fields: [{path: [seen], value: "{{ record['id'] + 1 }}", value_type: integer}]
    """
STOPS = ', stop_condition: "{{ last_page_size < 2 }}"'


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    number=st.integers(0, 7),
    chosen=st.sets(st.integers(0, 6)),
    token=st.sampled_from(
        [
            '"{{ response.begin + 2 }}"' + STOPS,
            """"{{ last_record['id'] + 1 }}\"""" + STOPS,
            """"{{ last_record['seen'] }}\"""" + STOPS,
            """"{{ last_record['seen'] if last_page_size == 2 else '' }}\"""",
            '"{{ response.paging.next.after }}"',
            """"{{ headers['link']['next']['after'] }}\"""",
        ]
    ),
)
def test_a_filter_decides_nothing_about_the_pages(
    reading: Reading, number: int, chosen: set[int], token: str
) -> None:
    """Nor does the last page need a place for a token."""

    def script(request: Received) -> Any:
        begin = int(request.params.get("after", 0))
        page = {"data": rows(number)[begin : begin + 2], "begin": begin}
        if begin + 2 >= number:
            return page
        link = f'<{reading.api.url}>; rel="next"; after="{begin + 2}"'
        body = {**page, "paging": {"next": {"after": begin + 2}}}
        return Answer(body=body, headers={"Link": link})

    reading.configure(chosen=sorted(chosen))
    reading.answer(script)
    description = together(CHOSEN, CURSOR.replace('"{{ response.next }}"', token))
    expected = [{"id": n, "seen": n + 1} for n in range(number) if n in chosen]
    assert reading.records(description) == expected
