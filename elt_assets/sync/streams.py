"""What the session keeps of one stream."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.protocol.airbyte.messages import COMPLETE, INCOMPLETE, ErrorTrace, State, StateStats
from elt_assets.sync.events import PendingState, Sink, Span, StreamProgress
from elt_assets.sync.segments import UNBOUNDED, FilteredSegmentWriter, Segment, SegmentWriter
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.states.pending import PendingStates


@dataclass(eq=False)
class StreamRun:
    """One stream in mid-sync: its open segment, the states that wait for a commit, its figures.

    `sink`: of the sinks' thread; None until it has opened it. `uncommitted`: records given to the sink since
    its last commit. `most`: records and bytes of a segment.
    """

    configured: ConfiguredStream
    sink: Sink | None
    staging: Path
    record_filter: RecordFilter | None = None
    most: tuple[int, int] = UNBOUNDED
    progress: StreamProgress = field(default_factory=StreamProgress)
    writer: SegmentWriter | None = None
    since: float | None = None
    segments: int = 0
    sequence: int = 0
    overrun: bool = False
    heard: bool = False
    held: PendingStates = field(default_factory=PendingStates)
    counted_to: int = 0
    uncommitted: int = 0
    salvageable: bool = True
    error: ErrorTrace | None = None

    @property
    def opened(self) -> Sink:
        assert self.sink is not None
        return self.sink

    @property
    def whole(self) -> bool:
        """Whether the stream has no cut but its end: none of its states can be gone on from.

        Of a stream that has, an overwrite may be committed at any of them too: its sink keeps the
        new generation hidden until the final commit.
        """
        return not self.configured.resumable

    @property
    def failed(self) -> bool:
        return self.error is not None or self.progress.status == INCOMPLETE

    @property
    def completed(self) -> bool:
        return not self.failed and self.progress.status == COMPLETE

    @property
    def incomplete(self) -> bool:
        """A stream that told its status must have told COMPLETE; one that never did is judged by
        the exit code."""
        return self.failed or self.progress.status not in (None, COMPLETE)

    @property
    def sent(self) -> int:
        """Records that came so far."""
        return self.progress.records_read + (0 if self.writer is None else self.writer.records)

    def open(self) -> SegmentWriter:
        if self.writer is None:
            path = self.staging / f"{self.segments:08d}.jsonl"
            self.writer = (
                SegmentWriter(path, self.sequence, self.most)
                if self.record_filter is None
                else FilteredSegmentWriter(path, self.sequence, self.record_filter, self.most)
            )
            self.segments += 1
            self.heard = True
            self.begin()
        return self.writer

    def begin(self) -> None:
        """Something is to be committed from now on."""
        if self.since is None:
            self.since = time.monotonic()

    def is_due(self, rows: int, size: int, seconds: float) -> bool:
        """Whether its next state is to be committed."""
        writer = self.writer
        if self.overrun or self.held.flooded:
            return True
        if self.since is not None and time.monotonic() - self.since >= seconds:
            return True
        return writer is not None and (writer.records >= rows or writer.size >= size)

    def hold(self, state: State) -> None:
        """Keep a state for the next commit."""
        self.begin()
        self.heard = True
        self.held.add(state, (Span(self.configured.id, self.counted_to, self.sent),))
        self.counted_to = self.sent
        if self.whole:
            self.held.forget_oldest()
        self.mark()

    def mark(self) -> None:
        """Remember that all that came before belongs to a state."""
        self.salvageable = True
        if self.writer is not None:
            self.writer.mark()

    def count(self, state: State) -> None:
        """What the source says that it sent."""
        told = told_count(state)
        if told is not None:
            self.progress.counted = (self.progress.counted or 0) + told

    def miscounts(self, state: State) -> ErrorTrace | None:
        """spec: AirbyteStateStats: how many records the source sent since its state before. What is
        wrong if not as many came."""
        return miscounted(state, self.sent - self.counted_to)

    def take(self) -> tuple[PendingState, ...]:
        """The states of a commit that is made now."""
        self.since, self.overrun = None, False
        return self.held.take()

    def close(self) -> Segment | None:
        writer, self.writer = self.writer, None
        if writer is None:
            return None
        self.sequence = writer.next_sequence
        if writer.records == 0:
            writer.discard()
            return None
        segment = writer.close()
        self.progress.records_read += segment.records
        self.progress.bytes_read += segment.size
        return segment


def told_count(state: State) -> int | None:
    stats: StateStats | None = state.sourceStats
    return None if stats is None or stats.recordCount is None else int(stats.recordCount)


def miscounted(state: State, came: int) -> ErrorTrace | None:
    """What is wrong with a state of which the source says another count than came; None if nothing is."""
    told = told_count(state)
    if told is None or told == came:
        return None
    return ErrorTrace(
        message=f"the source says that it sent {told} records before its state, but {came} came; "
        "that state is not acknowledged",
        failure_type=SystemFailure.failure_type,
    )
