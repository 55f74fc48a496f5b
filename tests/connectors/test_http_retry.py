"""Requests are repeated: the decisions of the retry policy, and the rate limit."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk.http import RateLimit, RetryPolicy
from connectors.sdk.http.failures import AccessRefused, Outcome
from connectors.sdk.http.rate_limit import FixedWindow, MovingWindow
from connectors.sdk.http.retry import Accept, Action, Fail, Ignore, Retry, retry_after
from connectors.sdk.reports import FAILED, RATE_LIMITED
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

NOW = 1_700_000_000.0
URL = "https://user:hunter2@api.example/v1/orders?api_key=hunter3&since=2024-01-01"


def request() -> httpx.Request:
    return httpx.Request("GET", URL)


def response(status: int, body: str = "", **headers: str) -> httpx.Response:
    written = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, text=body, headers=written, request=request())


def decide(outcome: Outcome, attempt: int = 1, **settings: Any) -> Action:
    policy = RetryPolicy(clock=lambda: NOW, chance=lambda: 1.0, **settings)
    return policy.decide(outcome, attempt)


def failure(outcome: Outcome, attempt: int = 1, **settings: Any) -> EltError:
    action = decide(outcome, attempt, **settings)
    assert isinstance(action, Fail)
    return action.error


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_successful_response_is_accepted(status: int) -> None:
    assert decide(response(status)) == Accept()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 522])
def test_a_temporary_error_status_is_retried(status: int) -> None:
    reason = RATE_LIMITED if status == 429 else FAILED
    assert decide(response(status)) == Retry(2.0, reason)


@pytest.mark.parametrize(
    "kind",
    [
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.ReadTimeout,
        httpx.ReadError,
        httpx.RemoteProtocolError,
        httpx.DecodingError,
    ],
)
def test_a_connection_error_is_retried(kind: Callable[..., httpx.RequestError]) -> None:
    assert decide(kind("", request=request())) == Retry(2.0, FAILED)


def test_the_longest_wait_doubles_with_each_attempt_up_to_the_maximum() -> None:
    waits = [
        decide(response(500), attempt, attempts=9, max_wait_seconds=20) for attempt in range(1, 7)
    ]
    assert waits == [Retry(seconds) for seconds in (2.0, 4.0, 8.0, 16.0, 20.0, 20.0)]


def test_a_wait_is_a_random_part_of_the_longest_one() -> None:
    policy = RetryPolicy(chance=lambda: 0.25)
    assert policy.decide(response(500), 3) == Retry(2.0)
    waits = [RetryPolicy().decide(response(500), 3) for _ in range(100)]
    assert all(isinstance(each, Retry) and 0 <= each.seconds <= 8 for each in waits)
    assert len({str(each) for each in waits}) > 50


def test_an_api_may_say_in_its_own_way_how_long_to_wait() -> None:
    def read_reset(outcome: Outcome, attempt: int) -> float | None:
        seconds = outcome.headers.get("X-Reset") if isinstance(outcome, httpx.Response) else None
        if seconds == "86400":
            raise TransientError("the quota of the day is used")
        return None if seconds is None else float(seconds) * attempt

    waits = [lambda _outcome, _attempt: None, read_reset]
    limited = response(429, X_Reset="7", Retry_After="1")
    assert decide(limited, 2, waits=waits) == Retry(14.0, RATE_LIMITED)
    assert decide(response(429, Retry_After="1"), waits=waits) == Retry(1.0, RATE_LIMITED)
    assert decide(httpx.ReadError("", request=request()), waits=waits) == Retry(2.0, FAILED)
    assert "quota of the day" in failure(response(429, X_Reset="86400"), waits=waits).message


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("1.5", 1.5),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (formatdate(NOW - 30, usegmt=True), 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("inf", None),
        ("１２", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(written: str, seconds: float | None) -> None:
    headers = httpx.Headers({"Retry-After": written}, encoding="utf-8")
    assert retry_after(headers, NOW) == seconds


def test_a_date_is_compared_with_the_clock_of_the_server() -> None:
    dates = {"Retry-After": formatdate(NOW + 90, usegmt=True), "Date": formatdate(NOW + 60)}
    assert retry_after(httpx.Headers(dates), NOW) == 30.0


@given(st.text(max_size=40))
def test_no_header_breaks_the_policy(written: str) -> None:
    headers = httpx.Headers({"Retry-After": written, "Date": written}, encoding="utf-8")
    found = retry_after(headers, NOW)
    assert found is None or found >= 0


def test_the_wait_that_the_api_requests_takes_precedence() -> None:
    assert decide(response(503, Retry_After="40")) == Retry(40.0, FAILED)
    assert decide(response(429, Retry_After="40"), 5) == Retry(40.0, RATE_LIMITED)


def test_a_wait_longer_than_the_maximum_is_an_error_that_says_how_long() -> None:
    error = failure(response(429, Retry_After="3601"))
    assert isinstance(error, TransientError)
    assert "asks to wait 3601 s" in error.message and "the maximum is 300 s" in error.message
    assert error.guidance == "run the sync again after 61 min, or raise `max_wait_seconds`"


def test_the_last_attempt_is_not_followed_by_a_wait() -> None:
    error = failure(response(503, "try later"), 6)
    assert isinstance(error, TransientError)
    assert "(503 in 6 attempts): try later" in error.message
    assert "429 in 6 attempts" in failure(response(429), 6).message
    error = failure(httpx.ConnectError("no route to host", request=request()), 6)
    assert isinstance(error, TransientError)
    assert "failed in 6 attempts: ConnectError: no route to host" in error.message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, SystemFailure),
        (304, SystemFailure),
        (400, SystemFailure),
        (401, ConfigError),
        (402, ConfigError),
        (403, AccessRefused),
        (404, SystemFailure),
        (407, ConfigError),
        (410, SystemFailure),
        (422, SystemFailure),
        (501, SystemFailure),
        (530, TransientError),
    ],
)
def test_another_error_status_fails_at_once_with_guidance(
    status: int, kind: type[EltError]
) -> None:
    error = failure(response(status, "no such thing"))
    assert type(error) is kind
    assert str(status) in error.message and error.guidance


def test_retried_ignored_and_accepted_statuses_can_be_set() -> None:
    settings: dict[str, Any] = {
        "retried_statuses": {409},
        "ignored_statuses": {404},
        "accepted_statuses": {400},
    }
    found = [decide(response(status), **settings) for status in (409, 404, 400)]
    assert found == [Retry(2.0), Ignore(), Accept()]
    assert isinstance(decide(response(503), **settings), Fail)


def test_an_error_message_has_the_url_and_no_secret() -> None:
    for outcome in (
        response(404, "no such page"),
        response(401, "who are you"),
        httpx.ReadTimeout("timed out", request=request()),
    ):
        shown = str(failure(outcome, 9))
        assert "GET https://api.example/v1/orders?api_key=…&since=…" in shown
        assert "hunter" not in shown
    assert "no such page" in str(failure(response(404, "no such page")))


def test_an_error_message_has_the_first_500_characters_of_the_body() -> None:
    message = failure(response(400, "word\n  " * 500)).message
    body = message.partition("): ")[2]
    assert body == f"{('word ' * 100)}"[:500] + "…"


def test_the_text_in_a_binary_body_is_shown() -> None:
    binary = httpx.Response(400, content=b"\xff\x00abc", request=request())
    assert "abc" in failure(binary).message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx.UnsupportedProtocol("ftp"), "does not begin with https://"),
        (httpx.LocalProtocolError("Illegal header value b'hunter4'"), "a header contains"),
    ],
)
def test_an_invalid_request_fails_at_once(error: httpx.RequestError, message: str) -> None:
    error.request = request()
    found = failure(error)
    assert isinstance(found, ConfigError)
    assert message in found.message and "hunter" not in str(found)


def test_an_invalid_certificate_fails_at_once() -> None:
    error = httpx.ConnectError("certificate verify failed", request=request())
    error.__cause__ = OSError()
    error.__cause__.__context__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert isinstance(failure(error), ConfigError)


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_rate_limit_lets_requests_pass_up_to_the_limit() -> None:
    clock = Clock()
    limit = RateLimit(3, 10, clock=clock)
    assert [limit.reserve() for _ in range(4)] == [0, 0, 0, 10]
    clock.sleep(5)
    assert [limit.reserve() for _ in range(3)] == [5, 5, 15]
    clock.sleep(100)
    assert limit.reserve() == 0


def test_a_rate_limit_without_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        RateLimit(0)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 2)), max_size=40),
)
def test_a_moving_window_never_has_more_calls_than_its_limits(
    rates: list[tuple[int, int]], calls: list[tuple[int, int]]
) -> None:
    rates = [(limit + 2, seconds) for limit, seconds in rates]
    clock = Clock()
    window = MovingWindow([(limit, float(seconds)) for limit, seconds in rates], clock=clock)
    sent: list[float] = []
    for gap, weight in calls:
        clock.sleep(gap / 10)
        sent += [clock.now + window.reserve(weight)] * weight
    assert sent == sorted(sent)
    for limit, seconds in rates:
        for first, last in zip(sent, sent[limit:], strict=False):
            assert last - first >= seconds - 1e-9


@given(st.integers(1, 5), st.lists(st.integers(0, 40), max_size=30))
def test_a_fixed_window_never_has_more_calls_than_its_limit(limit: int, gaps: list[int]) -> None:
    clock = Clock()
    window = FixedWindow(limit, 10.0, clock=clock)
    sent = []
    for gap in gaps:
        clock.sleep(gap / 4)
        sent.append(clock.now + window.reserve(1))
    for first, last in zip(sent, sent[limit:], strict=False):
        assert last > first
