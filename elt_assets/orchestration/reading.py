"""A stream about to be read: what an asset hands to the IO manager."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from elt_assets.lake.table import Table
from elt_assets.orchestration.ledger import Standing
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.runner.connector import Connector
from elt_assets.scratch import scratch
from elt_assets.sync.events import SessionEvent, Sink, StreamProgress
from elt_assets.sync.session import Session, Threshold


@dataclass
class StreamRead:
    """One stream's read, not begun: nothing runs before `events` is iterated."""

    key: dg.AssetKey
    stream: ConfiguredStream
    connector: Connector
    table: Table
    table_name: str
    standing: Standing
    staging: Path
    threshold: Threshold
    progress: StreamProgress = field(default_factory=StreamProgress)

    def events(self, sink: Sink) -> Generator[SessionEvent, None, None]:
        """Read the stream into a sink; the connector ends with the iterator, whatever the reason.

        Raises:
            EltError: as `Session.run` and `Connector.read`.
        """
        catalog = ConfiguredCatalog(streams=[self.stream])
        state = self.standing.state if self.stream.sync_mode == "incremental" else None
        with scratch(self.staging, "sync") as folder:
            session = Session(catalog, {self.stream.id: sink}, folder, self.threshold)
            self.progress = session.progress(self.stream.id)
            messages = self.connector.read(catalog, [state] if state is not None else [])
            yield from session.run(messages)
