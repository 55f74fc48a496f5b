"""States that wait for the commit of the records before them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import State

MAX_STATES = 10_000
MAX_STATE_BYTES = 32 << 20
"""Limit, in bytes, of the states that wait for one commit; `MAX_STATES` limits their number.

The limits bound memory. Beyond them a resumable stream is committed; a stream that is published only at its
end drops its oldest states.
"""


@dataclass(frozen=True)
class Span:
    """A range of positions of records in a stream, counted from 0: `first` is included, `end` is not."""

    stream: StreamId
    first: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class PendingState:
    """A state as received, and the records that were staged between the previous state and this one."""

    state: State
    # of the state's stream; for a shared state, of every stream that had records
    spans: tuple[Span, ...]
    # the number of slices of its stream in the sync before it; 0 for a shared state
    slices: int = 0

    @property
    def records(self) -> int:
        """Number of these records, of all streams."""
        return sum(span.records for span in self.spans)


class PendingStates:
    """A queue of states in the order received."""

    def __init__(self) -> None:
        self._states: deque[PendingState] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def is_over_limit(self) -> bool:
        return len(self._states) > MAX_STATES or self._bytes > MAX_STATE_BYTES

    def add(self, state: State, spans: tuple[Span, ...], slices: int = 0) -> None:
        """Add a state; see `PendingState`."""
        self._states.append(PendingState(state, spans, slices))
        self._bytes += _size(state)

    def forget_oldest(self) -> None:
        """Drop the oldest states until the limits are met; the newest state always stays."""
        while self.is_over_limit and len(self._states) > 1:
            self._bytes -= _size(self._states.popleft().state)

    def list(self) -> tuple[PendingState, ...]:
        """Return all states."""
        return tuple(self._states)

    def take(self) -> tuple[PendingState, ...]:
        """Remove and return all states."""
        taken = self.list()
        self._states.clear()
        self._bytes = 0
        return taken


def _size(state: State) -> int:
    """Return the approximate size of a state in bytes."""
    blobs = [state.data]
    if state.stream is not None:
        blobs.append(state.stream.stream_state)
    if state.global_ is not None:
        blobs.append(state.global_.shared_state)
        blobs += [stream_state.stream_state for stream_state in state.global_.stream_states]
    return sum(len(blob) for blob in blobs if blob is not None)
