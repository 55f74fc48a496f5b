"""The states that went to a destination, until it sends them back.

spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it
are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import State, StateStats
from elt_assets.sync.selection.filters import canonical

MAX_SENT = 1_000_000
"""States that a destination may keep us waiting for."""


@dataclass
class SentState:
    """A state that went to the destination. `counts`: records of each stream that came before it."""

    state: State
    counts: Mapping[StreamId, int]


class SentStates:
    """Those of each stream in the order sent; under None, those that streams share."""

    def __init__(self) -> None:
        self._waiting: dict[StreamId | None, deque[SentState]] = {}
        self._last: dict[StreamId | None, State] = {}

    def add(self, stream: StreamId | None, sent: SentState) -> None:
        """
        Raises:
            SystemFailure: the destination acknowledges none of too many.
        """
        waiting = self._waiting.setdefault(stream, deque())
        waiting.append(sent)
        if len(waiting) > MAX_SENT:
            raise SystemFailure(
                f"the destination has not acknowledged any of {MAX_SENT:,} states",
                guidance="it must send states back as it commits the records before them",
            )

    def take(self, stream: StreamId | None, echo: State) -> SentState:
        """The state that came back; earlier ones of its stream are acknowledged with it.

        Raises:
            SystemFailure: the destination was not sent this state, or has sent it or a later one back.
        """
        waiting, identity = self._waiting.get(stream, deque()), _identity(echo)
        while waiting:  # another thread may add to it
            sent = waiting.popleft()
            if _identity(sent.state) == identity:
                self._last[stream] = sent.state
                return sent
        raise SystemFailure(
            "the destination sent a state that it was not given, or not in this order",
            guidance="this is a defect of the destination; the next run goes on from the last state that "
            "it acknowledged",
        )

    def unacknowledged(self) -> list[StreamId | None]:
        """The streams of which a state did not come back that differs from the last one that did."""
        return [stream for stream in self._waiting if self._lacks(stream)]

    def _lacks(self, stream: StreamId | None) -> bool:
        last = self._last.get(stream)
        known = None if last is None else _identity(last)
        return any(_identity(sent.state) != known for sent in self._waiting[stream])


def check_counts(stats: StateStats, sent: int) -> None:
    """spec: AirbyteStateStats: source = committed + rejected.

    Raises:
        SystemFailure: the destination says otherwise.
    """
    if stats.recordCount is None:
        return
    kept = int(stats.recordCount) + int(stats.rejectedRecordCount or 0)
    if kept != sent:
        raise SystemFailure(
            f"the destination says that it committed or rejected {kept} records before its state, but it was "
            f"sent {sent}; that state is not acknowledged",
        )


def _identity(state: State) -> str:
    """What a state says, however a destination spells it."""
    if state.stream is not None:
        blob = state.stream.stream_state
    else:
        blob = Raw(state.global_.to_json()) if state.global_ is not None else state.data
    return canonical(Raw(blob or b"null"))
