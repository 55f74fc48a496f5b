"""Slices of a stream that wait for their read: what a segment is for records, without the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elt_assets.protocol.messages import Slice
from elt_assets.sync.states.pending import PendingState

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
