"""A sync from the messages of a source to the sinks of its streams. Every sync runs through this module.

Assets, `read_together`, `elt-destination`, `target-elt` and other destinations each make a `SyncPlan`; `Sync`
runs it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from elt_assets.machine_faults import translated
from elt_assets.pipeline.masked_texts import Mask, mask_texts
from elt_assets.protocol.airbyte.catalog import (
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.airbyte.messages import Message, Received
from elt_assets.storage.staging import Staging
from elt_assets.sync.destination_names import DestinationNames
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import SessionEvent, Sink, StreamProgress
from elt_assets.sync.relay import Relay, Send
from elt_assets.sync.session import Session, StreamChanges, Threshold
from elt_assets.sync.streams import StreamRules
from elt_assets.telemetry.observation import Observation, Subject

Messages = Generator[Received, None, None]


class ClosableSink(Sink, Protocol):
    """A sink that owns files until they are committed."""

    def close(self) -> None:
        """Remove what was written and not committed."""


OpenSink = Callable[[ConfiguredStream], ClosableSink]


def _ignore() -> None:
    return None


def no_documents() -> AbstractContextManager[Mapping[StreamId, Documents]]:
    """Return the places of documents of a sync whose streams have none."""
    return contextlib.nullcontext({})


def _no_notices() -> Iterator[SessionEvent]:
    return iter(())


@dataclass(kw_only=True)
class SyncPlan:
    """The source of a sync and the sinks of its streams.

    Args:
        catalog: streams requested from the source.
        read: starts the source and returns its messages.
        open_sink: opens the sink of a stream.
        staging: where the records are staged.
        threshold: when to close a segment.
        rules: what is particular to the streams of the source.
        change_schema: lets the present sink of a stream continue with another schema (Singer); called from a
            sinks' thread. If it is given, `open_sink` is also called there, when the key or generation of a
            stream changes. None if a stream cannot change.
        configure: configures a stream that is not in the catalog, when its schema arrives. None if such a
            stream is ignored.
        check: called before the sinks are opened; raises an error if the sync cannot be run.
        notices: returns the events to report before anything is read.
        send: runs the destination that gets the records. The sinks then store only the states.
        names: the names of the streams at this destination.
        documents: yields the places of the documents of the streams, while the sync runs.
        slices: keeps the folder for the files of slices, while the sync runs.
        expect_rows: called once, when the first record for the sinks arrives.
        mask: masks the secrets of the connection in each text that leaves the sync.
        subject: what lineage and metrics say that the sync is about; None if nothing is reported.
    """

    catalog: ConfiguredCatalog
    read: Callable[[], Messages]
    open_sink: OpenSink
    staging: Staging
    threshold: Threshold = field(default_factory=Threshold)
    rules: StreamRules = field(default_factory=StreamRules)
    change_schema: Callable[[ConfiguredStream], object] | None = None
    configure: Callable[[AirbyteStream], ConfiguredStream] | None = None
    check: Callable[[], object] = _ignore
    notices: Callable[[], Iterator[SessionEvent]] = _no_notices
    send: Send | None = None
    names: DestinationNames | None = None
    documents: Callable[[], AbstractContextManager[Mapping[StreamId, Documents]]] = no_documents
    slices: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    expect_rows: Callable[[], object] = _ignore
    mask: Mask = str
    subject: Subject | None = None


class Sync:
    """One run of a sync plan."""

    def __init__(self, plan: SyncPlan):
        self._plan = plan
        self._session: Session | Relay | None = None
        self._messages: Messages | None = None

    def drive(self) -> Generator[SessionEvent, None, None]:
        """Run the sync to its end and yield its events as they happen.

        When the iterator ends, for any reason, the source is ended and then the sinks are closed.

        Raises:
            EltError: as `Session.run` and `Relay.run`, the source and the sinks.
        """
        if self._plan.subject is None:
            yield from mask_texts(self._feed(lambda _: None), self._plan.mask)
        else:
            observation = Observation(self._plan.subject, self.progress)
            events = self._feed(observation.open)
            yield from observation.watch(mask_texts(events, self._plan.mask))

    def _feed(
        self, announce: Callable[[ConfiguredStream], object]
    ) -> Generator[SessionEvent, None, None]:
        """Give the records to sinks; `announce` is called with each stream whose sink was opened."""
        plan = self._plan
        plan.check()
        with contextlib.ExitStack() as opened:

            def open_sink(stream: ConfiguredStream) -> Sink:
                sink = plan.open_sink(stream)
                opened.callback(sink.close)
                announce(stream)
                return sink

            sinks = {stream.id: open_sink(stream) for stream in plan.catalog.streams}
            yield from plan.notices()
            if plan.send is None:
                yield from self._stage(sinks, open_sink)
            else:
                yield from self._relay(sinks, plan.send)

    def progress(self, stream: StreamId) -> StreamProgress:
        return StreamProgress() if self._session is None else self._session.progress(stream)

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Return the records and bytes read so far, approximately; callable from any thread."""
        return (0, 0) if self._session is None else self._session.read_so_far(stream)

    @property
    def source_ended(self) -> bool:
        """Return whether the source has sent everything; callable from any thread."""
        messages = self._messages
        return messages is not None and inspect.getgeneratorstate(messages) == inspect.GEN_CLOSED

    def _stage(
        self, sinks: Mapping[StreamId, Sink], open_sink: Callable[[ConfiguredStream], Sink]
    ) -> Iterator[SessionEvent]:
        plan = self._plan
        with plan.staging.session() as folder, plan.documents() as documents, plan.slices():
            changes = None
            if plan.change_schema is not None:
                changes = StreamChanges(open_sink, plan.change_schema, plan.configure)
            self._session = session = Session(
                plan.catalog,
                sinks,
                folder,
                plan.threshold,
                replace(plan.rules, documents=documents),
                changes,
            )
            with translated(f"while records were staged in {folder}"):
                self._messages = _announce_records(plan.read(), plan.expect_rows)
                yield from session.run(self._messages)

    def _relay(self, sinks: Mapping[StreamId, Sink], send: Send) -> Iterator[SessionEvent]:
        plan = self._plan
        with plan.documents() as documents:
            rules = replace(plan.rules, documents=documents)
            self._session = relay = Relay(plan.catalog, sinks, rules, plan.names)
            with contextlib.closing(plan.read()) as messages:
                self._messages = messages
                yield from relay.run(messages, send)


def _announce_records(messages: Messages, expect_rows: Callable[[], object]) -> Messages:
    """Yield the messages of a source; call `expect_rows` before the first record."""
    with contextlib.closing(messages):
        for message in messages:
            if not isinstance(message, Message) or message.slice is not None:
                expect_rows()
                yield message
                break
            yield message
        yield from messages
