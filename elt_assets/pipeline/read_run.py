"""A running read of a connection's source: the writers of its streams and its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.state_only_writer import StateOnlyWriter
from elt_assets.lake.write.stored_stream import next_sync_id
from elt_assets.lake.write.writer import TableWriter
from elt_assets.pipeline.connectors import package_to_install
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.pipeline.progress import Phase, Progress, WatchedSink, Work
from elt_assets.pipeline.read_plan import ReadPlan
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.pipeline.sync import ClosableSink, Sync
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId
from elt_assets.sync.events import Acknowledged, SessionEvent, StreamProgress
from elt_assets.telemetry.observation import Subject


class ReadRun:
    """One run of a read plan.

    `figures`: by stream, updated with each event.

    Args:
        run_id: id of the run that the read belongs to; stored in its commits.
        warn: logs a change of a stream's schema; called from any thread.
    """

    def __init__(
        self,
        plan: ReadPlan,
        spark: SparkProvider,
        run_id: str,
        warn: Callable[[StreamPlan, str], object],
    ):
        self.plan = plan
        self.figures = {read.id: SyncFigures() for read in plan.streams}
        self._spark = spark
        self._run_id = run_id
        self._warn = warn
        self._reads = {read.id: read for read in plan.streams}
        self._writers: dict[StreamId, TableWriter | StateOnlyWriter] = {}
        self._work = Work()
        subject = Subject(plan.connection.name, self._location, run_id)
        sync_plan = plan.sync_plan(self._open, self._change_schema)
        self._sync = Sync(replace(sync_plan, expect_rows=spark.warm_up, subject=subject))
        self._started = time.monotonic()

    def read(self) -> Generator[SessionEvent, None, None]:
        """Read to the end and yield its events, each after `figures` is updated.

        Raises:
            EltError: as `Sync.drive`.
        """
        for event in self._sync.drive():
            self._count(event)
            yield event

    def progress(self, stream: StreamId) -> StreamProgress:
        return self._sync.progress(stream)

    def schema_changes(self, stream: StreamId) -> Sequence[str]:
        """Return descriptions of the differences between the stream's schema and its table's."""
        return [self.plan.mask(change) for change in self._writers[stream].schema_changes]

    def current_progress(self) -> Progress:
        """Return the approximate progress of the read; callable from any thread."""
        so_far = {stream: self._sync.read_so_far(stream) for stream in self._reads}
        figures = {
            stream: replace(self.figures[stream], read=records, bytes=size)
            for stream, (records, size) in so_far.items()
        }
        estimates = [self.progress(stream).estimate for stream in self._reads]
        expected = [estimate for estimate in estimates if estimate is not None]
        progress = Progress(
            Phase.READING,
            read=sum(count.read for count in figures.values()),
            size=sum(count.bytes for count in figures.values()),
            records_written=self._work.records_written,
            committed=sum(count.committed for count in figures.values()),
            estimate=sum(expected) if len(expected) == len(estimates) else None,
            figures=figures,
        )
        return self._add_phase(progress)

    def _add_phase(self, progress: Progress) -> Progress:
        if not self._sync.source_ended:
            package = None if progress.read else package_to_install(self.plan.connection)
            phase = Phase.INSTALLING if package else Phase.READING
            return replace(progress, phase=phase, package=package)
        if self.plan.destination is not None:
            return replace(progress, phase=Phase.SENDING)
        if self._spark.is_starting:
            return replace(progress, phase=Phase.STARTING_SPARK)
        phase = Phase.COMMITTING if self._work.is_committing else Phase.WRITING
        return replace(progress, phase=phase)

    def _count(self, event: SessionEvent) -> None:
        for stream, figures in self.figures.items():
            progress = self.progress(stream)
            figures.read, figures.bytes = progress.records_read, progress.bytes_read
            figures.filtered = progress.records_filtered
            figures.documents = progress.documents
            figures.document_bytes = progress.document_bytes
            figures.seconds = time.monotonic() - self._started
        if isinstance(event, Acknowledged):
            self.figures[event.stream].add(event.commit)

    def _location(self, stream: ConfiguredStream) -> str:
        """Return the URI of the place where the records of a stream land."""
        if self.plan.destination is not None:
            return f"destination://{self.plan.connection.name}/{stream.id}"
        return self._reads[stream.id].tables.main.uri

    def _open(self, stream: ConfiguredStream) -> ClosableSink:
        """Return a writer for the present configuration of a stream."""
        read = self._reads[stream.id]
        spec = read.write_spec(self._run_id, stream)
        if self.plan.destination is not None:
            writer: TableWriter | StateOnlyWriter = StateOnlyWriter(read.tables, spec)
        else:
            if read.id in self._writers:
                # The rows of this writer come after those of the previous one.
                spec = replace(spec, began=next_sync_id(read.tables.metadata))
            writer = TableWriter(
                self._spark,
                read.tables,
                spec,
                self.plan.staging,
                slices=partial(self.plan.slice_source, stream),
            )
        for change in writer.schema_changes:
            self._warn(read, self.plan.mask(change))
        self._writers[stream.id] = writer
        return WatchedSink(writer, self._work)

    def _change_schema(self, stream: ConfiguredStream) -> None:
        """Let the writer of a stream continue with the schema that its source has sent."""
        read, writer = self._reads[stream.id], self._writers[stream.id]
        assert isinstance(writer, TableWriter)
        before = writer.schema_changes
        writer.change_schema(read.write_spec(self._run_id, stream).stream)
        for change in writer.schema_changes:
            if change not in before:
                self._warn(read, self.plan.mask(change))
