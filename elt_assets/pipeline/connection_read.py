"""One read of a connection's source: its streams, their starting states and their tables.

Planned and run by `orchestration`: `planning` calls the functions, `io_manager` and `report` run the read;
`materialize` and `elt sync` show its progress.

First `ConnectionRead`, whose records go to the lake; then `DestinationRead`, whose records go to another
destination (`destination:`); then `plan_read` and `plan_shared_read`, which make one of them from the plans
of its streams.

Planning has no effects: no process is started and no table is written before the read is run
(`pipeline.read`).
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from msgspec import Raw

from elt_assets.connection import as_landed, describe_broken_fields, describe_unused_settings
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.slices import SliceSource
from elt_assets.lake.write.documents import DocumentTransfer
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.stored_stream import next_sync_id
from elt_assets.lake.write.writer import TableWriter
from elt_assets.pipeline import shared_start
from elt_assets.pipeline.connectors import make_destination, make_source, package_to_install
from elt_assets.pipeline.progress import Phase, Progress, SyncFigures
from elt_assets.pipeline.publication import list_lake_tables
from elt_assets.pipeline.read import ClosableSink, MessageReader, Messages, Read
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.pipeline.undeclared import make_check, request_fields
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.messages import FOLLOW, SLICES, FollowRequest, State
from elt_assets.protocol.singer_catalog import remove_entries
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import LogFunction
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.references import list_unknown_fields
from elt_assets.storage.staging import StagedFiles, Staging
from elt_assets.sync.committer import OpenSink
from elt_assets.sync.destination_messages import DestinationNames
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import Logged, Sink
from elt_assets.sync.field_selection import describe_kept_fields
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.relay import Relay
from elt_assets.sync.session import StreamChanges, Threshold
from elt_assets.sync.streams import StreamRules
from elt_assets.telemetry.observation import Subject


@dataclass(frozen=True)
class RunResources:
    """What a run provides for its reads."""

    run_id: str
    """Stored in the commits."""
    spark: SparkProvider
    staging: Staging
    log: LogFunction
    """Receives the log lines of the connectors, except those of `read`, and warnings about the read; called
    from any thread."""


class ConnectionRead(Read):
    """One process of a connector that reads streams of one connection into their tables.

    Args:
        plans: the streams.
        states: starting states, given to the source.
        shares_state: whether the streams may share a state.
        follow: how long the source follows its log; None if it reads up to the present end.
    """

    stores_rows: ClassVar[bool] = True
    """Whether the records go to the lake, and not to another destination."""

    def __init__(
        self,
        plans: Sequence[StreamPlan],
        states: Sequence[State],
        connector: Connector,
        resources: RunResources,
        *,
        shares_state: bool = False,
        follow: FollowRequest | None = None,
    ):
        self.follows = follow is not None
        self.connection = connection = plans[0].asset.connection
        self.connector = connector
        self.streams = {plan.id: plan for plan in plans}
        self.partition = plans[0].partition
        """The partition that is read; None if there is none."""
        self._states = states
        self._resources = resources
        self._writers: dict[StreamId, TableWriter] = {}
        self._kind = KINDS[connection.source.kind]
        filters = {plan.id: self.make_filter(plan) for plan in plans}
        # Tasks apply no filter and take no documents, so streams with such are staged as records.
        sliced = {
            plan.id
            for plan in plans
            if self._program_module and filters[plan.id] is None and not plan.stream.has_documents
        }
        own = [state.stream.stream_descriptor.id for state in states if state.stream is not None]
        super().__init__(
            ConfiguredCatalog(
                streams=[
                    _complete_request(self.make_request(plan), follow, slices=plan.id in sliced)
                    for plan in plans
                ]
            ),
            resources.staging,
            Threshold(
                connection.checkpoint.rows,
                connection.checkpoint.megabytes << 20,
                connection.checkpoint.seconds,
            ),
            StreamRules(
                filters={stream: rule for stream, rule in filters.items() if rule is not None},
                shares_state=shares_state,
                # No other stream of the source is read, so a GLOBAL state belongs to this stream.
                is_only_stream=len(connection.streams) == 1,
                own_states=own if len(own) < len(states) else (),
                sliced=sliced,
                follows=self.follows,
            ),
        )
        self.subject = Subject(connection.name, self.location, resources.run_id)

    def make_filter(self, plan: StreamPlan) -> RecordFilter | None:
        """Return the filter of a stream's records; None if all are stored as they are."""
        return plan.asset.record_filter(make_check(plan), keeps_markers=plan.corrects)

    def make_request(self, plan: StreamPlan) -> ConfiguredStream:
        """Return a stream as it is requested from the source."""
        return request_fields(plan.asset.make_requested_stream(plan.stream), plan)

    @property
    def connectors(self) -> Sequence[Connector]:
        """Those that take part in the read."""
        return [self.connector]

    @property
    def _program_module(self) -> str | None:
        """The module of the source that tasks may import; None if they may not read it."""
        source = self.connection.source
        return self._kind.program_module(source.value) if source.slices else None

    def location(self, stream: ConfiguredStream) -> str:
        """Return the URI of the place where the records of a stream land."""
        return self.streams[stream.id].tables.main.uri

    def open_messages(self) -> Messages:
        return self.connector.read(
            self.catalog,
            self._states,
            withhold=any(stream.fields is not None for stream in self.connection.streams),
            whole=not self.stores_rows,
            runs=self.stores_rows,
        )

    def open_sink(self, stream: ConfiguredStream) -> ClosableSink:
        """Return a writer for the present configuration of a stream."""
        plan, resources = self.streams[stream.id], self._resources
        spec = plan.write_spec(resources.run_id, stream)
        if stream.id in self._writers:
            # The rows of this writer come after those of the previous one.
            spec = replace(spec, began=next_sync_id(plan.tables.metadata))
        slices = partial(self._slice_source, stream)
        writer = TableWriter(resources.spark, plan.tables, spec, self.staging, slices=slices)
        self._writers[stream.id] = writer
        self._warn_of_schema(stream.id, writer.schema_changes)
        return writer

    def list_notices(self) -> Iterator[Logged]:
        for plan in self.streams.values():
            yield from (
                Logged("WARN", notice) for notice in describe_kept_fields(plan.asset.fields)
            )
            unused = describe_unused_settings(plan.asset.settings, plan.stream.stream)
            broken = describe_broken_fields(plan.stream.stream)
            yield from (Logged("WARN", notice) for notice in (*unused, *broken))
        for connector in self.connectors:
            yield from (Logged(level, text) for level, text in connector.notices())
        schema = self.connector.specification.connectionSpecification
        unknown = list_unknown_fields(self.connection.source.config, schema)
        yield from (Logged("WARN", warning) for warning in unknown)

    def changes(self, open_sink: OpenSink) -> StreamChanges | None:
        """Let taps change their streams: in the Airbyte Protocol a catalog during a read has no meaning."""
        return StreamChanges(open_sink, self._change_schema) if self._kind.is_tap else None

    def _change_schema(self, stream: ConfiguredStream) -> None:
        """Let the writer of a stream continue with the schema that its source has sent."""
        plan, writer = self.streams[stream.id], self._writers[stream.id]
        before = writer.schema_changes
        writer.change_schema(plan.write_spec(self._resources.run_id, stream).stream)
        new = [change for change in writer.schema_changes if change not in before]
        self._warn_of_schema(stream.id, new)

    @contextlib.contextmanager
    def transfer_documents(self) -> Iterator[Mapping[StreamId, Documents]]:
        """Yield the places of the streams' documents; a source may send some that it is not asked for."""
        plans = [plan for plan in self.streams.values() if plan.stream.stream.is_file_based]
        if not plans:
            yield {}
            return
        with (
            self.connector.stage_documents(*self.connectors[1:]) as folder,
            DocumentTransfer(StagedFiles(folder)) as transfer,
        ):
            yield {
                plan.id: transfer.folder(plan.tables.main.storage.location)
                if plan.stream.has_documents and self.stores_rows
                else transfer.no_folder()
                for plan in plans
            }

    def list_followed(self, stream: StreamId) -> Sequence[LakeTable]:
        plan = self.streams[stream]
        return list_lake_tables(plan.asset, plan.tables)

    def describe_publication(self, stream: StreamId) -> tuple[Mapping[str, Any], list[str]]:
        """Return what the event of a complete stream says of where it is published, and why it is not.

        When the source has ended, this waits for the followers.
        """
        tables = self.list_followed(stream) if self.followers.are_there else ()
        if not tables:
            return {}, []
        if self.source_ended:
            self.followers.wait()
        problems = [problem for table in tables for problem in self.followers.problems(table)]
        reasons = dict.fromkeys(self.mask(problem) for problem in problems)
        return self.followers.metadata(tables[0]), list(reasons)

    def expect_rows(self) -> None:
        self._resources.spark.warm_up()

    def mask(self, text: str) -> str:
        for connector in self.connectors:
            text = connector.mask(text)
        return text

    def open_reader(
        self, sinks: Mapping[StreamId, Sink], open_sink: OpenSink, opened: ExitStack
    ) -> MessageReader:
        if self.rules.sliced:
            opened.enter_context(self.connector.stage_slices())
        return super().open_reader(sinks, open_sink, opened)

    def _slice_source(self, stream: ConfiguredStream) -> SliceSource:
        """Return what tasks need to read slices of a stream."""
        module, folder = self._program_module, self.connector.slice_files
        assert module is not None and folder is not None
        config = json.dumps(self.connector.config).encode()
        return SliceSource(module, config, stream.to_json(), folder)

    def schema_changes(self, stream: StreamId) -> Sequence[str]:
        """Return descriptions of the differences between the stream's schema and its table's."""
        writer = self._writers.get(stream)
        return [] if writer is None else [self.mask(change) for change in writer.schema_changes]

    def list_added_fields(self, stream: StreamId) -> Sequence[str]:
        """Return the undeclared fields of a stream that have become columns in this sync."""
        writer = self._writers.get(stream)
        return [] if writer is None else [self.mask(name) for name in writer.added_fields]

    def prefix(self, stream: StreamId) -> str:
        """Return how a line of the log about a stream begins: with its name, if there are several."""
        return f"{stream}: " if len(self.streams) > 1 else ""

    def _warn_of_schema(self, stream: StreamId, changes: Sequence[str]) -> None:
        for change in changes:
            text = f"{self.prefix(stream)}the schema has changed: {self.mask(change)}"
            self._resources.log("WARN", text)

    def current_progress(self) -> Progress:
        """Return the approximate progress of the read; callable from any thread."""
        figures: dict[StreamId, SyncFigures] = {}
        for stream in self.streams:
            records, size = self.read_so_far(stream)
            figures[stream] = replace(self.figures(stream), read=records, bytes=size)
        estimates = [self.progress(stream).estimate for stream in self.streams]
        expected = [estimate for estimate in estimates if estimate is not None]
        read = sum(count.read for count in figures.values())
        is_waiting = not read and not self.source_ended
        package = package_to_install(self.connection) if is_waiting else None
        return Progress(
            Phase.INSTALLING if package else self._phase,
            read=read,
            size=sum(count.bytes for count in figures.values()),
            records_written=0 if self.reader is None else self.reader.work.records_written,
            committed=sum(count.committed for count in figures.values()),
            estimate=sum(expected) if len(expected) == len(estimates) else None,
            package=package,
            figures=figures,
        )

    @property
    def _phase(self) -> Phase:
        """The phase, if no package is being installed."""
        if self.reader is None or not self.source_ended:
            return Phase.READING
        if self._resources.spark.is_starting:
            return Phase.STARTING_SPARK
        return Phase.COMMITTING if self.reader.work.is_committing else Phase.WRITING


