"""The HTTP client, against an API on the loopback."""

from __future__ import annotations

import base64
import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx
import pytest

from connectors.sdk.http import (
    ApiKey,
    Authenticator,
    Basic,
    Bearer,
    HttpClient,
    OAuth2ClientCredentials,
    OAuth2RefreshToken,
    RateLimit,
    RetryPolicy,
)
from connectors.sdk.http.body import decoded
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import Outcome
from connectors.sdk.http.retry import Accept, Action, Fail, Ignore, Retry
from connectors.sdk.reports import FAILED, RATE_LIMITED
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.programs.json_api import Answer, JsonApi, Request, Tokens, serving

SECRET = "hunter2-abc"
ORDERS = [{"id": 1}, {"id": 2}]


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with serving(JsonApi({"orders": list(ORDERS)})) as found:
        yield found


@pytest.fixture
def other() -> Iterator[JsonApi]:
    """Another origin."""
    with serving(JsonApi({"orders": [{"id": 3}]})) as found:
        yield found


@pytest.fixture
def waits() -> list[float]:
    """The waits of the clients, which do not wait."""
    return []


Connect = Callable[..., HttpClient]


@pytest.fixture
def connect(api: JsonApi, waits: list[float]) -> Iterator[Connect]:
    """Makes a client of the API."""
    clients = []

    def made(**settings: Any) -> HttpClient:
        base = settings.pop("base_url", api.url)
        clients.append(HttpClient(base, **{"sleep": waits.append, **settings}))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


def test_a_request_has_parameters_headers_and_a_body(api: JsonApi, connect: Connect) -> None:
    client = connect(user_agent="shop/1.0", headers={"X-Version": "3", "X-Kind": "a"})
    found = client.get("all/orders", params={"status": "open", "none": None})
    assert decoded(found) == ORDERS
    client.request(
        "post", "/all/orders?x=1", headers={"x-kind": "Zoë"}, json={"amount": Decimal("1.10")}
    )
    client.request("POST", "all/orders", data={"a": "ä&b"})
    read, posted, form = api.requests
    assert read.query == {"status": ["open"]}
    assert read.headers["user-agent"] == "shop/1.0"
    assert read.headers["accept"] == "application/json"
    assert "gzip" in read.headers["accept-encoding"]
    assert (read.headers["x-version"], read.headers["x-kind"]) == ("3", "a")
    assert (posted.method, posted.query, posted.body) == ("POST", {"x": ["1"]}, b'{"amount":1.10}')
    assert posted.headers["content-type"] == "application/json"
    assert posted.headers["x-kind"].encode("latin-1").decode() == "Zoë"
    assert form.form() == {"a": "ä&b"}


def test_no_connection_is_made_before_the_first_request(connect: Connect) -> None:
    connect(base_url="http://127.0.0.1:9/").close()


@pytest.mark.process
def test_httpx_is_imported_on_demand_and_without_its_command_line() -> None:
    script = (
        "import sys, connectors.sdk; assert 'httpx' not in sys.modules; "
        "import connectors.sdk.http; assert 'httpx' in sys.modules; "
        "print(*{'rich', 'pygments', 'anyio', 'httpx._main'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_requests_share_connections(api: JsonApi, connect: Connect) -> None:
    client = connect()
    for _ in range(5):
        client.get("all/orders")
    assert len({request.connection for request in api.requests}) == 1
    client.close()
    client.get("all/orders")
    assert len({request.connection for request in api.requests}) == 2


def test_threads_share_a_client(api: JsonApi, connect: Connect) -> None:
    client = connect()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: decoded(client.get("all/orders")), range(40)))
    assert found == [ORDERS] * 40
    assert len({request.connection for request in api.requests}) <= 8


def test_a_response_is_freed_when_it_is_not_used_any_more(connect: Connect) -> None:
    found = connect().get("all/orders")
    decoded(found)
    kept = weakref.ref(found)
    gc.disable()
    try:
        del found
        assert kept() is None
    finally:
        gc.enable()


def test_connections_are_closed_with_the_client(api: JsonApi) -> None:
    client = HttpClient(api.url)
    client.get("all/orders")
    del client  # a connection that stays open is a warning, which fails the test
    gc.collect()


