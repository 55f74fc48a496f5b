"""What a caller tells a sync of its streams (`StreamRules`), and one stream in it (`StreamRun`).

The callers are `pipeline.connection_read` and `destination`; the session and the relay have the runs.

A `StreamRun` has the open segment, the pending states and the counts of its stream.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import ConfiguredStream, StreamId
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, ErrorTrace, State, StateStats
from elt_assets.sync.documents import Documents, SegmentDocuments, SelectiveSegmentWriter
from elt_assets.sync.events import Sink, StreamProgress
from elt_assets.sync.pending import PendingState, PendingStates, SliceGroup, SliceQueue, Span
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.segments import UNBOUNDED, OpenFiles, Segment, SegmentWriter


@dataclass(frozen=True, kw_only=True)
class StreamRules:
    """What a sync must know of the streams of its source."""

    # filters of the streams with fields that must not be stored, or sent on
    filters: Mapping[StreamId, RecordFilter] = field(default_factory=dict)
    shares_state: bool = False  # whether the streams may share a state
    # whether only one stream of the source is synced, so that a GLOBAL state belongs to it
    is_only_stream: bool = False
    # streams that start from a state of their own beside a shared one
    own_states: Collection[StreamId] = ()
    # the places of the documents of the streams that have some
    documents: Mapping[StreamId, Documents] = field(default_factory=dict)
    sliced: Collection[StreamId] = ()  # the streams whose slices were requested
    follows: bool = False  # whether the source was asked to follow its log


@dataclass(eq=False)
class StreamRun:
    """One stream during a sync."""

    configured: ConfiguredStream
    sink: Sink | None  # belongs to the sinks' threads; None until one of them has opened it
    staging: Path
    record_filter: RecordFilter | None = None
    # the place of the documents of its records; None if they must not have any
    documents: Documents | None = None
    segment_limits: tuple[int, int] = UNBOUNDED  # maximum records and bytes of a segment
    open_files: OpenFiles = field(default_factory=OpenFiles)  # those of the session
    progress: StreamProgress = field(default_factory=StreamProgress)
    writer: SegmentWriter | None = None  # of the open segment
    slices: SliceQueue = field(default_factory=SliceQueue)  # those that are not read yet
    # monotonic time, in seconds, of the first uncommitted record or state
    uncommitted_since: float | None = None
    segment_count: int = 0
    next_sequence: int = 0
    has_overflowed: bool = False  # a segment reached its limits since the last commit
    is_mentioned: bool = False  # a record, state or status of the stream was received
    pending: PendingStates = field(default_factory=PendingStates)  # states that wait for a commit
    # `records_at_state`, `records_at_generation`: records received before the last state, and
    # before the present generation
    records_at_state: int = 0
    records_at_generation: int = 0
    uncommitted: int = 0  # records given to the sink since its last commit
    read_by_tasks: int = 0  # rows of slices so far
    committed_by_tasks: int = 0  # those before the last commit
    can_cut_to_state: bool = True  # no record after the last state was given to the sink
    # the stream's newest state is its own, and not one that streams share
    has_own_state: bool = False
    error: ErrorTrace | None = None

    @property
    def opened_sink(self) -> Sink:
        assert self.sink is not None
        return self.sink

    @property
    def is_resumable(self) -> bool:
        """Return whether a sync can resume from the stream's states, so that each may be committed.

        An overwrite too may be committed at each state: its sink keeps the new generation hidden until
        the final commit. A stream that is not resumable is committed only at its end.
        """
        return self.configured.resumable

    @property
    def has_failed(self) -> bool:
        return self.error is not None or self.progress.status == INCOMPLETE

    @property
    def is_complete(self) -> bool:
        return not self.has_failed and self.progress.status == COMPLETE

    @property
    def is_incomplete(self) -> bool:
        """Return whether the stream failed, or its last status is not COMPLETE.

        A stream without a status is not incomplete: the exit code of the source decides.
        """
        return self.has_failed or self.progress.status not in (None, COMPLETE)

    @property
    def records_received(self) -> int:
        """Number of records received so far, those of the open segment included; without rows of slices."""
        received = self.progress.records_read - self.read_by_tasks
        return received + (0 if self.writer is None else self.writer.received)

    def open_segment(self) -> SegmentWriter:
        """Return the writer of the open segment; open a segment if there is none."""
        if self.writer is None:
            path = self.staging / f"{self.segment_count:08d}.jsonl"
            self.writer = self._make_writer(path)
            self.segment_count += 1
            self.is_mentioned = True
            self.start_commit_timer()
        return self.writer

    def _make_writer(self, path: Path) -> SegmentWriter:
        limits = (self.segment_limits, self.open_files)
        if self.record_filter is None and self.documents is None:
            return SegmentWriter(path, self.next_sequence, *limits)
        documents = SegmentDocuments(str(self.configured.id), self.documents)
        return SelectiveSegmentWriter(
            path, self.next_sequence, self.record_filter, documents, *limits
        )

    def start_commit_timer(self) -> None:
        """Record the time from which something is uncommitted."""
        if self.uncommitted_since is None:
            self.uncommitted_since = time.monotonic()

    def is_due(self, rows: int, size: int, seconds: float) -> bool:
        """Return whether the stream is to be committed at its next state.

        Args:
            rows, size: records and bytes of the open segment that make a commit due.
            seconds: age of uncommitted data that makes a commit due.
        """
        writer = self.writer
        if self.has_overflowed or self.pending.is_over_limit or self.slices.is_full(rows):
            return True
        since = self.uncommitted_since
        if since is not None and time.monotonic() - since >= seconds:
            return True
        return writer is not None and (writer.records >= rows or writer.size >= size)

    def add_state(self, state: State) -> None:
        """Keep a state for the next commit."""
        self.start_commit_timer()
        self.is_mentioned = self.has_own_state = True
        span = Span(self.configured.id, self.records_at_state, self.records_received)
        self.pending.add(state, (span,), self.slices.total)
        self.records_at_state = self.records_received
        if not self.is_resumable:
            self.pending.forget_oldest()
        self.mark()

    def mark(self) -> None:
        """Record that a state covers everything received so far."""
        self.can_cut_to_state = True
        self.slices.mark()
        if self.writer is not None:
            self.writer.mark()

    def cut_to_mark(self) -> None:
        """Remove the records and slices that no state covers."""
        self.slices.cut_to_mark()
        if self.writer is not None:
            self.writer.cut_to_mark()

    def add_source_count(self, state: State) -> None:
        """Add the record count that the source reports in a state to the stream's total."""
        count = source_count(state)
        if count is not None:
            self.progress.counted = (self.progress.counted or 0) + count

    def count_error(self, state: State) -> ErrorTrace | None:
        """Return the error if a state reports another record count than was received since the last state.

        Spec: AirbyteStateStats: how many records the source sent since the previous state.
        """
        return record_count_error(state, self.records_received - self.records_at_state)

    def take_states(self) -> tuple[PendingState, ...]:
        """Remove and return the pending states, for a commit that is made now."""
        self.uncommitted_since, self.has_overflowed = None, False
        return self.pending.take()

    def take_slices(self) -> SliceGroup | None:
        """Remove and return the queued slices, for a read that begins now; None if there are none."""
        return self.slices.take(self.pending.list() if self.is_resumable else ())

    def close_segment(self) -> Segment | None:
        """Close the open segment and return it; None if it is empty or there is none."""
        writer = self.writer
        if writer is None:
            return None
        # If this fails, the writer stays: its records can still be cut to a state.
        segment = writer.close() if writer.records else None
        self.writer = None
        self.next_sequence = writer.next_sequence
        self.progress.records_read += writer.received
        self.progress.records_filtered += writer.filtered
        if segment is None:
            writer.discard()
            return None
        self.progress.bytes_read += segment.size
        documents, size = writer.documents
        self.progress.documents += documents
        self.progress.document_bytes += size
        return segment


def source_count(state: State) -> int | None:
    """Return the record count that the source reports in a state; None if it reports none."""
    stats: StateStats | None = state.sourceStats
    return None if stats is None or stats.recordCount is None else int(stats.recordCount)


def record_count_error(state: State, received: int, *others: int) -> ErrorTrace | None:
    """Return the error if a state reports another record count than `received`; None if they are equal.

    Args:
        others: counts that are right as well.
    """
    count = source_count(state)
    if count is None or count in (received, *others):
        return None
    return ErrorTrace(
        message=f"the source reports {count} records before its state, but {received} were received; "
        "the state is not acknowledged",
        failure_type=SystemFailure.failure_type,
    )
