"""States of a stream that wait for the commit of the records before them, and slices that wait for a read.

`streams` and `shared_state` have such queues; `destination.airbyte_read` has one of the states that it
withholds; `committer`, `events` and `lake.write` get what was in them.

First `PendingStates`; then `SliceQueue`: what a segment is for records, without the records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import Slice, State

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


ROWS_FACTOR = 10
"""The rows of a checkpoint, relative to those of staged records: the rows of slices are in files at once, so
a commit has less to do, and tasks on many cores need many slices."""
MAX_SLICES = 512
"""Maximum number of slices that are read before a commit is due."""
MAX_SLICES_OF_UNKNOWN_SIZE = 16
"""The same for slices without an estimate of their rows, such as the days of an API."""
MAX_WAITING_DATA = 32 << 20
"""Bytes of data of slices after which they are read."""


@dataclass(frozen=True)
class SliceGroup:
    """Slices that tasks read side by side."""

    slices: Sequence[Slice]
    first: int  # the number of the first one in its stream and sync
    # the stream's own states that wait for a commit, in the order received: those of them that
    # cover all slices before one that cannot be read are committed with these
    states: Sequence[PendingState] = ()

    def count_covered(self, good: int) -> int:
        """Return how many of the first `good` slices are covered by a state that covers no others.

        A state that came before the first of the slices does not count: it may not cover what was given to
        the sink before them.
        """
        counts = (state.slices - self.first for state in self.states)
        return max((count for count in counts if count <= good), default=0)

    def states_of(self, count: int) -> tuple[PendingState, ...]:
        """Return the states that cover no other slices than the first `count`."""
        return tuple(state for state in self.states if state.slices - self.first <= count)


@dataclass
class SliceQueue:
    """The slices of a stream that are not given to its sink yet."""

    count: int = 0  # the number of slices of the sync before these
    _slices: list[Slice] = field(default_factory=list)
    _mark: int = 0
    _bytes: int = 0

    @property
    def total(self) -> int:
        """The number of slices of the sync so far."""
        return self.count + len(self._slices)

    @property
    def at_mark(self) -> bool:
        """Return whether a state covers all of them."""
        return self._mark == len(self._slices)

    def is_full(self, rows: int) -> bool:
        """Return whether they are enough for a commit. `rows`: the records of a segment that are enough."""
        estimates = [part.row_estimate for part in self._slices]
        unknown = estimates.count(None)
        return (
            unknown >= MAX_SLICES_OF_UNKNOWN_SIZE
            or len(estimates) >= MAX_SLICES
            or self._bytes >= MAX_WAITING_DATA
            or sum(filter(None, estimates)) >= rows * ROWS_FACTOR
        )

    def append(self, part: Slice) -> None:
        self._slices.append(part)
        self._bytes += len(part.data)

    def mark(self) -> None:
        """Record that a state covers all of them."""
        self._mark = len(self._slices)

    def cut_to_mark(self) -> None:
        """Remove those that no state covers."""
        del self._slices[self._mark :]
        self._bytes = sum(len(part.data) for part in self._slices)

    def take(self, states: Sequence[PendingState]) -> SliceGroup | None:
        """Remove and return them; None if there are none. `states`: see `SliceGroup`."""
        if not self._slices:
            return None
        group = SliceGroup(self._slices, self.count, states)
        self.count += len(self._slices)
        self._slices, self._mark, self._bytes = [], 0, 0
        return group
