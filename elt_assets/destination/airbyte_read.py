"""`elt-destination write`: commits the records on stdin, and prints the acknowledged states.

`entry` makes the read, and `pipeline.read` runs it.

Spec: Airbyte Protocol, Destination, Write; State & the Whole Sync: a printed state means that every record
before it is committed.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

from msgspec import Raw

from elt_assets.destination.process import log_losses, read_messages
from elt_assets.destination.settings import Settings
from elt_assets.destination.tables import StreamSink, TableOpener, publishes_at_end, read_as
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.parsing import describe_counts
from elt_assets.pipeline.read import Messages, Read, run_read
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.message_output import Output
from elt_assets.protocol.messages import COMPLETE, Message, State, StateStats
from elt_assets.protocol.routing import airbyte_runs
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import (
    Acknowledged,
    Logged,
    SessionEvent,
    SharedAcknowledged,
)
from elt_assets.sync.pending import PendingState, PendingStates, Span
from elt_assets.sync.streams import StreamRules
from elt_assets.telemetry.observation import Subject


class AirbyteRead(Read):
    """One read of the messages on stdin, into the tables of the streams of a configured catalog."""

    def __init__(
        self,
        settings: Settings,
        catalog: ConfiguredCatalog,
        spark: SparkProvider,
        stdin: BinaryIO,
        output: Output,
    ):
        self._streams = {stream.id: stream for stream in catalog.streams}
        self._configured = catalog.streams
        self._spark = spark
        self._stdin = stdin
        self._output = output
        self._opener = opener = TableOpener(settings, spark, output.log)
        self._tally = Tally()
        self._envelopes = Envelopes()
        self._unpublished = {stream.id for stream in catalog.streams if publishes_at_end(stream)}
        self._withheld = PendingStates()
        self.subject = Subject("elt-destination", opener.location)
        streams = [read_as(stream) for stream in catalog.streams]
        rules = StreamRules(shares_state=True)
        super().__init__(
            ConfiguredCatalog(streams=streams), opener.staging, settings.threshold, rules
        )

    def run(self) -> None:
        """Write the messages, and send each state once it is committed.

        Raises:
            EltError: the sync is not complete; what is acknowledged is committed.
            OutputClosedError: the reader of the states has closed the output.
        """
        with log_losses(self, self._output.log), contextlib.closing(run_read(self)) as events:
            for event in events:
                self._report(event)

    def check(self) -> None:
        self._opener.check(self._configured)

    def open_sink(self, stream: ConfiguredStream) -> StreamSink:
        return self._opener.open(self._streams[stream.id])

    def list_followed(self, stream: StreamId) -> Sequence[LakeTable]:
        return self._opener.list_followed(stream)

    def expect_rows(self) -> None:
        self._spark.warm_up()

    def transfer_documents(self) -> AbstractContextManager[Mapping[StreamId, Documents]]:
        return self._opener.transfer_documents(self._configured)

    def stream_of(self, error: BaseException) -> StreamId | None:
        """Return the stream that failed; None if it is not a single one."""
        stream = self._opener.errors.stream_of(error)
        if stream is not None:
            return stream
        statuses = {stream: self.progress(stream).status for stream in self._streams}
        failed = [stream for stream, status in statuses.items() if status not in (None, COMPLETE)]
        return failed[0] if len(failed) == 1 else None

    def open_messages(self) -> Messages:
        """Yield the messages. Keep unknown fields of STATE messages, which are sent with their states."""
        for message in read_messages(self._stdin, airbyte_runs().messages):
            if isinstance(message, Message) and message.state is not None and message.extra:
                self._envelopes.keep(message.state, message.extra)
            yield message

    def _report(self, event: SessionEvent) -> None:
        if isinstance(event, Logged):
            self._output.log(event.level, event.message)
        elif isinstance(event, SharedAcknowledged):
            for pending in event.states:
                self._withheld.add(pending.state, pending.spans)
            self._send_shared()
        elif isinstance(event, Acknowledged):
            done = event.commit
            if done.records or done.rejected:
                committed = f"stream {str(event.stream)!r}: {done.records} records committed"
                rejected = f", {done.rejected} rejected" if done.rejected else ""
                self._output.log("INFO", f"{committed}{rejected} (commit {done.sequence})")
            if done.undeclared:
                fields = describe_counts(done.undeclared)
                self._output.log(
                    "INFO",
                    f"stream {str(event.stream)!r}: fields that its schema does not declare are not "
                    f"stored: {fields}",
                )
            self._output.send(self._state(*counted) for counted in self._tally.count_own(event))
            if event.completes:
                self._unpublished.discard(event.stream)
                self._send_shared()

    def _send_shared(self) -> None:
        """Send the states that streams share, once all rows before them are published or resumable."""
        if self._unpublished:
            self._withheld.forget_oldest()
            return
        if states := self._withheld.take():
            counts = self._tally.count_shared(SharedAcknowledged(states))
            self._output.send(self._state(*counted) for counted in counts)

    def _state(self, pending: PendingState, rejected: int) -> Message:
        state = add_counts(pending.state, pending.records - rejected, rejected)
        return Message(type="STATE", state=state, extra=self._envelopes.find(pending.state))


class Envelopes:
    """The unknown fields of STATE messages, each for as long as its state is in use.

    Most states are dropped before they are sent, since a later one covers them.
    """

    def __init__(self) -> None:
        self._extra: dict[int, dict[str, Raw]] = {}

    def __len__(self) -> int:
        return len(self._extra)

    def keep(self, state: State, extra: dict[str, Raw]) -> None:
        """Keep the unknown fields of the message of a state."""
        key = id(state)
        self._extra[key] = extra
        weakref.finalize(state, self._extra.pop, key, None)

    def find(self, state: State) -> dict[str, Raw]:
        """Return the unknown fields of the message of a state."""
        return self._extra.get(id(state), {})


class Tally:
    """Counts of the rejected records of one session, by the state that covers them.

    It must get every acknowledgement, in order. A commit can cover many states, and a state that streams
    share can cover many commits. A rejected record is identified by its place in its stream, and belongs to
    the state that covers this place.

    Spec: AirbyteStateStats: the records that the source sent before a state are either committed or rejected.
    """

    def __init__(self) -> None:
        self._before: dict[StreamId, int] = {}
        self._places: dict[StreamId, list[int]] = {}
        self._unplaced = 0

    def count_own(self, event: Acknowledged) -> Iterator[tuple[PendingState, int]]:
        """Yield a stream's own states, each with the number of its rejected records.

        Rejected records of an earlier commit without a state are counted for the first state.
        """
        stream, places = event.stream, event.commit.places
        earlier = self._before.pop(stream, 0)
        counted = 0
        for pending in event.states:
            rejected = earlier + sum(_count_within(places, span) for span in pending.spans)
            yield pending, rejected
            counted, earlier = counted + rejected - earlier, 0
        self._before[stream] = earlier + len(places) - counted
        if event.states:
            self._unplaced += len(places)
        else:
            self._places.setdefault(stream, []).extend(places)

    def count_shared(self, event: SharedAcknowledged) -> Iterator[tuple[PendingState, int]]:
        """Yield the states that streams share, each with the number of its rejected records.

        If the source also sends states of single streams, only the sum of the numbers is exact.
        """
        for pending in event.states:
            spans = pending.spans
            placed = sum(_count_within(self._places.get(span.stream, ()), span) for span in spans)
            more = min(self._unplaced, pending.records - placed)
            self._unplaced -= more
            yield pending, placed + more
        self._places.clear()


def _count_within(places: Sequence[int], span: Span) -> int:
    return bisect_left(places, span.end) - bisect_left(places, span.first)


def add_counts(state: State, committed: int, rejected: int) -> State:
    """Return a copy of a state with the counts of its committed and its rejected records.

    Spec: AirbyteStateStats: counts are doubles; `rejectedRecordCount` since 0.18.
    """
    counted = copy.copy(state)
    stats = StateStats() if state.destinationStats is None else copy.copy(state.destinationStats)
    stats.recordCount = float(committed)
    stats.rejectedRecordCount = float(rejected) if rejected else None
    counted.destinationStats = stats
    return counted
