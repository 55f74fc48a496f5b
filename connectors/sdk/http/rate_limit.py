"""Limit of the number of requests in a time, which the client keeps before the API refuses them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Limiter(Protocol):
    """Decides when a request may be sent. One object serves all threads."""

    def reserve(self) -> float:
        """Reserve the next possible time for a request, and return the seconds until then."""


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

    def reserve(self) -> float:
        with self._lock:
            now = self._clock()
            is_full = len(self._times) == self._times.maxlen
            earliest = self._times[0] + self._seconds if is_full else now
            at = max(now, earliest)
            self._times.append(at)
            return at - now
