"""The stop of threads whose records are not needed any more: they send no requests, and wait no longer."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from contextvars import ContextVar
from threading import Event

from connectors.sdk.reports import hold_value

_STOPPED: ContextVar[Event | None] = ContextVar("stopped", default=None)


class Stopped(Exception):
    """The thread must stop: what it reads is not needed any more."""


def check_stopped() -> None:
    """Check whether this thread must stop.

    Raises:
        Stopped: it must.
    """
    stopped = _STOPPED.get()
    if stopped is not None and stopped.is_set():
        raise Stopped


def pause(seconds: float) -> None:
    """Wait for a number of seconds.

    Raises:
        Stopped: the thread must stop.
    """
    stopped = _STOPPED.get()
    if stopped is None:
        time.sleep(seconds)
    elif stopped.wait(seconds):
        raise Stopped


def stopped_by(event: Event | None) -> AbstractContextManager[None]:
    """Let an event stop this thread while the context is open; with None, nothing stops it."""
    return hold_value(_STOPPED, event)
