"""The read of a stream that yields records: its partitions, its bookmarks, and when a state is sent.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Raw

from connectors.sdk.declared_stream import Parent
from connectors.sdk.items import Checkpoint, Context, Item, Record, Warn, complete_record
from connectors.sdk.ranges import IntervalEnd
from connectors.sdk.state.bookmark import ERROR, KEEP, SKIP, Bookmark
from connectors.sdk.state.partitions import distinct
from connectors.sdk.state.schedule import MANY_PARTITIONS, StateSchedule
from connectors.sdk.state.stream_state import StreamState
from connectors.sdk.team import run_jobs
from elt_assets.errors import SystemFailure

POLICIES = (KEEP, SKIP, ERROR)


class MissingKeys:
    """What becomes of records that lack a value of a key: the field is missing, or null.

    Args:
        policy: KEEP, SKIP or ERROR.
        paths: the paths of the fields.

    Raises:
        SystemFailure: there is no such policy.
    """

    def __init__(self, policy: str, paths: Sequence[Sequence[str]]):
        if policy not in POLICIES:
            raise SystemFailure(
                f"`missing_keys` is {policy!r}", guidance=f"write one of {', '.join(POLICIES)}"
            )
        self._policy = policy
        self._paths = paths
        self._numbers: dict[str, int] = {}

    def leaves_out(self, record: Record) -> bool:
        """Return whether a record is to be left out.

        Raises:
            SystemFailure: it lacks a key, which is an error in this stream.
        """
        for path in self._paths:
            if _lacks(record, path):
                name = ".".join(path)
                if self._policy == ERROR:
                    raise _describe(name, record)
                self._numbers[name] = self._numbers.get(name, 0) + 1
                return self._policy == SKIP
        return False

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning with the number of records for each field that some lack."""
        fate = "left out" if self._policy == SKIP else "kept"
        for name, number in self._numbers.items():
            yield Warn(f"records without a value of the key {name!r}: {number}; they were {fate}")


def _lacks(record: Any, path: Sequence[str]) -> bool:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record is None


def _describe(name: str, record: Record) -> SystemFailure:
    return SystemFailure(
        f"a record has no value of the key {name!r}; it has {', '.join(map(repr, record)) or 'no field'}",
        guidance='choose another key, or set `missing_keys` to "skip" or "keep"',
    )


RECORDS_AT_ONCE = 100
"""Number of records of a partition that threads hand over at once."""
SECONDS_AT_ONCE = 1.0
"""Time after which they hand over those that they have."""
Steps = Callable[[Context | None, Any], Iterable[Record | IntervalEnd]]
"""Function that returns the records of a partition from a start on, with the ends of intervals among them."""
Observe = Callable[[Record, Context | None, bool], None]
"""Function that takes each record with its partition, and whether it is left out as one that was sent
before."""


class Partition(NamedTuple):
    """A partition to read.

    Attributes:
        context: its context; None for a stream without partitions.
        start: the value of the replication key from which to read.
        bookmark: its bookmark; None in a read without states.
    """

    context: Context | None
    start: Any
    bookmark: Bookmark | None = None


class Batch(NamedTuple):
    """Records of a partition, in order; with all of them, or the last of them, if `is_last`."""

    partition: Partition
    items: Iterable[Record | IntervalEnd]
    is_last: bool


def read_batches(
    steps: Steps, partitions: Iterator[Partition], threads: int
) -> Generator[Batch, None, None]:
    """Yield the records of partitions: of one after another, or of several that are read at the same time.

    The batches of one partition come in their order, whatever comes between them.

    Raises:
        Exception: a partition cannot be read. Its records before that were yielded; the other partitions are
            stopped.
    """
    if threads > 1:
        yield from run_jobs(partitions, partial(_collect_batches, steps), threads=threads)
        return
    for partition in partitions:
        yield Batch(partition, _read(steps, partition), is_last=True)


def _collect_batches(steps: Steps, partition: Partition) -> Iterator[Batch]:
    """Yield the records of a partition, some at a time: handing over each one alone takes too long."""
    items: list[Record | IntervalEnd] = []
    due = time.monotonic() + SECONDS_AT_ONCE
    try:
        for item in _read(steps, partition):
            items.append(item)
            if len(items) >= RECORDS_AT_ONCE or time.monotonic() >= due:
                yield Batch(partition, items, is_last=False)
                items, due = [], time.monotonic() + SECONDS_AT_ONCE
    except Exception:
        yield Batch(partition, items, is_last=False)
        raise
    yield Batch(partition, items, is_last=True)


def _read(steps: Steps, partition: Partition) -> Iterable[Record | IntervalEnd]:
    context = partition.context
    return steps(None if context is None else context.copy(), partition.start)


