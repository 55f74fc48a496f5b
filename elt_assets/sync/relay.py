"""A sync into another destination: messages go to its connector, and a state is acknowledged once that
connector sends it back.

spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it
are committed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType

from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamDescriptor, StreamId
from elt_assets.protocol.codec import encode
from elt_assets.protocol.messages import (
    INCOMPLETE,
    NULL,
    ErrorTrace,
    Message,
    RawRecord,
    Record,
    State,
    StateStats,
    StreamStatusTrace,
    Trace,
)
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Logged,
    SessionEvent,
    Sink,
    StreamProgress,
)
from elt_assets.sync.filters import RecordFilter, canonical
from elt_assets.sync.state import check_shared, stream_of
from elt_assets.sync.streams import StreamRun, fail, failure, miscounted
from elt_assets.sync.told import told

EVERY = 1.0
"""Seconds between commits of acknowledged states, at least."""
MAX_SENT = 1_000_000
"""States that a destination may keep us waiting for."""

Send = Callable[[Iterable[bytes]], Iterable[Message]]
"""Gives lines to a destination, from a thread of its own; what it answers."""


@dataclass
class _Sent:
    """A state that went to the destination. `counts`: records of each stream that came before it."""

    state: State
    counts: Mapping[StreamId, int]


@dataclass
class _Relayed:
    """One stream's part: how many of its records are acknowledged and rejected, and the last state."""

    run: StreamRun
    acknowledged: int = 0
    rejected: int = 0
    committed: tuple[int, int] = (0, 0)
    state: State | None = None
    waits: bool = False
    since: float = field(default_factory=time.monotonic)


