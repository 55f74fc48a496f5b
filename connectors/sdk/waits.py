"""Reports that a stream waits, for example for the rate limit of its API, to the output of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

RATE_LIMITED = "RATE_LIMITED"
FAILED = "FAILED"
"""The reasons for a wait."""
LEAST_SECONDS = 5.0
"""Waits that are shorter are not reported: a rate limit has many of them."""

Listener = Callable[[float, str], None]
"""Function that takes the seconds and the reason of a wait that begins now."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report_wait(seconds: float, reason: str) -> None:
    """Report a wait to the output of the stream that is being read."""
    listener = _LISTENER.get()
    if listener is not None and seconds >= LEAST_SECONDS:
        listener(seconds, reason)


@contextmanager
def reporting_waits(listener: Listener) -> Iterator[None]:
    """Pass the waits of this thread to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