class RecordRules:
    """What is added to records before they are sent, and which are left out.

    Args:
        fields: the declared fields of the records: those that are in the context are added to a record that
            lacks them.
        parent: the parent, whose fields are added.
        missing: what becomes of records that lack a key; None to send them.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        parent: Parent | None = None,
        missing: MissingKeys | None = None,
    ):
        self._fields = fields
        self._parent = parent
        self._missing = missing

    def completer(self, context: Context | None) -> Callable[[Record], Record | None] | None:
        """Return the function that completes the records of a partition, and returns None for one that is
        left out; None if all records stay as they are.

        Of a name that a record has too, its own value counts, but that of the parent where the author has
        declared it so.
        """
        declared = {} if context is None else find_declared_values(context, self._fields)
        of_parent: Record = {}
        if context is not None and self._parent is not None and self._parent.fields:
            values = self._parent.values(context)
            of_parent = {name: values.get(field) for field, name in self._parent.fields.items()}
        missing = self._missing
        if not (declared or of_parent or missing):
            return None

        def complete(record: Record) -> Record | None:
            completed = complete_record(record, declared, of_parent)
            return None if missing is not None and missing.leaves_out(completed) else completed

        return complete

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning if records lacked a key."""
        if self._missing is not None:
            yield from self._missing.warnings()


class BookmarkedRead:
    """The read of partitions with a bookmark each.

    Args:
        state: the state of the stream; it is brought up to date.
        schedule: decides when a state is sent.
        rules: what becomes of the records.
        frequency: the number of records between two states.
        with_progress: whether states have the progress so far, which no sync resumes from.
        observers: called for each record.
    """

    def __init__(
        self,
        state: StreamState,
        schedule: StateSchedule,
        rules: RecordRules,
        *,
        frequency: int,
        with_progress: bool,
        observers: Sequence[Observe] = (),
    ):
        self._state = state
        self._schedule = schedule
        self._rules = rules
        self._frequency = frequency
        self._with_progress = with_progress
        self._observers = observers
        self._sent: Checkpoint | None = None
        self._since = self._nulls = self._bad_values = 0
        self._first_bad_value: Any = None

    def items(self, batches: Iterable[Batch]) -> Iterator[Item]:
        """Yield the records, and a checkpoint wherever a later read can go on. A checkpoint covers the
        records that were yielded before it, and no other ones: it is made here, after they were."""
        yield from map(Warn, self._state.warnings)
        for batch in batches:
            yield from self._records(batch)
            if batch.is_last:
                yield from self._end(batch.partition)

    def finish(self, parent_state: Raw | None = None) -> Iterator[Item]:
        """Yield the warnings and the last state, which has that of the parent if it is known."""
        if self._nulls:
            yield Warn(
                f"records without a value of the replication key: {self._nulls}; they moved no bookmark"
            )
        if self._bad_values:
            yield Warn(
                "records whose value of the replication key cannot be compared: "
                f"{self._bad_values}, the first one {self._first_bad_value!r}; "
                f"{self._state.fate_of_bad_values}"
            )
        self._state.finish(parent_state)
        since, previous = self._since, self._sent
        last = self._send()
        if since or last != previous:
            yield last

    @property
    def last_state(self) -> dict[str, Any] | Raw | None:
        """The state that was sent last; None if there is none."""
        return None if self._sent is None else self._sent.state

    def _records(self, batch: Batch) -> Iterator[Item]:
        state, context, bookmark = self._state, batch.partition.context, batch.partition.bookmark
        assert bookmark is not None
        complete, observers = self._rules.completer(context), self._observers
        frequency, since = self._frequency, self._since
        for item in batch.items:
            if isinstance(item, IntervalEnd):
                if state.end_interval(bookmark, item.bookmark) and self._is_due(context):
                    yield self._send()
                    since = 0
                continue
            record = item if complete is None else complete(item)
            if record is None:
                continue
            is_left_out = bookmark.see(record)
            for observe in observers:
                observe(record, context, is_left_out)
            if is_left_out:
                continue
            yield record
            since += 1
            if since >= frequency and self._is_due(context):
                yield self._send()
                since = 0
        self._since = since

    def _end(self, partition: Partition) -> Iterator[Item]:
        """Take notice that all records of a partition were yielded."""
        state, bookmark = self._state, partition.bookmark
        assert bookmark is not None
        self._nulls += bookmark.take_nulls()
        state.end(bookmark)
        count, example = bookmark.take_bad_values()
        self._bad_values += count
        self._first_bad_value = self._first_bad_value or example
        if (
            partition.context is not None
            and not state.is_coarse
            and self._is_due(partition.context)
        ):
            yield self._send()

    def _is_due(self, context: Context | None) -> bool:
        return self._schedule.is_due(self._state, context)

    def _send(self) -> Checkpoint:
        encoded = self._state.encode(with_progress=self._with_progress)
        self._schedule.sent(len(bytes(encoded)))
        self._sent, self._since = Checkpoint(encoded), 0
        return self._sent


def read_in_full(
    batches: Iterable[Batch], rules: RecordRules
) -> Iterator[tuple[Record, Context | None]]:
    """Yield the records of each partition with its context, without states."""
    for batch in batches:
        context = batch.partition.context
        complete = rules.completer(context)
        for item in batch.items:
            if isinstance(item, IntervalEnd):
                continue
            record = item if complete is None else complete(item)
            if record is not None:
                yield record, context


def peek(
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
