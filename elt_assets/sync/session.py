"""The session of one sync: routes records to segments, and acknowledges a state once it is committed.

It takes any iterable of messages and any sinks, and does no I/O of its own but the segment files.

spec: Airbyte Protocol, State & the Whole Sync: a state is passed on only when every record before
it is committed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from elt_assets.errors import EltError
from elt_assets.protocol.airbyte.catalog import (
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.airbyte.messages import (
    ErrorTrace,
    Message,
    RawRecord,
    State,
    StreamGeneration,
)
from elt_assets.protocol.airbyte.states import check_contents, stream_of
from elt_assets.sync.committer import Committer, OpenSink
from elt_assets.sync.events import Logged, SessionEvent, Sink, StreamProgress
from elt_assets.sync.read_status import ReadStatus
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.shared_state import SharedState
from elt_assets.sync.streams import StreamRun

OVERRUN = 1.25
"""How far past its threshold a segment may grow while no state arrives."""


@dataclass(frozen=True)
class Threshold:
    """A segment is sealed at the first state after any of these is reached."""

    rows: int = 1_000_000
    bytes: int = 256 << 20
    seconds: float = 300


class Session:
    """One sync of the streams of a configured catalog.

    Args:
        catalog: what was asked of the source; records of other streams are ignored, and said so.
        sinks: one for each stream of the catalog.
        staging: a directory of the session's own.
        threshold: when to seal a segment.
        filters: of the streams some of whose fields must not be stored.
        together: whether the streams may share a state.
        alone: whether no other stream of the source is synced, so that a GLOBAL state is its own.
        open_sink: makes the sink of a stream whose schema or generation is another from now on (Singer);
            it is called from the sinks' thread. None: those are fixed.
        configure: how a stream is synced that the catalog does not have, when its schema comes. None: not.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        staging: Path,
        threshold: Threshold | None = None,
        filters: Mapping[StreamId, RecordFilter] = MappingProxyType({}),
        *,
        together: bool = False,
        alone: bool = False,
        open_sink: OpenSink | None = None,
        configure: Callable[[AirbyteStream], ConfiguredStream] | None = None,
    ):
        self._threshold = threshold or Threshold()
        self._staging = staging
        self._filters = filters
        self._together = together
        self._alone = alone
        self._open_sink = open_sink
        self._configure = configure
        self._status = ReadStatus()
        self._streams = self._status.routes
        for stream in catalog.streams:
            self._add(stream, sinks[stream.id])
        self._committer = Committer(len(catalog.streams))
        self._shared = SharedState(self._committer)

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
        acknowledged, then its error is raised; streams that it had completed before another one failed
        are complete. When a sink fails, its error is raised at once.

        Raises:
            EltError: the source failed, or ended without completing a stream.
        """
        try:
            try:
                yield from self._read(messages)
            except EltError:
                yield from self._end_early()
                raise
            yield from self._finish()
        finally:
            self._committer.stop()  # of a run that is ended, nobody would tell of another commit
            _close(messages)  # first: the source must not outlive a sink that takes its time
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
        most = (int(self._threshold.rows * OVERRUN), int(self._threshold.bytes * OVERRUN))
        run = StreamRun(stream, sink, folder, self._filters.get(stream.id), most)
        self._streams.add(run)
        return run

    def _read(self, messages: Iterable[RawRecord | Message]) -> Iterator[SessionEvent]:
        known = self._streams.direct
        for message in messages:
            if type(message) is not RawRecord:
                assert isinstance(message, Message)
                yield from self._handle(message)
                continue
            run = known.get((message.stream, message.namespace)) or self._find(message)
            if run is None:
                yield from self._status.ignore(StreamId(message.stream, message.namespace))
                continue
            writer = run.writer or run.open()
            if writer.append(message):
                run.overrun = True
                self._rotate(run)
                yield from self._committer.done()

    def _find(self, record: RawRecord) -> StreamRun | None:
        return self._streams.get(StreamId(record.stream, record.namespace))

    def _handle(self, message: Message) -> Iterator[SessionEvent]:
        if message.state is not None:
            yield from self._state(message.state)
        elif message.catalog is not None:
            for stream in message.catalog.streams:
                yield from self._describe(stream)
        elif message.generation is not None:
            self._generation(message.generation)
        yield from self._status.note(message)
        yield from self._committer.done()

    def _state(self, state: State) -> Iterator[SessionEvent]:
        check_contents(state)
        if self._together and state.stream is None:
            yield from self._shared_state(state)
            return
        stream = stream_of(state, self._streams, alone=self._alone)
        if stream is None:
            yield Logged("WARN", "ignoring a state of a stream that is not configured")
            return
        run = self._streams[stream]
        if run.failed:
            yield Logged("WARN", f"ignoring a state of {str(stream)!r}, which has failed")
            return
        run.count(state)
        run.error = run.miscounts(state)
        if run.error is not None:
            yield from self._miscounted(run.error)
            return
        run.hold(state)
        if not run.whole and self._is_due(run):
            self._rotate(run)
            self._committer.commit(run, final=False)

    def _shared_state(self, state: State) -> Iterator[SessionEvent]:
        runs = self._runs
        if any(run.failed for run in runs):
            yield Logged("WARN", "ignoring a state that streams share: one of them has failed")
            return
        error = self._shared.miscounts(state, runs)
        if error is not None:
            for run in runs:
                run.error = error
            yield from self._miscounted(error)
            return
        self._shared.hold(state, runs)
        due = any(self._is_due(run) for run in runs if not run.whole)
        if due or self._shared.is_due(self._threshold.seconds):
            for run in runs:
                if not run.whole:
                    self._rotate(run)
            self._shared.commit(runs, final=False)

    def _miscounted(self, error: ErrorTrace) -> Iterator[SessionEvent]:
        yield Logged("ERROR", error.text)
        if all(run.failed for run in self._runs):  # what else comes is of no use
            raise self._status.failure(self._runs)

    def _is_due(self, run: StreamRun) -> bool:
        limits = self._threshold
        return run.is_due(limits.rows, limits.bytes, limits.seconds)

    def _describe(self, stream: AirbyteStream) -> Iterator[SessionEvent]:
        """A stream's schema is another from now on, or first told of."""
        run = self._streams.get(stream.id)
        if self._open_sink is None:
            return
        if run is None:
            if self._configure is not None:
                self._committer.reopen(self._add(self._configure(stream), None), self._open_sink)
            return
        described = _described(run.configured, stream)
        if described is not None:
            self._reopen(run, described, self._open_sink)
            yield Logged("DEBUG", f"stream {str(stream.id)!r} has another schema from here on")

    def _generation(self, told: StreamGeneration) -> None:
        """spec: Singer's ACTIVATE_VERSION; the rows of a new version replace the others once it is whole."""
        run = self._streams.get(told.stream_descriptor.id)
        if run is None or self._open_sink is None:
            return
        run.heard = True
        if run.configured.generation_id != told.generation_id:
            configured = copy.copy(run.configured)
            configured.generation_id = told.generation_id
            configured.minimum_generation_id = told.generation_id
            self._reopen(run, configured, self._open_sink)
        if told.complete:
            self._rotate(run)
            self._committer.commit(run, final=True, completes=False)

    def _reopen(self, run: StreamRun, configured: ConfiguredStream, open_sink: OpenSink) -> None:
        """Commit what a stream's sink has, and give it another."""
        self._rotate(run)
        if run.uncommitted:
            self._committer.commit(run, final=False)
        run.configured = configured
        self._committer.reopen(run, open_sink)

    def _rotate(self, run: StreamRun) -> None:
        """Hand the open segment to the sink. Without a state at its end it can no longer be cut."""
        if run.writer is None:
            return
        run.salvageable = run.writer.at_mark and run.salvageable
        segment = run.close()
        if segment is not None:
            self._committer.write(run, segment)

    def _end_early(self) -> Iterator[SessionEvent]:
        """The source has failed. Where it told of which streams, those it had completed are complete."""
        runs = self._runs
        whole = [run for run in runs if run.completed] if self._status.failed else []
        if whole:
            self._complete(whole)
        yield from self._salvage([run for run in runs if run not in whole])

    def _salvage(self, runs: list[StreamRun]) -> Iterator[SessionEvent]:
        """Commit what lies before the last state of streams that cannot go on."""
        if self._shared and any(run.failed for run in self._runs):
            self._shared.forget()
        shared = [run for run in self._runs if not run.whole] if self._shared else []
        can_share = bool(shared) and all(run.salvageable and run in runs for run in shared)
        kept = [run for run in runs if not run.whole and run.salvageable]
        for run in kept:
            if self._committer.failed or not (can_share or len(run.held)):
                continue
            if run.writer is not None:
                run.writer.cut_to_mark()
            self._rotate(run)
            if not can_share:
                self._committer.commit(run, final=False)
        if can_share and not self._committer.failed:
            self._shared.commit(shared, final=False)
        yield from self._committer.done(wait=True)

    def _complete(self, runs: list[StreamRun]) -> None:
        """Commit all of some streams, and with it a shared state, if all are among them."""
        if len(runs) != len(self._streams):
            self._shared.forget()
        for run in runs:
            self._rotate(run)
        self._shared.commit(runs, final=True)

    def _finish(self) -> Iterator[SessionEvent]:
        runs = self._runs
        broken = self._status.broken()
        yield from self._status.conclude()
        self._complete([run for run in runs if run not in broken])
        yield from self._salvage(broken)
        self._status.check(broken)


def _close(messages: Iterable[RawRecord | Message]) -> None:
    """End a source that can be ended: a generator over a process, say."""
    close = getattr(messages, "close", None)
    if close is not None:
        close()


def _described(configured: ConfiguredStream, stream: AirbyteStream) -> ConfiguredStream | None:
    """A stream with what is newly told of its fields; those that are not told of stay. None: nothing new."""
    known, new = configured.stream.json_schema, stream.json_schema
    properties = {**(known.get("properties") or {}), **(new.get("properties") or {})}
    key = stream.source_defined_primary_key or configured.stream.source_defined_primary_key
    if (
        properties == known.get("properties")
        and key == configured.stream.source_defined_primary_key
    ):
        return None
    described = copy.copy(configured)
    described.stream = copy.copy(configured.stream)
    described.stream.json_schema = {**new, **known, "properties": properties}
    described.stream.source_defined_primary_key = key
    return described
