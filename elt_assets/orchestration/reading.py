"""A stream about to be read: what an asset hands to the IO manager."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets import home
from elt_assets.lake.landing import Landing
from elt_assets.lake.tables import StreamTables
from elt_assets.orchestration.metadata import SyncFigures
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import State
from elt_assets.runner.connector import Connector
from elt_assets.scratch import scratch
from elt_assets.sync.events import Logged, SessionEvent, Sink, StreamProgress
from elt_assets.sync.fields import asked, notices
from elt_assets.sync.filters import RecordFilter
from elt_assets.sync.session import Session, Threshold


@dataclass
class StreamRead:
    """One stream's read, or that of one partition of it; nothing runs before `events` is iterated.

    `stream`: as the source has it, its generation and sync id set. `state`: what the source is given, JSON.
    `keeps_state`: its states are not kept, since it is read beside its cursor. `files_before`: paths of the
    table's files before it. `figures`: what it moved; `metadata`: what the event says of it.
    """

    asset: StreamAsset
    stream: ConfiguredStream
    connector: Connector
    tables: StreamTables
    staging: Path
    state: str | None
    partition: str | None = None
    keeps_state: bool = False
    files_before: frozenset[str] = frozenset()
    figures: SyncFigures = field(default_factory=SyncFigures)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    _session: Session | None = None

    def landing(self, run_id: str) -> Landing:
        """How the stream's tables get it."""
        stream, wanted = self.asset.landed(), self.asset.wanted
        stream.generation_id = self.stream.generation_id
        stream.minimum_generation_id = self.stream.minimum_generation_id
        stream.sync_id = self.stream.sync_id
        return Landing(
            stream=stream,
            run_id=run_id,
            history=wanted.history,
            on_schema_change=wanted.on_schema_change,
            partition=self.partition,
            keeps_state=self.keeps_state,
            salt=None if self._salt is None else home.fingerprint(self._salt),
            selection=self.asset.selection,
        )

    @property
    def progress(self) -> StreamProgress:
        return StreamProgress() if self._session is None else self._session.progress(self.stream.id)

    def read_so_far(self) -> tuple[int, int]:
        """Records and bytes; from any thread, and roughly."""
        return (0, 0) if self._session is None else self._session.read_so_far(self.stream.id)

    @cached_property
    def _salt(self) -> bytes | None:
        """Of the stream's hashes; None where it has none.

        Raises:
            ConfigError: as `home.hash_salt`.
        """
        fields = self.asset.fields
        return home.hash_salt() if fields and fields.hashed else None

    def events(self, sink: Sink) -> Generator[SessionEvent, None, None]:
        """Read the stream into a sink; the connector ends with the iterator, whatever the reason.

        Raises:
            EltError: as `Session.run` and `Connector.read`.
        """
        fields, connection = self.asset.fields, self.asset.connection
        yield from (Logged("WARN", notice) for notice in notices(fields))
        stream, checkpoint = asked(self.stream, fields), connection.checkpoint
        catalog = ConfiguredCatalog(streams=[stream])
        filters = {stream.id: RecordFilter(fields, self._salt)} if fields else {}
        threshold = Threshold(checkpoint.rows, checkpoint.megabytes << 20, checkpoint.seconds)
        # What cannot be read may be part of a record of which not all may be shown.
        withhold = any(one.fields is not None for one in connection.streams)
        with scratch(self.staging, "sync") as folder:
            session = Session(catalog, {stream.id: sink}, folder, threshold, filters)
            self._session = session
            states = [State.from_json(self.state)] if self.state is not None else []
            messages = self.connector.read(catalog, states, withhold=withhold)
            yield from session.run(messages)


@dataclass(frozen=True)
class Done:
    """A read that was committed: its partition, what its event says, and how many records it rejected."""

    partition: str | None
    metadata: Mapping[str, Any]
    rejected: int


@dataclass
class StreamSync:
    """What one materialisation reads: a stream, or some partitions of it, one after the other.

    `prepare`: makes the read of one of them when its turn comes; `tell`: puts metadata on the asset's
    event; `done`: the reads that were committed; `files_before`: paths of the table's files before the
    first of them; `tables`: as they stand after the last.
    """

    asset: StreamAsset
    partitions: Sequence[str | None]
    prepare: Callable[[str | None], StreamRead]
    tell: Callable[[str | None, Mapping[str, Any]], None]
    done: list[Done] = field(default_factory=list)
    files_before: frozenset[str] = frozenset()
    tables: StreamTables | None = None

    def keep(self, read: StreamRead) -> None:
        """Remember what a read did, and let go of the rest."""
        if not self.done:
            self.files_before = read.files_before
        self.tables = read.tables
        self.done.append(Done(read.partition, read.metadata, read.figures.rejected))
        self.tell(read.partition, read.metadata)