def _complete_request(
    stream: ConfiguredStream, follow: FollowRequest | None, *, slices: bool
) -> ConfiguredStream:
    """Return a requested stream; of which slices are requested, if tasks may read them."""
    asked = {SLICES: Raw(b"true")} if slices else {}
    if follow is not None:
        asked[FOLLOW] = Raw(follow.to_json())
    if asked:
        stream = copy.copy(stream)
        stream.extra = {**stream.extra, **asked}
    return stream


class DestinationRead(ConnectionRead):
    """A read whose records another destination gets. Everything in which such a read differs is here.

    `Relay` takes the place of the session: it sends the messages to the destination's connector, and the
    sinks store only the states that come back.

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

    def list_followed(self, _stream: StreamId) -> Sequence[LakeTable]:
        """Return none: the rows are in no table of the lake."""
        return ()

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


def plan_read(
    plan: StreamPlan, resources: RunResources, config: Mapping[str, Any] | None = None
) -> ConnectionRead:
    """Plan the read of one stream, or of one of its partitions.

    Args:
        config: config of the source for a window or a partition; it replaces the connection's.
    """
    states = [] if plan.state is None else [State.from_json(plan.state)]
    return _plan([plan], states, resources, config)


def plan_shared_read(
    plans: Sequence[StreamPlan],
    resources: RunResources,
    start: Mapping[str, Any] | None,
    follow: FollowRequest | None = None,
) -> ConnectionRead:
    """Plan one read of several streams of a connection, from a state that covers all of them.

    Args:
        start: starting state; ignored if all streams continue an earlier attempt.
        follow: as for `ConnectionRead`.

    Raises:
        ConfigError: the given state is not one that streams share.
    """
    sync_id = max(plan.stream.sync_id or 0 for plan in plans)
    for plan in plans:
        plan.stream.sync_id = sync_id
    if start is None or all(plan.continues for plan in plans):
        states = shared_start.choose_starting_states(
            plans, lambda text: resources.log("WARN", text)
        )
    else:
        states = [shared_start.as_shared(start)]
    return _plan(plans, states, resources, shares_state=True, follow=follow)


def _plan(
    plans: Sequence[StreamPlan],
    states: Sequence[State],
    resources: RunResources,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> ConnectionRead:
    connection, folder = plans[0].asset.connection, resources.staging.folder
    connector = make_source(connection, folder, config, on_log=resources.log)
    destination = make_destination(connection, folder, on_log=resources.log)
    if destination is None:
        return ConnectionRead(plans, states, connector, resources, **options)
    return DestinationRead(destination, plans, states, connector, resources, **options)
