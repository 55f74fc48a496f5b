"""The pool of connections of a source: `HttpClient` sends with it, and several clients may share it."""

from __future__ import annotations

import functools
import logging
import os
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from connectors.sdk.http.addresses import AddressGuard, GuardedTransport
from connectors.sdk.http.failures import place
from connectors.sdk.limits import (
    SECONDS_VARIABLE,
    TOO_LARGE,
    Deadline,
    ResponseIsLate,
    ResponseLimits,
    response_limits,
)
from elt_assets.errors import SystemFailure, TransientError

USER_AGENT = "elt-assets"
TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 30.0
"""Time for which an unused connection stays open: a destination may be slow between two pages."""
_CODINGS = "gzip, deflate"
"""The compressions of bodies that are accepted: those that become larger step by step. One step of another
one, or of two in succession, may fill the memory."""

_OF_TRANSPORT = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""Headers, in lower case, that describe a body as it was sent."""
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables with the place of the certificates that httpx trusts."""


def timeouts(read: float, connect: float | None = None) -> httpx.Timeout:
    """Return the time-outs of a request: the seconds without data, and those until it is connected."""
    return httpx.Timeout(read, connect=connect or min(read, CONNECT_SECONDS), pool=None)


class Connections:
    """A pool of connections, which is made by the first request. Several threads may use it.

    Args:
        user_agent: the value of the header `User-Agent`, by which the API's provider knows the client.
        timeout: the seconds after which a request fails that receives nothing.
        limits: the limits of responses; by default those of the environment.
        guard: decides which addresses the connections may go to; by default as for a source in Python.
    """

    def __init__(
        self,
        *,
        user_agent: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        limits: ResponseLimits | None = None,
        guard: AddressGuard | None = None,
    ):
        self._user_agent = user_agent or USER_AGENT
        self._timeout = timeout
        self._limits = limits or response_limits()
        self.guard = guard or AddressGuard()
        """Decides which addresses the connections may go to."""
        self._deadline = Deadline()
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._close: Callable[[], object] | None = None

    def open(self) -> httpx.Client:
        """Return the client that has the connections."""
        with self._lock:
            if self._client is None:
                _be_silent()
                self._client = _Client(
                    self.guard,
                    self._deadline,
                    headers=httpx.Headers(
                        {
                            "User-Agent": self._user_agent,
                            "Accept": "application/json",
                            "Accept-Encoding": _CODINGS,
                        },
                        encoding="utf-8",
                    ),
                    timeout=timeouts(self._timeout),
                    limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
                    verify=_certificates(*map(os.environ.get, _CERTIFICATES)),
                )
                self._close = weakref.finalize(self, self._client.close)
            return self._client

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its response with the whole body. Redirects are not followed.

        Raises:
            httpx.RequestError: there is no response.
            SystemFailure: the body is too large, or compressed in a way that is not accepted.
            TransientError: the response takes too long.
        """
        try:
            with self._deadline.limit_to(self._limits.seconds):
                return self._wrap_response(request)
        except ResponseIsLate:
            raise TransientError(
                f"the response to {place(request)} was not complete after "
                f"{self._limits.seconds:g} seconds",
                guidance="run the sync again, and request smaller pages; a longer time is set by the "
                f"environment variable {SECONDS_VARIABLE}",
            ) from None

    def _wrap_response(self, request: httpx.Request) -> httpx.Response:
        received = self.open().send(request, stream=True)
        raw = _TimedStream(received, self._deadline)
        received.stream = raw
        try:
            if self._is_small(received):
                received.read()
                # The stream refers to the response. Without this, pages stay in memory until the garbage
                # collector finds the cycle, which takes hundreds of them.
                received.stream = httpx.ByteStream(b"")
                return received
            body = self._body(received, raw)
        finally:
            received.close()
        headers = [
            header for header in received.headers.raw if header[0].lower() not in _OF_TRANSPORT
        ]
        response = httpx.Response(
            received.status_code,
            headers=headers,
            content=body,
            request=request,
            extensions=received.extensions,
        )
        response.next_request = received.next_request
        return response

    def _is_small(self, received: httpx.Response) -> bool:
        """Return whether it is known that a body is not too large: it is not compressed and has a length."""
        length = received.headers.get("Content-Length", "")
        is_plain = "Content-Encoding" not in received.headers
        return is_plain and length.isdecimal() and int(length) <= self._limits.body_bytes

    def _body(self, received: httpx.Response, raw: _TimedStream) -> bytes:
        _check_coding(received)
        chunks, size = [], 0
        for chunk in received.iter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            problem = self._limits.problem(size, raw.size)
            if problem:
                raise SystemFailure(
                    f"the body of {place(received.request)} {problem}", guidance=TOO_LARGE
                )
        return b"".join(chunks)

    def close(self) -> None:
        """Close the connections. A later request opens new ones. They are also closed when this object is
        garbage, and at the end of the process."""
        with self._lock:
            self._client = None
            close, self._close = self._close, None
        if close is not None:
            close()


class _TimedStream(httpx.SyncByteStream):
    """The bytes of a body as they were sent, until a deadline; also those that a proxy has passed on.

    Attributes:
        size: the number of bytes so far.
    """

    def __init__(self, received: httpx.Response, deadline: Deadline):
        assert isinstance(received.stream, httpx.SyncByteStream)
        self._inner = received.stream
        self._deadline = deadline
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            self.size += len(chunk)
            self._deadline.check()
            yield chunk

    def close(self) -> None:
        self._inner.close()


def _check_coding(received: httpx.Response) -> None:
    """Check that a body is not compressed, or in one of the accepted ways.

    Raises:
        SystemFailure: it is compressed in another way, or more than once.
    """
    header = received.headers.get("Content-Encoding", "").lower()
    codings = [
        coding.strip() for coding in header.split(",") if coding.strip() not in ("", "identity")
    ]
    if len(codings) > 1 or not {*codings} <= {*_CODINGS.split(", ")}:
        raise SystemFailure(
            f"the body of {place(received.request)} is compressed with {', '.join(codings)!r}, which was not "
            "asked for",
            guidance=f"have the API send {_CODINGS} or uncompressed bodies: remove a header "
            "`Accept-Encoding` from the requests",
        )


class _Cookies(httpx.Cookies):
    """Cookies. A response without cookies, as most are, costs nothing."""

    def extract_cookies(self, response: httpx.Response) -> None:
        if "Set-Cookie" in response.headers:
            super().extract_cookies(response)


class _Client(httpx.Client):
    def __init__(self, guard: AddressGuard, deadline: Deadline, **settings: Any):
        self._guard = guard
        self._deadline = deadline
        super().__init__(**settings)
        self._cookies = _Cookies()

    def _init_transport(self, *_: Any, **settings: Any) -> httpx.BaseTransport:
        """Return the transport of direct connections. A proxy has another one, and resolves names itself."""
        return GuardedTransport(self._guard, self._deadline, settings["verify"], settings["limits"])


@functools.cache
def _certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return the settings of TLS, which all connections of the process share: reading the certificates takes
    as long as thousands of records."""
    return httpx.create_ssl_context()


def _be_silent() -> None:
    """Prevent httpx from logging each URL with the values of its query, which may be secrets."""
    logger = logging.getLogger("httpx")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
