"""A stream about to be read: what an asset hands to the IO manager."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import dagster as dg

from elt_assets import home
from elt_assets.connection import Stream
from elt_assets.lake.landing import Landing, starting_state
from elt_assets.lake.tables import StreamTables
from elt_assets.orchestration.ledger import Standing
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import State
from elt_assets.runner.connector import Connector
from elt_assets.scratch import scratch
from elt_assets.sync.events import Logged, SessionEvent, Sink, StreamProgress
from elt_assets.sync.fields import FieldSelection, asked, landed, notices
from elt_assets.sync.filters import RecordFilter
from elt_assets.sync.session import Session, Threshold


@dataclass
class StreamRead:
    """One stream's read, not begun: nothing runs before `events` is iterated.

    `stream` is as the source has it; what becomes of its records `landing` says. `selection`: the
    fingerprint of `fields`. `withhold`: whether what cannot be read may hold what must not be shown.
    """

    key: dg.AssetKey
    stream: ConfiguredStream
    wanted: Stream
    connector: Connector
    tables: StreamTables
    table_name: str
    standing: Standing
    staging: Path
    threshold: Threshold
    fields: FieldSelection | None = None
    selection: str | None = None
    withhold: bool = False
    progress: StreamProgress = field(default_factory=StreamProgress)

    def landing(self, run_id: str) -> Landing:
        """How the stream's tables get it."""
        return Landing(
            stream=landed(self.stream, self.fields),
            run_id=run_id,
            history=self.wanted.history,
            on_schema_change=self.wanted.on_schema_change,
            salt=self.fingerprint,
            selection=self.selection,
        )

    @property
    def fingerprint(self) -> str | None:
        """Of the salt."""
        return None if self.salt is None else home.fingerprint(self.salt)

    @cached_property
    def salt(self) -> bytes | None:
        """Of the stream's hashes; None where it has none.

        Raises:
            ConfigError: as `home.hash_salt`.
        """
        return home.hash_salt() if self.fields and self.fields.hashed else None

    def events(self, sink: Sink) -> Generator[SessionEvent, None, None]:
        """Read the stream into a sink; the connector ends with the iterator, whatever the reason.

        Raises:
            EltError: as `Session.run` and `Connector.read`.
        """
        yield from (Logged("WARN", notice) for notice in notices(self.fields))
        stream = asked(self.stream, self.fields)
        catalog = ConfiguredCatalog(streams=[stream])
        as_landed = landed(self.stream, self.fields)
        state = starting_state(as_landed, self.tables.head, salt=self.fingerprint)
        filters = {stream.id: RecordFilter(self.fields, self.salt)} if self.fields else {}
        with scratch(self.staging, "sync") as folder:
            session = Session(catalog, {stream.id: sink}, folder, self.threshold, filters)
            self.progress = session.progress(stream.id)
            states = [State.from_json(state)] if state is not None else []
            messages = self.connector.read(catalog, states, withhold=self.withhold)
            yield from session.run(messages)
