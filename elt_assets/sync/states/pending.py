"""States that wait for the commit of what came before them."""

from __future__ import annotations

from collections import deque

from elt_assets.protocol.airbyte.messages import State
from elt_assets.sync.events import PendingState, Span

MAX_STATES = 10_000
MAX_STATE_BYTES = 32 << 20
"""States that may be held for one commit, so that a flood of them keeps memory flat. Beyond that a
stream with such states commits, and one that is published only at its end forgets the oldest."""


class PendingStates:
    """In the order received."""

    def __init__(self) -> None:
        self._held: deque[PendingState] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def flooded(self) -> bool:
        return len(self._held) > MAX_STATES or self._bytes > MAX_STATE_BYTES

    def add(self, state: State, spans: tuple[Span, ...]) -> None:
        self._held.append(PendingState(state, spans))
        self._bytes += _size(state)

    def forget_oldest(self) -> None:
        while self.flooded and len(self._held) > 1:
            self._bytes -= _size(self._held.popleft().state)

    def take(self) -> tuple[PendingState, ...]:
        """All of them; none is held from then on."""
        taken = tuple(self._held)
        self._held.clear()
        self._bytes = 0
        return taken


def _size(state: State) -> int:
    """About as many bytes as a state is long."""
    blobs = [state.data]
    if state.stream is not None:
        blobs.append(state.stream.stream_state)
    if state.global_ is not None:
        blobs.append(state.global_.shared_state)
        blobs += [each.stream_state for each in state.global_.stream_states]
    return sum(len(blob) for blob in blobs if blob is not None)
