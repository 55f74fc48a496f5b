"""Reports that a config has changed, for example by a new refresh token, to the output of the source.

Spec: AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Listener = Callable[[Mapping[str, Any]], None]
"""Function that takes the whole config as it is now; it must be saved."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report_config(config: Mapping[str, Any]) -> None:
    """Report the whole config after a change."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(config)


@contextmanager
def reporting_config(listener: Listener) -> Iterator[None]:
    """Pass the changes of the config in this thread to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
