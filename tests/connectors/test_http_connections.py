"""Several HTTP clients of a source that share their connections, and what each of them may request."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from connectors.sdk.http import Bearer, HttpClient
from connectors.sdk.http.connections import Connections
from connectors.sdk.limits import ResponseLimits, response_limits
from elt_assets.errors import ConfigError, SystemFailure, TransientError
from tests.programs.json_api import Answer, JsonApi, serving


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with serving(JsonApi({"orders": [{"id": 1}]})) as found:
        yield found


@pytest.fixture
def connections() -> Iterator[Connections]:
    found = Connections(user_agent="Zoë/1", timeout=5)
    yield found
    found.close()


def test_clients_share_only_their_connections(api: JsonApi, connections: Connections) -> None:
    clients = [
        HttpClient(api.url, authenticator=Bearer(token), connections=connections) for token in "ab"
    ]
    for client in clients:
        client.get("all/orders")
        client.close()
    first, second = api.requests
    assert first.connection == second.connection
    assert [request.headers["authorization"] for request in api.requests] == [
        "Bearer a",
        "Bearer b",
    ]
    assert first.headers["user-agent"].encode("latin-1").decode() == "Zoë/1"


def test_closed_connections_are_opened_again(api: JsonApi, connections: Connections) -> None:
    client = HttpClient(api.url, connections=connections)
    client.get("all/orders")
    connections.close()
    client.get("all/orders")
    first, second = api.requests
    assert first.connection != second.connection


def test_a_body_may_be_a_text_of_any_type(api: JsonApi, connections: Connections) -> None:
    client = HttpClient(api.url, connections=connections)
    client.request("POST", "all/orders", content="<ä/>", headers={"Content-Type": "text/xml"})
    client.request("POST", "all/orders", content="x")
    client.request("POST", "all/orders", data={"a": ["1", "2"]})
    first, second, third = api.requests
    assert (first.body.decode(), first.headers["content-type"]) == ("<ä/>", "text/xml")
    assert (second.body, second.headers.get("content-type")) == (b"x", None)
    assert third.body == b"a=1&a=2"


class Quota:
    """A limiter that sees requests and responses."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def reserve(self, request: httpx.Request) -> float:
        self.seen.append(f"{request.method} {request.url.path} {request.headers['x-a']}")
        return 0.5

    def observe(self, response: httpx.Response) -> None:
        self.seen.append(str(response.status_code))


def test_a_limiter_sees_requests_and_responses(api: JsonApi, connections: Connections) -> None:
    quota, waits = Quota(), list[float]()
    client = HttpClient(api.url, connections=connections, rate_limit=quota, sleep=waits.append)
    client.request("GET", "all/orders", headers={"X-A": "1"})
    assert quota.seen == ["GET /all/orders 1", "200"]
    assert waits == [0.5]


def test_a_body_is_limited_after_its_decompression(api: JsonApi) -> None:
    connections = Connections(limits=ResponseLimits(body_bytes=1000))
    client = HttpClient(api.url, connections=connections)
    for body in (b"x" * 1001, gzip.compress(b"x" * 1001)):
        encoding = "gzip" if body[:1] == b"\x1f" else "identity"
        api.answers.append(Answer(body=body, headers={"Content-Encoding": encoding}))
        with pytest.raises(SystemFailure, match=r"GET http://.*/all/orders has more than 1000 byt"):
            client.get("all/orders")
    api.answers.append(
        Answer(body=gzip.compress(b"x" * 1000), headers={"Content-Encoding": "gzip", "X-A": "1"})
    )
    response = client.get("all/orders")
    assert response.content == b"x" * 1000
    assert (response.headers["x-a"], response.headers["content-length"]) == ("1", "1000")
    connections.close()


