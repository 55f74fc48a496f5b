"""A read of a connection whose records go to another destination than the lake (`destination:`).

Everything in which such a read differs is here. `Relay` takes the place of the session: it sends the messages
to the destination's connector, and the sinks store only the states that come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from elt_assets.connection import as_landed
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import Phase
from elt_assets.pipeline.read import ClosableSink, MessageReader
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.singer_catalog import remove_entries
from elt_assets.runner.connector import Connector
from elt_assets.sync.committer import OpenSink
from elt_assets.sync.destination_names import DestinationNames
from elt_assets.sync.events import Sink
from elt_assets.sync.relay import Relay


class DestinationRead(ConnectionRead):
    """A read whose records another destination gets.

    Args:
        destination: the connector that gets the records.
        arguments: those of `ConnectionRead`.
    """

    stores_rows: ClassVar[bool] = False
    _program_module = None  # the messages are sent on, so tasks read no slices

    def __init__(self, destination: Connector, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._destination = destination
        self._names = DestinationNames(
            {
                plan.id: plan.asset.destination_name
                for plan in self.streams.values()
                if plan.asset.destination_name != plan.id.name
            }
        )
        streams = [as_landed(self.connection, plan.stream) for plan in self.streams.values()]
        self._catalog_there = ConfiguredCatalog(
            streams=[self._names.rename_stream(remove_entries(stream)) for stream in streams]
        )

    @property
    def connectors(self) -> Sequence[Connector]:
        return [self.connector, self._destination]

    def location(self, stream: ConfiguredStream) -> str:
        return f"destination://{self.connection.name}/{stream.id}"

    def check(self) -> None:
        """Raise an error if the destination cannot take the streams.

        This is before the sinks store the start of a refresh: a later sync would resume it.
        """
        self._destination.adapt_catalog(self._catalog_there)

    def open_sink(self, stream: ConfiguredStream) -> ClosableSink:
        plan = self.streams[stream.id]
        return StateOnlyWriter(plan.tables, plan.write_spec(self._resources.run_id, stream))

    def expect_rows(self) -> None:
        """Do nothing: the rows need no Spark."""

    def open_reader(
        self, sinks: Mapping[StreamId, Sink], _open_sink: OpenSink, opened: ExitStack
    ) -> MessageReader:
        rules = replace(self.rules, documents=opened.enter_context(self.transfer_documents()))
        send = partial(self._destination.write, self._catalog_there, stop=self.connector.cancel)
        return Relay(self.catalog, sinks, send, rules, self._names)

    @property
    def _phase(self) -> Phase:
        return Phase.SENDING if self.source_ended else Phase.READING
