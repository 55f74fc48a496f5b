"""Reports of what happens while a source works: a stream waits for its API, the config has changed, the user
should know something. Whoever knows it reports it; the command that runs has the listeners.

Spec: AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar

from elt_assets.protocol.catalog import StreamId

RATE_LIMITED = "RATE_LIMITED"
FAILED = "FAILED"
"""The reasons for a wait."""
LEAST_SECONDS = 5.0
"""Waits that are shorter are not reported: a rate limit has many of them."""

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def hold_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable of this thread have a value while the context is open."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class Reports(Generic[P]):
    """The reports of one kind. They go to the listener of the context, if it has one."""

    def __init__(self, name: str):
        self._listener: ContextVar[Callable[P, object] | None] = ContextVar(name, default=None)

    def send(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Pass a report to the listener."""
        if (listener := self._listener.get()) is not None:
            listener(*arguments, **named)

    def listen(self, listener: Callable[P, object]) -> AbstractContextManager[None]:
        """Pass the reports of this thread to a listener while the context is open."""
        return hold_value(self._listener, listener)


WAITS = Reports[[float, str]]("waits")
"""The seconds and the reason of a wait that begins now."""
CONFIGS = Reports[[Mapping[str, Any]]]("configs")
"""The whole config as it is now; it must be saved."""
WARNINGS = Reports[[str]]("warnings")
"""What the user should know about the source."""
STREAM_WARNINGS = Reports[[StreamId, str]]("stream_warnings")
"""What the user should know about a stream: the one that is being read, or a parent that is read for it."""
ESTIMATES = Reports[[StreamId, int]]("estimates")
"""The number of records that the read of a stream will yield."""

KINDS: tuple[Reports[Any], ...] = (WAITS, CONFIGS, WARNINGS, STREAM_WARNINGS, ESTIMATES)

listen_to_waits, listen_to_warnings = WAITS.listen, WARNINGS.listen
listen_to_config, report_warning = CONFIGS.listen, WARNINGS.send


def report_wait(seconds: float, reason: str) -> None:
    """Report a wait to the output of the stream that is being read."""
    if seconds >= LEAST_SECONDS:
        WAITS.send(seconds, reason)
