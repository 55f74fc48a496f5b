"""The session of one sync: routes records to segments, and acknowledges a state once it is committed.

It takes any iterable of messages and any sinks, and does no I/O of its own but the segment files.
While a sink works on one segment (in a thread), the next one fills. Memory does not grow with the
sync; disk holds at most the open segment of each stream and `MAX_WAITING` closed ones.

spec: Airbyte Protocol, State & the Whole Sync: a state is passed on only when every record before
it is committed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import MappingProxyType

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamId
from elt_assets.protocol.messages import (
    ErrorTrace,
    EstimateTrace,
    Log,
    Message,
    Noise,
    RawRecord,
    State,
    Trace,
)
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Committed,
    Estimated,
    Logged,
    SessionEvent,
    Sink,
    StreamProgress,
)
from elt_assets.sync.filters import RecordFilter
from elt_assets.sync.segments import Segment
from elt_assets.sync.state import stream_of
from elt_assets.sync.streams import StreamRun, failure

MAX_WAITING = 2
"""Closed segments that may wait for their sink before reading pauses."""
OVERRUN = 1.25
"""How far past its threshold a segment may grow while no state arrives."""


@dataclass(frozen=True)
class Threshold:
    """A segment is sealed at the first state after any of these is reached."""

    rows: int = 1_000_000
    bytes: int = 256 << 20
    seconds: float = 300


@dataclass(frozen=True)
class _Work:
    """What the sink's thread has been given, in order: a segment to write, or else a commit."""

    done: Future[Committed | None]
    stream: StreamId
    segment: Segment | None = None
    checkpoint: Checkpoint | None = None


