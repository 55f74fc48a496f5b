"""Streams about to be read: what an asset hands to the IO manager."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.connection import Connection, unused_settings
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.orchestration.events.metadata import SyncFigures
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.airbyte.messages import Message, RawRecord, State
from elt_assets.protocol.specification import unknown_fields
from elt_assets.runner.connector import Connector
from elt_assets.storage.scratch import scratch
from elt_assets.sync.committer import OpenSink
from elt_assets.sync.events import Logged, SessionEvent, Sink, StreamProgress
from elt_assets.sync.relay import Relay
from elt_assets.sync.selection.fields import asked, landed, notices
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.session import Session, Threshold


@dataclass
class StreamRead:
    """One stream, or one partition of it, in a read of its source.

    `stream`: as the source has it, its generation and sync id set. `state`: what the source is given of it,
    JSON. `keeps_state`: its states are not kept, since it is read beside its cursor. `files_before`: paths
    of the table's files before it. `figures`: what it moved; `metadata`: what the event says of it, empty
    until it is committed to its end. `intent`: names the run's request for a refresh or a given state;
    `continues`: whether an earlier attempt at it committed some of it. `session`: that reads it, once it
    runs.
    """

    asset: StreamAsset
    stream: ConfiguredStream
    tables: StreamTables
    state: str | None
    partition: str | None = None
    keeps_state: bool = False
    intent: str | None = None
    continues: bool = False
    files_before: frozenset[str] = frozenset()
    figures: SyncFigures = field(default_factory=SyncFigures)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    session: Session | Relay | None = None

    @property
    def id(self) -> StreamId:
        return self.stream.id

    def landing(self, run_id: str, described: ConfiguredStream | None = None) -> WriteSpec:
        """How the stream's tables get it.

        Args:
            described: how it is configured now, where its source said so in the middle of the read.
        """
        told, wanted = described or self.stream, self.asset.wanted
        stream = self.asset.landed(told.stream)
        stream.generation_id = told.generation_id
        stream.minimum_generation_id = told.minimum_generation_id
        stream.sync_id = told.sync_id
        return WriteSpec(
            stream=stream,
            run_id=run_id,
            history=wanted.history,
            on_schema_change=wanted.on_schema_change,
            partition=self.partition,
            keeps_state=self.keeps_state,
            salt=None if self.salt is None else paths.fingerprint(self.salt),
            selection=self.asset.selection,
            intent=self.intent,
            keeps_undeclared=wanted.on_undeclared == "keep",
        )

    @property
    def progress(self) -> StreamProgress:
        return StreamProgress() if self.session is None else self.session.progress(self.id)

    def read_so_far(self) -> tuple[int, int]:
        """Records and bytes; from any thread, and roughly."""
        return (0, 0) if self.session is None else self.session.read_so_far(self.id)

    @cached_property
    def salt(self) -> bytes | None:
        """Of the stream's hashes; None where it has none.

        Raises:
            ConfigError: as `paths.hash_salt`.
        """
        fields = self.asset.fields
        return paths.hash_salt() if fields and fields.hashed else None


@dataclass
class SourceRead:
    """One process of a connector that reads streams of one connection; nothing runs before `events` is
    iterated.

    `states`: what the source is given. `together`: whether the streams may share a state. `destination`:
    that the records go to, where that is not the lake. `messages`: what the source sends, once it is read.
    """

    connection: Connection
    connector: Connector
    staging: Path
    streams: Sequence[StreamRead]
    states: Sequence[State]
    together: bool = False
    destination: Connector | None = None
    messages: Generator[RawRecord | Message, None, None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the source has sent everything; from any thread."""
        messages = self.messages
        return messages is not None and inspect.getgeneratorstate(messages) == inspect.GEN_CLOSED

    def events(
        self, sinks: Mapping[StreamId, Sink], open_sink: OpenSink
    ) -> Generator[SessionEvent, None, None]:
        """Read the streams into sinks; the connector ends with the iterator, whatever the reason.

        Raises:
            EltError: as `Session.run` and `Connector.read`.
        """
        selected = [(read, read.asset.fields) for read in self.streams]
        yield from self._notices()
        catalog = ConfiguredCatalog(streams=[asked(read.stream, it) for read, it in selected])
        filters = {read.id: RecordFilter(it, read.salt) for read, it in selected if it}
        if self.destination is not None:
            yield from self._relayed(self.destination, catalog, sinks, filters)
            return
        checkpoint = self.connection.checkpoint
        threshold = Threshold(checkpoint.rows, checkpoint.megabytes << 20, checkpoint.seconds)
        with scratch(self.staging, "sync") as folder:
            session = Session(
                catalog,
                sinks,
                folder,
                threshold,
                filters,
                together=self.together,
                alone=self._alone,
                # In the Airbyte Protocol a catalog in mid-read is of no meaning.
                open_sink=open_sink if self.connection.source.kind == "tap" else None,
            )
            for read in self.streams:
                read.session = session
            self.messages = self.connector.read(catalog, self.states, withhold=self._withholds)
            yield from session.run(self.messages)

    def _notices(self) -> Iterator[SessionEvent]:
        """Yield what the user should know of the settings before anything is read."""
        for read in self.streams:
            yield from (Logged("WARN", notice) for notice in notices(read.asset.fields))
            unused = unused_settings(read.asset.wanted, read.stream.stream)
            yield from (Logged("INFO", notice) for notice in unused)
        for connector in filter(None, [self.connector, self.destination]):
            yield from (Logged(level, text) for level, text in connector.notices())
        schema = self.connector.specification.connectionSpecification
        unknown = unknown_fields(self.connection.source.config, schema)
        yield from (Logged("WARN", warning) for warning in unknown)

    @property
    def _alone(self) -> bool:
        """Whether no other stream of the source is ever read, so that a GLOBAL state is this stream's own."""
        return len(self.connection.streams) == 1

    @property
    def _withholds(self) -> bool:
        """What cannot be read may be part of a record of which not all may be shown."""
        return any(one.fields is not None for one in self.connection.streams)

    def _relayed(
        self,
        destination: Connector,
        catalog: ConfiguredCatalog,
        sinks: Mapping[StreamId, Sink],
        filters: Mapping[StreamId, RecordFilter],
    ) -> Iterator[SessionEvent]:
        relay = Relay(catalog, sinks, filters, together=self.together, alone=self._alone)
        for read in self.streams:
            read.session = relay
        states, withhold = self.states, self._withholds
        with contextlib.closing(
            self.connector.read(catalog, states, withhold=withhold, whole=True)
        ) as messages:
            self.messages = messages
            streams = [landed(read.stream, read.asset.fields) for read in self.streams]
            taken = ConfiguredCatalog(streams=streams)
            send = partial(destination.write, taken, stop=self.connector.cancel)
            yield from relay.run(messages, send)


