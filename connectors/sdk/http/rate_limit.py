"""Limits of the number of requests in a time, which the client keeps before the API refuses them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx


class Limiter(Protocol):
    """Decides when a request may be sent. One object serves all threads."""

    def reserve(self, request: httpx.Request) -> float:
        """Reserve the next possible time for a request, and return the seconds until then."""

    def observe(self, response: httpx.Response) -> None:
        """Take notice of what a response says about the limit."""


class MovingWindow:
    """Limits of the calls in any period of some lengths, in the order in which they are reserved.

    Args:
        rates: the number of calls and the length of each period in seconds.
        clock: returns a time in seconds that never goes back.
    """

    def __init__(
        self, rates: Sequence[tuple[int, float]], *, clock: Callable[[], float] = time.monotonic
    ):
        self._clock = clock
        self._lock = threading.Lock()
        self._rates = [(deque[float](maxlen=limit), seconds) for limit, seconds in rates]
        self._closed_until = 0.0

    def reserve(self, calls: int = 1) -> float:
        """Reserve the next possible time for some calls, and return the seconds until then."""
        with self._lock:
            current = self._clock()
            start = max(current, self._closed_until)
            for times, seconds in self._rates:
                expired = len(times) + calls - (times.maxlen or 0)
                if times:
                    start = max(start, times[-1])
                if expired > 0:
                    start = max(start, times[expired - 1] + seconds)
            for times, _ in self._rates:
                times.extend([start] * calls)
            return start - current

    def observe(self, remaining: int | None, reset_in: float | None) -> None:
        """Take notice of what the API says: calls that remain, and seconds until there are new ones."""
        if remaining == 0 and reset_in is not None:
            with self._lock:
                self._closed_until = max(self._closed_until, self._clock() + reset_in)


class FixedWindow:
    """A limit of the calls in periods that follow each other. The first one begins with the first call, and
    the API may say when the next one begins and how many calls remain.

    Args:
        limit: the number of calls in a period.
        seconds: the length of a period.
        clock: returns a time in seconds that never goes back.
    """

    def __init__(self, limit: int, seconds: float, *, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._limit = limit
        self._seconds = seconds
        self._used = 0
        self._begins = self._ends = float("-inf")

    def reserve(self, calls: int = 1) -> float:
        """Reserve the next possible time for some calls, and return the seconds until then."""
        with self._lock:
            current = self._clock()
            if current >= self._ends:
                self._begin(current)
            if self._used + calls > self._limit:
                self._begin(self._ends)
            self._used += calls
            return max(0.0, self._begins - current)

    def observe(self, remaining: int | None, reset_in: float | None) -> None:
        """Take notice of what the API says: calls that remain, and seconds until there are new ones."""
        with self._lock:
            current = self._clock()
            if current < self._begins:
                return  # the API speaks of an earlier period than the one that is reserved
            if remaining is not None:
                self._used = max(self._used, self._limit - remaining)
            if reset_in is not None and current < self._ends:
                self._ends = current + reset_in

    def _begin(self, start: float) -> None:
        self._begins, self._ends, self._used = start, start + self._seconds, 0


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
        self._window = MovingWindow([(requests, seconds)], clock=clock)

    def reserve(self, request: httpx.Request | None = None) -> float:
        del request  # all count in the same way
        return self._window.reserve()

    def observe(self, response: httpx.Response) -> None:
        """Do nothing: the limit is the written one."""
