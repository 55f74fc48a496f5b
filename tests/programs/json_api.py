"""A JSON API on the loopback, for tests of HTTP sources: resources in pages of each kind, access tokens that
expire, and answers that a test prescribes, such as failures.

The first part of a path is the kind of the pages, and the rest is the name of a resource, as in
`/cursor/stores/1/orders`. Parameters are read from the query and from a JSON body.

| kind | parameters | body |
|---|---|---|
| `all` | none | the list |
| `offset` | `offset`, `limit` | `{"data": [...], "total": 7}` |
| `page` | `page`, `per_page` | `{"data": [...], "pages": 2}` |
| `cursor` | `cursor`, `limit` | `{"data": [...], "meta": {"next": "c5", "more": true}}`; also a header |
| `next` | `at`, `limit` | `{"data": [...], "links": {"next": "/next/orders?at=5&limit=5"}}` |
| `link` | `at`, `limit` | the list; header `Link` |

Each kind leaves out the records whose `updated_at` is before the parameter `updated_since`, or after
`updated_until`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Record = dict[str, Any]
LIMIT = 100
"""The limit of a request that has none."""


@dataclass(frozen=True)
class Request:
    """A request that was received."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]

    def parameters(self) -> dict[str, str]:
        """The parameters of the query, or of a JSON body."""
        found = {name: values[-1] for name, values in self.query.items()}
        is_json = "json" in self.headers.get("content-type", "") and self.body
        return {**found, **(json.loads(self.body) if is_json else {})}

    def form(self) -> dict[str, str]:
        """The fields of a form, and the client that a header of a request for a token names."""
        kind, _, code = self.headers.get("authorization", "").partition(" ")
        found = dict(urllib.parse.parse_qsl(self.body.decode()))
        if kind == "Basic":
            found["client_id"], _, found["client_secret"] = (
                base64.b64decode(code).decode().partition(":")
            )
        return found


