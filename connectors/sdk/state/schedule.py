"""The times at which the state of a stream is sent while it is read.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from connectors.sdk.items import Context
from connectors.sdk.state.partitions import identity
from connectors.sdk.state.stream_state import StreamState

MANY_PARTITIONS = 1_000
"""Largest number of partitions that all end with a state: each state holds all partitions."""
GROWTH = 1.5
"""Factor by which the state of so many partitions has grown when the next one is sent."""
SECONDS = 60.0
"""Time after which the first one is sent, also if it has not grown as much."""
LATER = 5
"""Factor between the times at which states of the same size are sent: a sync may take a minute or a day."""
BUDGET = 2
"""The states sent so far have at most this many times the size of the present one. With the present one and
the last one of the sync, all states together are then at most four times as large as the last one."""


class StateSchedule:
    """Decides when a state is sent.

    Args:
        has_many: whether it is known that the state has more than `MANY_PARTITIONS` bookmarks at the end.
        size: the size of the state when the sync begins, in bytes.
    """

    def __init__(self, *, has_many: bool, size: int, clock: Callable[[], float] = time.monotonic):
        self._has_many = has_many
        self._clock = clock
        self._total = 0
        self._last_size = size
        self._begin = clock()
        self._next_time = SECONDS

    def is_due(self, state: StreamState, context: Context | None) -> bool:
        """Return whether to send a state, at the end of a partition or after many records of it."""
        if not self._has_many and state.bookmarks <= MANY_PARTITIONS:
            return True
        has_grown = state.size > 0 and state.size >= GROWTH * self._last_size
        is_late = self._clock() - self._begin >= self._next_time
        if not (has_grown or is_late):
            return False
        # The last state has more than so many entries, each with a context.
        least = (MANY_PARTITIONS + 1) * len(identity(context))
        return self._total <= BUDGET * max(state.size, least)

    def sent(self, size: int) -> None:
        """Take notice that a state was sent."""
        self._total += size
        self._last_size = size
        self._next_time = max(SECONDS, LATER * (self._clock() - self._begin))
