"""One read of a stream that yields records: which partitions it has, from where to where each is read, and
by how many threads.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec import Raw

from connectors.sdk.declared_stream import (
    ASCENDING,
    DESCENDING,
    DeclaredStream,
    key_paths,
    make_schema,
)
from connectors.sdk.encoding import encode
from connectors.sdk.items import Checkpoint, Context, Item, Record, Warn, Window
from connectors.sdk.named_partitions import find_named_partitions, select_partitions
from connectors.sdk.ranges import DateLimits, Intervals, RecordsBetween, stop_at_start
from connectors.sdk.reading import (
    Batch,
    BookmarkedRead,
    MissingKeys,
    Partition,
    RecordRules,
    Steps,
    peek,
    read_batches,
    read_in_full,
)
from connectors.sdk.state.bookmark import BookmarkRules
from connectors.sdk.state.parents import (
    ChangedParents,
    Observer,
    ParentRow,
    RowCollector,
    fields_for_children,
    is_tracked,
    key_of_changed,
    share_rows,
    take_row,
)
from connectors.sdk.state.partitions import distinct
from connectors.sdk.state.replication_key import DATE, ReplicationKey
from connectors.sdk.state.schedule import MANY_PARTITIONS, StateSchedule
from connectors.sdk.state.stream_state import PARENT_STATE, StreamState
from connectors.sdk.times import parse_length
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream

MAX_SENT, MAX_SENT_IN_PARTITION = 1_000, 20
"""Maximum number of records that a bookmark has hashes of, so that they are not sent again. A hash takes
eleven bytes of the state, which has a bookmark for each partition."""
_NEVER = 1 << 62
"""Number of records between two states of a read whose last state alone is used."""


def read_stream(
    stream: DeclaredStream, configured: ConfiguredStream, state: dict[str, Any] | None
) -> Iterator[Item]:
    """Yield the items of `Stream.read`."""
    has_states = configured.sync_mode == INCREMENTAL or stream.is_resumable
    named = find_named_partitions(configured)
    saved = {} if state is None or not has_states else stream.load_state(state)
    read = StreamRead(stream, saved, has_states=has_states, named=named)
    collectors = read.make_collectors()
    if has_states and stream.replication_key is not None:
        # In the middle of a partition, a state of the newest records covers nothing: `descending` says why.
        frequency = _NEVER if stream.order == DESCENDING else stream.STATE_MSG_FREQUENCY
        yield from read.items_with_states(frequency, collectors)
    else:
        yield from read.items_in_full(collectors)
    for collector in collectors:
        collector.finish(read.state)


class StreamRead:
    """One read of a stream.

    Args:
        stream: the stream.
        saved: its state; empty to read from the beginning.
        has_states: whether the read has states.
        named: the contexts of the partitions that are read alone; None for all.

    Attributes:
        state: the state at the end of the read; None before that, or without states.
    """

    def __init__(
        self,
        stream: DeclaredStream,
        saved: dict[str, Any],
        *,
        has_states: bool,
        named: list[Context] | None = None,
    ):
        self._stream = stream
        self._saved = saved
        self._has_states = has_states and stream.replication_key is not None
        self._is_partial = named is not None
        self.state: dict[str, Any] | Raw | None = None
        # Before the partitions are listed: a record of one that is new then may be older than now.
        self._key = stream.begin_read()
        dates = stream.config_dates
        self._limits = (
            DateLimits(self._key, dates.first, dates.end) if self._key and any(dates) else None
        )
        self._intervals = self._make_intervals()
        self._rules = _rules_of(stream)
        self._changed = (
            _find_changed_parents(stream, saved) if has_states and named is None else None
        )
        self._contexts = self._list_contexts(named)

    def make_collectors(self) -> list[RowCollector]:
        """Return what collects the rows for child streams in this read: those of all records, if it has them
        all, and those of records that have changed."""
        stream = self._stream
        fields = fields_for_children(stream)
        if self._is_partial or not fields:
            return []
        collectors = []
        if self._limits is None and self._intervals is None and self._changed is None:
            collectors.append(RowCollector(stream, fields))
        if self._has_states and is_tracked(stream):
            key = key_of_changed(stream, self._saved)
            collectors.append(RowCollector(key, fields, only_new=True))
        return collectors

    def items_in_full(self, collectors: Sequence[RowCollector] = ()) -> Iterator[Item]:
        """Yield the records without states; only that of the parent, if changed parents are read."""
        contexts, start = self._contexts, self._stream.start_date
        _stop_if_begun(collectors, start)
        listed = [None] if contexts is None else distinct(contexts)
        partitions = (Partition(context, start) for context in listed)
        with closing(self._batches(partitions)) as batches:
            for record, context in read_in_full(batches, self._rules):
                for collector in collectors:
                    collector.see(record, context)
                yield record
        yield from self._warnings()
        if self._changed is not None:
            yield Checkpoint(Raw(encode({**self._saved, PARENT_STATE: self._changed.state})))

    def items_with_states(
        self, frequency: int = _NEVER, collectors: Sequence[Observer] = ()
    ) -> Iterator[Item]:
        """Yield the records, and checkpoints.

        Args:
            frequency: the number of records between two states.
            collectors: see each record before it is yielded.
        """
        state = self._make_state()
        contexts, first = peek(self._contexts)
        has_many = state.bookmarks_with(first) > MANY_PARTITIONS
        read = BookmarkedRead(
            state,
            StateSchedule(has_many=has_many, size=state.size),
            self._rules,
            frequency=frequency,
            with_progress=not has_many,
            observers=[collector.see for collector in collectors],
        )
        partitions = (_begin(state, context, collectors) for context in contexts)
        with closing(self._batches(partitions)) as batches:
            yield from read.items(batches)
        yield from read.finish(None if self._changed is None else self._changed.state)
        self.state = read.last_state
        yield from self._warnings()

    def rows(self, fields: Iterable[str]) -> Iterator[ParentRow]:
        """Yield the rows of all records for child streams, whatever their age."""
        contexts = self._contexts
        listed = [None] if contexts is None else distinct(contexts)
        partitions = (Partition(context, None) for context in listed)

        def steps(context: Context | None, start: Any) -> Iterable[Record]:
            return self._stream.records(self._open_window(context, start, None))

        for record, context in read_in_full(read_batches(steps, partitions, 1), self._rules):
            yield take_row(record, context, fields)

    def _list_contexts(self, named: list[Context] | None) -> Iterable[Context] | None:
        """Return the contexts to read; None for a stream without partitions."""
        if named is not None:
            return select_partitions(self._stream, named)
        self._stream.changed_parents = self._changed
        return self._stream.partitions()

    def _batches(self, partitions: Iterator[Partition]) -> Generator[Batch, None, None]:
        threads = self._stream.concurrency
        if threads < 1:
            raise SystemFailure(
                f"`concurrency` is {threads}", guidance="write the number of threads, at least 1"
            )
        return read_batches(self._steps(), partitions, 1 if self._contexts is None else threads)

    def _steps(self) -> Steps:
        """Return the function that reads a partition, with what the stream declares about its order and its
        range."""
        stream, key = self._stream, self._key
        read: RecordsBetween = self._read_partition
        if key is not None and stream.order == DESCENDING:
            read = stop_at_start(read, key)
        if self._limits is not None:
            read = self._limits.records(read)
        if self._intervals is not None:
            return self._intervals.records(read)
        return lambda context, start: read(context, start, None)

    def _read_partition(self, context: Context | None, start: Any, end: Any) -> Iterable[Record]:
        """Return the records of a partition in a range. What `records` does not ask for is done here: records
        before the start are left out.

        Spec: Singer, state file: "filter the data by the timestamp before streaming the data".

        Raises:
            SystemFailure: the stream is read by steps, and does not ask for their end.
        """
        window, order = self._open_window(context, start, end), self._stream.order
        records = self._stream.records(window)
        if self._key is not None and start is not None and order != DESCENDING:
            records = _leave_out_earlier(records, window, self._key, start)
        if self._stream.step is not None and end is not None and order != ASCENDING:
            return itertools.chain(records, self._require_end(window))
        return records

    def _require_end(self, window: Window) -> Iterator[Record]:
        """Yield nothing, after the records of an interval; raise an error if its end was not asked for."""
        yield from ()
        if not window.filters_end:
            raise SystemFailure(
                f"stream {str(self._stream.id)!r} has a `step`, and `records` does not ask for the end of an "
                "interval: each would have all records from its start on",
                guidance='request the records before `window.end`, or name "{end}" in the parameters; if the '
                "API cannot be asked for an end, leave out `step`",
            )

    def _open_window(self, context: Context | None, start: Any, end: Any) -> Window:
        if context is None:
            return Window(start, end)
        parent = self._stream.parent
        values = {} if parent is None else parent.values(context)
        return Window(start, end, dict(context), values)

    def _make_intervals(self) -> Intervals | None:
        """Return the intervals of a stream that is not read to its end at once."""
        stream, key = self._stream, self._key
        has_end = (
            stream.end_date is not None or type(stream).end_value is not DeclaredStream.end_value
        )
        if key is None or (stream.step is None and not has_end):
            return None
        step = parse_length(stream.step, "step", of_days=key.kind == DATE)
        is_sorted = stream.order == ASCENDING
        return Intervals(
            key, step, lambda context: stream.end_value(context or {}), is_sorted=is_sorted
        )

    def _make_state(self) -> StreamState:
        stream = self._stream
        assert self._key is not None
        rules = BookmarkRules(
            is_sorted=stream.order == ASCENDING,
            start_date=stream.start_date,
            named_by=[path[0] for path in key_paths(stream)],
            on_bad_value=stream.bad_replication_key,
            max_sent=MAX_SENT if self._contexts is None else MAX_SENT_IN_PARTITION,
            lookback=parse_length(stream.lookback, "lookback", of_days=self._key.kind == DATE),
            keeps_missing=stream.missing_keys is not None,
        )
        return StreamState(
            self._key,
            self._saved,
            rules,
            partitioning_keys=stream.state_partitioning_keys,
            signpost=lambda context: stream.max_bookmark(context or {}),
            source=stream.source_identity(),
            position=stream.log_position(),
        )

    def _warnings(self) -> Iterator[Warn]:
        """Yield the warnings of a read that has all records."""
        yield from self._rules.warnings()
        if self._limits is not None:
            yield from self._limits.warnings()
        if self._intervals is not None:
            yield from self._intervals.warnings()


def _leave_out_earlier(
    records: Iterable[Record], window: Window, key: ReplicationKey, start: Any
) -> Iterator[Record]:
    """Yield the records of a window but those before its start, unless the start was asked for."""
    remaining = iter(records)
    for record in remaining:
        if window.filters_start:
            yield record
            break
        if not key.is_before(record.get(key.field), start):
            yield record
    yield from remaining


def read_partitions(stream: DeclaredStream) -> Iterator[Context]:
    """Return the contexts of a child stream's partitions: one for each record of its parent, or for those
    that have changed, if the present read is for these only."""
    assert stream.parent is not None
    parent = stream.parent.stream
    if stream.changed_parents is not None:
        return map(stream.parent.make_context, stream.changed_parents.rows())
    fields = stream.parent_fields() | fields_for_children(parent)
    rows = share_rows(parent, lambda: StreamRead(parent, {}, has_states=False).rows(fields))
    return map(stream.parent.make_context, rows)


def _find_changed_parents(
    stream: DeclaredStream, saved: Mapping[str, Any]
) -> ChangedParents | None:
    """Return the changed parents of a stream that is read for them only."""
    if stream.parent is None or not stream.parent.only_changed:
        return None
    parent = stream.parent.stream
    if parent.replication_key is None:
        raise SystemFailure(
            f"stream {str(stream.id)!r} is to be read for changed parents only, and its parent has no "
            "replication key",
            guidance="set `replication_key` of the parent; or leave out `only_changed`",
        )
    before = saved.get(PARENT_STATE)
    start = dict(before) if isinstance(before, Mapping) else {}
    fields = stream.parent_fields() | fields_for_children(parent)
    return ChangedParents(parent, start, fields, lambda: StreamRead(parent, start, has_states=True))


def _begin(
    state: StreamState, context: Context | None, collectors: Sequence[Observer]
) -> Partition:
    bookmark = state.begin(context)
    _stop_if_begun(collectors, bookmark.start)
    return Partition(context, bookmark.start, bookmark)


def _stop_if_begun(collectors: Sequence[Observer], start: Any) -> None:
    """Tell collectors that a partition is not read from its beginning, if it is so."""
    if start is not None:
        for collector in collectors:
            collector.stop()


def _rules_of(stream: DeclaredStream) -> RecordRules:
    paths = key_paths(stream)
    if stream.replication_key is not None:
        paths = [*paths, [stream.replication_key]]
    policy = stream.missing_keys
    missing = None if policy is None else MissingKeys(policy, paths)
    return RecordRules(make_schema(stream).get("properties") or {}, stream.parent, missing)
