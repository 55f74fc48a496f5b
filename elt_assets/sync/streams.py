"""What the session keeps of one stream."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, ErrorTrace, State
from elt_assets.sync.events import Sink, StreamProgress
from elt_assets.sync.filters import RecordFilter
from elt_assets.sync.segments import FilteredSegmentWriter, Segment, SegmentWriter

MAX_STATES = 10_000
MAX_STATE_BYTES = 32 << 20
"""States that may be held for one commit, so that a flood of them keeps memory flat. Beyond that an
stream with such states commits, and one that is published only at its end forgets the oldest."""


@dataclass(eq=False)
class StreamRun:
    """One stream in mid-sync: its open segment, the states that wait for a commit, its figures."""

    configured: ConfiguredStream
    sink: Sink
    staging: Path
    record_filter: RecordFilter | None = None
    progress: StreamProgress = field(default_factory=StreamProgress)
    writer: SegmentWriter | None = None
    since: float | None = None
    segments: int = 0
    sequence: int = 0
    overrun: bool = False
    heard: bool = False
    states: deque[State] = field(default_factory=deque)
    state_bytes: int = 0
    salvageable: bool = True
    error: ErrorTrace | None = None

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
    def incomplete(self) -> bool:
        """A stream that told its status must have told COMPLETE; one that never did is judged by
        the exit code."""
        return self.failed or self.progress.status not in (None, COMPLETE)

    @property
    def flooded(self) -> bool:
        return len(self.states) > MAX_STATES or self.state_bytes > MAX_STATE_BYTES

    def open(self) -> SegmentWriter:
        if self.writer is None:
            path = self.staging / f"{self.segments:08d}.jsonl"
            self.writer = (
                SegmentWriter(path, self.sequence)
                if self.record_filter is None
                else FilteredSegmentWriter(path, self.sequence, self.record_filter)
            )
            self.segments += 1
            self.heard = True
            self.begin()
        return self.writer

    def begin(self) -> None:
        """Something is to be committed from now on."""
        if self.since is None:
            self.since = time.monotonic()

    def hold(self, state: State) -> None:
        """Keep a state for the next commit, and remember that all before it belongs to it."""
        self.begin()
        self.heard = True
        self.states.append(state)
        self.state_bytes += _size(state)
        while self.whole and self.flooded and len(self.states) > 1:
            self.state_bytes -= _size(self.states.popleft())
        self.salvageable = True
        if self.writer is not None:
            self.writer.mark()

    def count(self, state: State) -> None:
        """spec: AirbyteStateStats: how many records the source sent since its state before."""
        told = state.sourceStats
        if told is not None and told.recordCount is not None:
            self.progress.counted = (self.progress.counted or 0) + int(told.recordCount)

    def take(self) -> tuple[State, ...]:
        """The states of a commit that is made now."""
        states = tuple(self.states)
        self.states.clear()
        self.state_bytes, self.since, self.overrun = 0, None, False
        return states

    def close(self) -> Segment | None:
        writer, self.writer = self.writer, None
        if writer is None:
            return None
        self.sequence = writer.next_sequence
        if writer.records == 0:
            writer.discard()
            return None
        return writer.close()


def failure(broken: list[StreamRun], noise: int) -> EltError:
    """Of streams that were not completed. `noise`: lines that were no messages."""
    names = ", ".join(repr(str(run.configured.id)) for run in broken)
    error = next((run.error for run in broken if run.error is not None), None)
    if error is None and not broken[0].heard:
        return SystemFailure(
            f"the connector said nothing of stream {names}, but printed {noise} lines that are no "
            "messages of the Airbyte Protocol (see the log)",
            guidance="is it a connector? `command:` must speak the protocol on its stdout",
        )
    if error is None:
        return SystemFailure(
            f"the connector ended without completing stream {names} "
            f"(its last status: {broken[0].progress.status})",
            guidance="what it committed up to its last state is kept; the next run goes on from there",
        )
    return error_class(error.failure_type)(
        f"stream {names}: {error.message}", detail=error.stack_trace or error.internal_message
    )


def _size(state: State) -> int:
    """About as many bytes as a state is long."""
    blobs = [state.data]
    if state.stream is not None:
        blobs.append(state.stream.stream_state)
    return sum(len(blob) for blob in blobs if blob is not None)
