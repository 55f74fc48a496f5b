"""How long a change took from its commit in the source to that in the lake, from the events of a session.

`orchestration.report` shows it in the events of a sync, and `telemetry.observation` as a metric.

A source that reads a log says before a state when the oldest change that belongs to it was committed
(`SOURCE_COMMIT_TIME`), and waits until the state is committed. So the next commit of a stream has these
changes, and the time until then is the longest that one of them took. A clock of the source that is ahead of
ours gives no lag below 0. Test: `tests/sync/test_source_lag.py`
"""

from __future__ import annotations

import time
from collections.abc import Callable

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import SOURCE_COMMIT_TIME
from elt_assets.sync.events import Acknowledged, Measured, SessionEvent


class SourceLag:
    """The lags of the streams of a read. `clock`: returns the present in seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._oldest: float | None = None
        self._lags: dict[StreamId, float] = {}
        self._committed: set[StreamId] = set()  # since the source spoke last

    def observe(self, event: SessionEvent) -> None:
        """Take an event of the session into account, before it is reported."""
        if isinstance(event, Measured) and event.name == SOURCE_COMMIT_TIME:
            self._oldest = event.value
            self._committed.clear()
        elif (
            isinstance(event, Acknowledged)
            and self._oldest is not None
            and event.stream not in self._committed
        ):
            self._lags[event.stream] = round(max(0.0, self._clock() - self._oldest), 3)
            self._committed.add(event.stream)

    def of(self, stream: StreamId) -> float | None:
        """Return the seconds of the last window of changes; None if there was none."""
        return self._lags.get(stream)