# Failures


def test_a_temporary_failure_is_retried(api: JsonApi, connect: Connect, waits: list[float]) -> None:
    api.answers.extend(
        [
            Answer(500),
            Answer(503, headers={"Retry-After": "7"}),
            Answer(body=ORDERS, missing=5),
            Answer(429, headers={"Retry-After": "30"}),
        ]
    )
    seen: list[tuple[float, str]] = []
    client = connect(retry=RetryPolicy(chance=lambda: 0.5))
    client.on_wait = lambda seconds, reason: seen.append((seconds, reason))
    assert decoded(client.get("all/orders")) == ORDERS
    assert waits == [1.0, 7.0, 4.0, 30.0]
    assert seen == [(1.0, FAILED), (7.0, FAILED), (4.0, FAILED), (30.0, RATE_LIMITED)]


def test_a_post_is_repeated_with_its_body(api: JsonApi, connect: Connect) -> None:
    api.answers.append(Answer(502))
    connect().request("POST", "all/orders", json={"a": 1})
    assert [request.body for request in api.requests] == [b'{"a":1}'] * 2


def test_an_api_that_fails_repeatedly_is_a_temporary_error(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    api.answers.extend([Answer(503, {"error": "down for maintenance"})] * 9)
    with pytest.raises(TransientError) as caught:
        connect(retry=RetryPolicy(attempts=3)).get("all/orders", params={"since": "2024"})
    assert f"GET {api.url}/all/orders?since=… failed (503 in 3 attempts)" in caught.value.message
    assert '{"error": "down for maintenance"}' in caught.value.message
    assert len(api.requests) == 3 and len(waits) == 2


def test_an_api_that_cannot_be_reached_is_a_temporary_error(connect: Connect) -> None:
    client = connect(base_url="http://127.0.0.1:9", retry=RetryPolicy(attempts=2))
    with pytest.raises(TransientError, match=r"failed in 2 attempts: ConnectError.*refused"):
        client.get("orders")


def test_a_response_that_is_too_slow_is_a_temporary_error(api: JsonApi, connect: Connect) -> None:
    api.answers.append(Answer(delay=0.2))
    with pytest.raises(TransientError, match="ReadTimeout: timed out"):
        connect(timeout=0.05, retry=RetryPolicy(attempts=1)).get("all/orders")


def test_a_slow_response_is_retried(api: JsonApi, connect: Connect) -> None:
    api.answers.append(Answer(delay=2))
    assert decoded(connect(timeout=1).get("all/orders")) == ORDERS


def test_a_body_in_another_encoding_than_declared_is_a_temporary_error(
    api: JsonApi, connect: Connect
) -> None:
    api.answers.append(Answer(body=b"no gzip", headers={"Content-Encoding": "gzip"}))
    with pytest.raises(TransientError, match="DecodingError"):
        connect(retry=RetryPolicy(attempts=1)).get("all/orders")


def test_an_error_of_the_request_is_not_retried(api: JsonApi, connect: Connect) -> None:
    with pytest.raises(SystemFailure, match=r"was rejected \(404\): .*there is no /all/customers"):
        connect().get("all/customers")
    assert len(api.requests) == 1


def test_a_url_of_another_scheme_than_http_is_an_error_of_the_config(connect: Connect) -> None:
    with pytest.raises(ConfigError, match="does not begin with https://"):
        connect().get("ftp://127.0.0.1/x")


def test_a_credential_with_a_line_break_is_an_error_that_does_not_quote_it(
    connect: Connect,
) -> None:
    with pytest.raises(ConfigError, match="line breaks") as caught:
        connect(authenticator=Bearer(f"{SECRET}\n")).get("all/orders")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


class MyPolicy:
    """A policy like that of a manifest: the API says in the body that it is busy."""

    def decide(self, outcome: Outcome, attempt: int) -> Action:
        if not isinstance(outcome, httpx.Response):
            return Ignore()
        if outcome.headers.get("X-Reset"):
            return Retry(float(outcome.headers["X-Reset"]), "quota")
        if outcome.status_code == 404:
            return Ignore()
        if b"no such table" in outcome.content:
            return Fail(ConfigError("the table is not there"))
        return Accept()


def test_a_custom_retry_policy_decides_on_any_response(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    client = connect(retry=MyPolicy())
    api.answers.extend([Answer(200, headers={"X-Reset": "9"}), Answer(503, {"a": 1})])
    found = client.get("all/orders")
    assert waits == [9.0] and decoded(found) == {"a": 1} and not is_ignored(found)
    assert is_ignored(client.get("all/customers"))
    api.answers.append(Answer(200, b"no such table"))
    with pytest.raises(ConfigError, match="the table is not there"):
        client.get("all/orders")
    with pytest.raises(TransientError, match="ConnectError"):
        connect(base_url="http://127.0.0.1:9", retry=MyPolicy()).get("x")


def test_each_attempt_counts_for_the_rate_limit(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    seen: list[str] = []
    limit = RateLimit(2, 60, clock=lambda: 0.0)
    client = connect(rate_limit=limit, on_wait=lambda _, reason: seen.append(reason))
    api.answers.append(Answer(503, headers={"Retry-After": "0"}))
    client.get("all/orders")
    client.get("all/orders")
    assert waits == [60.0] and seen == [RATE_LIMITED]


# Credentials


@pytest.mark.parametrize(
    ("authenticator", "header", "value"),
    [
        (ApiKey(SECRET), "x-api-key", SECRET),
        (
            ApiKey(SECRET, header="Authorization", prefix="Token "),
            "authorization",
            f"Token {SECRET}",
        ),
        (Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
        (
            Basic("ada", SECRET),
            "authorization",
            f"Basic {base64.b64encode(f'ada:{SECRET}'.encode()).decode()}",
        ),
        (
            Basic(SECRET),
            "authorization",
            f"Basic {base64.b64encode(f'{SECRET}:'.encode()).decode()}",
        ),
    ],
)
def test_an_authenticator_adds_a_header(
    api: JsonApi, connect: Connect, authenticator: Authenticator, header: str, value: str
) -> None:
    connect(authenticator=authenticator).get("all/orders")
    assert api.requests[0].headers[header] == value


def test_an_api_key_may_be_a_parameter(api: JsonApi, connect: Connect) -> None:
    client = connect(authenticator=ApiKey(SECRET, parameter="key"))
    client.get("all/orders", params={"a": "1"})
    client.get(f"{api.url}/all/orders?key=old&at=2")
    assert [request.query for request in api.requests] == [
        {"a": ["1"], "key": [SECRET]},
        {"key": [SECRET], "at": ["2"]},
    ]


class Echo(JsonApi):
    """Answers with what it was sent."""

    def answer(self, request: Request) -> Answer:
        sent = {"headers": request.headers, "query": request.query, "is": SECRET}
        return Answer(int(request.path[1:]), sent)


@pytest.mark.parametrize(
    "authenticator",
    [ApiKey(SECRET), ApiKey(SECRET, parameter="key"), Bearer(SECRET), Basic("ada", SECRET)],
)
def test_no_error_quotes_credentials(authenticator: Authenticator) -> None:
    code = base64.b64encode(f"ada:{SECRET}".encode()).decode()
    with (
        serving(Echo()) as api,
        HttpClient(
            api.url.replace("//", "//ada:hunter3-abc@"),
            authenticator=authenticator,
            headers={"X-Other": "hunter4-abc"},
            retry=RetryPolicy(attempts=1),
        ) as client,
    ):
        for status in (401, 403, 404, 429, 500):
            with pytest.raises(EltError) as caught:
                client.get(str(status))
            shown = str(caught.value)
            assert "****" in shown and "hunter" not in shown and code not in shown


def test_httpx_logs_no_url(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        connect(authenticator=ApiKey(SECRET, parameter="key")).get("all/orders")
    assert SECRET not in caplog.text


def test_refused_credentials_are_an_error_of_the_config(api: JsonApi, connect: Connect) -> None:
    api.answers.extend([Answer(401, {"error": "expired"}), Answer(403, {"error": "not yours"})])
    client = connect(authenticator=Bearer("old"))
    with pytest.raises(ConfigError) as caught:
        client.get("all/orders")
    assert "the API at 127.0.0.1 refused the credentials (401)" in caught.value.message
    assert "expired" in caught.value.message and "config" in str(caught.value.guidance)
    with pytest.raises(ConfigError, match=r"refused access \(403\).*not yours"):
        client.get("all/orders")


# Other origins


@pytest.mark.parametrize(
    "authenticator", [ApiKey(SECRET), ApiKey(SECRET, parameter="key"), Bearer(SECRET)]
)
def test_no_credentials_are_sent_to_another_origin(
    api: JsonApi, other: JsonApi, connect: Connect, authenticator: Authenticator
) -> None:
    client = connect(authenticator=authenticator, headers={"X-Other": SECRET}, user_agent="shop")
    client.request("GET", f"{other.url}/all/orders", headers={"X-Mine": SECRET})
    api.answers.append(Answer(302, headers={"Location": f"{other.url}/all/orders"}))
    assert decoded(client.get("all/orders")) == [{"id": 3}]
    assert len(other.requests) == 2 and SECRET in repr(api.requests)
    assert SECRET not in repr(other.requests)
    assert [request.headers["user-agent"] for request in other.requests] == ["shop"] * 2


def test_a_redirect_within_the_origin_keeps_the_credentials(api: JsonApi, connect: Connect) -> None:
    api.answers.append(Answer(301, headers={"Location": "/all/orders?moved=1"}))
    client = connect(authenticator=ApiKey(SECRET))
    assert decoded(client.get("old/orders", params={"since": "2024"})) == ORDERS
    assert [request.headers["x-api-key"] for request in api.requests] == [SECRET] * 2
    assert api.requests[1].query == {"moved": ["1"]}


def test_a_redirect_back_to_the_origin_carries_the_credentials_again(
    api: JsonApi, other: JsonApi, connect: Connect
) -> None:
    api.answers.append(Answer(307, headers={"Location": f"{other.url}/x"}))
    other.answers.append(Answer(307, headers={"Location": f"{api.url}/all/orders"}))
    assert decoded(connect(authenticator=ApiKey(SECRET)).get("x")) == ORDERS
    assert api.requests[-1].headers["x-api-key"] == SECRET


def test_credentials_are_sent_to_a_trusted_origin(other: JsonApi, connect: Connect) -> None:
    client = connect(authenticator=ApiKey(SECRET), trusted_origins=[other.url])
    client.get(f"{other.url}/all/orders")
    assert other.requests[0].headers["x-api-key"] == SECRET


def test_an_error_names_another_origin_that_requires_credentials(
    other: JsonApi, connect: Connect
) -> None:
    other.tokens = Tokens()
    tokens = OAuth2ClientCredentials("http://127.0.0.1:9", client_id="x", client_secret="y")
    with pytest.raises(SystemFailure, match="carried none: its origin") as caught:
        connect(authenticator=tokens).get(f"{other.url}/all/orders")
    assert "trusted_origins" in str(caught.value.guidance)


def test_endless_redirects_are_an_error(api: JsonApi, connect: Connect) -> None:
    api.answers.extend([Answer(302, headers={"Location": "/x"})] * 20)
    with pytest.raises(SystemFailure, match="redirected more than 10 times"):
        connect().get("x")


def test_a_post_is_not_redirected(api: JsonApi, connect: Connect) -> None:
    api.answers.append(Answer(302, headers={"Location": "/all/orders"}))
    with pytest.raises(SystemFailure, match=r"redirect that is not followed \(302\)"):
        connect().request("POST", "x")


@pytest.mark.parametrize("status", [307, 308])
def test_a_post_is_redirected_with_its_body_within_the_origin(
    api: JsonApi, other: JsonApi, connect: Connect, status: int
) -> None:
    client = connect(authenticator=ApiKey(SECRET))
    api.answers.append(Answer(status, headers={"Location": "/all/orders"}))
    assert decoded(client.request("POST", "x", json={"a": 1})) == ORDERS
    moved = api.requests[-1]
    assert (moved.method, moved.body, moved.headers["x-api-key"]) == ("POST", b'{"a":1}', SECRET)
    api.answers.append(Answer(status, headers={"Location": f"{other.url}/all/orders"}))
    with pytest.raises(SystemFailure, match="redirect that is not followed"):
        client.request("POST", "x", json={"a": 1})
    assert not other.requests


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_request_never_loses_its_body(
    api: JsonApi, other: JsonApi, connect: Connect, method: str, status: int
) -> None:
    api.answers.append(Answer(status, headers={"Location": f"{other.url}/all/orders"}))
    client = connect()
    with pytest.raises(SystemFailure, match="redirect that is not followed"):
        client.request(method, "x", json={"since": "2024"})
    with pytest.raises(
        ConfigError, match="it has a body, and its origin is not that of the base URL"
    ):
        client.request(method, f"{other.url}/all/orders", data={"since": "2024"})
    assert not other.requests
    trusting = connect(trusted_origins=[other.url])
    trusting.request(method, f"{other.url}/all/orders", json={"since": "2024"})
    api.answers.append(Answer(307, headers={"Location": f"{other.url}/all/orders"}))
    trusting.request(method, "x", json={"since": "2024"})
    assert [(each.method, each.body) for each in other.requests] == [
        (method, b'{"since":"2024"}')
    ] * 2


# Access tokens


def client_credentials(api: JsonApi, **settings: Any) -> OAuth2ClientCredentials:
    written = {"client_id": "client", "client_secret": "client-secret", **settings}
    return OAuth2ClientCredentials(f"{api.url}/token", **written)


def refresh_token(api: JsonApi, **settings: Any) -> OAuth2RefreshToken:
    written = {
        "client_id": "client",
        "client_secret": "client-secret",
        "refresh_token": "refresh-0",
        **settings,
    }
    return OAuth2RefreshToken(f"{api.url}/token", **written)


def paths(api: JsonApi) -> list[str]:
    return [request.path for request in api.requests]


@pytest.mark.parametrize("made", [client_credentials, refresh_token])
def test_a_token_is_fetched_for_the_first_request_and_reused(
    api: JsonApi, connect: Connect, made: Callable[..., Authenticator]
) -> None:
    api.tokens = Tokens()
    client = connect(authenticator=made(api, scopes=["read", "list"], extra={"audience": "shop"}))
    for _ in range(3):
        assert decoded(client.get("all/orders")) == ORDERS
    assert paths(api) == ["/token", *["/all/orders"] * 3]
    form = api.requests[0].form()
    assert (form["scope"], form["audience"]) == ("read list", "shop")
    assert "authorization" not in api.requests[0].headers


def test_the_client_credentials_may_be_sent_in_a_header(api: JsonApi, connect: Connect) -> None:
    api.tokens = Tokens()
    connect(authenticator=client_credentials(api, client_in="header")).get("all/orders")
    assert b"client" not in api.requests[0].body.replace(b"client_credentials", b"")


@pytest.mark.parametrize(
    ("expires_in", "fresh", "old"),
    [(3600, 3539, 3541), ("3600", 3539, 3541), (10, 8.9, 9.1), (None, 1e9, None)],
)
def test_a_token_is_replaced_shortly_before_it_expires(
    api: JsonApi, connect: Connect, expires_in: Any, fresh: float, old: float | None
) -> None:
    now = 0.0
    api.tokens = Tokens(expires_in=expires_in)
    client = connect(authenticator=client_credentials(api, clock=lambda: now))
    client.get("all/orders")
    now = fresh
    client.get("all/orders")
    assert api.tokens.issued == 1
    if old is not None:
        now = old
        client.get("all/orders")
        assert api.tokens.issued == 2


def test_a_token_that_is_refused_is_replaced_once_and_the_request_repeated(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    api.tokens = Tokens()
    client = connect(authenticator=client_credentials(api))
    client.get("all/orders")
    api.tokens.valid.clear()
    assert decoded(client.get("all/orders")) == ORDERS
    assert paths(api)[2:] == ["/all/orders", "/token", "/all/orders"]
    assert api.requests[-1].headers["authorization"] == "Bearer access-2"
    assert waits == []


def test_a_token_that_is_always_refused_is_an_error_of_the_config(
    api: JsonApi, connect: Connect
) -> None:
    api.tokens = Tokens()
    client = connect(authenticator=client_credentials(api))
    client.get("all/orders")
    api.answers.extend([Answer(401), None, Answer(503), Answer(401)])
    with pytest.raises(ConfigError, match="refused the credentials"):
        client.get("all/orders")
    assert api.tokens.issued == 2


def test_threads_share_a_token_and_its_replacement(api: JsonApi, connect: Connect) -> None:
    api.tokens = Tokens()
    client = connect(authenticator=client_credentials(api))
    together = threading.Barrier(6)

    def read(_: int) -> Any:
        together.wait()
        return decoded(client.get("all/orders"))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(read, range(6))) == [ORDERS] * 6
        assert api.tokens.issued == 1
        api.tokens.valid.clear()
        assert list(pool.map(read, range(6))) == [ORDERS] * 6
    assert api.tokens.issued == 2


def test_a_new_refresh_token_replaces_the_former_one(api: JsonApi, connect: Connect) -> None:
    api.tokens = Tokens(rotates=True)
    client = connect(authenticator=refresh_token(api))
    client.get("all/orders")
    api.tokens.valid.clear()
    client.get("all/orders")
    sent = [request.form()["refresh_token"] for request in api.requests if request.path == "/token"]
    assert sent == ["refresh-0", "refresh-1"]


def test_a_token_endpoint_that_fails_is_retried(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    api.tokens = Tokens()
    api.answers.extend([Answer(503, headers={"Retry-After": "3"}), Answer(missing=1, body=b"{}")])
    assert decoded(connect(authenticator=client_credentials(api)).get("all/orders")) == ORDERS
    assert waits[0] == 3.0 and len(waits) == 2


def test_the_time_of_a_request_is_reserved_when_its_token_is_there(
    api: JsonApi, connect: Connect
) -> None:
    """Threads that wait for a new token would otherwise send later than they reserved, too many at once."""
    api.tokens = Tokens()

    class Limit:
        def reserve(self, request: httpx.Request) -> float:
            assert request.headers["authorization"] == "Bearer access-1"
            return 0.0

        def observe(self, response: httpx.Response) -> None:
            assert response.status_code == 200

    token = OAuth2ClientCredentials(
        f"{api.url}/token", client_id="client", client_secret="client-secret"
    )
    client = connect(authenticator=token, rate_limit=Limit())
    assert client.get("all/orders").json() == ORDERS


def test_token_requests_do_not_count_for_the_rate_limit(
    api: JsonApi, connect: Connect, waits: list[float]
) -> None:
    api.tokens = Tokens()
    limit = RateLimit(1, 60, clock=lambda: 0.0)
    connect(authenticator=client_credentials(api), rate_limit=limit).get("all/orders")
    assert waits == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client_secret": SECRET}, r"issued no access token \(401\): .*invalid_client"),
        ({"refresh_token": SECRET}, r"\(400\): .*invalid_grant.*The token \*{4} is expired"),
    ],
)
def test_refused_client_credentials_are_an_error_of_the_config(
    api: JsonApi, connect: Connect, settings: Any, message: str
) -> None:
    api.tokens = Tokens()
    client = connect(authenticator=refresh_token(api, **settings))
    for _ in range(2):  # the endpoint is asked once: it might lock the account
        with pytest.raises(ConfigError, match=message) as caught:
            client.get("all/orders")
        assert SECRET not in str(caught.value)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(200, {"error": "bad_verification_code"}), ConfigError, "bad_verification_code"),
        (Answer(200, {"accessToken": SECRET}), SystemFailure, "it has 'accessToken'"),
        (Answer(200, [SECRET]), SystemFailure, "it has list"),
        (Answer(200, {}), SystemFailure, "it has no fields"),
        (Answer(200, b"<html>"), SystemFailure, "is not JSON"),
        (Answer(404, b"gone"), SystemFailure, r"was rejected \(404\): gone"),
    ],
)
def test_an_answer_without_a_token_is_an_error(
    api: JsonApi, connect: Connect, answer: Answer, kind: type[EltError], message: str
) -> None:
    api.answers.append(answer)
    with pytest.raises(kind, match=message) as caught:
        connect(authenticator=client_credentials(api)).get("all/orders")
    assert SECRET not in str(caught.value)
