"""Limits of responses, which are the size of a body, how much it may grow when it is decompressed, and the
time; and the limit of the memory of a process.

An API may send a small body that becomes any size, or a byte a second for ever: the timeout of an HTTP client
holds for each read alone. A user raises the limits by environment variables of the connector.
"""

from __future__ import annotations

import math
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elt_assets.errors import ConfigError

BODY_VARIABLE = "CONNECTOR_MAX_BODY_MEGABYTES"
EXPANSION_VARIABLE = "CONNECTOR_MAX_EXPANSION"
SECONDS_VARIABLE = "CONNECTOR_MAX_RESPONSE_SECONDS"
MEMORY_VARIABLE = "CONNECTOR_MAX_MEMORY_MEGABYTES"
MEMORY_MEGABYTES = 8192
TOO_LARGE = (
    "request smaller pages or shorter periods; a compressed body may also be meant to exhaust the memory of "
    f"its reader. The environment variables {BODY_VARIABLE} and {EXPANSION_VARIABLE} raise the limits"
)
"""Guidance for a body that is too large."""


@dataclass(frozen=True)
class ResponseLimits:
    """The limits of a response.

    Attributes:
        body_bytes: the size of the largest body in memory, after decompression.
        expansion: how many times as large as it was sent a compressed body may become.
        free_bytes: the size up to which a body may become larger than that.
        seconds: the time in which the whole response must have arrived.
    """

    body_bytes: int = 1 << 30
    expansion: int = 100
    free_bytes: int = 64 << 20
    seconds: float = 1800.0

    def problem(self, size: int, sent: int) -> str | None:
        """Return what is wrong with a body of this size; None if it is not too large.

        Args:
            size: the number of bytes after decompression.
            sent: the number of bytes as they were sent.
        """
        if size > self.body_bytes:
            return f"has more than {self.body_bytes} bytes"
        return self.growth(size, sent)

    def growth(self, size: int, sent: int) -> str | None:
        """Return what is wrong with the growth of a body, whatever its size; None if it is not too much."""
        if size <= max(self.free_bytes, self.expansion * sent):
            return None
        return f"becomes more than {self.expansion} times as large when it is decompressed"


class ResponseIsLate(Exception):
    """The time for a response is over."""


class Deadline(threading.local):
    """The end of the time for the response that a thread waits for; each thread has its own."""

    _end = math.inf

    @contextmanager
    def limit_to(self, seconds: float) -> Iterator[None]:
        """Return a context in which `check` fails after some seconds."""
        self._end = time.monotonic() + seconds
        try:
            yield
        finally:
            self._end = math.inf

    def check(self) -> None:
        """Check that the time is not over.

        Raises:
            ResponseIsLate: it is over.
        """
        if time.monotonic() > self._end:
            raise ResponseIsLate


def response_limits() -> ResponseLimits:
    """Return the limits that the environment sets, else the defaults.

    Raises:
        ConfigError: a variable is not a whole number of at least 1.
    """
    usual = ResponseLimits()
    return ResponseLimits(
        body_bytes=_number(BODY_VARIABLE, usual.body_bytes >> 20) << 20,
        expansion=_number(EXPANSION_VARIABLE, usual.expansion),
        seconds=_number(SECONDS_VARIABLE, int(usual.seconds)),
    )


@contextmanager
def limit_memory() -> Iterator[None]:
    """Limit the memory of this process while the context is open: what needs more fails with a MemoryError.

    Raises:
        ConfigError: the variable is not a whole number of at least 1.
    """
    limit = _number(MEMORY_VARIABLE, MEMORY_MEGABYTES) << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _number(name: str, usual: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return usual
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"the environment variable {name} is {text!r}, which is not a whole number of at least 1",
            guidance="correct it under `environment` of the source",
        )
    return int(text)
