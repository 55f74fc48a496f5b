"""Error handlers: what fails, what is ignored, what is repeated and when, and what the errors say."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import clock
from connectors.sdk.reports import FAILED, RATE_LIMITED
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import NOON, Reading
from tests.programs.json_api import Answer
from tests.programs.recording_api import in_turn

ONE = {"data": [{"id": 1}]}
SECRET = "hunter2-abc"
AFTER = """
paginator:
  type: DefaultPaginator
  page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: after}
  pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
"""


def handler(text: str) -> str:
    return f"requester: {{error_handler: {{type: DefaultErrorHandler, {text}}}}}"


def filters(*texts: str) -> str:
    return handler(f"response_filters: [{', '.join(texts)}]")


@pytest.mark.parametrize("status", [500, 502, 503, 408, 429, 420, 520, 599])
def test_a_status_that_may_pass_is_repeated_after_waits_that_double(
    reading: Reading, status: int
) -> None:
    reading.answer(in_turn(*[Answer(status)] * 3, ONE))
    assert reading.records() == [{"id": 1}]
    reason = RATE_LIMITED if status == 429 else FAILED
    assert reading.waits == [(1.0, reason), (2.0, reason), (4.0, reason)]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, SystemFailure),
        (401, ConfigError),
        (403, ConfigError),
        (404, SystemFailure),
        (422, SystemFailure),
    ],
)
def test_a_status_that_rejects_the_request_fails_at_once(
    reading: Reading, status: int, kind: type[EltError]
) -> None:
    reading.answer(Answer(status, {"message": "no such thing"}))
    error = reading.error()
    assert isinstance(error, kind)
    assert f"({status}" in error.message and "no such thing" in error.message
    assert error.message.startswith("stream 'orders': ")
    assert len(reading.api.requests) == 1 and not reading.waits


def test_a_request_is_repeated_five_times_or_as_often_as_the_manifest_says(
    reading: Reading,
) -> None:
    reading.answer(Answer(500, {"error": "broken"}))
    error = reading.error()
    assert isinstance(error, TransientError)
    assert "failed (500 in 6 attempts)" in error.message and "broken" in error.message
    assert len(reading.api.requests) == 6
    reading.configure(retries=1)
    reading.error(handler('max_retries: "{{ config.retries }}"'))
    assert len(reading.api.requests) == 8
    reading.error(handler("max_retries: 0"))
    assert len(reading.api.requests) == 9


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ("http_codes: [404]", Answer(404)),
        (
            "error_message_contains: 'not here'",
            Answer(400, {"errors": [{"detail": "it is not here"}]}),
        ),
        ("error_message_contains: 'not here'", Answer(400, b"it is not here")),
        ("""predicate: "{{ response.error.code == 7 }}" """, Answer(500, {"error": {"code": 7}})),
        ("""predicate: "{{ 'X-Gone' in headers }}" """, Answer(410, headers={"x-gone": "1"})),
        ("""predicate: "{{ response.gone }}" """, Answer(403, {"gone": True, "data": [{"id": 5}]})),
    ],
)
def test_a_response_that_a_filter_ignores_has_no_records_and_is_the_last_one(
    reading: Reading, condition: str, answer: Answer
) -> None:
    reading.answer(answer)
    assert reading.pages(filters(f"{{action: IGNORE, {condition}}}")) == []
    assert len(reading.api.requests) == 1
    reading.answer(ONE)
    assert reading.records(filters(f"{{action: IGNORE, {condition}}}")) == [{"id": 1}]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(200, {"gone": True, "data": [{"id": 5}], "next": 2}), [{"id": 5}, {"id": 1}]),
        (Answer(200, {"gone": True, "errors": ["no"], "next": 2}), [{"id": 1}]),
        (Answer(200, {"gone": True, "errors": ["no"]}), []),
        (Answer(304), []),
        (Answer(200, b"<html>gone</html>", {"x-gone": "1"}), []),
    ],
)
def test_records_of_an_ignored_response_whose_status_is_no_error_are_read(
    reading: Reading, answer: Answer, found: Any
) -> None:
    reading.answer(in_turn(answer, ONE))
    written = filters(
        """{action: IGNORE, http_codes: [304], predicate: "{{ response.gone or 'x-gone' in headers }}"}"""
    )
    assert reading.records(f"{written}\n{AFTER}") == found


def test_the_first_filter_that_matches_decides(reading: Reading) -> None:
    written = filters(
        "{action: IGNORE, http_codes: [404]}", "{action: FAIL, http_codes: [404, 410]}"
    )
    reading.answer(Answer(404))
    assert reading.pages(written) == []
    reading.answer(Answer(410))
    assert isinstance(reading.error(written), SystemFailure)


def test_an_error_has_the_message_and_the_type_of_the_filter(reading: Reading) -> None:
    reading.configure(account="acme")
    reading.answer(Answer(403, {"why": "unpaid"}))
    error = reading.error(
        filters(
            "{action: FAIL, http_codes: [403], failure_type: transient_error, error_message: "
            '"{{ config.account }} has not paid: {{ response.why }}"}'
        )
    )
    assert isinstance(error, TransientError)
    assert error.message.endswith("failed (403): acme has not paid: unpaid")
    assert "unpaid" in str(error.detail)


def test_a_successful_status_can_fail_too(reading: Reading) -> None:
    reading.answer({"ok": False, "error": "no access"})
    error = reading.error(
        filters(
            '{action: FAIL, predicate: "{{ response.ok is false }}", failure_type: config_error}'
        )
    )
    assert isinstance(error, ConfigError)
    assert "failed (200)" in error.message and "no access" in error.message


@pytest.mark.parametrize("action", ["RETRY", "RATE_LIMITED"])
def test_a_filter_can_repeat_any_response(reading: Reading, action: str) -> None:
    reading.answer(in_turn({"busy": True}, ONE))
    written = filters(f'{{action: {action}, predicate: "{{{{ response.busy }}}}"}}')
    assert reading.records(written) == [{"id": 1}]
    assert reading.waits == [(1.0, RATE_LIMITED if action == "RATE_LIMITED" else FAILED)]


def test_an_error_that_counts_as_success_has_no_records(reading: Reading) -> None:
    reading.answer(Answer(404, {"data": [{"id": 9}]}))
    assert reading.pages(filters("{action: SUCCESS, http_codes: [404]}")) == []


def test_a_filter_without_an_action_does_not_match(reading: Reading) -> None:
    reading.answer(Answer(404))
    assert "(404)" in reading.error(filters("{http_codes: [404], error_message: unused}")).message


@pytest.mark.parametrize(
    ("strategy", "headers", "waits"),
    [
        ("{type: ConstantBackoffStrategy, backoff_time_in_seconds: 7}", {}, [7.0, 7.0]),
        (
            '{type: ConstantBackoffStrategy, backoff_time_in_seconds: "{{ config.wait }}"}',
            {},
            [3.0, 3.0],
        ),
        ("{type: ExponentialBackoffStrategy}", {}, [10.0, 20.0]),
        ("{type: ExponentialBackoffStrategy, factor: 2}", {}, [4.0, 8.0]),
        ("{type: WaitTimeFromHeader, header: X-Wait}", {"X-Wait": "12.5"}, [12.5, 12.5]),
        (
            "{type: WaitTimeFromHeader, header: X-Wait, regex: '[0-9]+'}",
            {"X-Wait": "9s"},
            [9.0, 9.0],
        ),
        ("{type: WaitTimeFromHeader, header: X-Wait}", {}, [1.0, 2.0]),
        ("{type: WaitTimeFromHeader, header: X-Wait}", {"X-Wait": "soon"}, [1.0, 2.0]),
        ("{type: WaitTimeFromHeader, header: X-Wait}", {"X-Wait": "-7"}, [1.0, 2.0]),
        (
            "{type: WaitUntilTimeFromHeader, header: X-Reset, min_wait: 5}",
            {"X-Reset": "inf"},
            [5.0, 5.0],
        ),
        (
            "{type: WaitUntilTimeFromHeader, header: X-Reset}",
            {"X-Reset": str(int(NOON.timestamp()) + 30)},
            [31.0, 31.0],
        ),
        (
            "{type: WaitUntilTimeFromHeader, header: X-Reset, min_wait: 5}",
            {"X-Reset": "1"},
            [5.0, 5.0],
        ),
        ("{type: WaitUntilTimeFromHeader, header: X-Reset, min_wait: 5}", {}, [5.0, 5.0]),
        ("{type: WaitUntilTimeFromHeader, header: X-Reset}", {"X-Reset": "1"}, [1.0, 2.0]),
        (
            "{type: WaitTimeFromResponse, wait_time_in_seconds: \"{{ headers['X-Wait'] * 2 }}\"}",
            {"X-Wait": "6"},
            [66.0, 66.0],
        ),
        (
            "{type: WaitTimeFromResponse, wait_time_in_seconds: '{{ response.wait }}'}",
            {},
            [1.0, 2.0],
        ),
        (
            (
                "{type: WaitTimeFromHeader, header: X-Wait}, "
                "{type: ConstantBackoffStrategy, backoff_time_in_seconds: 4}"
            ),
            {},
            [4.0, 4.0],
        ),
    ],
)
def test_the_strategy_says_how_long_to_wait(
    reading: Reading, strategy: str, headers: dict[str, str], waits: list[float]
) -> None:
    reading.configure(wait="3")
    reading.answer(in_turn(*[Answer(503, headers=headers)] * 2, ONE))
    with clock.frozen(NOON):
        assert reading.records(handler(f"backoff_strategies: [{strategy}]")) == [{"id": 1}]
    assert [seconds for seconds, _ in reading.waits] == waits


@pytest.mark.parametrize(
    "kind",
    [
        "ConstantBackoffStrategy, backoff_time_in_seconds: 8",
        "ExponentialBackoffStrategy, factor: 4",
    ],
)
def test_a_wait_may_be_longer_at_random(reading: Reading, kind: str) -> None:
    reading.answer(in_turn(Answer(503), ONE))
    reading.records(handler(f"backoff_strategies: [{{type: {kind}, jitter_range_in_seconds: 2}}]"))
    assert 8 <= reading.waits[0][0] <= 12


def test_the_header_retry_after_counts_without_a_strategy(reading: Reading) -> None:
    reading.answer(in_turn(Answer(429, headers={"Retry-After": "40"}), ONE))
    assert reading.records() == [{"id": 1}]
    assert reading.waits == [(40.0, RATE_LIMITED)]


@pytest.mark.parametrize(
    ("written", "header"),
    [
        ("", "Retry-After"),
        (
            handler(
                "backoff_strategies: [{type: WaitTimeFromHeader, header: X-Wait, "
                "max_waiting_time_in_seconds: 600}]"
            ),
            "X-Wait",
        ),
    ],
)
def test_too_long_a_wait_is_an_error_that_says_how_long(
    reading: Reading, written: str, header: str
) -> None:
    reading.answer(Answer(429, headers={header: "7200"}))
    error = reading.error(written)
    assert isinstance(error, TransientError)
    assert "asks to wait 7200 s" in error.message and "the maximum is 600 s" in error.message
    assert "120 min" in str(error.guidance)
    assert not reading.waits


COMPOSITE = """
    requester:
      error_handler:
        type: CompositeErrorHandler
        error_handlers:
          - response_filters: [{action: %s, http_codes: [%s]}]
            backoff_strategies: [{type: ConstantBackoffStrategy, backoff_time_in_seconds: 3}]
          - response_filters: [{action: %s, http_codes: [%s], error_message: second}]
            backoff_strategies: [{type: ConstantBackoffStrategy, backoff_time_in_seconds: 5}]
            max_retries: 9
    """


def test_of_several_handlers_the_one_whose_filter_matches_decides(reading: Reading) -> None:
    reading.answer(in_turn(Answer(429), Answer(403), ONE))
    assert reading.records(COMPOSITE % ("RATE_LIMITED", 429, "RETRY", 403)) == [{"id": 1}]
    assert reading.waits == [(3.0, RATE_LIMITED), (5.0, FAILED)]
    reading.answer(Answer(404))
    assert reading.pages(COMPOSITE % ("FAIL", 400, "IGNORE", 404)) == []


def test_what_an_earlier_handler_says_is_not_replaced_by_the_defaults_of_a_later_one(
    reading: Reading,
) -> None:
    reading.answer(Answer(503))
    error = reading.error(COMPOSITE % ("FAIL", 503, "IGNORE", 404))
    assert len(reading.api.requests) == 1
    assert "(503)" in error.message


def test_the_first_of_several_handlers_says_how_often_a_request_is_repeated(
    reading: Reading,
) -> None:
    reading.answer(Answer(500))
    reading.error(COMPOSITE % ("RETRY", 500, "IGNORE", 404))
    assert len(reading.api.requests) == 6


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(body=b"<html>log in</html>"), SystemFailure, "is not JSON: "),
        (
            Answer(body=b'{"data": [{"id": 1}, {"i'),
            TransientError,
            "ends after 24 bytes, within a JSON value",
        ),
        (Answer(body=b'{"data": [1'), TransientError, "within a JSON value"),
        (Answer(body={"data": [1]}), SystemFailure, "is not an object but a number"),
        (
            Answer(body={"error": {"code": 7, "message": "no access"}}),
            SystemFailure,
            'answered with an error in place of records (200): {"error"',
        ),
        (Answer(body={"data": None, "errors": ["bad query"]}), SystemFailure, "bad query"),
    ],
)
def test_an_answer_in_another_form_is_a_clear_error(
    reading: Reading, answer: Answer, kind: type[EltError], message: str
) -> None:
    reading.answer(answer)
    error = reading.error("requester: {request_parameters: {key: hunter2-abc}}")
    assert isinstance(error, kind)
    assert message in error.message
    assert error.message.startswith("stream 'orders': ") and "/orders?key=…" in error.message
    assert error.guidance and SECRET not in str(error)


@pytest.mark.parametrize("body", [b"", b"  ", {}, {"other": 1}, {"data": None}, {"data": []}])
def test_an_answer_without_records_is_no_error(reading: Reading, body: Any) -> None:
    reading.answer(Answer(body=body))
    assert reading.pages() == [[]]


def test_a_connection_that_breaks_is_repeated(reading: Reading) -> None:
    reading.answer(in_turn(Answer(body={"data": [1, 2, 3]}, missing=5), ONE))
    assert reading.records() == [{"id": 1}]
    assert reading.waits == [(1.0, FAILED)]


def test_no_message_contains_a_secret(reading: Reading) -> None:
    reading.answer(
        lambda request: Answer(
            400, {"you": f"sent {request.headers} {request.target} {request.body!r}"}
        )
    )
    for place in ("header", "request_parameter", "body_json", "body_data"):
        error = reading.error(
            f"""
            requester:
              http_method: POST
              authenticator:
                type: ApiKeyAuthenticator
                api_token: "Token {SECRET}"
                inject_into: {{type: RequestOption, inject_into: {place}, field_name: key}}
            """
        )
        assert SECRET not in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_what_was_read_before_a_failure_stays(reading: Reading, status: int) -> None:
    reading.answer(in_turn({"data": [{"id": 1}], "next": 2}, Answer(status)))
    found: list[Any] = []
    pages = reading.retriever(
        """
        paginator:
          type: DefaultPaginator
          pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
        """
    ).pages(Slice())
    with pytest.raises(ConfigError):
        found.extend(pages)
    assert found == [[{"id": 1}]]


def test_waits_are_reported_before_they_begin(reading: Reading) -> None:
    events: list[str] = []
    reading.environment.on_wait = lambda seconds, reason: events.append(f"{reason} {seconds}")
    reading.environment.sleep = lambda seconds: events.append(f"slept {seconds}")
    reading.answer(in_turn(Answer(429), ONE))
    reading.records()
    assert events == ["RATE_LIMITED 1.0", "slept 1.0"]


@pytest.mark.parametrize(
    "written",
    [
        handler("max_retries: many"),
        handler(
            "backoff_strategies: [{type: ConstantBackoffStrategy, backoff_time_in_seconds: soon}]"
        ),
        handler(
            "backoff_strategies: [{type: ConstantBackoffStrategy, backoff_time_in_seconds: 1, "
            "jitter_range_in_seconds: -1}]"
        ),
        handler("backoff_strategies: [{type: WaitTimeFromHeader, header: X, regex: '('}]"),
    ],
)
def test_a_handler_that_makes_no_sense_is_an_error_at_the_start(
    reading: Reading, written: str
) -> None:
    with pytest.raises(ConfigError):
        reading.retriever(written)