class Session:
    """One sync of the streams of a configured catalog.

    Args:
        catalog: what was asked of the source; records of other streams are ignored, and said so.
        sinks: one for each stream of the catalog.
        staging: a directory of the session's own.
        threshold: when to seal a segment.
        filters: of the streams some of whose fields must not be stored.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        staging: Path,
        threshold: Threshold | None = None,
        filters: Mapping[StreamId, RecordFilter] = MappingProxyType({}),
    ):
        self._threshold = threshold or Threshold()
        self._streams: dict[tuple[str, str | None], StreamRun] = {}
        for number, stream in enumerate(catalog.streams):
            folder = staging / f"{number:04d}"
            folder.mkdir(parents=True, exist_ok=True)
            one_filter = filters.get(stream.id)
            self._streams[stream.id] = StreamRun(stream, sinks[stream.id], folder, one_filter)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._sink_failed = Event()
        self._work: deque[_Work] = deque()
        self._noise = 0
        self._ignored: dict[tuple[str, str | None], int] = {}

    def progress(self, stream: StreamId) -> StreamProgress:
        return self._streams[stream].progress

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Records and bytes, those of the open segment too; from any thread, and roughly."""
        run = self._streams[stream]
        writer, progress = run.writer, run.progress
        open_rows, open_bytes = (0, 0) if writer is None else (writer.records, writer.size)
        return progress.records_read + open_rows, progress.bytes_read + open_bytes

    def run(self, messages: Iterable[RawRecord | Message]) -> Iterator[SessionEvent]:
        """Drive the sync to its end; yields what happens as it happens.

        When the source fails, what lies before its last state is still committed and
        acknowledged, then its error is raised. When a sink fails, its error is raised at once.

        Raises:
            EltError: the source failed, or ended without completing a stream.
        """
        try:
            try:
                yield from self._read(messages)
            except EltError:
                yield from self._salvage(list(self._streams.values()))
                raise
            yield from self._finish()
        finally:
            _close(messages)  # first: the source must not outlive a sink that takes its time
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._discard()

    def _discard(self) -> None:
        """Remove the segments that no sink took."""
        for run in self._streams.values():
            if run.writer is not None:
                run.writer.discard()
        for work in self._work:
            if work.segment is not None:
                work.segment.path.unlink(missing_ok=True)

    def _read(self, messages: Iterable[RawRecord | Message]) -> Iterator[SessionEvent]:
        streams, rows = self._streams, int(self._threshold.rows * OVERRUN)
        size = int(self._threshold.bytes * OVERRUN)
        for message in messages:
            if type(message) is not RawRecord:
                assert isinstance(message, Message)
                yield from self._handle(message)
                continue
            run = streams.get((message.stream, message.namespace))
            if run is None:
                yield from self._ignore(message)
                continue
            writer = run.writer or run.open()
            writer.append(message)
            if writer.size >= size or writer.records >= rows:
                run.overrun = True
                self._rotate(run)
                yield from self._acknowledged()

    def _ignore(self, record: RawRecord) -> Iterator[SessionEvent]:
        key = (record.stream, record.namespace)
        if key not in self._ignored:
            name = StreamId(*key)
            yield Logged("WARN", f"ignoring the records of stream {str(name)!r}: not configured")
        self._ignored[key] = self._ignored.get(key, 0) + 1

    def _handle(self, message: Message) -> Iterator[SessionEvent]:
        if message.state is not None:
            yield from self._state(message.state)
        elif message.log is not None:
            self._noise += isinstance(message, Noise)
            yield Logged(message.log.level, _log_text(message.log))
        elif message.trace is not None:
            yield from self._trace(message.trace)
        yield from self._acknowledged()

    def _state(self, state: State) -> Iterator[SessionEvent]:
        stream = stream_of(state, [run.configured.id for run in self._streams.values()])
        if stream is None:
            yield Logged("WARN", "ignoring a state of a stream that is not configured")
            return
        run = self._streams[stream]
        if run.failed:
            yield Logged("WARN", f"ignoring a state of {str(stream)!r}, which has failed")
            return
        run.hold(state)
        run.count(state)
        if not run.whole and self._due(run):
            self._rotate(run)
            self._commit(run, final=False)

    def _due(self, run: StreamRun) -> bool:
        writer, threshold = run.writer, self._threshold
        if run.overrun or run.flooded:
            return True
        if run.since is not None and time.monotonic() - run.since >= threshold.seconds:
            return True
        return writer is not None and (
            writer.records >= threshold.rows or writer.size >= threshold.bytes
        )

    def _trace(self, trace: Trace) -> Iterator[SessionEvent]:
        if trace.stream_status is not None:
            run = self._streams.get(trace.stream_status.stream_descriptor.id)
            if run is not None and not run.failed:
                run.heard = True
                run.progress.status = trace.stream_status.status
        elif trace.error is not None:
            yield from self._error(trace.error)
        elif trace.estimate is not None:
            yield from self._estimate(trace.estimate)

    def _error(self, error: ErrorTrace) -> Iterator[SessionEvent]:
        """An error that names no stream is every stream's."""
        named = error.stream_descriptor
        for run in self._streams.values():
            if named is None or named.id == run.configured.id:
                run.error = error
        yield Logged("ERROR", error.message)

    def _estimate(self, estimate: EstimateTrace) -> Iterator[SessionEvent]:
        stream = StreamId(estimate.name, estimate.namespace)
        if stream in self._streams:
            rows, size = estimate.row_estimate, estimate.byte_estimate
            if rows is not None:
                self._streams[stream].progress.estimate = int(rows)
            yield Estimated(
                stream,
                None if rows is None else int(rows),
                None if size is None else int(size),
            )

    def _rotate(self, run: StreamRun) -> None:
        """Hand the open segment to the sink. Without a state at its end it can no longer be cut."""
        writer = run.writer
        if writer is None:
            return
        run.salvageable = writer.at_mark and run.salvageable
        segment = run.close()
        if segment is None:
            return
        run.progress.records_read += segment.records
        run.progress.bytes_read += segment.size
        done = self._submit(lambda: _write(run.sink, segment))
        self._work.append(_Work(done, run.configured.id, segment=segment))

    def _commit(self, run: StreamRun, *, final: bool) -> None:
        checkpoint = Checkpoint(run.take(), final, silent=not run.heard)
        done = self._submit(lambda: run.sink.commit(checkpoint))
        self._work.append(_Work(done, run.configured.id, checkpoint=checkpoint))

    def _submit(self, work: Callable[[], Committed | None]) -> Future[Committed | None]:
        """Queue work for the sink thread. After one failure nothing more is done: what is queued
        behind a failed write must not acknowledge the state that write belongs to."""

        def guarded() -> Committed | None:
            if self._sink_failed.is_set():
                raise SystemFailure("not committed: an earlier segment could not be written")
            try:
                return work()
            except BaseException:
                self._sink_failed.set()
                raise

        return self._worker.submit(guarded)

    def _acknowledged(self, *, wait: bool = False) -> Iterator[SessionEvent]:
        """The commits that are done, in order; raises what made a sink fail.

        Pauses the reading while too much waits for the sink.
        """
        while self._work and (wait or self._work[0].done.done() or self._is_behind()):
            work = self._work[0]
            commit = work.done.result()
            self._work.popleft()
            if work.checkpoint is not None and commit is not None:
                state = work.checkpoint.states[-1] if work.checkpoint.states else None
                yield Acknowledged(work.stream, state, commit, work.checkpoint.final)

    def _is_behind(self) -> bool:
        segments = sum(work.segment is not None for work in self._work)
        return max(segments, len(self._work) - segments) > MAX_WAITING

    def _salvage(self, runs: list[StreamRun]) -> Iterator[SessionEvent]:
        """Commit what lies before the last state of streams that cannot go on."""
        for run in runs:
            if self._sink_failed.is_set() or run.whole or not run.states or not run.salvageable:
                continue
            if run.writer is not None:
                run.writer.cut_to_mark()
            self._rotate(run)
            self._commit(run, final=False)
        yield from self._acknowledged(wait=True)

    def _finish(self) -> Iterator[SessionEvent]:
        runs = list(self._streams.values())
        broken = [run for run in runs if run.incomplete or (self._noise and not run.heard)]
        for run in runs:
            if run in broken:
                continue
            if not run.heard:
                yield Logged("WARN", f"the source said nothing of {str(run.configured.id)!r}")
            self._rotate(run)
            self._commit(run, final=True)
        yield from self._salvage(broken)
        for key, count in self._ignored.items():
            yield Logged("WARN", f"ignored {count} records of stream {str(StreamId(*key))!r}")
        if broken:
            raise failure(broken, self._noise)


def _close(messages: Iterable[RawRecord | Message]) -> None:
    """End a source that can be ended: a generator over a process, say."""
    close = getattr(messages, "close", None)
    if close is not None:
        close()


def _write(sink: Sink, segment: Segment) -> None:
    try:
        sink.write(segment)
    finally:
        segment.path.unlink(missing_ok=True)


def _log_text(log: Log) -> str:
    return f"{log.message}\n{log.stack_trace}" if log.stack_trace else log.message
