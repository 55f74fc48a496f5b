"""An HTTP server on the loopback that records each request as it was sent, and answers by a script.

The script is a function from a request to an answer. `in_turn` makes one of several answers, and `routes` one
of a mapping from paths to answers, tuples of them, or functions.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.programs.json_api import Answer, loopback

Query = list[tuple[str, str]]


@dataclass(frozen=True)
class Received:
    """A request that was received: its target is path and query, as they were sent."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urllib.parse.urlsplit(self.target).path

    @property
    def query(self) -> Query:
        """The parameters of the query, decoded, in their order."""
        text = urllib.parse.urlsplit(self.target).query
        return urllib.parse.parse_qsl(text, keep_blank_values=True)

    @property
    def params(self) -> dict[str, str]:
        return dict(self.query)

    @property
    def url(self) -> str:
        """Path and query, percent-decoded."""
        return urllib.parse.unquote_plus(self.target)

    @property
    def form(self) -> Query:
        return urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received], Any]
"""Returns an `Answer`, or the body of one."""


def in_turn(*answers: Any) -> Script:
    """Return a script that gives each answer once, and then the last one again and again."""
    remaining = list(answers)
    lock = threading.Lock()

    def script(request: Received) -> Any:
        with lock:
            found = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return found(request) if callable(found) else found

    return script


def routes(by_path: Mapping[str, Any]) -> Script:
    """Return a script that answers by the path; a path that is missing has status 404."""
    scripts = {
        path: answer
        if callable(answer)
        else in_turn(*answer)
        if isinstance(answer, tuple)
        else answer
        for path, answer in by_path.items()
    }

    def script(request: Received) -> Any:
        found = scripts.get(request.path, Answer(404, {"message": f"no {request.path}"}))
        return found(request) if callable(found) else found

    return script


@dataclass
class RecordingApi:
    """The server: its script, its URL, and the requests so far."""

    script: Script = field(default=lambda _: {})
    url: str = ""
    requests: list[Received] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        """Path and query of each request, percent-decoded."""
        return [request.url for request in self.requests]

    def answer(self, request: Received) -> Answer:
        self.requests.append(request)
        found = self.script(request)
        return found if isinstance(found, Answer) else Answer(body=found)


@contextlib.contextmanager
def serving(api: RecordingApi) -> Iterator[RecordingApi]:
    """The server while the context lasts; `url` is set."""

    def respond(received: BaseHTTPRequestHandler, body: bytes) -> Answer:
        headers = {name.lower(): value for name, value in received.headers.items()}
        return api.answer(Received(received.command, received.path, headers, body))

    with loopback(respond) as url:
        api.url = url
        yield api
