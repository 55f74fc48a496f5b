"""Servers that attack a client of HTTP: each sends bytes of its own, and what comes of them."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

SECRET = "canary-secret-value"
"""The token that the client sends."""
_CLOSE = b"Connection: close\r\n"
"""So that no client sends its next request to a connection that is being closed."""
OK = b"HTTP/1.1 200 OK\r\n" + _CLOSE
LIMITED = b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n" + _CLOSE + b"Retry-After: "
REDIRECT = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n" + _CLOSE + b"Location: "
BLOCK = b" " * 65_536


@dataclass
class Server:
    """A server that sends the same bytes to each request, and forgets nothing.

    Attributes:
        port: where it listens on this machine.
        requests: the heads of the requests so far.
    """

    answer: Callable[[Server], Iterator[bytes]]
    port: int = 0
    requests: list[bytes] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[Server]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            yield self
            listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._send, args=(connection,), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # the client has seen enough
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65_536) or b"\r\n\r\n"
            self.requests.append(head)
            for part in self.answer(self):
                connection.sendall(part)


@dataclass(frozen=True)
class Attack:
    """What a server sends.

    Attributes:
        parts: returns the bytes; its argument is the port of another server, which must get no secret.
        error: pattern of the error; None if the body is read.
    """

    parts: Callable[[int], Iterator[bytes]]
    error: str | None


def once(*parts: bytes) -> Callable[[int], Iterator[bytes]]:
    return lambda _: iter(parts)


def forever(head: bytes, part: bytes, seconds: float = 0) -> Callable[[int], Iterator[bytes]]:
    def parts(_: int) -> Iterator[bytes]:
        yield head
        while True:
            yield part
            time.sleep(seconds)

    return parts


def body(content: bytes, *headers: bytes) -> Callable[[int], Iterator[bytes]]:
    length = b"Content-Length: %d\r\n\r\n" % len(content)
    return once(OK, *(header + b"\r\n" for header in headers), length, content)


def charset(name: bytes, content: bytes = b"{}") -> Callable[[int], Iterator[bytes]]:
    return body(content, b"Content-Type: text/html; charset=" + name)


BROKEN = "failed in 2 attempts: RemoteProtocolError"
LATE = "was not complete after 1 seconds"
LARGE = "has more than 16777216 bytes"
ATTACKS: Mapping[str, Attack] = {
    # bodies and heads that do not end
    "endless_body": Attack(forever(OK + b"\r\n", BLOCK), LARGE),
    "endless_chunks": Attack(
        forever(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n%b\r\n" % BLOCK), LARGE
    ),
    "endless_size_of_a_chunk": Attack(
        forever(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1" * 65_536), BROKEN
    ),
    "dripping_body": Attack(forever(OK + b"Content-Length: 99999\r\n\r\n", b" ", 0.05), LATE),
    "dripping_head": Attack(forever(OK, b"X: y\r\n", 0.05), LATE),
    "endless_hints": Attack(forever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.001), LATE),
    "endless_header": Attack(forever(OK + b"X: ", b"y" * 65_536), BROKEN),
    "endless_headers": Attack(forever(OK, b"X: y\r\n" * 1000), BROKEN),
    # small bodies that become large
    "bomb_of_gzip": Attack(body(gzip.compress(bytes(64 << 20)), b"Content-Encoding: gzip"), LARGE),
    "bomb_in_a_bomb": Attack(
        body(b"x", b"Content-Encoding: gzip, gzip"), "which was not asked for"
    ),
    "values": Attack(body(b"[" + b"[]," * 80_000 + b"1]"), "it has more than 100,000 values"),
    # what is not HTTP
    "no_head": Attack(once(b"{}"), BROKEN),
    "negative_length": Attack(once(OK + b"Content-Length: -1\r\n\r\n{}"), BROKEN),
    "long_length": Attack(once(OK + b"Content-Length: %b\r\n\r\n{}" % (b"9" * 5000)), BROKEN),
    "no_size_of_a_chunk": Attack(once(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}"), BROKEN),
    "another_protocol": Attack(once(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n"), BROKEN),
    # redirects
    "redirect_to_a_file": Attack(
        once(REDIRECT + b"file:///etc/passwd\r\n\r\n"), "does not begin with https"
    ),
    "redirect_to_another": Attack(
        lambda port: iter([REDIRECT + b"http://127.0.0.1:%d/\r\n\r\n" % port]), None
    ),
    "redirect_with_a_password": Attack(
        lambda port: iter([REDIRECT + b"http://%b:x@127.0.0.1:%d/\r\n\r\n" % (b"u", port)]), None
    ),
    "redirect_to_nothing": Attack(once(REDIRECT + b"http://[::1/\r\n\r\n"), BROKEN),
    "redirect_without_end": Attack(
        once(REDIRECT + b"/\r\n\r\n"), "was redirected more than 10 times"
    ),
    # waits
    "wait_of_many_digits": Attack(
        once(LIMITED + b"9" * 5000 + b"\r\n\r\n"), "asks to wait 1000000000000 s"
    ),
    "wait_until_the_end": Attack(
        once(LIMITED + b"Fri, 31 Dec 9999 23:59:59 -2359\r\n\r\n"), r"asks to wait 25\d{10} s"
    ),
    "wait_until_the_beginning": Attack(
        once(LIMITED + b"Mon, 01 Jan 0001 00:00:00 +2359\r\n\r\n"), "exceeds the API's rate limit"
    ),
    # encodings that are codecs of Python
    "charset_of_quadratic_time": Attack(charset(b"punycode", b"a" * 1_000_000), "is not JSON"),
    "charset_that_is_a_compression": Attack(charset(b"bz2"), None),
    "charset_that_fails": Attack(charset(b"undefined"), None),
    "charset_of_domains": Attack(charset(b"idna", b"x"), "is not JSON"),
    "charset_of_bytes": Attack(charset(b"hex", b"x"), "is not JSON"),
    "charset_of_half_characters": Attack(charset(b"utf-16", b"{}x"), "is not JSON"),
    "charset_of_an_error": Attack(
        once(
            b"HTTP/1.1 400 x\r\nContent-Type: a/b; charset=undefined\r\nContent-Length: 1\r\n\r\nx"
        ),
        r"was rejected \(400\): x",
    ),
    # texts in errors
    "secret_in_an_error": Attack(
        once(b"HTTP/1.1 400 x\r\nContent-Length: 19\r\n\r\n" + SECRET.encode()),
        r"\(400\): \*\*\*\*",
    ),
    "unknown_status": Attack(
        once(b"HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n"), r"failed \(999\)"
    ),
    "deep_body": Attack(body(b"[" * 90_000), "nested too deep"),
    "long_number": Attack(body(b"9" * 100_000), "out of range"),
}
