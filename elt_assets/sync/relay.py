"""A sync into another destination: messages go to its connector, and a state is acknowledged once that
connector sends it back.

spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it
are committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType

from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog, StreamId
from elt_assets.protocol.airbyte.codec import encode
from elt_assets.protocol.airbyte.message_factory import stream_status
from elt_assets.protocol.airbyte.messages import (
    COMPLETE,
    INCOMPLETE,
    NULL,
    ErrorTrace,
    Message,
    RawRecord,
    Record,
    State,
    StateStats,
)
from elt_assets.protocol.airbyte.states import check_contents, stream_of
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Logged,
    SessionEvent,
    Sink,
    StreamProgress,
)
from elt_assets.sync.read_status import ReadStatus
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.source_events import events_from
from elt_assets.sync.states.sent import SentState, SentStates, check_counts
from elt_assets.sync.streams import StreamRun, miscounted

EVERY = 1.0
"""Seconds between commits of acknowledged states, at least."""

Send = Callable[[Iterable[bytes]], Iterable[Message]]
"""Gives lines to a destination, from a thread of its own; what it answers."""


@dataclass
class _Relayed:
    """One stream's part: how many of its records are acknowledged and rejected, and the last state.

    `ending`: COMPLETE or INCOMPLETE, once the destination was sent that.
    """

    run: StreamRun
    acknowledged: int = 0
    rejected: int = 0
    committed: tuple[int, int] = (0, 0)
    state: State | None = None
    waits: bool = False
    ending: str | None = None
    since: float = field(default_factory=time.monotonic)


class Relay:
    """One sync of the streams of a configured catalog into a destination that is a connector.

    Args:
        sinks: keep the states of the streams; they get no records.
        filters: of the streams some of whose fields must not be sent on.
        together: whether the streams may share a state.
        alone: whether no other stream of the source is synced, so that a GLOBAL state is its own.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        filters: Mapping[StreamId, RecordFilter] = MappingProxyType({}),
        *,
        together: bool = False,
        alone: bool = False,
    ):
        self._together = together
        self._alone = alone
        self._filters = filters
        self._streams = {
            stream.id: _Relayed(StreamRun(stream, sinks[stream.id], Path()))
            for stream in catalog.streams
        }
        self._status = ReadStatus()
        for relayed in self._streams.values():
            self._status.routes.add(relayed.run)
        self._runs = self._status.routes
        self._sent = SentStates()
        self._shared_to = 0
        self._news: SimpleQueue[SessionEvent] = SimpleQueue()

    def progress(self, stream: StreamId) -> StreamProgress:
        return self._runs[stream].progress

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Records and bytes; from any thread, and roughly."""
        progress = self._runs[stream].progress
        return progress.records_read, progress.bytes_read

    def run(self, messages: Iterable[RawRecord | Message], send: Send) -> Iterator[SessionEvent]:
        """Drive the sync to its end; yields what happens, what the source tells when the destination speaks.

        Raises:
            EltError: the source or the destination failed, or ended without completing a stream.
        """
        try:
            for answer in send(self._lines(messages)):
                yield from self._heard()
                if answer.state is not None:
                    yield from self._echoed(answer.state)
                else:
                    yield from events_from(answer, {})
        except EltError:
            yield from self._heard()
            yield from self._end_early()
            raise
        yield from self._heard()
        yield from self._finish()

    def _heard(self) -> Iterator[SessionEvent]:
        while not self._news.empty():
            yield self._news.get_nowait()

    def _lines(self, messages: Iterable[RawRecord | Message]) -> Iterator[bytes]:
        """The source's messages that go to the destination, then the final status of each stream.

        Some destinations fail without that status, and to others the end of their input alone would look
        like success.
        """
        try:
            for message in messages:
                assert isinstance(message, Message)
                if self._goes(message):
                    yield encode(message)
        except EltError:
            yield from self._endings([run for run in self._status.runs if not run.completed])
            raise
        yield from self._endings(self._status.broken())

    def _endings(self, broken: Sequence[StreamRun]) -> Iterator[bytes]:
        """The final statuses that the destination has not been sent yet."""
        for relayed in self._streams.values():
            ending = INCOMPLETE if relayed.run in broken else COMPLETE
            if relayed.ending not in (ending, INCOMPLETE):
                yield encode(stream_status(relayed.run.configured.id.descriptor, ending))

    def _goes(self, message: Message) -> bool:
        if message.record is not None:
            return self._record(message.record)
        if message.state is not None:
            return self._state(message.state)
        return self._note(message)

    def _record(self, record: Record) -> bool:
        stream = StreamId(record.stream, record.namespace)
        run = self._runs.get(stream)
        if run is None:
            self._queue(self._status.ignore(stream))
            return False
        record.namespace = run.configured.id.namespace
        if run.configured.id in self._filters:
            _filtered(record, self._filters[run.configured.id])
        run.heard = True
        run.progress.records_read += 1
        run.progress.bytes_read += len(record.data)
        return True

    def _note(self, message: Message) -> bool:
        """Keep what a message says; whether it is for the destination too: a stream's status."""
        self._queue(self._status.note(message))
        status = message.trace and message.trace.stream_status
        run = self._runs.get(status.stream_descriptor.id) if status else None
        if not status or run is None:
            return False
        relayed = self._streams[run.configured.id]
        if relayed.ending is not None or (run.failed and status.status == COMPLETE):
            return False
        if status.status in (COMPLETE, INCOMPLETE):
            relayed.ending = status.status
        status.stream_descriptor.namespace = run.configured.id.namespace
        return True

    def _queue(self, events: Iterable[SessionEvent]) -> None:
        for event in events:
            self._news.put(event)

    def _state(self, state: State) -> bool:
        """Remember what comes before a state; whether it goes to the destination."""
        check_contents(state)
        is_shared = self._together and state.stream is None
        stream = None if is_shared else stream_of(state, self._runs, alone=self._alone)
        if stream is None and not is_shared:
            self._news.put(Logged("WARN", "ignoring a state of a stream that is not configured"))
            return False
        concerned = self._status.runs if stream is None else [self._runs[stream]]
        if stream is not None and state.stream is not None:
            stream = concerned[0].configured.id
            state.stream.stream_descriptor.namespace = stream.namespace
        if any(run.failed for run in concerned):
            self._news.put(Logged("WARN", "ignoring a state: its stream has failed"))
            return False
        error = self._miscounted(state, stream)
        if error is not None:
            for run in concerned:
                run.error = error
            raise self._status.failure(concerned)
        counts = {run.configured.id: run.progress.records_read for run in concerned}
        self._sent.add(stream, SentState(state, counts))
        return True

    def _miscounted(self, state: State, stream: StreamId | None) -> ErrorTrace | None:
        if stream is None:
            came = sum(run.sent for run in self._runs.values())
            before, self._shared_to = self._shared_to, came
            return miscounted(state, came - before)
        run = self._runs[stream]
        run.count(state)
        before, run.counted_to = run.counted_to, run.sent
        return miscounted(state, run.sent - before)

    def _echoed(self, echo: State) -> Iterator[SessionEvent]:
        """A state came back: all that came before it, earlier states included, is committed there."""
        sent = self._sent.take(self._stream_of_echo(echo), echo)
        self._acknowledge(sent, echo.destinationStats or StateStats())
        for each in sent.counts:
            if time.monotonic() - self._streams[each].since >= EVERY:
                yield self._committed(self._streams[each], final=False)

    def _stream_of_echo(self, echo: State) -> StreamId | None:
        """The stream whose states the one that came back is among; None: those that are shared."""
        if echo.stream is not None:
            stream = echo.stream.stream_descriptor.id
            return self._runs[stream].configured.id if stream in self._runs else stream
        if not self._together and len(self._streams) == 1:
            return next(iter(self._streams))
        return None

    def _acknowledge(self, sent: SentState, stats: StateStats) -> None:
        """Count what came before a state, since the last one that came back, as committed or rejected."""
        rejected = int(stats.rejectedRecordCount or 0)
        before = sum(self._streams[each].acknowledged for each in sent.counts)
        check_counts(stats, sum(sent.counts.values()) - before)
        for each, count in sent.counts.items():
            relayed = self._streams[each]
            # Which stream's they are it does not say.
            own = min(rejected, count - relayed.acknowledged)
            rejected -= own
            relayed.rejected += own
            relayed.acknowledged, relayed.state, relayed.waits = count, sent.state, True

    def _committed(self, relayed: _Relayed, *, final: bool) -> Acknowledged:
        """Keep the last state that was acknowledged."""
        state = relayed.state if relayed.waits else None
        checkpoint = Checkpoint(() if state is None else (state,), final)
        commit = relayed.run.opened.commit(checkpoint)
        done, rejected = relayed.committed
        records = relayed.acknowledged - done - (relayed.rejected - rejected)
        commit = replace(commit, records=records, rejected=relayed.rejected - rejected)
        relayed.committed = (relayed.acknowledged, relayed.rejected)
        relayed.waits, relayed.since = False, time.monotonic()
        return Acknowledged(relayed.run.configured.id, state, commit, final)

    def _end_early(self) -> Iterator[SessionEvent]:
        """What was acknowledged stays so. Where the source told which streams failed, the others are
        complete if nothing of theirs is left to acknowledge; but who knows whether a destination that
        may have failed too has swapped an overwrite in."""
        told_which = self._status.failed
        for relayed in self._streams.values():
            run = relayed.run
            whole = told_which and run.completed and not run.configured.overwrites
            if whole and relayed.acknowledged == run.sent:
                yield self._committed(relayed, final=True)
            elif relayed.waits:
                yield self._committed(relayed, final=False)

    def _finish(self) -> Iterator[SessionEvent]:
        """The destination ended well: all that it was sent is committed."""
        lost = self._sent.unacknowledged()
        if lost:
            yield from self._end_early()
            names = ", ".join("all streams" if each is None else repr(str(each)) for each in lost)
            raise SystemFailure(
                f"the destination ended without acknowledging the states of {names}"
            )
        broken = self._status.broken()
        yield from self._status.conclude()
        for relayed in self._streams.values():
            if relayed.run in broken:
                if relayed.waits:
                    yield self._committed(relayed, final=False)
                continue
            relayed.acknowledged = relayed.run.sent
            yield self._committed(relayed, final=True)
        self._status.check(broken)


def _filtered(record: Record, record_filter: RecordFilter) -> None:
    """Filter a record in place."""
    raw = RawRecord(record.stream, record.data, meta=record.meta or NULL)
    raw = record_filter(raw)
    record.data, record.meta = Raw(bytes(raw.data)), None if raw.meta is NULL else raw.meta
