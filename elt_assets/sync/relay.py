"""A sync into another destination: its connector gets the messages, and sends acknowledged states back.

Made by `pipeline.connection_read`, for a connection with `destination:`, in place of a `Session`.

Spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it
are committed.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from queue import SimpleQueue

import msgspec
from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamId
from elt_assets.protocol.codec import encode
from elt_assets.protocol.message_output import stream_status
from elt_assets.protocol.message_rules import (
    FileReference,
    check_contents,
    describe_unexpected_document,
    parse_reference,
    stream_of,
)
from elt_assets.protocol.messages import (
    COMPLETE,
    INCOMPLETE,
    NULL,
    ErrorTrace,
    Message,
    RawRecord,
    Received,
    Record,
    State,
    StateStats,
    root_error,
)
from elt_assets.protocol.wire import as_read, repair
from elt_assets.sync.committer import Work
from elt_assets.sync.destination_messages import (
    DestinationNames,
    SentState,
    SentStates,
    replace_bad_texts,
)
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Logged,
    SessionEvent,
    Sink,
    StreamProgress,
)
from elt_assets.sync.read_status import ReadStatus, as_failure, events_from
from elt_assets.sync.shared_state import is_stopped, list_covered, list_named
from elt_assets.sync.streams import StreamRules, StreamRun, record_count_error, source_count

_BAD_TEXTS = (
    "stream {}: the fields {} of a record have texts that are no text; U+FFFD replaces what is no character, "
    "and the `meta.changes` of such records list the fields"
)
COMMIT_INTERVAL = 1.0
"""Minimum time between two commits of a stream's acknowledged states, in seconds."""

Send = Callable[[Iterable[bytes]], Iterable[Message]]
"""A function that sends lines to a destination, from a separate thread, and returns its messages."""


@dataclass
class _RelayStream:
    """One stream of a relay: its acknowledged and rejected records, and its last acknowledged state."""

    run: StreamRun
    acknowledged: int = 0
    rejected: int = 0
    # records acknowledged and rejected at the last commit, which was made at the monotonic time
    # `committed_at`
    committed_counts: tuple[int, int] = (0, 0)
    state: State | None = None
    state_number: int = 0  # of the last acknowledged state, in the order sent
    has_uncommitted_state: bool = False
    final_status: str | None = None  # COMPLETE or INCOMPLETE, if the destination was sent it
    error: ErrorTrace | None = None  # the destination's, for this stream
    has_bad_texts: bool = False  # the log says that records have texts that are no text
    committed_at: float = field(default_factory=time.monotonic)
    filtered_at_state: int = 0  # records that were not sent before the last own state

    @property
    def sent(self) -> int:
        """The number of records that were sent to the destination."""
        return self.run.records_received - self.run.progress.records_filtered


