"""Limit of the number of requests in a time, which the client keeps before the API refuses them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import httpx


class Limiter(Protocol):
    """Decides when a request may be sent. One object serves all threads."""

    def reserve(self, request: httpx.Request) -> float:
        """Reserve the next possible time for a request, and return the seconds until then."""

    def observe(self, response: httpx.Response) -> None:
        """Take notice of what a response says about the limit."""


class RateLimit:
    """A limit of the requests in any period of a length, in the order in which they are reserved.

    Args:
        requests: the number of requests that may be sent within the period.
        seconds: the length of the period.
        clock: returns a time in seconds that never goes back.

    Raises:
        ValueError: no request would ever be sent.
    """

    def __init__(
        self, requests: int, seconds: float = 1.0, *, clock: Callable[[], float] = time.monotonic
    ):
        if requests < 1:
            raise ValueError("a rate limit needs at least one request")
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._times: deque[float] = deque(maxlen=requests)

    def reserve(self, request: httpx.Request | None = None) -> float:
        del request  # all count in the same way
        with self._lock:
            current = self._clock()
            is_full = len(self._times) == self._times.maxlen
            earliest = self._times[0] + self._seconds if is_full else current
            start = max(current, earliest)
            self._times.append(start)
            return start - current

    def observe(self, response: httpx.Response) -> None:
        """Do nothing: the limit is the written one."""
