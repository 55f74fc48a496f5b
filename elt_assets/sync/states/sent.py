"""The states that were sent to a destination and that it has not sent back yet.

Spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it
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
"""Maximum number of states of a stream that a destination may leave unacknowledged."""


@dataclass
class SentState:
    """A state that was sent to the destination. `counts`: records of each stream before it."""

    state: State
    counts: Mapping[StreamId, int]


class SentStates:
    """The unacknowledged states of each stream, in the order sent. Shared states are kept under None."""

    def __init__(self) -> None:
        self._waiting: dict[StreamId | None, deque[SentState]] = {}
        self._last: dict[StreamId | None, State] = {}

    def add(self, stream: StreamId | None, sent: SentState) -> None:
        """Keep a state that is sent to the destination.

        Raises:
            SystemFailure: more than `MAX_SENT` states of the stream are unacknowledged.
        """
        waiting = self._waiting.setdefault(stream, deque())
        waiting.append(sent)
        if len(waiting) > MAX_SENT:
            raise SystemFailure(
                f"the destination has not acknowledged any of {MAX_SENT:,} states",
                guidance="it must send states back as it commits the records before them",
            )

    def take(self, stream: StreamId | None, echo: State) -> SentState:
        """Remove and return the state that came back; earlier states of its stream are removed with it.

        Raises:
            SystemFailure: the destination was not sent this state, or it already sent back this state or a
                later one.
        """
        waiting, identity = self._waiting.get(stream, deque()), _identity(echo)
        while waiting:  # another thread may append to it
            sent = waiting.popleft()
            if _identity(sent.state) == identity:
                self._last[stream] = sent.state
                return sent
        raise SystemFailure(
            "the destination sent back a state that it did not receive, or sent states back in another order",
            guidance="this is a defect of the destination; the next run resumes from the last state that "
            "it acknowledged",
        )

    def unacknowledged(self) -> list[StreamId | None]:
        """Return the streams with an unacknowledged state that differs from the last acknowledged one."""
        return [stream for stream in self._waiting if self._is_unacknowledged(stream)]

    def _is_unacknowledged(self, stream: StreamId | None) -> bool:
        last = self._last.get(stream)
        acknowledged = None if last is None else _identity(last)
        return any(_identity(sent.state) != acknowledged for sent in self._waiting[stream])


def check_counts(stats: StateStats, sent: int) -> None:
    """Check that the destination committed or rejected every record that was sent before a state.

    Spec: AirbyteStateStats: source = committed + rejected.

    Raises:
        SystemFailure: the destination reports another count.
    """
    if stats.recordCount is None:
        return
    count = int(stats.recordCount) + int(stats.rejectedRecordCount or 0)
    if count != sent:
        raise SystemFailure(
            f"the destination reports {count} committed or rejected records before its state, but was sent "
            f"{sent}; the state is not acknowledged",
            guidance="sync again; if the error comes back, report it to the maintainer of the destination",
        )


def _identity(state: State) -> str:
    """Return the canonical content of a state: the same text however a destination writes it."""
    if state.stream is not None:
        blob = state.stream.stream_state
    else:
        blob = Raw(state.global_.to_json()) if state.global_ is not None else state.data
    return canonical(Raw(blob or b"null"))
