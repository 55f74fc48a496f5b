"""A proxy of an S3 server that lies by rules: it loses answers, fails, waits, refuses, or ignores conditions.

It is a process of its own, because delta-rs stops the threads of a process at times.
`python -m tests.support.lying_store ENDPOINT` prints the port on which it listens.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

LOG_ENTRY = r"/_delta_log/\d+\.json$"
"""The path of a commit."""
_RULES, _REQUESTS = "/-/rules", "/-/requests"
_CODES = {500: "InternalError", 503: "SlowDown", 409: "ConditionalRequestConflict"}
_CODES |= {412: "PreconditionFailed", 403: "AccessDenied", 400: "BadRequest"}


@dataclass(frozen=True)
class Lie:
    """The proxy's treatment of some requests.

    `method`, `path`: regular expressions. `status`: of the answer, in place of the server's; 0: the
    connection is closed without an answer; None: the server's. `is_done`: whether the request takes effect.
    `code`: the error code of S3; default: the usual one of the status. `seconds`: the time before the answer.
    `skip`, `times`: how many requests are left alone first, and how many are answered with the lie.
    `ignores_condition`: whether the condition of a write is removed. `is_late`: whether the request takes
    effect only after its answer, when `seconds` have passed.
    """

    method: str = "PUT"
    path: str = LOG_ENTRY
    status: int | None = None
    is_done: bool = True
    code: str = ""
    seconds: float = 0
    skip: int = 0
    times: int = 1
    ignores_condition: bool = False
    is_late: bool = False


class Request(NamedTuple):
    """A request that the proxy had: `is_lie`, whether a rule applied to it."""

    method: str
    path: str
    is_lie: bool


@dataclass(frozen=True)
class LyingStore:
    """The proxy, as a test sees it."""

    endpoint: str

    def tell(self, *lies: Lie) -> None:
        """Replace all rules, and forget the requests so far. Of the rules that fit, the first one applies."""
        body = json.dumps([asdict(lie) for lie in lies]).encode()
        request = urllib.request.Request(f"{self.endpoint}{_RULES}", body, method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            pass

    def requests(self) -> list[Request]:
        with urllib.request.urlopen(f"{self.endpoint}{_REQUESTS}", timeout=60) as answer:
            return [Request(*fields) for fields in json.loads(answer.read())]

    @contextmanager
    def telling(self, *lies: Lie) -> Iterator[None]:
        self.tell(*lies)
        try:
            yield
        finally:
            self.tell()


@contextmanager
def lying_store(endpoint: str) -> Iterator[LyingStore]:
    """Start the proxy of a server."""
    command = [sys.executable, "-m", "tests.support.lying_store", endpoint]
    folder = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder)
    assert process.stdout is not None
    try:
        yield LyingStore(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


# The process of the proxy


class _State:
    def __init__(self, endpoint: str):
        self.server = urlsplit(endpoint).netloc
        self.lock = threading.Lock()
        self.rules: list[dict[str, Any]] = []
        self.requests: list[Request] = []

    def rule_for(self, method: str, path: str) -> Lie | None:
        with self.lock:
            rule = next((rule for rule in self.rules if _applies(rule, method, path)), None)
            self.requests.append(Request(method, path, rule is not None))
            return None if rule is None else Lie(**rule)


def _applies(rule: dict[str, Any], method: str, path: str) -> bool:
    """Return whether a rule applies to a request, and count the request."""
    if not re.fullmatch(rule["method"], method) or not re.search(rule["path"], path):
        return False
    counter = "skip" if rule["skip"] > 0 else "times"
    rule[counter] -= 1
    return counter == "times" and rule["times"] >= 0


class _Forwarded(NamedTuple):
    """A request to the server."""

    server: str
    method: str
    path: str
    body: bytes
    headers: dict[str, str]


def _forward(
    server: str, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes, dict[str, str]]:
    """Send a request to the server; return the status, the content and the headers of its answer."""
    connection = http.client.HTTPConnection(server, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, dict(answer.getheaders())


class _Handler(BaseHTTPRequestHandler):
    state: _State
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body, path = self._body(), unquote(self.path)
        if path == _RULES:
            self.state.rules, self.state.requests = json.loads(body), []
            return self._send(200, b"")
        if path == _REQUESTS:
            return self._send(200, json.dumps(self.state.requests).encode())
        lie = self.state.rule_for(self.command, path) or Lie()
        if lie.is_late:
            late = threading.Timer(lie.seconds, _forward, self._forwarded(body, ignores=False))
            late.start()
            return self._lie(lie)
        if not lie.is_done:
            time.sleep(lie.seconds)
            return self._lie(lie)
        request = self._forwarded(body, ignores=lie.ignores_condition)
        status, content, headers = _forward(*request)
        time.sleep(lie.seconds)
        if lie.status is None or status >= 300:
            return self._send(status, content, headers)
        return self._lie(lie)

    def _lie(self, lie: Lie) -> None:
        if not lie.status:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        code = lie.code or _CODES[lie.status]
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._send(lie.status, text.encode(), {"Content-Type": "application/xml"})

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _forwarded(self, body: bytes, *, ignores: bool) -> _Forwarded:
        left_out = ["expect", "transfer-encoding", "connection", "content-length"]
        left_out += ["if-none-match"] if ignores else []
        headers = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
        return _Forwarded(self.state.server, self.command, self.path, body, headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        length = str(len(content))
        for name, value in (headers or {}).items():
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, *_args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Ignore a client that has not waited for its answer."""


if __name__ == "__main__":
    _Handler.state = _State(sys.argv[1])
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
