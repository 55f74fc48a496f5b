"""Which state's records were rejected.

A commit covers many states, and a state that streams share many commits: what was rejected is told by its
place in its stream, and so belongs to the state whose records these are.

spec: AirbyteStateStats: what the source sent before a state is what was committed and rejected of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.events import Acknowledged, PendingState, SharedAcknowledged, Span


class Tally:
    """Of one session; told of each acknowledgement in order."""

    def __init__(self) -> None:
        self._before: dict[StreamId, int] = {}
        self._places: dict[StreamId, list[int]] = {}
        self._unplaced = 0

    def acknowledged(self, event: Acknowledged) -> Iterator[tuple[PendingState, int]]:
        """A stream's own states, each with how many of its records were rejected.

        What an earlier commit rejected, which had no state, is of the first that comes.
        """
        stream, places = event.stream, event.commit.places
        earlier = self._before.pop(stream, 0)
        told = 0
        for held in event.states:
            rejected = earlier + sum(_within(places, span) for span in held.spans)
            yield held, rejected
            told, earlier = told + rejected - earlier, 0
        self._before[stream] = earlier + len(places) - told
        if event.states:
            self._unplaced += len(places)
        else:
            self._places.setdefault(stream, []).extend(places)

    def shared(self, event: SharedAcknowledged) -> Iterator[tuple[PendingState, int]]:
        """States that streams share, likewise. Of a source that also sends states of single streams only
        the sum is exact."""
        for held in event.states:
            placed = sum(_within(self._places.get(one.stream, ()), one) for one in held.spans)
            more = min(self._unplaced, held.records - placed)
            self._unplaced -= more
            yield held, placed + more
        self._places.clear()


def _within(places: Sequence[int], span: Span) -> int:
    return bisect_left(places, span.end) - bisect_left(places, span.first)
