"""Faults of a server: each is an error that names the stream, the request and what to do, and
shows no secret."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from connectors.declarative.cursors.slices import Slice
from connectors.sdk.http.connections import Connections
from connectors.sdk.http.failures import AccessRefused
from connectors.sdk.limits import ResponseLimits
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import Reading
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, in_turn

SECRET = "hunter2-abc"
STREAM = """
requester:
  authenticator: {type: BearerAuthenticator, api_token: "{{ config.token }}"}
  request_parameters: {key: "{{ config.token }}"}
  error_handler: {type: DefaultErrorHandler, max_retries: 1}
paginator:
  type: DefaultPaginator
  page_token_option: {type: RequestPath}
  pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
"""
FAILING = (
    """{type: DefaultErrorHandler, response_filters: [{action: FAIL, predicate: "{{ 1 / 0 }}"}]}"""
)
METADATA = [
    "http://169.254.169.254/latest",
    "http://2852039166/latest",
    "http://0xA9FEA9FE/latest",
    "http://[fe80::1]/latest",
    "http://[::ffff:169.254.169.254]/latest",
    "http://[64:ff9b::a9fe:a9fe]/latest",
    "http://metadata.google.internal./computeMetadata/v1",
]


@pytest.fixture(autouse=True)
def secret(reading: Reading) -> None:
    reading.configure(token=SECRET)


def checked(reading: Reading, kind: type[EltError], written: str = STREAM) -> EltError:
    """The error of a read, after a check of what all errors have."""
    error = reading.error(written)
    assert type(error) is kind
    assert error.message.startswith("stream 'orders': ")
    assert error.guidance
    assert SECRET not in f"{error} {error.detail}"
    return error


def in_request(error: EltError) -> bool:
    return "GET http://127.0.0.1:" in error.message and "/orders?key=…" in error.message


def fail(_: Received) -> Any:
    raise ConnectionError("the handler of the server fails, so that it closes the connection")


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(body=b"<html>log in, hunter2-abc</html>"), SystemFailure, "is not JSON: "),
        (Answer(body=b'{"data": [{"id": 1}, {"i'), TransientError, "within a JSON value"),
        (Answer(body={"data": []}, missing=3), TransientError, "failed in 2 attempts"),
        (fail, TransientError, "failed in 2 attempts: RemoteProtocolError"),
        (
            Answer(body=b"no gzip", headers={"Content-Encoding": "gzip"}),
            TransientError,
            "failed in 2 attempts: DecodingError",
        ),
        (Answer(body=b"[" * 100_000), SystemFailure, "it is nested too deep"),
        (Answer(body=b'{"data": [{"n": 1' + b"0" * 5000 + b"}]}"), SystemFailure, "out of range"),
        (Answer(body=b'{"data": [{"a": "\xff"}]}'), SystemFailure, "is not JSON: 'utf-8' codec"),
        (Answer(body={"data": [{"id": 1}, "x"]}), SystemFailure, "not an object but a text"),
        (Answer(body={"data": [[{"id": 1}]]}), SystemFailure, "not an object but a list"),
        (Answer(body={"data": [None]}), SystemFailure, "not an object but null"),
        (
            Answer(body={"error": f"bad key {SECRET}"}),
            SystemFailure,
            "an error in place of records",
        ),
        (Answer(401, {"error": SECRET}), ConfigError, "refused the credentials (401)"),
        (Answer(403), AccessRefused, "refused access (403)"),
        (Answer(400, {"message": "no such field"}), SystemFailure, "no such field"),
        (Answer(429), TransientError, "exceeds the API's rate limit (429 in 2 attempts)"),
        (Answer(503), TransientError, "failed (503 in 2 attempts)"),
        (Answer(304), SystemFailure, "a redirect that is not followed (304)"),
        (Answer(302, headers={"Location": "/orders?key=x"}), SystemFailure, "more than 10 times"),
    ],
)
def test_a_fault_is_an_error_that_names_stream_and_request_and_shows_no_secret(
    reading: Reading, answer: Any, kind: type[EltError], message: str
) -> None:
    reading.answer(answer)
    error = checked(reading, kind)
    assert message in error.message
    assert in_request(error)


def test_a_failure_in_a_later_page_keeps_what_was_read(reading: Reading) -> None:
    reading.answer(in_turn({"data": [{"id": 1}], "next": "?at=2"}, Answer(401)))
    found: list[Any] = []
    with pytest.raises(ConfigError, match="refused the credentials"):
        found.extend(reading.retriever(STREAM).pages(Slice()))
    assert found == [[{"id": 1}]]


def test_a_slow_server_is_a_temporary_failure(reading: Reading) -> None:
    reading.environment.connections = Connections(timeout=0.05)
    reading.answer(Answer(body={"data": []}, delay=0.3))
    error = checked(reading, TransientError)
    assert "failed in 2 attempts: ReadTimeout" in error.message and in_request(error)
    reading.environment.connections.close()


def test_a_small_body_that_becomes_a_large_one_is_refused(reading: Reading) -> None:
    reading.environment.connections = Connections(limits=ResponseLimits(body_bytes=1 << 20))
    bomb = gzip.compress(b" " * (8 << 20))
    assert len(bomb) < 10_000
    reading.answer(Answer(body=bomb, headers={"Content-Encoding": "gzip"}))
    error = checked(reading, SystemFailure)
    assert "has more than 1048576 bytes" in error.message and in_request(error)
    reading.answer({"data": [{"id": 1}]})
    assert reading.records(STREAM) == [{"id": 1}]
    reading.environment.connections.close()


@pytest.mark.parametrize("url", METADATA)
def test_an_api_cannot_send_the_reader_to_a_metadata_service(reading: Reading, url: str) -> None:
    answers = (
        Answer(302, headers={"Location": url}),
        Answer(307, headers={"Location": url}),
        Answer(body={"data": [{"id": 1}], "next": url}),
    )
    for answer in answers:
        reading.answer(answer)
        assert "is refused: it is a link-local address" in checked(reading, ConfigError).message
    posts = STREAM.replace("requester:", "requester:\n  http_method: POST")
    assert "is refused" in checked(reading, ConfigError, posts).message
    login = STREAM.replace(
        '{type: BearerAuthenticator, api_token: "{{ config.token }}"}',
        f"{{type: OAuthAuthenticator, token_refresh_endpoint: '{url}', client_id: a, client_secret: b, "
        "refresh_token: c}",
    )
    assert "is refused" in checked(reading, ConfigError, login).message


def test_a_link_to_another_host_gets_nothing_and_its_refusal_says_what_to_trust(
    reading: Reading, other: RecordingApi
) -> None:
    other.script = lambda _: Answer(403)
    reading.answer({"data": [{"id": 1}], "next": f"{other.url}/orders?at=2"})
    error = checked(reading, SystemFailure)
    assert (
        "requires credentials (403)" in error.message
        and f"{other.url}/orders?at=…" in error.message
    )
    assert "trust its origin" in str(error.guidance)
    assert SECRET not in str([(each.target, each.headers) for each in other.requests])


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_request_with_a_body_is_not_redirected_to_another_host(
    reading: Reading, other: RecordingApi, method: str, status: int
) -> None:
    """A request without its body is another one, for all records instead of some, for example."""
    reading.answer(Answer(status, headers={"Location": f"{other.url}/orders"}))
    error = checked(reading, SystemFailure, with_body(method))
    assert f"a redirect that is not followed ({status})" in error.message
    assert not other.requests and SECRET in reading.api.requests[0].body.decode()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_link_to_another_host_is_refused_if_the_request_has_a_body(
    reading: Reading, other: RecordingApi, method: str
) -> None:
    reading.answer({"data": [{"id": 1}], "next": f"{other.url}/orders?at=2"})
    error = checked(reading, ConfigError, with_body(method))
    assert f"trust its origin: {other.url}" in str(error.guidance)
    assert not other.requests


def with_body(method: str) -> str:
    body = f"http_method: {method}\n  request_body_json: {{key: '{{{{ config.token }}}}'}}"
    return STREAM.replace("requester:", f"requester:\n  {body}")


@pytest.mark.parametrize(
    ("following", "message"),
    [
        (lambda number: f"?at={number % 3}", "the page that follows it was already read"),
        (lambda number: "?at=1", "the page that follows it was already read"),
    ],
)
def test_pages_that_do_not_end_are_an_error(reading: Reading, following: Any, message: str) -> None:
    reading.answer(
        lambda _: {"data": [{"id": 1}, {"id": 2}], "next": following(len(reading.api.requests))}
    )
    error = checked(reading, SystemFailure)
    assert "the pages of the API do not end: after GET" in error.message
    assert message in error.message and len(reading.api.requests) <= 15


def test_half_of_a_surrogate_pair_becomes_the_replacement_character(reading: Reading) -> None:
    reading.answer(
        Answer(body=b'{"data": [{"a": "cut \\ud83d", "b": "\\\\ud83d \\ud83d\\ude00"}]}')
    )
    assert reading.records(STREAM) == [{"a": "cut �", "b": "\\ud83d 😀"}]


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("requester: {path: '{{ config.none.deeper }}'}", "requester.path"),
        ("requester: {request_headers: {X: '{{ config.token + 1 }}'}}", "request_headers"),
        ("requester: {request_parameters: {X: '{{ nothing }}'}}", "request_parameters"),
        ("requester: {request_body_json: {X: '{{ 1 / 0 }}'}}", "request_body_json"),
        ("record_selector: {record_filter: {condition: '{{ 1 / 0 }}'}}", "record_filter"),
        (
            "transformations: [{type: AddFields, fields: [{path: [a], value: '{{ 1 / 0 }}'}]}]",
            "value",
        ),
        (f"requester: {{error_handler: {FAILING}}}", "response_filters[0]"),
        (STREAM.replace("response.next", "config.token.__class__.mro()"), "cursor_value"),
        (STREAM.replace("{{ response.next }}", "{% for i in range(10**9) %}{% endfor %}"), "range"),
    ],
)
def test_a_template_that_fails_is_named_with_its_place(
    reading: Reading, written: str, place: str
) -> None:
    reading.answer({"data": [{"id": 1}]})
    error = reading.error(written)
    assert isinstance(error, ConfigError)
    assert error.message.startswith("stream 'orders': the template ")
    assert place in error.message and SECRET not in str(error)
