"""The connections of a source: one pool, which several HTTP clients may share."""

from __future__ import annotations

import functools
import logging
import os
import ssl
import threading
import weakref
from collections.abc import Callable
from typing import Any

import httpx

from connectors.sdk.http.failures import place
from elt_assets.errors import SystemFailure

USER_AGENT = "elt-assets"
TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 30.0
"""Time for which an unused connection stays open: a destination may be slow between two pages."""
MAX_BODY_BYTES = 1 << 30
"""Size of the largest body, after decompression: a small compressed one can become any size."""

_OF_TRANSPORT = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""Headers, in lower case, that describe a body as it was sent."""
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables with the place of the certificates that httpx trusts."""


class Connections:
    """A pool of connections, which is made by the first request. Several threads may use it.

    Args:
        user_agent: the value of the header `User-Agent`, by which the API's provider knows the client.
        timeout: the seconds after which a request fails that receives nothing.
        max_body_bytes: the size of the largest body, after decompression.
    """

    def __init__(
        self,
        *,
        user_agent: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ):
        self._user_agent = user_agent or USER_AGENT
        self._timeout = timeout
        self._max_body_bytes = max_body_bytes
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._close: Callable[[], object] | None = None

    def open(self) -> httpx.Client:
        """Return the client that has the connections."""
        with self._lock:
            if self._client is None:
                _be_silent()
                self._client = _Client(
                    headers=httpx.Headers(
                        {"User-Agent": self._user_agent, "Accept": "application/json"},
                        encoding="utf-8",
                    ),
                    timeout=httpx.Timeout(
                        self._timeout, connect=min(self._timeout, CONNECT_SECONDS), pool=None
                    ),
                    limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
                    verify=_certificates(*map(os.environ.get, _CERTIFICATES)),
                )
                self._close = weakref.finalize(self, self._client.close)
            return self._client

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its response with the whole body. Redirects are not followed.

        Raises:
            httpx.RequestError: there is no response.
            SystemFailure: the body is too large.
        """
        received = self.open().send(request, stream=True)
        try:
            if self._is_small(received):
                received.read()
                # The stream refers to the response. Without this, pages stay in memory until the garbage
                # collector finds the cycle, which takes hundreds of them.
                received.stream = httpx.ByteStream(b"")
                return received
            body = self._body(received)
        finally:
            received.close()
        headers = [each for each in received.headers.raw if each[0].lower() not in _OF_TRANSPORT]
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
        return is_plain and length.isdecimal() and int(length) <= self._max_body_bytes

    def _body(self, received: httpx.Response) -> bytes:
        chunks, size = [], 0
        for chunk in received.iter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_body_bytes:
                raise SystemFailure(
                    f"the body of {place(received.request)} has more than {self._max_body_bytes} bytes",
                    guidance="request smaller pages or shorter periods; a compressed body may also be meant "
                    "to exhaust the memory of its reader",
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


class _Cookies(httpx.Cookies):
    """Cookies. A response without cookies, as most are, costs nothing."""

    def extract_cookies(self, response: httpx.Response) -> None:
        if "Set-Cookie" in response.headers:
            super().extract_cookies(response)


class _Client(httpx.Client):
    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self._cookies = _Cookies()


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