class Relay:
    """One sync of the streams of a configured catalog into a destination that is a connector.

    Args:
        sinks: keep the states of the streams; they get no records.
        filters: of the streams some of whose fields must not be sent on.
        together: whether the streams may share a state.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        filters: Mapping[StreamId, RecordFilter] = MappingProxyType({}),
        *,
        together: bool = False,
    ):
        self._together = together
        self._filters = filters
        self._streams: dict[tuple[str, str | None], _Relayed] = {
            stream.id: _Relayed(StreamRun(stream, sinks[stream.id], Path()))
            for stream in catalog.streams
        }
        self._runs = {key: each.run for key, each in self._streams.items()}
        self._sent: dict[StreamId | None, deque[_Sent]] = {}
        self._shared_to = 0
        self._news: SimpleQueue[SessionEvent] = SimpleQueue()
        self._ignored: dict[StreamId, int] = {}

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
                    yield from told(answer, {})
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
        """What of the source's messages goes to the destination. Of streams that failed it is told so: the
        end of its input alone would look like success."""
        try:
            for message in messages:
                assert isinstance(message, Message)
                if self._goes(message):
                    yield encode(message)
        except EltError:
            yield from (_incomplete(run) for run in self._runs.values() if not run.completed)
            raise
        yield from (_incomplete(run) for run in self._runs.values() if run.failed)

    def _goes(self, message: Message) -> bool:
        if message.record is not None:
            return self._record(message.record)
        if message.state is not None:
            return self._state(message.state)
        return self._tell(message)

    def _record(self, record: Record) -> bool:
        stream = StreamId(record.stream, record.namespace)
        run = self._runs.get(stream)
        if run is None:
            if stream not in self._ignored:
                text = f"ignoring the records of stream {str(stream)!r}: not configured"
                self._news.put(Logged("WARN", text))
            self._ignored[stream] = self._ignored.get(stream, 0) + 1
            return False
        if stream in self._filters:
            _filtered(record, self._filters[stream])
        run.heard = True
        run.progress.records_read += 1
        run.progress.bytes_read += len(record.data)
        return True

    def _tell(self, message: Message) -> bool:
        """Keep what a message tells; whether it is for the destination too: a stream's status."""
        for event in told(message, self._runs):
            self._news.put(event)
        trace = message.trace
        if trace is not None and trace.error is not None:
            fail(self._runs.values(), trace.error)
        status = trace and trace.stream_status
        return bool(status and status.stream_descriptor.id in self._runs)

    def _state(self, state: State) -> bool:
        """Remember what comes before a state; whether it goes to the destination."""
        ids = [run.configured.id for run in self._runs.values()]
        is_shared = self._together and state.stream is None
        if is_shared:
            check_shared(state)
        stream = None if is_shared else stream_of(state, ids)
        if stream is None and not is_shared:
            self._news.put(Logged("WARN", "ignoring a state of a stream that is not configured"))
            return False
        concerned = list(self._runs.values()) if stream is None else [self._runs[stream]]
        if any(run.failed for run in concerned):
            self._news.put(Logged("WARN", "ignoring a state: its stream has failed"))
            return False
        error = self._miscounted(state, stream)
        if error is not None:
            for run in concerned:
                run.error = error
            raise failure(concerned, 0)
        counts = {run.configured.id: run.progress.records_read for run in concerned}
        waiting = self._sent.setdefault(stream, deque())
        waiting.append(_Sent(state, counts))
        if len(waiting) > MAX_SENT:
            raise SystemFailure(
                f"the destination has not acknowledged any of {MAX_SENT:,} states",
                guidance="it must send states back as it commits the records before them",
            )
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
        """A state came back: all that came before it is committed there."""
        stream = None if echo.stream is None else echo.stream.stream_descriptor.id
        if stream not in self._sent and not self._together and len(self._streams) == 1:
            stream = next(iter(self._runs.values())).configured.id
        waiting = self._sent.get(stream)
        if not waiting or _identity(waiting[0].state) != _identity(echo):
            raise SystemFailure(
                "the destination sent a state that it was not given, or not in this order",
                guidance="this is a defect of the destination; the next run goes on from the last state that "
                "it acknowledged",
            )
        sent, stats = waiting.popleft(), echo.destinationStats or StateStats()
        rejected = int(stats.rejectedRecordCount or 0)
        before = sum(self._streams[each].acknowledged for each in sent.counts)
        _check_counts(stats, sum(sent.counts.values()) - before)
        for each, count in sent.counts.items():
            relayed = self._streams[each]
            # Which stream's they are it does not say.
            own = min(rejected, count - relayed.acknowledged)
            rejected -= own
            relayed.rejected += own
            relayed.acknowledged, relayed.state, relayed.waits = count, sent.state, True
        for each in sent.counts:
            if time.monotonic() - self._streams[each].since >= EVERY:
                yield self._committed(self._streams[each], final=False)

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
        told_which = any(run.failed for run in self._runs.values())
        for relayed in self._streams.values():
            run = relayed.run
            whole = told_which and run.completed and not run.configured.overwrites
            if whole and relayed.acknowledged == run.sent:
                yield self._committed(relayed, final=True)
            elif relayed.waits:
                yield self._committed(relayed, final=False)

    def _finish(self) -> Iterator[SessionEvent]:
        """The destination ended well: all that it was sent is committed."""
        lost = [stream for stream, waiting in self._sent.items() if waiting]
        if lost:
            yield from self._end_early()
            names = ", ".join("all streams" if each is None else repr(str(each)) for each in lost)
            raise SystemFailure(
                f"the destination ended without acknowledging the states of {names}"
            )
        runs = list(self._runs.values())
        broken = [run for run in runs if run.incomplete]
        for relayed in self._streams.values():
            if relayed.run in broken:
                if relayed.waits:
                    yield self._committed(relayed, final=False)
                continue
            relayed.acknowledged = relayed.run.sent
            yield self._committed(relayed, final=True)
        for stream, count in self._ignored.items():
            yield Logged("WARN", f"ignored {count} records of stream {str(stream)!r}")
        if broken:
            raise failure(broken, 0)


def _incomplete(run: StreamRun) -> bytes:
    stream = run.configured.id
    status = StreamStatusTrace(
        stream_descriptor=StreamDescriptor(name=stream.name, namespace=stream.namespace),
        status=INCOMPLETE,
    )
    at = int(time.time() * 1000)
    trace = Trace(type="STREAM_STATUS", emitted_at=at, stream_status=status)
    return encode(Message(type="TRACE", trace=trace))


def _filtered(record: Record, record_filter: RecordFilter) -> None:
    """Filter a record in place."""
    raw = RawRecord(record.stream, record.data, meta=record.meta or NULL)
    raw = record_filter(raw)
    record.data, record.meta = Raw(bytes(raw.data)), None if raw.meta is NULL else raw.meta


def _identity(state: State) -> str:
    """What a state says, however a destination spells it."""
    if state.stream is not None:
        blob = state.stream.stream_state
    else:
        blob = Raw(state.global_.to_json()) if state.global_ is not None else state.data
    return canonical(Raw(blob or b"null"))


def _check_counts(stats: StateStats, sent: int) -> None:
    """spec: AirbyteStateStats: source = committed + rejected.

    Raises:
        SystemFailure: the destination says otherwise.
    """
    if stats.recordCount is None:
        return
    kept = int(stats.recordCount) + int(stats.rejectedRecordCount or 0)
    if kept != sent:
        raise SystemFailure(
            f"the destination says that it committed or rejected {kept} records before its state, but it was "
            f"sent {sent}; that state is not acknowledged",
        )
