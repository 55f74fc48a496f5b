"""The session of one sync: it writes records to segments and acknowledges each state when it is committed.

`pipeline.read` makes and runs it, for connections, `elt-destination` and `target-elt` alike;
`pipeline.connection_read` and `destination` choose its `Threshold` and `StreamChanges`.

It accepts any iterable of messages and any sinks. Its only I/O is the segment files.

Spec: Airbyte Protocol, State & the Whole Sync: a state is passed on only when every record before
it is committed.

A kill at SEGMENT_CLOSED, or anywhere else in the session, leaves segment files that no table knows. They are
removed with their folder when another session begins, and their records are read again, because no state
after them was committed.
`tests/lake/test_crash_points.py::test_a_session_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elt_assets.errors import EltError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.message_rules import (
    check_contents,
    check_limits,
    refuse_barrier,
    refuse_slice,
    stream_of,
)
from elt_assets.protocol.messages import (
    COMPLETE,
    INCOMPLETE,
    ErrorTrace,
    Message,
    RawRecord,
    Received,
    RecordLines,
    Slice,
    State,
    StreamGeneration,
)
from elt_assets.sync.committer import Committer, OpenSink
from elt_assets.sync.events import Logged, SessionEvent, Settled, Sink, StreamProgress
from elt_assets.sync.read_status import ReadStatus
from elt_assets.sync.segments import OpenFiles
from elt_assets.sync.shared_state import (
    SharedState,
    is_stopped,
    list_covered,
    list_named,
)
from elt_assets.sync.streams import StreamRules, StreamRun

OVERFLOW_FACTOR = 1.25
"""Maximum size of a segment relative to its threshold, while no state arrives."""


@dataclass(frozen=True)
class Threshold:
    """Limits of a segment: it is closed and committed at the first state after one of them is reached."""

    rows: int = 1_000_000
    bytes: int = 256 << 20
    seconds: float = 300


@dataclass(frozen=True)
class StreamChanges:
    """How the streams of a sync may change while they are read (Singer)."""

    # opens another sink for a stream when its key or generation changes; called from a sinks'
    # thread
    open_sink: OpenSink
    # lets the present sink of a stream continue with another schema; called from a sinks' thread
    change_schema: Callable[[ConfiguredStream], None]
    # configures a stream that is not in the catalog, when its schema arrives. None if such a
    # stream is ignored.
    configure: Callable[[AirbyteStream], ConfiguredStream] | None = None


class Session:
    """One sync of the streams of a configured catalog.

    Args:
        catalog: streams requested from the source; records of other streams are ignored with a warning.
        sinks: one for each stream of the catalog.
        staging: directory that only this session uses.
        threshold: when to close a segment.
        rules: what is particular to the streams of the source.
        changes: how streams may change while they are read; None if a stream cannot change, and one that is
            not in the catalog is ignored.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        staging: Path,
        threshold: Threshold | None = None,
        rules: StreamRules | None = None,
        changes: StreamChanges | None = None,
    ):
        self._threshold = threshold or Threshold()
        self._open_files = OpenFiles()
        self._staging = staging
        self._rules = rules or StreamRules()
        self._changes = changes
        self._status = ReadStatus()
        self._streams = self._status.routes
        for stream in catalog.streams:
            self._add(stream, sinks[stream.id]).has_own_state = stream.id in self._rules.own_states
        self._committer = Committer(len(catalog.streams))
        self._shared = SharedState(self._committer)
        self.work = self._committer.work

    def progress(self, stream: StreamId) -> StreamProgress:
        return self._streams[stream].progress

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Return the records and bytes read so far, approximately; callable from any thread.

        The open segment is included.
        """
        run = self._streams[stream]
        writer, progress = run.writer, run.progress
        open_rows, open_bytes = (0, 0) if writer is None else (writer.received, writer.size)
        return progress.records_read + open_rows, progress.bytes_read + open_bytes

    def run(self, messages: Iterable[Received]) -> Generator[SessionEvent, None, None]:
        """Run the sync to its end and yield its events as they happen.

        If the source fails, the records before its last state are still committed and acknowledged; then
        its error is raised. Streams that the source completed before another stream failed are complete. If
        a sink fails, its error is raised at once.

        Raises:
            EltError: the source failed, or ended without completing a stream.
        """
        try:
            try:
                yield from self._read(messages)
            except EltError:
                # If the source reported which streams failed, those that it had completed are complete.
                has_failures = self._status.has_failures
                completed = [run for run in self._runs if run.is_complete and has_failures]
                yield from self._commit_last(completed)
                raise
            incomplete = self._status.incomplete_runs()
            yield from self._status.conclude()
            if any(run in self._shared.covered and not run.has_failed for run in incomplete):
                self._shared.discard()  # the stream may have failed before the states, without a word
            yield from self._commit_last([run for run in self._runs if run not in incomplete])
            self._status.check(incomplete)
        finally:
            self._committer.stop()  # the run has ended: no later commit would be reported
            if isinstance(messages, Generator):
                messages.close()  # before the sinks: the source must not outlive a slow sink
            self._committer.shut_down()
            for run in self._runs:
                if run.writer is not None:
                    run.writer.discard()

    @property
    def _runs(self) -> list[StreamRun]:
        return self._status.runs

    def _add(self, stream: ConfiguredStream, sink: Sink | None) -> StreamRun:
        folder = self._staging / f"{len(self._streams):04d}"
        folder.mkdir(parents=True, exist_ok=True)
        limits = (
            int(self._threshold.rows * OVERFLOW_FACTOR),
            int(self._threshold.bytes * OVERFLOW_FACTOR),
        )
        run = StreamRun(
            stream,
            sink,
            folder,
            self._rules.filters.get(stream.id),
            self._rules.documents.get(stream.id),
            limits,
            self._open_files,
        )
        self._streams.add(run)
        return run

    def _read(self, messages: Iterable[Received]) -> Iterator[SessionEvent]:
        direct = self._streams.direct
        for message in messages:
            if type(message) is not RawRecord:
                if isinstance(message, RecordLines):
                    yield from self._append_run(message)
                else:
                    assert isinstance(message, Message)
                    yield from self._handle(message)
                continue
            run = direct.get((message.stream, message.namespace)) or self._find(message)
            if run is None:
                yield from self._status.ignore(StreamId(message.stream, message.namespace))
                continue
            writer = run.writer or run.open_segment()
            if writer.append(message):
                self._overflow(run)
                yield from self._committer.take_events()

    def _append_run(self, lines: RecordLines) -> Iterator[SessionEvent]:
        run = self._find(lines)
        if run is None:
            yield from self._status.ignore(StreamId(lines.stream, lines.namespace), lines.count)
            return
        rest: RecordLines | None = lines
        while rest is not None and rest.count:
            writer = run.writer or run.open_segment()
            rest = writer.append_run(rest)
            if rest is not None:
                self._overflow(run)
                yield from self._committer.take_events()

    def _find(self, record: RawRecord | RecordLines) -> StreamRun | None:
        return self._streams.get(StreamId(record.stream, record.namespace))

    def _handle(self, message: Message) -> Iterator[SessionEvent]:
        if message.state is not None:
            yield from self._handle_state(message.state)
        elif message.catalog is not None:
            for stream in message.catalog.streams:
                yield from self._update_schema(stream)
        elif message.generation is not None:
            self._update_generation(message.generation)
        elif message.slice is not None:
            self._add_slice(message.slice)
        elif message.barrier is not None:
            if not (self._rules.sliced or self._rules.follows):
                raise refuse_barrier()
            yield from self._settle()
            if self._rules.follows:
                yield Settled()
        yield from self._status.note(message)
        yield from self._committer.take_events()

    def _add_slice(self, part: Slice) -> None:
        """Queue a slice; if the queue is full, it is read before a state arrives.

        Raises:
            SystemFailure: nobody asked for it.
        """
        run = self._streams.get(part.stream_descriptor.id)
        if run is None or run.configured.id not in self._rules.sliced:
            raise refuse_slice(part, "which was not asked for slices")
        if run.progress.status in (COMPLETE, INCOMPLETE):
            raise refuse_slice(part, "which has ended")
        check_limits(part)
        if run.writer is not None:
            self._rotate(run)
        if run.slices.is_full(self._threshold.rows):
            self._overflow(run)
        run.slices.append(part)
        run.is_mentioned = True
        run.start_commit_timer()

    def _settle(self) -> Iterator[SessionEvent]:
        """Give everything to the sinks, commit what a state covers, and wait until this is done."""
        for run in self._runs:
            self._rotate(run)
            if run.is_resumable and run.can_cut_to_state and len(run.pending):
                self._committer.commit(run, final=False)
        if self._shared.covered and all(run.can_cut_to_state for run in self._shared.covered):
            self._commit_shared_states()
        yield from self._committer.take_events(wait=True)

    def _handle_state(self, state: State) -> Iterator[SessionEvent]:
        check_contents(state)
        if self._rules.shares_state and state.stream is None:
            yield from self._handle_shared_state(state)
            return
        stream = stream_of(state, self._streams, is_only_stream=self._rules.is_only_stream)
        if stream is None:
            yield from self._status.warn("ignoring a state of a stream that is not configured")
            return
        run = self._streams[stream]
        if run.has_failed:
            yield from self._status.warn(
                f"ignoring a state of stream {str(run.configured.id)!r}: the stream has failed"
            )
            return
        run.add_source_count(state)
        run.error = run.count_error(state)
        if run.error is not None:
            yield from self._log_count_error(run.error)
            return
        run.add_state(state)
        if run.is_resumable and self._is_due(run):
            self._rotate(run)
            self._committer.commit(run, final=False)

    def _handle_shared_state(self, state: State) -> Iterator[SessionEvent]:
        covered = list_covered(state, self._streams)
        if not covered or is_stopped(covered):
            yield from self._status.warn("ignoring a shared state: one of its streams has failed")
            return
        named = list_named(state, self._streams)
        error = self._shared.record_count_error(state, covered, named)
        if error is not None:
            for run in covered:
                run.error = error
            yield from self._log_count_error(error)
            return
        self._shared.add(state, covered)
        is_due = any(self._is_due(run) for run in self._shared.covered)
        if is_due or self._shared.is_due(self._threshold.seconds):
            self._commit_shared_states()

    def _commit_shared_states(self) -> None:
        covered = self._shared.covered
        for run in covered:
            if run.has_failed:
                run.cut_to_mark()
            self._rotate(run)
        self._shared.commit([], covered)

    def _log_count_error(self, error: ErrorTrace) -> Iterator[SessionEvent]:
        yield Logged("ERROR", error.text)
        if all(run.has_failed for run in self._runs):  # no later message can be used
            raise self._status.failure(self._runs)

    def _is_due(self, run: StreamRun) -> bool:
        limits = self._threshold
        return run.is_due(limits.rows, limits.bytes, limits.seconds)

    def _update_schema(self, stream: AirbyteStream) -> Iterator[SessionEvent]:
        """Use the schema of a stream from now on; configure the stream if it is new.

        The schema applies to everything since the last commit. Another key applies from here on: what
        came before is committed. A generation has one key: the last one before its first commit.
        """
        run = self._streams.get(stream.id)
        changes = self._changes
        if changes is None:
            return
        if run is None:
            if changes.configure is not None:
                added = self._add(changes.configure(stream), None)
                self._committer.replace_sink(added, changes.open_sink)
            return
        configured = _replace_schema(run.configured, stream)
        if configured is None:
            return
        is_same_key = configured.key == run.configured.key
        if is_same_key or configured.minimum_generation_id:
            self._rotate(run)
            run.configured = configured
            self._committer.change_schema(run, changes.change_schema)
        else:
            self._replace_sink(run, configured, changes.open_sink)
        yield Logged("DEBUG", f"stream {str(stream.id)!r}: the schema has changed")

    def _update_generation(self, generation: StreamGeneration) -> None:
        """Use a generation of a stream from now on; commit it if it is complete.

        A generation without records is complete only at the end of the sync: some taps activate a version
        before its records, and the earlier rows must stay until the new ones are whole.

        Spec: Singer's ACTIVATE_VERSION: the rows of a new version replace the others when it is complete.
        """
        run = self._streams.get(generation.stream_descriptor.id)
        if run is None or self._changes is None:
            return
        run.is_mentioned = True
        if run.configured.generation_id != generation.generation_id:
            configured = copy.copy(run.configured)
            configured.generation_id = generation.generation_id
            configured.minimum_generation_id = generation.generation_id
            self._replace_sink(run, configured, self._changes.open_sink)
            run.records_at_generation = run.records_received
        if generation.complete and run.records_received > run.records_at_generation:
            self._rotate(run)
            self._committer.commit(run, final=True, completes=False)

    def _replace_sink(
        self, run: StreamRun, configured: ConfiguredStream, open_sink: OpenSink
    ) -> None:
        """Commit what was given to a stream's sink; then open a sink for another configuration."""
        self._rotate(run)
        if run.uncommitted:
            self._committer.commit(run, final=False)
        run.configured = configured
        self._committer.replace_sink(run, open_sink)

    def _overflow(self, run: StreamRun) -> None:
        """Give the open segment, which is full, to the sink before a state arrives."""
        run.has_overflowed = True
        self._rotate(run)
        if self._shared.is_stopped and run in self._shared.covered:
            # No later shared state is committed, and this stream can no longer be cut to the last one.
            self._commit_shared_states()

    def _rotate(self, run: StreamRun) -> None:
        """Give the slices and the open segment to the sink; unless they end at a state, they can no longer be
        cut to one."""
        run.can_cut_to_state = run.slices.at_mark and run.can_cut_to_state
        group = run.take_slices()
        if group is not None:
            self._committer.read(run, group)
        if run.writer is None:
            return
        run.can_cut_to_state = run.writer.at_mark and run.can_cut_to_state
        segment = run.close_segment()
        if segment is not None:
            reach(Failpoint.SEGMENT_CLOSED)
            self._committer.write(run, segment)

    def _commit_last(self, completed: Sequence[StreamRun]) -> Iterator[SessionEvent]:
        """Commit completed streams to their ends, all others to their last states, and the shared states.

        The shared states were received before any of their streams failed, so they advance for all of them,
        the failed ones included. They advance for none if a stream can no longer be cut to the last of them.
        """
        others = [run for run in self._runs if run not in completed]
        can_cut = [run for run in others if run.is_resumable and run.can_cut_to_state]
        if any(run not in completed and run not in can_cut for run in self._shared.covered):
            self._shared.discard()
        covered = self._shared.covered
        cut = [run for run in can_cut if run in covered or len(run.pending)]
        if not self._committer.has_failed:
            for run in cut:
                run.cut_to_mark()
            for run in (*completed, *cut):
                self._rotate(run)
            self._shared.commit(completed, cut)
        yield from self._committer.take_events(wait=True)


def _replace_schema(configured: ConfiguredStream, stream: AirbyteStream) -> ConfiguredStream | None:
    """Return a stream with the fields and key of a new schema; None if they change nothing.

    Fields that the new schema does not declare stay, except for one that it declares with a name that differs
    in case only: it has been renamed.
    """
    known_fields, new = configured.stream.json_schema, stream.json_schema
    before, declared = known_fields.get("properties") or {}, new.get("properties") or {}
    renamed = {name.lower() for name in declared if name not in before}
    stay = (name for name in before if name in declared or name.lower() not in renamed)
    properties = {**{name: before[name] for name in stay}, **declared}
    key = stream.source_defined_primary_key or configured.stream.source_defined_primary_key
    if (
        properties == known_fields.get("properties")
        and key == configured.stream.source_defined_primary_key
    ):
        return None
    described = copy.copy(configured)
    described.stream = copy.copy(configured.stream)
    described.stream.json_schema = {**new, **known_fields, "properties": properties}
    described.stream.source_defined_primary_key = key
    return described
