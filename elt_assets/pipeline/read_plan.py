"""The plan for one read of a connection's source: its streams, their starting states and their tables.

A plan has no effects: no process is started and no table is written before the plan is run
(`pipeline.sync`).
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Raw

from elt_assets.connection import (
    Connection,
    as_landed,
    describe_broken_fields,
    describe_unused_settings,
)
from elt_assets.lake.spark.parsing.slices import SliceSource
from elt_assets.lake.write.documents import DocumentTransfer
from elt_assets.pipeline import shared_state_start
from elt_assets.pipeline.connectors import connect, connect_destination
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.pipeline.sync import OpenSink, SyncPlan, no_documents
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.airbyte.messages import SLICES, State
from elt_assets.protocol.singer.catalog import remove_entries
from elt_assets.runner.config.secrets import list_unknown_fields
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import LogFunction
from elt_assets.runner.kinds.registry import KINDS
from elt_assets.storage.staged_files import StagedFiles
from elt_assets.storage.staging import Staging
from elt_assets.sync.destination_names import DestinationNames
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import Logged
from elt_assets.sync.selection.fields import notices
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.session import Threshold
from elt_assets.sync.streams import StreamRules


@dataclass
class ReadPlan:
    """The plan for one process of a connector that reads streams of one connection.

    `states`: starting states, given to the source. `shares_state`: whether the streams may share a state.
    `destination`: connector that gets the records; None if they go to the lake.
    """

    connection: Connection
    connector: Connector
    staging: Staging
    streams: Sequence[StreamPlan]
    states: Sequence[State]
    shares_state: bool = False
    destination: Connector | None = None

    def sync_plan(
        self, open_sink: OpenSink, change_schema: Callable[[ConfiguredStream], object]
    ) -> SyncPlan:
        """Return the plan for the sync of these streams into sinks."""
        kind = KINDS[self.connection.source.kind]
        filters = {read.id: read.asset.record_filter() for read in self.streams}
        sliced = self._list_sliced(filters)
        catalog = ConfiguredCatalog(
            streams=[self._request(read, slices=read.id in sliced) for read in self.streams]
        )
        checkpoint = self.connection.checkpoint
        plan = SyncPlan(
            catalog=catalog,
            read=partial(
                self.connector.read,
                catalog,
                self.states,
                withhold=any(stream.fields is not None for stream in self.connection.streams),
                whole=self.destination is not None,
                runs=self.destination is None,
            ),
            open_sink=open_sink,
            staging=self.staging,
            threshold=Threshold(checkpoint.rows, checkpoint.megabytes << 20, checkpoint.seconds),
            rules=StreamRules(
                filters={
                    stream: filter_ for stream, filter_ in filters.items() if filter_ is not None
                },
                shares_state=self.shares_state,
                # No other stream of the source is read, so a GLOBAL state belongs to this stream.
                is_only_stream=len(self.connection.streams) == 1,
                own_states=self._own_states(),
                sliced=sliced,
            ),
            # In the Airbyte Protocol a catalog during a read has no meaning.
            change_schema=change_schema if kind.is_tap else None,
            notices=self._notices,
            documents=self._transfer_documents if self._has_documents else no_documents,
            mask=self.mask,
            slices=self.connector.stage_slices if sliced else contextlib.nullcontext,
        )
        if self.destination is not None:
            self._send_to(self.destination, plan)
        return plan

    def mask(self, text: str) -> str:
        """Return a text in which the secrets of the connection are masked."""
        for connector in filter(None, [self.connector, self.destination]):
            text = connector.mask(text)
        return text

    @property
    def _has_documents(self) -> bool:
        """Return whether streams of the read may have documents, also such that are not stored."""
        return any(read.stream.stream.is_file_based for read in self.streams)

    @contextlib.contextmanager
    def _transfer_documents(self) -> Iterator[Mapping[StreamId, Documents]]:
        """Yield the places of the streams' documents; a source may send some that it is not asked for."""
        with (
            self.connector.stage_documents(self.destination) as folder,
            DocumentTransfer(StagedFiles(folder)) as transfer,
        ):
            yield {
                read.id: transfer.folder(read.tables.main.storage.location)
                if read.stream.has_documents and self.destination is None
                else transfer.no_folder()
                for read in self.streams
                if read.stream.stream.is_file_based
            }

    @property
    def _program_module(self) -> str | None:
        """The module of the source that tasks may import; None if they may not read it."""
        source = self.connection.source
        if self.destination is not None or not source.slices:
            return None
        return KINDS[source.kind].program_module(source.value)

    def _list_sliced(self, filters: Mapping[StreamId, RecordFilter | None]) -> Collection[StreamId]:
        """Return the streams of which tasks may read slices.

        Tasks apply no filter and take no documents, so streams with such are staged as records.
        """
        if self._program_module is None:
            return ()
        return {
            read.id
            for read in self.streams
            if filters[read.id] is None and not read.stream.has_documents
        }

    def _request(self, read: StreamPlan, *, slices: bool) -> ConfiguredStream:
        """Return a stream as it is requested from the source.

        Args:
            slices: tasks may read it.
        """
        stream = read.asset.make_requested_stream(read.stream)
        if slices:
            stream = copy.copy(stream)
            stream.extra = {**stream.extra, SLICES: Raw(b"true")}
        return stream

    def slice_source(self, stream: ConfiguredStream) -> SliceSource:
        """Return what tasks need to read slices of a stream."""
        module, folder = self._program_module, self.connector.slice_files
        assert module is not None and folder is not None
        config = json.dumps(self.connector.config).encode()
        return SliceSource(module, config, stream.to_json(), folder)

    def _send_to(self, destination: Connector, plan: SyncPlan) -> None:
        """Change the plan of a sync so that another destination than the lake gets the records."""
        names = DestinationNames(
            {
                read.id: read.asset.destination_name
                for read in self.streams
                if read.asset.destination_name != read.id.name
            }
        )
        streams = [
            names.rename_stream(remove_entries(as_landed(self.connection, read.stream)))
            for read in self.streams
        ]
        catalog = ConfiguredCatalog(streams=streams)
        plan.names = names
        # Before the sinks store the start of a refresh: a later sync would resume it.
        plan.check = partial(destination.adapt_catalog, catalog)
        plan.send = partial(destination.write, catalog, stop=self.connector.cancel)

    def _own_states(self) -> Collection[StreamId]:
        """Return the streams that start from a state of their own beside a shared one."""
        own = {
            state.stream.stream_descriptor.id for state in self.states if state.stream is not None
        }
        return own if len(own) < len(self.states) else ()

    def _notices(self) -> Iterator[Logged]:
        """Yield the notices about the settings, which are logged before anything is read."""
        for read in self.streams:
            yield from (Logged("WARN", notice) for notice in notices(read.asset.fields))
            unused = describe_unused_settings(read.asset.settings, read.stream.stream)
            yield from (Logged("WARN", notice) for notice in unused)
            yield from (
                Logged("WARN", notice) for notice in describe_broken_fields(read.stream.stream)
            )
        for connector in filter(None, [self.connector, self.destination]):
            yield from (Logged(level, text) for level, text in connector.notices())
        schema = self.connector.specification.connectionSpecification
        unknown = list_unknown_fields(self.connection.source.config, schema)
        yield from (Logged("WARN", warning) for warning in unknown)


