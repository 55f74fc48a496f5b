"""Delivery of reports in the background, which never fails a sync, and delays its end by a bounded time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

MAX_CALLS = 10_000
"""Number of calls that may wait. The reports of a sync that lasts for days do not fill the memory if its
receiver is slower than they come: those that come then are dropped, and `error` says so."""
MAX_WAIT = 5.0
"""Seconds that the end of a sync waits for reports that are not delivered yet."""


class Delivery:
    """A queue of calls, which a daemon thread makes one after the other. After an error it makes the others.

    Attributes:
        error: the text of the first error; None if there was none.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def add(self, call: Callable[[], object]) -> None:
        """Queue a call, unless too many wait."""
        if self._calls.qsize() < MAX_CALLS:
            self._calls.put(call)
        elif self.error is None:
            self.error = (
                f"the receiver is too slow: reports were dropped while {MAX_CALLS:,} waited"
            )

    def close(self) -> None:
        """Wait until all calls are made, or the time is over; `error` then says so."""
        self._calls.put(None)
        self._thread.join(MAX_WAIT)
        if self._thread.is_alive() and self.error is None:
            self.error = f"the receiver did not answer within {MAX_WAIT:g} seconds"

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(call)

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a broken receiver must not fail the sync
            self.error = self.error or f"{type(error).__name__}: {error}"