@dataclass(frozen=True)
class Done:
    """A read that was committed: its partition, what its event says, and how many records it rejected."""

    partition: str | None
    metadata: Mapping[str, Any]
    rejected: int


@dataclass(kw_only=True)
class Landed:
    """What one materialisation did to a stream.

    `done`: the reads that were committed; `files_before`: paths of the table's files before the first of
    them; `tables`: as they stand after the last.
    """

    asset: StreamAsset
    done: list[Done] = field(default_factory=list)
    files_before: frozenset[str] = frozenset()
    tables: StreamTables | None = None

    def keep(self, read: StreamRead) -> None:
        """Remember what a read did, and let go of the rest."""
        if not self.done:
            self.files_before = read.files_before
        self.tables = read.tables
        self.done.append(Done(read.partition, read.metadata, read.figures.rejected))


@dataclass(kw_only=True)
class StreamSync(Landed):
    """What one materialisation reads: a stream, or some partitions of it, one after the other.

    `prepare`: makes the read of one of them when its turn comes; `tell`: puts metadata on the asset's
    event.
    """

    partitions: Sequence[str | None]
    prepare: Callable[[str | None], SourceRead]
    tell: Callable[[str | None, Mapping[str, Any]], None]

    def keep(self, read: StreamRead) -> None:
        super().keep(read)
        self.tell(read.partition, read.metadata)