class Relay:
    """One sync of the streams of a configured catalog into a destination that is a connector.

    Args:
        sinks: writers of the streams' states; they get no records.
        send: runs the destination.
        rules: what is particular to the streams of the source.
        names: the names of the streams at the destination.
    """

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        send: Send,
        rules: StreamRules | None = None,
        names: DestinationNames | None = None,
    ):
        self._send = send
        self._rules = rules or StreamRules()
        self._names = names or DestinationNames({})
        self._streams = {
            stream.id: _RelayStream(StreamRun(stream, sinks[stream.id], Path()))
            for stream in catalog.streams
        }
        self._status = ReadStatus()
        for stream, relayed in self._streams.items():
            relayed.run.has_own_state = stream in self._rules.own_states
            self._status.routes.add(relayed.run)
        self._runs = self._status.routes
        self._sent = SentStates()
        self._error: ErrorTrace | None = None
        self._counts_at_shared_state: dict[StreamId, tuple[int, int]] = {}
        """The records received and the records filtered of each stream before the last shared state."""
        self._events: SimpleQueue[SessionEvent] = SimpleQueue()
        self.work = Work()  # its sinks write no records

    def progress(self, stream: StreamId) -> StreamProgress:
        return self._runs[stream].progress

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Return the records and bytes read so far, approximately; callable from any thread."""
        progress = self._runs[stream].progress
        return progress.records_read, progress.bytes_read

    def run(self, messages: Iterable[Received]) -> Generator[SessionEvent, None, None]:
        """Run the sync to its end and yield its events.

        Events of the source are yielded when the destination sends a message, and at the end.

        Raises:
            EltError: the source or the destination failed, or ended without completing a stream.
        """
        try:
            for message in self._send(self._lines(messages)):
                answer = self._names.from_destination(message)
                yield from self._take_events()
                if answer.state is not None:
                    yield from self._handle_echo(answer.state)
                    continue
                if answer.reported_error is not None:
                    self._fail(answer.reported_error)
                yield from events_from(answer, {})
        except EltError:
            yield from self._take_events()
            yield from self._finish_early()
            raise
        yield from self._take_events()
        yield from self._finish()

    def _take_events(self) -> Iterator[SessionEvent]:
        while not self._events.empty():
            yield self._events.get_nowait()

    def _lines(self, messages: Iterable[Received]) -> Iterator[bytes]:
        """Yield the source's messages for the destination, then the final status of each stream.

        Some destinations fail without a final status; others take the end of their input for a success.
        """
        try:
            for message in messages:
                assert isinstance(message, Message)
                if self._accept(message):
                    yield self._line(message)
        except EltError:
            yield from self._final_statuses(
                [run for run in self._status.runs if not run.is_complete]
            )
            raise
        yield from self._final_statuses(self._status.incomplete_runs())

    def _line(self, message: Message) -> bytes:
        """Return the line of a message. A destination can read all texts of a record outside of its key."""
        record = message.record
        stream = None if record is None else StreamId(record.stream, record.namespace)
        message = self._names.to_destination(message)
        line = encode(message)
        if record is None or stream is None:
            return repair(line)
        if as_read(line) is line:
            return line
        relayed = self._streams[stream]
        with contextlib.suppress(msgspec.MsgspecError):  # no object: the destination rejects it
            changed = replace_bad_texts(record, self._key_of(stream))
            if changed and not relayed.has_bad_texts:
                relayed.has_bad_texts = True
                self._events.put(
                    Logged("WARN", _BAD_TEXTS.format(relayed.run.configured.id, changed))
                )
        return repair(encode(message))

    def _key_of(self, stream: StreamId) -> set[str]:
        """Return the fields of a stream's key, as the records that are sent name them."""
        rules = self._rules.filters.get(stream)
        names = {path[0] for path in self._streams[stream].run.configured.key}
        if rules is None or rules.renames is None:
            return names
        return {rules.renames[name] for name in names}

    def _final_statuses(self, incomplete: Sequence[StreamRun]) -> Iterator[bytes]:
        """Yield the final statuses that the destination was not sent yet."""
        for relayed in self._streams.values():
            status = INCOMPLETE if relayed.run in incomplete else COMPLETE
            if relayed.final_status not in (status, INCOMPLETE):
                message = stream_status(relayed.run.configured.id.descriptor, status)
                yield encode(self._names.to_destination(message))

    def _accept(self, message: Message) -> bool:
        """Keep what a message reports; return whether the message goes to the destination.

        Of the messages that are no records or states, only the status of a stream goes there.
        """
        if message.record is not None:
            return self._accept_record(message.record)
        if message.state is not None:
            return self._accept_state(message, message.state)
        self._queue(self._status.note(message))
        status = message.trace and message.trace.stream_status
        run = self._runs.get(status.stream_descriptor.id) if status else None
        if not status or run is None:
            return False
        relayed = self._streams[run.configured.id]
        if relayed.final_status is not None or (run.has_failed and status.status == COMPLETE):
            return False
        if status.status in (COMPLETE, INCOMPLETE):
            relayed.final_status = status.status
        status.stream_descriptor.namespace = run.configured.id.namespace
        return True

    def _accept_record(self, record: Record) -> bool:
        stream = StreamId(record.stream, record.namespace)
        run = self._runs.get(stream)
        if run is None:
            self._queue(self._status.ignore(stream))
            return False
        record.namespace = run.configured.id.namespace
        run.is_mentioned = True
        run.progress.records_read += 1
        reference = self._take_reference(run, record)
        rules = self._rules.filters.get(run.configured.id)
        if rules is not None:
            raw = rules(RawRecord(record.stream, record.data, meta=record.meta or NULL))
            if raw is None:
                if reference is not None:
                    self._rules.documents[run.configured.id].skip(reference)
                run.progress.records_filtered += 1
                return False
            record.data, record.meta = Raw(bytes(raw.data)), None if raw.meta is NULL else raw.meta
        run.progress.bytes_read += len(record.data)
        return True

    def _take_reference(self, run: StreamRun, record: Record) -> FileReference | None:
        """Return the reference of a record to the document that goes to the destination; None if it has none.

        Without `include_files`, the document of a record does not go there.

        Raises:
            ConfigError: the stream must not have documents.
            SystemFailure: the reference cannot be read.
        """
        stream = run.configured.id
        reference = parse_reference(record.file_reference, str(stream))
        if reference is None:
            return None
        documents = self._rules.documents.get(stream)
        if documents is None:
            raise describe_unexpected_document(str(stream))
        if run.configured.has_documents:
            return reference
        record.file_reference = None
        documents.skip(reference)
        return None

    def _queue(self, events: Iterable[SessionEvent]) -> None:
        for event in events:
            self._events.put(event)

    def _accept_state(self, message: Message, state: State) -> bool:
        """Keep the record counts before a state; return whether the state goes to the destination."""
        check_contents(state)
        if self._rules.shares_state and state.stream is None:
            return self._accept_shared_state(message, state)
        stream = stream_of(state, self._runs, is_only_stream=self._rules.is_only_stream)
        if stream is None:
            self._queue(self._status.warn("ignoring a state of a stream that is not configured"))
            return False
        run = self._runs[stream]
        if state.stream is not None:
            state.stream.stream_descriptor.namespace = run.configured.id.namespace
        if run.has_failed:
            self._queue(self._status.warn("ignoring a state: its stream has failed"))
            return False
        run.add_source_count(state)
        run.has_own_state = True
        self._check_count([run], run.count_error(state))
        run.records_at_state = run.records_received
        relayed = self._streams[run.configured.id]
        self._sent.add(run.configured.id, SentState(state, {run.configured.id: relayed.sent}))
        filtered = run.progress.records_filtered
        message.state = _correct_count(state, filtered - relayed.filtered_at_state)
        relayed.filtered_at_state = filtered
        return True

    def _accept_shared_state(self, message: Message, state: State) -> bool:
        covered = list_covered(state, self._runs)
        if is_stopped(covered):
            self._queue(self._status.warn("ignoring a state: one of its streams has failed"))
            return False
        named = list_named(state, self._runs) or covered
        since = [self._count_since_shared_state(runs) for runs in (covered, named)]
        self._check_count(covered, record_count_error(state, *(received for received, _ in since)))
        filtered = next((f for received, f in since if received == source_count(state)), 0)
        for run in covered:
            run.has_own_state = False
            counts = (run.records_received, run.progress.records_filtered)
            self._counts_at_shared_state[run.configured.id] = counts
        sent = {run.configured.id: self._streams[run.configured.id].sent for run in covered}
        self._sent.add(None, SentState(state, sent))
        message.state = _correct_count(state, filtered)
        return True

    def _count_since_shared_state(self, runs: Sequence[StreamRun]) -> tuple[int, int]:
        """Return how many records of streams were received and how many of these were filtered since the last
        shared state."""
        received = filtered = 0
        for run in runs:
            before = self._counts_at_shared_state.get(run.configured.id, (0, 0))
            received += run.records_received - before[0]
            filtered += run.progress.records_filtered - before[1]
        return received, filtered

    def _check_count(self, runs: Sequence[StreamRun], error: ErrorTrace | None) -> None:
        """Raise the error of a count of records that is wrong; the streams have failed."""
        if error is not None:
            for run in runs:
                run.error = error
            raise self._status.failure(list(runs))

    def _fail(self, error: ErrorTrace) -> None:
        """Keep an error of the destination: of the stream that it names, or of all.

        Spec: AirbyteErrorTraceMessage.
        """
        named = error.stream_descriptor
        run = None if named is None else self._runs.get(named.id)
        if run is None:
            self._error = root_error(self._error, error)
        else:
            relayed = self._streams[run.configured.id]
            relayed.error = root_error(relayed.error, error)

    def _handle_echo(self, echo: State) -> Iterator[SessionEvent]:
        """Acknowledge a state that came back: the destination has committed all records before it."""
        sent = self._sent.take(self._stream_of_echo(echo), echo)
        if sent is None:
            yield from self._status.warn(
                "the destination sent back a state once more, or a later one before it"
            )
            return
        if self._error is not None or any(self._streams[stream].error for stream in sent.counts):
            yield from self._status.warn(
                "ignoring a state: the destination reported an error before"
            )
            return
        self._acknowledge(sent, echo.destinationStats or StateStats())
        for stream in sent.counts:
            if time.monotonic() - self._streams[stream].committed_at >= COMMIT_INTERVAL:
                yield self._commit(self._streams[stream], final=False)

    def _stream_of_echo(self, echo: State) -> StreamId | None:
        """Return the stream of a state that came back; None if the state is a shared one.

        A destination may add the namespace that it writes to; the stream is then the only one of its name.
        """
        if echo.stream is not None:
            stream = echo.stream.stream_descriptor.id
            if stream in self._runs:
                return self._runs[stream].configured.id
            namesakes = self._runs.same_name(stream)
            return namesakes[0].configured.id if len(namesakes) == 1 else stream
        if not self._rules.shares_state and len(self._streams) == 1:
            return next(iter(self._streams))
        return None

    def _acknowledge(self, sent: SentState, stats: StateStats) -> None:
        """Count the records between the last acknowledged state and this one as committed or rejected."""
        rejected = int(stats.rejectedRecordCount or 0)
        for stream, count in sent.counts.items():
            relayed = self._streams[stream]
            # The destination does not report the stream of a rejected record: count them in order.
            own = max(min(rejected, count - relayed.acknowledged), 0)
            rejected -= own
            relayed.rejected += own
            relayed.acknowledged = max(relayed.acknowledged, count)
            if (
                sent.number > relayed.state_number
            ):  # a shared state may come back after a newer own one
                relayed.state, relayed.state_number = sent.state, sent.number
                relayed.has_uncommitted_state = True

    def _commit(self, relayed: _RelayStream, *, final: bool) -> Acknowledged:
        """Commit the last acknowledged state; return the event."""
        state = relayed.state if relayed.has_uncommitted_state else None
        checkpoint = Checkpoint(() if state is None else (state,), final)
        commit = relayed.run.opened_sink.commit(checkpoint)
        acknowledged, rejected = relayed.committed_counts
        records = relayed.acknowledged - acknowledged - (relayed.rejected - rejected)
        commit = replace(commit, records=records, rejected=relayed.rejected - rejected)
        relayed.committed_counts = (relayed.acknowledged, relayed.rejected)
        relayed.has_uncommitted_state, relayed.committed_at = False, time.monotonic()
        return Acknowledged(relayed.run.configured.id, state, commit, final)

    def _finish_early(self) -> Iterator[SessionEvent]:
        """Commit the acknowledged states after a failure.

        If the source reported which streams failed, the others are complete once all their records are
        acknowledged. A stream that overwrites is not: the destination may have failed too, before it replaced
        the old rows.
        """
        has_named_failures = self._status.has_failures
        for relayed in self._streams.values():
            run = relayed.run
            has_destination_failed = self._error is not None or relayed.error is not None
            can_complete = has_named_failures and run.is_complete and not run.configured.overwrites
            can_complete = can_complete and not has_destination_failed
            if can_complete and relayed.acknowledged == relayed.sent:
                yield self._commit(relayed, final=True)
            elif relayed.has_uncommitted_state:
                yield self._commit(relayed, final=False)

    def _finish(self) -> Iterator[SessionEvent]:
        """Complete the streams after the destination ended with exit code 0: it has committed everything,
        except for the streams of which it reported an error.

        Raises:
            EltError: the destination reported an error or did not acknowledge a state, or a stream is
                incomplete.
        """
        failed = [relayed for relayed in self._streams.values() if relayed.error is not None]
        if self._error is not None:
            yield from self._finish_early()
            raise self._destination_failure(failed)
        # A stream that failed in the destination also keeps it from sending shared states back.
        excused = {None, *(relayed.run.configured.id for relayed in failed)} if failed else set()
        lost = [stream for stream in self._sent.list_unacknowledged() if stream not in excused]
        if lost:
            yield from self._finish_early()
            names = ", ".join(
                "all streams" if stream is None else repr(str(stream)) for stream in lost
            )
            raise SystemFailure(
                f"the destination ended without acknowledging the states of {names}",
                guidance="this is a defect of the destination; the next run resumes from the last "
                "state that it acknowledged",
            )
        incomplete = self._status.incomplete_runs()
        yield from self._status.conclude()
        for relayed in self._streams.values():
            if relayed.run in incomplete or relayed in failed:
                if relayed.has_uncommitted_state:
                    yield self._commit(relayed, final=False)
                continue
            relayed.acknowledged = relayed.sent
            yield self._commit(relayed, final=True)
        self._status.check(incomplete)
        if failed:
            raise self._destination_failure(failed)

    def _destination_failure(self, failed: Sequence[_RelayStream]) -> EltError:
        """Return the failure of a destination that reported an error, of these streams or of all."""
        error = reduce(root_error, (relayed.error for relayed in failed), self._error)
        assert error is not None
        names = ", ".join(repr(str(relayed.run.configured.id)) for relayed in failed)
        return as_failure(error, "the destination" + (f", stream {names}" if failed else ""))


def _correct_count(state: State, filtered: int) -> State:
    """Return a state with the number of records that were sent before it, if `filtered` were not.

    Spec: AirbyteStateStats: how many records the source sent since the previous state.
    """
    count, stats = source_count(state), copy.copy(state.sourceStats)
    if not filtered or count is None or stats is None:
        return state
    corrected = copy.copy(state)
    stats.recordCount = count - filtered
    corrected.sourceStats = stats
    return corrected