@pytest.mark.parametrize("growth", [50, 1000])
def test_a_body_that_grows_too_much_is_refused(api: JsonApi, growth: int) -> None:
    """A body of zeros becomes a thousand times as large, one of records about twenty times."""
    connections = Connections(limits=ResponseLimits(expansion=100, free_bytes=1000))
    noise = random.Random(5).randbytes(2000)
    body = gzip.compress(noise + b"0" * (len(noise) * growth))
    api.answers.append(Answer(body=body, headers={"Content-Encoding": "gzip"}))
    client = HttpClient(api.url, connections=connections)
    if growth < 100:
        assert len(client.get("all/orders").content) == 2000 + 2000 * growth
    else:
        with pytest.raises(SystemFailure, match="becomes more than 100 times as large when"):
            client.get("all/orders")
    connections.close()


@pytest.mark.parametrize("coding", ["zstd", "br", "gzip, gzip", "gzip, identity, deflate"])
def test_a_compression_that_may_fill_the_memory_at_once_is_refused(
    api: JsonApi, connections: Connections, coding: str
) -> None:
    api.answers.append(Answer(body=b"x", headers={"Content-Encoding": coding}))
    with pytest.raises(SystemFailure, match="which was not asked for"):
        HttpClient(api.url, connections=connections).get("all/orders")
    assert api.requests[0].headers["accept-encoding"] == "gzip, deflate"


@contextlib.contextmanager
def slow_server(sent: bytes, repeated: bytes) -> Iterator[str]:
    """Serve a connection on which some bytes follow the beginning of a response for ever."""
    server = socket.create_server(("127.0.0.1", 0))
    has_ended = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(sent)
            while not has_ended.wait(0.01):
                connection.sendall(repeated)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    has_ended.set()
    thread.join()
    server.close()


@pytest.mark.parametrize(
    ("sent", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    ],
)
def test_a_response_that_never_ends_is_limited_as_a_whole(sent: bytes, repeated: bytes) -> None:
    """The silence between two bytes is short, in the head and in the body."""
    connections = Connections(limits=ResponseLimits(seconds=0.3))
    with slow_server(sent, repeated) as url:
        with pytest.raises(TransientError, match=r"GET http://.*/x was not complete after 0.3 s"):
            HttpClient(url, connections=connections).get("x")
        connections.close()


@pytest.mark.parametrize("coding", ["gzip", ""])
def test_a_response_has_a_limited_time(api: JsonApi, coding: str) -> None:
    """The time is over as soon as the body begins."""
    connections = Connections(limits=ResponseLimits(seconds=0))
    headers = {"Content-Encoding": coding} if coding else {}
    api.answers.append(Answer(body=gzip.compress(b"{}"), headers=headers))
    with pytest.raises(TransientError, match="was not complete after 0 seconds") as error:
        HttpClient(api.url, connections=connections).get("all/orders")
    assert "CONNECTOR_MAX_RESPONSE_SECONDS" in str(error.value.guidance)
    assert len(api.requests) == 1, "it is not repeated at once: each attempt would take as long"
    connections.close()


def test_the_environment_sets_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert response_limits() == ResponseLimits()
    monkeypatch.setenv("CONNECTOR_MAX_BODY_MEGABYTES", "2")
    monkeypatch.setenv("CONNECTOR_MAX_EXPANSION", "7")
    monkeypatch.setenv("CONNECTOR_MAX_RESPONSE_SECONDS", "5")
    assert response_limits() == ResponseLimits(body_bytes=2 << 20, expansion=7, seconds=5)
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv("CONNECTOR_MAX_EXPANSION", wrong)
        with pytest.raises(ConfigError, match="CONNECTOR_MAX_EXPANSION"):
            response_limits()


def test_a_body_is_limited_by_its_length(api: JsonApi) -> None:
    connections = Connections(limits=ResponseLimits(body_bytes=5))
    with pytest.raises(SystemFailure, match="has more than 5 bytes"):
        HttpClient(api.url, connections=connections).get("all/orders")
    connections.close()


def test_cookies_are_sent_back(api: JsonApi, connections: Connections) -> None:
    client = HttpClient(api.url, connections=connections)
    api.answers.append(Answer(200, {}, headers={"Set-Cookie": "session=5; Path=/"}))
    for _ in range(3):
        client.get("all/orders")
    assert [each.headers.get("cookie") for each in api.requests] == [None, *["session=5"] * 2]
