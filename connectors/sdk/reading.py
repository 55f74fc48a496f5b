"""The read of a stream that yields records: its partitions, its bookmarks, and when a state is sent.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from connectors.sdk.items import Checkpoint, Context, Item, Record, Records, Warn
from connectors.sdk.state.partitions import distinct, identity
from connectors.sdk.state.replication_key import ReplicationKey, instant, moment
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
    peeked, first = _peek(contexts)
    has_many = state.bookmarks_with(first) > MANY_PARTITIONS
    schedule = StateSchedule(has_many=has_many, size=state.size)
    send = partial(_checkpoint, state, schedule, with_progress=not has_many)
    yield from map(Warn, state.warnings)
    sent: Checkpoint | None = None
    since = nulls = bad_values = 0
    first_bad_value = None
    for context in peeked:
        bookmark = state.begin(context)
        added = find_declared_values(context, fields)
        for fetched in records(None if context is None else dict(context), bookmark.start):
            record = {**added, **fetched} if added else fetched
            if bookmark.see(record):
                continue
            yield record
            since += 1
            if since >= frequency and schedule.is_due(state, context):
                sent = send()
                yield sent
                since = 0
        nulls += bookmark.take_nulls()
        state.end(bookmark)
        count, example = bookmark.take_bad_values()
        bad_values, first_bad_value = bad_values + count, first_bad_value or example
        if context is not None and not state.is_coarse and schedule.is_due(state, context):
            sent = send()
            yield sent
            since = 0
    if nulls:
        yield Warn(
            f"records without a value of the replication key: {nulls}; they moved no bookmark"
        )
    if bad_values:
        yield Warn(
            "records whose value of the replication key cannot be compared: "
            f"{bad_values}, the first one {first_bad_value!r}; {state.fate_of_bad_values}"
        )
    state.finish()
    last = send()
    if since or last != sent:
        yield last


def read_in_full(
    records: Records, contexts: Iterable[Context] | None, start: Any, fields: Mapping[str, Any]
) -> Iterator[tuple[Record, Context | None]]:
    """Yield the records of each partition with its context, without states."""
    for context in [None] if contexts is None else distinct(contexts):
        added = find_declared_values(context, fields)
        for record in records(None if context is None else dict(context), start):
            yield ({**added, **record} if added else record), context


def records_since(records: Records, key: ReplicationKey) -> Records:
    """Return a function that leaves out the records before the start, for a source that cannot filter.
    Records without a value of the key are kept.

    Spec: Singer, state file: "filter the data by the timestamp before streaming the data".
    """

    def filtered(context: Context | None, start: Any) -> Iterator[Record]:
        for record in records(context, start):
            if not key.is_before(record.get(key.field), start):
                yield record

    return filtered


class StartDate:
    """The date from which a stream is read whose key is not declared as a time: its values tell whether they
    are times. The records before the date are left out; those with other values are kept.

    Args:
        key: the replication key.
        date: a date or date-time.
    """

    def __init__(self, key: ReplicationKey, date: str):
        self._field = key.field
        self._first = instant(date)
        self._other: Any = None

    def records(self, records: Records) -> Records:
        """Return the function that reads a partition from the date on."""

        def filtered(context: Context | None, start: Any) -> Iterator[Record]:
            for record in records(context, start):
                value = record.get(self._field)
                time = moment(value)
                if time is None and self._other is None:
                    self._other = value
                if time is None or time >= self._first:
                    yield record

        return filtered

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning if there were values that are no times."""
        if self._other is not None:
            yield Warn(
                f"the `start_date` of the config has no effect on records whose {self._field!r} is no time, "
                f"such as {self._other!r}: declare `format: date-time` in the schema, or set the stream's "
                "`start_date`"
            )


def _checkpoint(state: StreamState, schedule: StateSchedule, *, with_progress: bool) -> Checkpoint:
    encoded = state.encode(with_progress=with_progress)
    schedule.sent(len(bytes(encoded)))
    return Checkpoint(encoded)


def _peek(
    contexts: Iterable[Context] | None,
) -> tuple[Iterable[Context | None], Sequence[Context]]:
    """Return the contexts, and those of them that come first, to know whether they are many."""
    if contexts is None:
        return [None], []
    rest = iter(distinct(contexts))
    first = list(itertools.islice(rest, MANY_PARTITIONS + 1))
    return itertools.chain(first, rest), first


def find_declared_values(context: Context | None, fields: Mapping[str, Any]) -> Record:
    """Return the values of a context that are fields of the records."""
    return {} if context is None else {name: context[name] for name in context if name in fields}
