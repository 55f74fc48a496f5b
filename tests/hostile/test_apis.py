"""Servers that attack the HTTP client of a source, each by the bytes that it sends."""

from __future__ import annotations

import re
import time

import pytest

from connectors.sdk.http import HttpClient
from connectors.sdk.http import body as bodies
from connectors.sdk.http.connections import Connections
from connectors.sdk.http.retry import RetryPolicy
from connectors.sdk.limits import ResponseLimits
from elt_assets.errors import EltError, TransientError
from tests.programs.hostile_api import ATTACKS, SECRET, Attack, Server

LIMITS = ResponseLimits(body_bytes=16 << 20, seconds=1)


def make_client(port: int, **settings: object) -> HttpClient:
    """Return a client that sends a token, and does not wait."""
    return HttpClient(
        f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {SECRET}"},
        retry=RetryPolicy(attempts=2),
        connections=Connections(timeout=5, limits=LIMITS),
        sleep=lambda _: None,
        **settings,  # type: ignore[arg-type]
    )


def call(attack: Attack, other: Server) -> str | None:
    """Return the error of a request; None if its body is read."""
    server = Server(lambda _: attack.parts(other.port))
    with server.serve(), make_client(server.port) as client:
        try:
            bodies.decoded(client.get("a"))
        except EltError as error:
            return str(error)
    return None


@pytest.mark.parametrize("name", ATTACKS)
def test_an_answer_ends_in_one_clear_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_VALUES", 100_000)
    begin = time.monotonic()
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with Server(lambda _: iter([empty])).serve() as other:
        error = call(ATTACKS[name], other)
        assert not any(SECRET.encode() in head for head in other.requests)
    expected = ATTACKS[name].error
    if expected is None:
        assert error is None
    else:
        assert error is not None and re.search(expected, error)
        assert SECRET not in error and len(error) < 2000
    assert time.monotonic() - begin < 20  # two seconds, and what a busy machine adds


class Never:
    """A rate limit that a header of an API has set."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def reserve(self, _: object) -> float:
        return self._seconds

    def observe(self, _: object) -> None:
        pass


@pytest.mark.parametrize("seconds", [86_401, 1e9, 1e300, float("inf")])
def test_no_request_waits_for_more_than_a_day(seconds: float) -> None:
    with (
        make_client(9, rate_limit=Never(seconds)) as client,
        pytest.raises(
            TransientError, match=r"the API at 127\.0\.0\.1 asks to wait .* at most 86400 s"
        ),
    ):
        client.get("a")