def plan_read(
    read: StreamPlan,
    staging: Staging,
    config: Mapping[str, Any] | None = None,
    *,
    on_log: LogFunction,
) -> ReadPlan:
    """Plan the read of one stream, or of one of its partitions.

    Args:
        config: config of the source for a window or a partition; it replaces the connection's.
        on_log: receives the log lines of the connectors, except those of `read`.
    """
    states = [] if read.state is None else [State.from_json(read.state)]
    return _plan([read], staging, states, config, on_log)


def plan_shared_read(
    reads: Sequence[StreamPlan],
    staging: Staging,
    start: Mapping[str, Any] | None,
    *,
    on_log: LogFunction,
    warn: Callable[[str], object],
) -> ReadPlan:
    """Plan one read of several streams of a connection, from a state that covers all of them.

    Args:
        start: starting state; ignored if all streams continue an earlier attempt.
        on_log: as in `plan_read`.
        warn: logs what has to be read again.

    Raises:
        ConfigError: the given state is not one that streams share.
    """
    sync_id = max(read.stream.sync_id or 0 for read in reads)
    for read in reads:
        read.stream.sync_id = sync_id
    if start is None or all(read.continues for read in reads):
        states = shared_state_start.choose_starting_states(reads, warn)
    else:
        states = [shared_state_start.as_shared(start)]
    plan = _plan(reads, staging, states, None, on_log)
    plan.shares_state = True
    return plan


def _plan(
    reads: Sequence[StreamPlan],
    staging: Staging,
    states: Sequence[State],
    config: Mapping[str, Any] | None,
    on_log: LogFunction,
) -> ReadPlan:
    connection, folder = reads[0].asset.connection, staging.folder
    connector = connect(connection, folder, config, on_log=on_log)
    destination = connect_destination(connection, folder, on_log=on_log)
    return ReadPlan(connection, connector, staging, reads, states, destination=destination)
