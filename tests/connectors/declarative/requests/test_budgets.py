"""Call-rate budgets: requests are delayed before the API refuses them."""

from __future__ import annotations

import pytest

from connectors.declarative.manifest import clock, components
from connectors.declarative.requests.budgets import Matcher
from connectors.sdk.http.messages import Request
from connectors.sdk.reports import RATE_LIMITED
from elt_assets.errors import ConfigError
from tests.connectors.declarative.requests.support import NOON, Reading, component
from tests.programs.json_api import Answer


class Time:
    """A clock that stands still, or is moved by waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def budget(*policies: str) -> str:
    return f"{{type: HTTPAPIBudget, policies: [{', '.join(policies)}]}}"


def moving(rates: str, matchers: str = "") -> str:
    return f"{{type: MovingWindowCallRatePolicy, rates: [{rates}], matchers: [{matchers}]}}"


TWO_A_MINUTE = "{limit: 2, interval: PT1M}"


def test_requests_wait_for_the_budget_and_the_wait_is_reported(reading: Reading) -> None:
    time = Time()
    reading.environment.sleep = time.sleep
    reading.answer({"data": []})
    reading.limit(budget(moving(TWO_A_MINUTE)), time_now=time)
    for _ in range(5):
        reading.pages()
    assert reading.waits == [(60.0, RATE_LIMITED), (60.0, RATE_LIMITED)]


def test_requests_that_are_repeated_count(reading: Reading) -> None:
    reading.answer(Answer(500))
    reading.limit(budget(moving(TWO_A_MINUTE)), time_now=Time())
    reading.error()
    budgeted = [seconds for seconds, reason in reading.waits if reason == RATE_LIMITED]
    assert budgeted == [60.0, 60.0, 120.0, 120.0]


def test_the_first_policy_that_matches_counts_a_request(reading: Reading) -> None:
    reading.answer({"data": []})
    reading.limit(
        budget(
            "{type: UnlimitedCallRatePolicy, matchers: [{url_path_pattern: ^/free}]}",
            moving(TWO_A_MINUTE, "{method: GET, url_path_pattern: orders$}"),
        ),
        time_now=Time(),
    )
    for path in ("free", "orders", "free", "orders", "other", "orders"):
        reading.pages(f"requester: {{path: {path}}}")
    assert [seconds for seconds, _ in reading.waits] == [60.0]


def test_a_request_may_count_for_several_calls(reading: Reading) -> None:
    reading.configure(weight="2")
    reading.answer({"data": []})
    reading.limit(
        budget(moving("{limit: 3, interval: PT1M}", '{weight: "{{ config.weight }}"}')),
        time_now=Time(),
    )
    for _ in range(2):
        reading.pages()
    assert [seconds for seconds, _ in reading.waits] == [60.0]


@pytest.mark.parametrize(
    ("written", "matches"),
    [
        ("{}", True),
        ("{method: get}", True),
        ("{method: POST}", False),
        ("{url_base: 'https://api.example'}", True),
        ("{url_base: 'https://api.example/'}", True),
        ("{url_base: 'https://other.example'}", False),
        ("{url_path_pattern: '^/v1/orders$'}", True),
        ("{url_path_pattern: '^/orders'}", False),
        ("{params: {a: 1}}", True),
        ("{params: {a: 2}}", False),
        ("{headers: {x-a: b}}", True),
        ("{headers: {X-A: c}}", False),
        ("{method: GET, params: {a: 1}, headers: {X-A: c}}", False),
    ],
)
def test_a_matcher_needs_all_that_it_names(written: str, matches: bool) -> None:
    matcher = Matcher(component(components.HttpRequestRegexMatcher, written), {})
    request = Request("GET", "https://api.example/v1/orders/?a=1&b=2", headers={"X-A": "b"})
    assert matcher(request) is matches


def test_a_fixed_window_follows_what_the_api_says(reading: Reading) -> None:
    time = Time()
    reading.environment.sleep = time.sleep
    reading.limit(
        budget("{type: FixedWindowCallRatePolicy, period: PT1H, call_limit: 100, matchers: []}"),
        time_now=time,
    )
    reset = str(int(NOON.timestamp()) + 90)
    reading.answer(
        Answer(body={"data": []}, headers={"ratelimit-remaining": "1", "ratelimit-reset": reset})
    )
    with clock.frozen(NOON):
        reading.pages()
        reading.answer({"data": []})
        reading.pages()
        assert not reading.waits
        reading.pages()
    assert reading.waits == [(90.0, RATE_LIMITED)]


@pytest.mark.parametrize("policy", ["moving", "fixed"])
def test_a_budget_without_calls_waits_until_there_are_new_ones(
    reading: Reading, policy: str
) -> None:
    written = moving("{limit: 100, interval: PT1S}")
    if policy == "fixed":
        written = "{type: FixedWindowCallRatePolicy, period: PT1S, call_limit: 9, matchers: []}"
    time = Time()
    reading.environment.sleep = time.sleep
    reading.limit(budget(written), time_now=time)
    reading.answer(
        Answer(body={"data": []}, headers={"ratelimit-remaining": "0", "ratelimit-reset": "30"})
    )
    reading.pages()
    reading.answer({"data": []})
    reading.pages()
    assert reading.waits == [(30.0, RATE_LIMITED)]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "-1", "x", "9" * 5000])
def test_no_number_of_an_api_breaks_the_budget(reading: Reading, number: str) -> None:
    reading.limit(budget(moving("{limit: 100, interval: PT1S}")), time_now=Time())
    headers = {"ratelimit-remaining": number, "ratelimit-reset": number}
    reading.answer(Answer(body={"data": []}, headers=headers))
    reading.pages()
    reading.answer({"data": []})
    reading.pages()
    assert not reading.waits


@pytest.mark.parametrize(
    "policy",
    [
        moving("{limit: 0, interval: PT1M}"),
        moving("{limit: 2, interval: soon}"),
        moving("{limit: 2, interval: P1M}"),
        moving(""),
        moving(TWO_A_MINUTE, "{weight: 3}"),
        moving(TWO_A_MINUTE, "{url_path_pattern: '('}"),
        "{type: FixedWindowCallRatePolicy, period: PT0S, call_limit: 1, matchers: []}",
    ],
)
def test_a_policy_that_makes_no_sense_is_an_error_at_the_start(
    reading: Reading, policy: str
) -> None:
    with pytest.raises(ConfigError):
        reading.limit(budget(policy))
