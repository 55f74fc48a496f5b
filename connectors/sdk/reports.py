"""Reports to the output of the source: a stream waits, for example for the rate limit of its API, the
config has changed, for example by a new refresh token, or the user should know something.

Spec: AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

RATE_LIMITED = "RATE_LIMITED"
FAILED = "FAILED"
"""The reasons for a wait."""
LEAST_SECONDS = 5.0
"""Waits that are shorter are not reported: a rate limit has many of them."""

WaitListener = Callable[[float, str], None]
"""Function that takes the seconds and the reason of a wait that begins now."""
ConfigListener = Callable[[Mapping[str, Any]], None]
"""Function that takes the whole config as it is now; it must be saved."""

WarningListener = Callable[[str], None]
"""Function that takes a warning for the user."""

T = TypeVar("T")

_WAITS: ContextVar[WaitListener | None] = ContextVar("waits", default=None)
_CONFIGS: ContextVar[ConfigListener | None] = ContextVar("configs", default=None)

_WARNINGS: ContextVar[WarningListener | None] = ContextVar("warnings", default=None)


@contextmanager
def hold_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable of this thread have a value while the context is open."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def report_wait(seconds: float, reason: str) -> None:
    """Report a wait to the output of the stream that is being read."""
    listener = _WAITS.get()
    if listener is not None and seconds >= LEAST_SECONDS:
        listener(seconds, reason)


def listen_to_waits(listener: WaitListener) -> AbstractContextManager[None]:
    """Pass the waits of this thread to a listener while the context is open."""
    return hold_value(_WAITS, listener)


def report_config(config: Mapping[str, Any]) -> None:
    """Report the whole config after a change."""
    listener = _CONFIGS.get()
    if listener is not None:
        listener(config)


def listen_to_config(listener: ConfigListener) -> AbstractContextManager[None]:
    """Pass the changes of the config in this thread to a listener while the context is open."""
    return hold_value(_CONFIGS, listener)


def report_warning(text: str) -> None:
    """Report what the user should know about the source; what is about one read is a `Warn` item instead."""
    listener = _WARNINGS.get()
    if listener is not None:
        listener(text)


def listen_to_warnings(listener: WarningListener) -> AbstractContextManager[None]:
    """Pass the warnings of this thread to a listener while the context is open."""
    return hold_value(_WARNINGS, listener)
