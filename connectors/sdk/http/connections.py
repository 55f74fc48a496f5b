"""The connections of a source: one pool, which several HTTP clients may share."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

import httpx

USER_AGENT = "elt-assets"
TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 30.0
"""Time for which an unused connection stays open: a destination may be slow between two pages."""


class Connections:
    """A pool of connections, which is made by the first request. Several threads may use it.

    Args:
        user_agent: the value of the header `User-Agent`, by which the API's provider knows the client.
        timeout: the seconds after which a request fails that receives nothing.
    """

    def __init__(self, *, user_agent: str | None = None, timeout: float = TIMEOUT_SECONDS):
        self._user_agent = user_agent or USER_AGENT
        self._timeout = timeout
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._close: Callable[[], object] | None = None

    def open(self) -> httpx.Client:
        """Return the client that has the connections."""
        with self._lock:
            if self._client is None:
                _be_silent()
                self._client = httpx.Client(
                    headers=httpx.Headers(
                        {"User-Agent": self._user_agent, "Accept": "application/json"},
                        encoding="utf-8",
                    ),
                    timeout=httpx.Timeout(
                        self._timeout, connect=min(self._timeout, CONNECT_SECONDS), pool=None
                    ),
                    limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
                )
                self._close = weakref.finalize(self, self._client.close)
            return self._client

    def close(self) -> None:
        """Close the connections. A later request opens new ones. They are also closed when this object is
        garbage, and at the end of the process."""
        with self._lock:
            self._client = None
            close, self._close = self._close, None
        if close is not None:
            close()


def _be_silent() -> None:
    """Prevent httpx from logging each URL with the values of its query, which may be secrets."""
    logger = logging.getLogger("httpx")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
