"""The read of a stream that yields records: its partitions, its bookmarks, and when a state is sent.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from connectors.sdk.bookmarks import StreamState
from connectors.sdk.items import Checkpoint, Context, Item, Record, Warn

MANY_PARTITIONS = 1_000
"""Number of partitions above which not every partition ends with a state: each state holds all of them."""
GROWTH = 1.5
"""Factor by which the state of so many partitions has grown when the next one is sent."""
SECONDS = 60.0
"""Time after which the next one is sent, also if it has not grown as much."""
BUDGET = 2
"""The states sent so far have at most this many times the size of the present one. With the present one and
the last one of the sync, all states together are then at most four times as large as the last one."""

Records = Callable[[Context | None, Any], Iterable[Record]]


class StateSchedule:
    """Decides when a state is sent.

    Args:
        frequency: the number of records between two states.
        has_many: whether the stream has more than `MANY_PARTITIONS` partitions.
    """

    def __init__(
        self, frequency: int, *, has_many: bool, clock: Callable[[], float] = time.monotonic
    ):
        self.frequency = frequency
        self._has_many = has_many
        self._clock = clock
        self._total = 0
        self._last_size = 0
        self._last_time = clock()

    def is_due(self, state: StreamState) -> bool:
        """Return whether to send a state, after `frequency` records or at the end of a partition."""
        if not self._has_many:
            return True
        size = state.size
        has_grown = size >= GROWTH * self._last_size
        is_late = self._clock() - self._last_time >= SECONDS
        return size > 0 and self._total <= BUDGET * size and (has_grown or is_late)

    def sent(self, size: int) -> None:
        """Take notice that a state was sent."""
        self._total += size
        self._last_size = size
        self._last_time = self._clock()


def read_with_bookmarks(
    records: Records,
    contexts: Iterable[Context] | None,
    state: StreamState,
    *,
    frequency: int,
    fields: Mapping[str, Any],
) -> Iterator[Item]:
    """Yield the records of each partition, and a checkpoint wherever a later read can go on.

    Args:
        records: returns the records of a partition, from a value of the replication key on.
        contexts: the partitions; None for a stream without partitions.
        state: the state of the stream; it is brought up to date.
        frequency: the number of records between two states.
        fields: the declared fields of the records: those that are in the context are added to a record that
            lacks them.
    """
    found, has_many = _peeked(contexts)
    schedule = StateSchedule(frequency, has_many=has_many or state.partitions > MANY_PARTITIONS)
    since = nulls = 0
    for context in found:
        bookmark = state.begin(context)
        added = _declared(context, fields)
        for each in records(context, bookmark.start):
            record = {**added, **each} if added else each
            bookmark.see(record)
            yield record
            since += 1
            if since >= frequency and schedule.is_due(state):
                yield _checkpoint(state, schedule)
                since = 0
        nulls += bookmark.take_nulls()
        state.end(bookmark)
        if context is not None and schedule.is_due(state):
            yield _checkpoint(state, schedule)
            since = 0
    if nulls:
        yield Warn(
            f"records without a value of the replication key: {nulls}; they moved no bookmark"
        )
    state.finish()
    yield _checkpoint(state, schedule)


def read_in_full(
    records: Records, contexts: Iterable[Context] | None, start: Any, fields: Mapping[str, Any]
) -> Iterator[Item]:
    """Yield the records of each partition, without states."""
    for context in [None] if contexts is None else _distinct(contexts):
        added = _declared(context, fields)
        for record in records(context, start):
            yield {**added, **record} if added else record


def _checkpoint(state: StreamState, schedule: StateSchedule) -> Checkpoint:
    encoded = state.encode()
    schedule.sent(len(bytes(encoded)))
    return Checkpoint(encoded)


def _peeked(contexts: Iterable[Context] | None) -> tuple[Iterable[Context | None], bool]:
    """Return the contexts, and whether they are more than `MANY_PARTITIONS`."""
    if contexts is None:
        return [None], False
    rest = iter(_distinct(contexts))
    first = list(itertools.islice(rest, MANY_PARTITIONS + 1))
    return itertools.chain(first, rest), len(first) > MANY_PARTITIONS


def _distinct(contexts: Iterable[Context]) -> Iterator[Context]:
    """Yield each context once: a parent stream may have several versions of a record."""
    seen: set[tuple[tuple[str, Any], ...]] = set()
    for context in contexts:
        identity = tuple(sorted(context.items()))
        if identity not in seen:
            seen.add(identity)
            yield context


def _declared(context: Context | None, fields: Mapping[str, Any]) -> Record:
    return {} if context is None else {name: context[name] for name in context if name in fields}
