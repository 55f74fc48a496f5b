"""Counts of rejected records, by the state that covers them.

A commit can cover many states, and a state that streams share can cover many commits. A rejected record is
identified by its place in its stream, and belongs to the state that covers this place.

Spec: AirbyteStateStats: the records that the source sent before a state are either committed or rejected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.events import Acknowledged, PendingState, SharedAcknowledged, Span


class Tally:
    """Counts of one session. It must get every acknowledgement, in order."""

    def __init__(self) -> None:
        self._before: dict[StreamId, int] = {}
        self._places: dict[StreamId, list[int]] = {}
        self._unplaced = 0

    def count_own(self, event: Acknowledged) -> Iterator[tuple[PendingState, int]]:
        """Yield a stream's own states, each with the number of its rejected records.

        Rejected records of an earlier commit without a state are counted for the first state.
        """
        stream, places = event.stream, event.commit.places
        earlier = self._before.pop(stream, 0)
        counted = 0
        for pending in event.states:
            rejected = earlier + sum(_count_within(places, span) for span in pending.spans)
            yield pending, rejected
            counted, earlier = counted + rejected - earlier, 0
        self._before[stream] = earlier + len(places) - counted
        if event.states:
            self._unplaced += len(places)
        else:
            self._places.setdefault(stream, []).extend(places)

    def count_shared(self, event: SharedAcknowledged) -> Iterator[tuple[PendingState, int]]:
        """Yield the states that streams share, each with the number of its rejected records.

        If the source also sends states of single streams, only the sum of the numbers is exact.
        """
        for pending in event.states:
            spans = pending.spans
            placed = sum(_count_within(self._places.get(span.stream, ()), span) for span in spans)
            more = min(self._unplaced, pending.records - placed)
            self._unplaced -= more
            yield pending, placed + more
        self._places.clear()


def _count_within(places: Sequence[int], span: Span) -> int:
    return bisect_left(places, span.end) - bisect_left(places, span.first)