@dataclass(frozen=True)
class Answer:
    """An answer. `missing` bytes of the body are not sent; `delay` is in seconds."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    delay: float = 0.0

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class Tokens:
    """The token endpoint, `/token`. With it, every other path requires a valid access token.

    Each access token has a number, and so has each refresh token, if they rotate: then each is valid once.
    """

    client_id: str = "client"
    client_secret: str = "client-secret"
    refresh_token: str = "refresh-0"
    rotates: bool = False
    expires_in: Any = 3600
    issued: int = 0
    valid: set[str] = field(default_factory=set)

    def answer(self, form: Mapping[str, str]) -> Answer:
        client = (form.get("client_id"), form.get("client_secret"))
        if client != (self.client_id, self.client_secret):
            return Answer(401, {"error": "invalid_client"})
        if (
            form.get("grant_type") == "refresh_token"
            and form["refresh_token"] != self.refresh_token
        ):
            text = f"The token {form['refresh_token']} is expired"
            return Answer(400, {"error": "invalid_grant", "error_description": text})
        self.issued += 1
        token = f"access-{self.issued}"
        self.valid.add(token)
        found = {"access_token": token, "token_type": "bearer", "expires_in": self.expires_in}
        if self.rotates:
            self.refresh_token = f"refresh-{self.issued}"
            found["refresh_token"] = self.refresh_token
        return Answer(body=found)


@dataclass
class JsonApi:
    """The API: its resources, what it was asked, and what it answers next.

    Attributes:
        resources: the records of each resource, by its name.
        tokens: the token endpoint; None for an API without authentication.
        answers: the answers to the next requests, whatever they ask for; None in it stands for the usual
            answer.
        requests: the requests so far.
        url: the base URL.
    """

    resources: dict[str, list[Record]] = field(default_factory=dict)
    tokens: Tokens | None = None
    answers: deque[Answer | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        if self.answers:
            prescribed = self.answers.popleft()
            if prescribed is not None:
                return prescribed
        if self.tokens is not None:
            if request.path == "/token":
                return self.tokens.answer(request.form())
            if request.headers.get("authorization", "")[7:] not in self.tokens.valid:
                return Answer(401, {"message": "the token is not valid"})
        _, kind, resource = f"{urllib.parse.unquote(request.path)}/".split("/", 2)
        records = self.resources.get(resource.rstrip("/"))
        pages = getattr(self, f"_{kind}", None)
        if records is None or pages is None:
            return Answer(404, {"message": f"there is no {request.path}"})
        parameters = request.parameters()
        since = parameters.get("updated_since", "")
        until = parameters.get("updated_until", "~")
        kept = [each for each in records if since <= str(each.get("updated_at", "~")) <= until]
        found = pages(kept, parameters, request)
        assert isinstance(found, Answer)
        return found

    def _all(self, records: list[Record], _: Mapping[str, str], __: Request) -> Answer:
        return Answer(body=records)

    def _offset(self, records: list[Record], given: Mapping[str, str], _: Request) -> Answer:
        part = _part(records, int(given.get("offset", 0)), given)
        return Answer(body={"data": part, "total": len(records)})

    def _page(self, records: list[Record], given: Mapping[str, str], _: Request) -> Answer:
        size = int(given.get("per_page", LIMIT))
        begin = size * (int(given.get("page", 1)) - 1)
        pages = -(-len(records) // size)
        return Answer(body={"data": records[begin : begin + size], "pages": pages})

    def _cursor(self, records: list[Record], given: Mapping[str, str], _: Request) -> Answer:
        begin = int(given.get("cursor", "0").removeprefix("c"))
        following = _following(records, begin, given)
        cursor = None if following is None else f"c{following}"
        meta = {"next": cursor, "more": cursor is not None}
        headers = {} if cursor is None else {"X-Next-Cursor": cursor}
        return Answer(body={"data": _part(records, begin, given), "meta": meta}, headers=headers)

    def _next(self, records: list[Record], given: Mapping[str, str], asked: Request) -> Answer:
        url = _next_url(records, given, asked)
        body = {"data": _part(records, int(given.get("at", 0)), given), "links": {"next": url}}
        return Answer(body=body)

    def _link(self, records: list[Record], given: Mapping[str, str], asked: Request) -> Answer:
        url = _next_url(records, given, asked)
        first = f'<{self.url}{asked.path}>; rel="first"; title="first, and best"'
        links = first if url is None else f'{first}, <{self.url}{url}>; rel="next"'
        part = _part(records, int(given.get("at", 0)), given)
        return Answer(body=part, headers={"Link": links})


def _part(records: list[Record], begin: int, given: Mapping[str, str]) -> list[Record]:
    return records[begin : begin + int(given.get("limit", LIMIT))]


def _following(records: list[Record], begin: int, given: Mapping[str, str]) -> int | None:
    end = begin + int(given.get("limit", LIMIT))
    return end if end < len(records) else None


def _next_url(records: list[Record], given: Mapping[str, str], asked: Request) -> str | None:
    following = _following(records, int(given.get("at", 0)), given)
    if following is None:
        return None
    return f"{asked.path}?{urllib.parse.urlencode({**given, 'at': following})}"


@contextlib.contextmanager
def serving(api: JsonApi) -> Iterator[JsonApi]:
    """The API while the context lasts; `url` is set."""

    def respond(received: BaseHTTPRequestHandler, body: bytes) -> Answer:
        address = urllib.parse.urlsplit(received.path)
        request = Request(
            received.command,
            address.path,
            urllib.parse.parse_qs(address.query, keep_blank_values=True),
            {name.lower(): value for name, value in received.headers.items()},
            body,
            received.client_address,
        )
        api.requests.append(request)
        return api.answer(request)

    with loopback(respond) as url:
        api.url = url
        yield api


@contextlib.contextmanager
def loopback(respond: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[str]:
    """Serve HTTP on the loopback while the context lasts.

    Args:
        respond: Returns the answer to a request and its body.

    Returns:
        The URL of the server.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one packet for head and body
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self) -> None:
            answer = respond(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            content = answer.content()
            time.sleep(answer.delay)
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - answer.missing])
            self.close_connection |= answer.missing > 0

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that goes away, as after a timeout

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
