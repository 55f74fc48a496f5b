"""The requests of a slice: URL, parameters, headers and bodies, from requester, slice and pages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import clock
from connectors.declarative.requests import options
from connectors.sdk.http.places import Part, Place
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.declarative.requests.support import NOON, Reading

ONE = {"data": [{"id": 1}]}
JANUARY = Slice(interval={"start_time": "2024-01-01", "end_time": "2024-01-31"})


def option(part: Part, name: str, value: Any) -> Option:
    return Option(Place(part, (name,)), value)


@pytest.fixture(autouse=True)
def one_record(reading: Reading) -> None:
    reading.answer(ONE)


@pytest.mark.parametrize(
    ("requester", "target"),
    [
        ('{path: "orders"}', "/orders"),
        ('{path: "/orders/"}', "/orders/"),
        ('{url_base: "{{ config.url }}/v1", path: "/orders"}', "/v1/orders"),
        ('{url_base: "{{ config.url }}/v1/", path: "orders"}', "/v1/orders"),
        ('{url_base: "{{ config.url }}/v1/orders", path: ""}', "/v1/orders"),
        ('{url: "{{ config.url }}/v2/orders", path: null}', "/v2/orders"),
        (
            '{path: "stores/{{ stream_partition.store }}/{{ stream_interval.start_time }}"}',
            "/stores/7/2024",
        ),
        (
            '{path: "orders?fields=a,b", request_parameters: {limit: 5}}',
            "/orders?fields=a,b&limit=5",
        ),
    ],
)
def test_the_url_is_that_of_the_base_and_the_path(
    reading: Reading, requester: str, target: str
) -> None:
    each = Slice({"store": 7}, {"start_time": "2024"})
    assert reading.records(f"requester: {requester}", each) == [{"id": 1}]
    assert reading.api.urls == [target]


def test_parameters_are_evaluated_and_those_that_are_empty_are_left_out(reading: Reading) -> None:
    reading.configure(status="open", ids=["1", "2"], code="007", none=None)
    reading.records(
        """
        requester:
          request_parameters:
            status: "{{ config.status }}"
            id: "{{ config.ids }}"
            code: "{{ config.code }}"
            number: 5
            sum: "{{ 1 + 1 }}"
            flag: "{{ config.status == 'open' }}"
            missing: "{{ config.missing }}"
            deeper: "{{ config.missing.more }}"
            none: "{{ config.none }}"
            empty: ""
            "{{ config.status }}_at": "x y&z"
        """
    )
    (request,) = reading.api.requests
    assert request.query == [
        *(("status", "open"), ("id", "1"), ("id", "2"), ("code", "007"), ("number", "5")),
        *(("sum", "2"), ("flag", "True"), ("none", "None"), ("open_at", "x y&z")),
    ]


def test_parameters_may_be_one_template_that_gives_a_mapping(reading: Reading) -> None:
    reading.configure(params={"a": 1, "b": "x"})
    reading.records('requester: {request_parameters: "{{ config.params }}"}')
    assert reading.api.requests[0].params == {"a": "1", "b": "x"}


def test_headers_are_texts_and_replace_the_usual_ones(reading: Reading) -> None:
    reading.configure(version=3)
    reading.records(
        """
        requester:
          request_headers: {X-Version: "{{ config.version }}", Accept: text/csv, X-Empty: "{{ config.none }}"}
        """
    )
    headers = reading.api.requests[0].headers
    assert (headers["x-version"], headers["accept"]) == ("3", "text/csv")
    assert "x-empty" not in headers


@pytest.mark.parametrize("written", ["1.10", "1e3", "+1", "007", "[1,2]", "1_000"])
def test_a_header_is_sent_as_it_is_written(reading: Reading, written: str) -> None:
    reading.configure(written=written)
    reading.records("requester: {request_headers: {X-Version: '{{ config.written }}'}}")
    assert reading.api.requests[0].headers["x-version"] == written


def test_any_type_of_answer_is_accepted(reading: Reading) -> None:
    reading.records()
    assert reading.api.requests[0].headers["accept"] == "*/*"


@pytest.mark.parametrize(
    ("requester", "content_type", "body"),
    [
        (
            '{request_body_json: {a: {b: ["{{ config.n }}", true]}, empty: "{{ config.no }}"}}',
            "json",
            '{"a":{"b":[5,true]}}',
        ),
        ("""{request_body_json: '{"a": true, "b": null}'}""", "json", '{"a":true,"b":null}'),
        ('{request_body: {type: RequestBodyJsonObject, value: {id: "7"}}}', "json", '{"id":"7"}'),
        (
            """{request_body_json: {a: ["1", "1.10", "None"], b: "{{ '5' }}", c: "{{ 5 }}", d: 5}}""",
            "json",
            '{"a":["1","1.10","None"],"b":"5","c":5,"d":5}',
        ),
        ('{request_body_data: {a: "{{ config.n }}", b: "x y"}}', "form", "a=5&b=x+y"),
        ("{request_body: {type: RequestBodyUrlEncodedForm, value: {a: 1}}}", "form", "a=1"),
        ('{request_body_data: "n={{ config.n }}&x"}', "", "n=5&x"),
        (
            '{request_body: {type: RequestBodyPlainText, value: "hello {{ config.n }}"}}',
            "",
            "hello 5",
        ),
        ("""{request_body_data: "{'a': 'b'}"}""", "form", "a=b"),
        (
            '{request_body: {type: RequestBodyGraphQL, value: {query: "query { orders }"}}}',
            "json",
            '{"query":"query { orders }"}',
        ),
    ],
)
def test_the_body_is_json_a_form_or_a_text(
    reading: Reading, requester: str, content_type: str, body: str
) -> None:
    reading.configure(n=5)
    reading.records(f"requester: {{http_method: POST, {requester[1:]}")
    (request,) = reading.api.requests
    assert request.method == "POST"
    assert request.body.decode() == body
    assert content_type in request.headers.get("content-type", "")


def test_a_get_request_may_have_a_body(reading: Reading) -> None:
    reading.records("requester: {request_body_json: {a: 1}}")
    assert (reading.api.requests[0].method, reading.api.requests[0].json) == ("GET", {"a": 1})


def test_a_slice_puts_its_values_into_every_part_of_a_request(reading: Reading) -> None:
    options = (
        option("params", "since", "2024-01-01"),
        option("headers", "X-Until", "2024-01-31"),
        Option(Place("json", ("filter", "range", "from")), "2024-01-01"),
    )
    written = "requester: {http_method: POST, request_body_json: {filter: {kind: a}}}"
    reading.pages(written, JANUARY, options)
    reading.pages("requester: {http_method: POST}", JANUARY, (option("data", "from", 1),))
    first, second = reading.api.requests
    assert (first.params, first.headers["x-until"]) == ({"since": "2024-01-01"}, "2024-01-31")
    assert first.json == {"filter": {"kind": "a", "range": {"from": "2024-01-01"}}}
    assert second.form == [("from", "1")]


def test_an_object_that_is_put_into_a_request_is_json_unless_the_body_is(reading: Reading) -> None:
    found = {"after": [1, "a"]}
    added = (option("params", "a", found), option("headers", "X-A", found))
    reading.pages("", JANUARY, added)
    posts = "requester: {http_method: POST}"
    reading.pages(posts, JANUARY, (option("data", "a", found),))
    reading.pages(posts, JANUARY, (option("json", "a", found),))
    first, second, third = reading.api.requests
    text = '{"after":[1,"a"]}'
    assert (first.params["a"], first.headers["x-a"]) == (text, text)
    assert (second.form, third.json) == ([("a", text)], {"a": found})


def test_the_last_of_two_options_of_a_slice_wins(reading: Reading) -> None:
    reading.pages("", JANUARY, (option("headers", "X", 1), option("headers", "X", 2)))
    assert reading.api.requests[0].headers["x"] == "2"


@pytest.mark.parametrize(
    ("requester", "added"),
    [
        ("{request_parameters: {limit: '2'}}", option("params", "limit", 2)),
        ("{request_headers: {X-Limit: 2}}", option("headers", "x-limit", "2")),
        ("{request_body_data: {a: '1'}}", option("data", "a", 1)),
        ("{request_body_json: {a: {b: 1}}}", Option(Place("json", ("a", "b")), 1)),
    ],
)
def test_two_components_may_set_the_same_value(
    reading: Reading, requester: str, added: Option
) -> None:
    reading.pages(f"requester: {requester}", JANUARY, ())
    reading.pages(f"requester: {requester}", JANUARY, (added,))
    alone, both = reading.api.requests
    assert (both.query, both.body) == (alone.query, alone.body)


@pytest.mark.parametrize(
    ("requester", "added", "message"),
    [
        (
            "{request_parameters: {since: 1}}",
            option("params", "since", 2),
            (
                "the parameter 'since' of the query is set by both DeclarativeStream.retriever.requester."
                "request_parameters and the slice (incremental_sync or partition_router)"
            ),
        ),
        (
            "{request_headers: {X-A: 1}}",
            option("headers", "x-a", 2),
            "the header 'x-a' is set by both",
        ),
        (
            "{request_body_data: {a: 1}}",
            option("data", "a", 2),
            "the field 'a' of the form is set by both",
        ),
        (
            "{request_body_json: {a: {b: 1}}}",
            Option(Place("json", ("a", "b")), 2),
            "the field 'a.b' of the JSON body is set by both",
        ),
        (
            "{request_body_data: text}",
            option("data", "a", 1),
            "cannot add a field to a body that is a text",
        ),
        (
            "{request_body_data: {a: 1}}",
            option("json", "a", 1),
            "has both `request_body_data` and `request_body_json`",
        ),
    ],
)
def test_a_value_that_two_components_set_is_an_error_that_names_both(
    reading: Reading, requester: str, added: Option, message: str
) -> None:
    error = reading.error(f"requester: {requester}", JANUARY, options=(added,))
    assert isinstance(error, ConfigError)
    assert message in error.message
    assert error.message.startswith("stream 'orders': ")
    assert not reading.api.requests


def test_the_same_value_in_a_json_body_is_no_conflict(reading: Reading) -> None:
    added = (Option(Place("json", ("a", "b")), 1),)
    reading.pages("requester: {http_method: POST, request_body_json: {a: {b: 1}}}", JANUARY, added)
    assert reading.api.requests[0].json == {"a": {"b": 1}}


def test_a_parameter_of_the_authenticator_is_not_set_twice(reading: Reading) -> None:
    error = reading.error(
        """
        requester:
          request_headers: {Authorization: x}
          authenticator: {type: BearerAuthenticator, api_token: y}
        """
    )
    assert "set by both DeclarativeStream.retriever.requester.request_headers and" in error.message
    assert "requester.authenticator" in error.message


def test_an_object_is_no_parameter(reading: Reading) -> None:
    reading.configure(params={"a": {"b": 1}})
    error = reading.error('requester: {request_parameters: "{{ config.params }}"}')
    assert "the parameter 'a' of the query is an object" in error.message


def test_templates_are_evaluated_once_a_slice_unless_they_depend_on_the_page_or_the_time(
    reading: Reading,
) -> None:
    pages = iter([{"data": [{"id": n}], "next": n + 1 if n < 2 else None} for n in range(3)])
    times = iter(range(100))
    reading.answer(lambda _: next(pages))
    written = """
        requester:
          request_parameters:
            since: "{{ stream_interval.start_time }}"
            page: "{{ next_page_token.next_page_token }}"
            stamp: "{{ now_utc().minute }}"
        paginator:
          type: DefaultPaginator
          pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
        """
    with clock.use(lambda: NOON.replace(minute=next(times))):
        assert len(reading.pages(written, JANUARY)) == 3
    assert [request.query for request in reading.api.requests] == [
        [("since", "2024-01-01"), ("stamp", "0")],
        [("since", "2024-01-01"), ("page", "1"), ("stamp", "1")],
        [("since", "2024-01-01"), ("page", "2"), ("stamp", "2")],
    ]


def test_extra_fields_of_a_slice_are_variables(reading: Reading) -> None:
    each = Slice({"id": 1}, extra={"region": "eu"})
    reading.records(
        'requester: {path: "{{ region }}/{{ stream_slice.extra_fields.region }}"}', each
    )
    assert reading.api.urls == ["/eu/eu"]


@pytest.mark.parametrize("url", ["orders.example", "ftp://orders.example", "{{ config.missing }}"])
def test_a_url_without_scheme_or_host_is_refused(reading: Reading, url: str) -> None:
    error = reading.error(f'requester: {{url: "{url}", path: null}}')
    assert isinstance(error, ConfigError)
    assert "requester: the URL does not begin with https:// or http:// and a host" in error.message


def test_a_template_that_fails_is_an_error_of_the_stream(reading: Reading) -> None:
    error = reading.error('requester: {path: "{{ stream_partition.store.id }}"}', Slice())
    assert "stream 'orders': the template" in error.message
    assert "requester.path" in error.message


def test_responses_are_kept_for_requests_that_are_repeated(reading: Reading) -> None:
    reading.answer(lambda request: {"data": [{"n": len(reading.api.requests)}]})
    cached = 'requester: {use_cache: true, request_parameters: {a: "{{ config.a }}"}}'
    reading.configure(a=1)
    assert reading.records(cached) == reading.records(cached) == [{"n": 1}]
    reading.configure(a=2)
    assert reading.records(cached) == [{"n": 2}]
    assert reading.records("requester: {request_parameters: {a: 2}}") == [{"n": 3}]
    assert reading.records(cached) == [{"n": 2}]
    assert len(reading.api.requests) == 3


def test_a_parent_that_wants_no_cache_is_requested_each_time(reading: Reading) -> None:
    for text, number in (("false", 2), ("true", 3), ("null", 4)):
        for _ in range(2):
            reading.records(f"requester: {{path: {text}, use_cache: {text}}}", use_cache=True)
        assert len(reading.api.requests) == number


def test_a_response_that_a_filter_marks_is_not_kept(reading: Reading) -> None:
    reading.answer({"error": "busy"})
    written = """
        requester:
          use_cache: true
          error_handler:
            type: DefaultErrorHandler
            response_filters: [{action: IGNORE, predicate: "{{ response.error }}"}]
        """
    assert reading.records(written) == []
    reading.answer(ONE)
    assert reading.records(written) == [{"id": 1}]


@pytest.mark.parametrize(
    ("base", "path", "found"),
    [
        ("https://a.example/v1", "orders", "https://a.example/v1/orders"),
        ("https://a.example/v1", "/orders", "https://a.example/orders"),
        ("https://a.example/v1", "https://b.example/x", "https://b.example/x"),
        ("https://a.example/v1", "?page=2", "https://a.example/v1/?page=2"),
        ("https://a.example/v1", "", "https://a.example/v1"),
    ],
)
def test_a_path_is_joined_as_a_browser_does(base: str, path: str, found: str) -> None:
    assert options.joined(base, path) == found


@pytest.mark.parametrize(
    ("url", "params", "found"),
    [
        ("https://a.example", {"b": 1}, "https://a.example?b=1"),
        ("https://a.example/?x=%2F", {"b": "ä "}, "https://a.example/?x=%2F&b=%C3%A4+"),
        ("https://a.example/?x=1&y=2", {"x": 1, "y": 3}, "https://a.example/?x=1&y=2&y=3"),
        (
            "https://a.example/?x=1#end",
            {"y": [1, 2], "z": None},
            "https://a.example/?x=1&y=1&y=2#end",
        ),
        ("https://a.example/?", {"y": 1}, "https://a.example/?y=1"),
        ("https://a.example/?x=1&x=2", {"x": [1, 2]}, "https://a.example/?x=1&x=2"),
        ("https://a.example/?x=1&x=2", {"x": [1, 3]}, "https://a.example/?x=1&x=2&x=1&x=3"),
        ("https://a.example/?x=1&x=2", {"x": []}, "https://a.example/?x=1&x=2"),
    ],
)
def test_parameters_are_added_to_those_of_a_url(
    url: str, params: dict[str, Any], found: str
) -> None:
    assert options.with_query(url, params) == found


def test_the_time_outs_of_a_requester_are_those_of_its_requests(reading: Reading) -> None:
    def answer(_: Any) -> Any:
        time.sleep(0.3)
        return {"data": [{"id": 1}]}

    reading.answer(answer)
    handler = "error_handler: {type: DefaultErrorHandler, max_retries: 0}"
    error = reading.error(f"requester: {{read_timeout_in_seconds: 0.05, {handler}}}")
    assert isinstance(error, TransientError)
    requester = "requester: {read_timeout_in_seconds: 5, connect_timeout_in_seconds: 2.5}"
    assert reading.records(requester) == [{"id": 1}]
    error = reading.error("requester: {connect_timeout_in_seconds: 0}")
    assert isinstance(error, ConfigError) and "not greater than 0" in error.message
