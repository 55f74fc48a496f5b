"""Drives one read of a source into the tables of its streams, and tells the run what happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.merge import partition_files
from elt_assets.lake.parse import undeclared
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.state_only_writer import StateOnlyWriter
from elt_assets.lake.write.write_spec import WriteSpec, has_incompatible_refresh, next_sync_id
from elt_assets.lake.write.writer import TableWriter
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.events.metadata import (
    head_metadata,
    schema_metadata,
    source_metadata,
    table_metadata,
)
from elt_assets.orchestration.events.progress import Watch, reporting
from elt_assets.orchestration.reading import SourceRead, StreamRead
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId
from elt_assets.sync.events import Acknowledged, Estimated, Logged, SessionEvent, Sink
from elt_assets.sync.selection import fields


class Running(Protocol):
    """What is wanted of Dagster's context, of an op or of an output."""

    @property
    def log(self) -> dg.DagsterLogManager: ...

    def log_event(self, event: Any) -> None: ...


class Ingestion:
    """One read, landed.

    Args:
        run: that it is part of, and its id.
    """

    def __init__(self, spark: SparkProvider, run: Running, run_id: str, source: SourceRead):
        self._spark = spark
        self._run = run
        self._run_id = run_id
        self._source = source
        self._reads: Mapping[StreamId, StreamRead] = {read.id: read for read in source.streams}
        self._writers: dict[StreamId, TableWriter | StateOnlyWriter] = {}
        self._started = time.monotonic()

    def run(self) -> None:
        """Read to the end.

        Raises:
            EltError: as `SourceRead.events`; streams that are complete have their `metadata`.
        """
        if self._source.destination is None:
            self._spark.warm_up()
        watch = Watch(self._source, self._spark)

        def open_sink(stream: ConfiguredStream) -> Sink:
            return watch.sink(self._open(stream))

        try:
            sinks = {read.id: open_sink(read.stream) for read in self._source.streams}
            with (
                reporting(watch.look, self._log_progress),
                contextlib.closing(self._source.events(sinks, open_sink)) as events,
            ):
                for event in events:
                    self._tell(event)
        finally:
            for writer in self._writers.values():
                writer.close()

    def _open(self, stream: ConfiguredStream) -> TableWriter | StateOnlyWriter:
        """The writer of a stream as it is configured now.

        Raises:
            ConfigError: its schema changed in the middle of a refresh.
        """
        read = self._reads[stream.id]
        land = read.landing(self._run_id, stream)
        if self._source.destination is not None:
            writer: TableWriter | StateOnlyWriter = StateOnlyWriter(read.tables, land)
        else:
            if read.id in self._writers:
                _refuse_other_making(read, land)
                land = replace(
                    land, began=next_sync_id(read.tables.head)
                )  # its rows come after the first ones
            writer = TableWriter(self._spark, read.tables, land)
        for change in writer.schema_changes:
            self._run.log.warning(f"{self._prefix(read)}the schema has changed: {change}")
        self._writers[stream.id] = writer
        return writer

    def _log_progress(self, text: str) -> None:
        partition = self._source.streams[0].partition
        self._run.log.info(text if partition is None else f"partition {partition}: {text}")

    def _log_end(self, read: StreamRead) -> None:
        figures = read.figures
        text = (
            f"{self._prefix(read)}done in {figures.seconds:,.0f} s: {figures.read:,} records read"
        )
        counts = {"committed": figures.committed, "rejected": figures.rejected}
        self._log_progress(", ".join([text, *(f"{n:,} {what}" for what, n in counts.items() if n)]))
        if figures.undeclared:
            self._log_undeclared(read)

    def _log_undeclared(self, read: StreamRead) -> None:
        kept = read.asset.wanted.on_undeclared == "keep"
        done = (
            f"kept in the column {fields.UNDECLARED}"
            if kept
            else "not stored; declare them in catalog.json (`elt discover`), or set `on_undeclared: keep`"
        )
        found = undeclared.described(read.figures.undeclared)
        self._run.log.info(
            f"{self._prefix(read)}fields that the catalog does not declare: {found}; they are {done}"
        )

    def _prefix(self, read: StreamRead) -> str:
        return f"{read.id}: " if len(self._reads) > 1 else ""

    def _tell(self, event: SessionEvent) -> None:
        for read in self._source.streams:
            figures = read.figures
            figures.read, figures.bytes = read.progress.records_read, read.progress.bytes_read
            figures.seconds = time.monotonic() - self._started
        if isinstance(event, Logged):
            hearing(self._run.log)(event.level, event.message)
        elif isinstance(event, Estimated):
            prefix = "" if event.stream is None else self._prefix(self._reads[event.stream])
            hearing(self._run.log)("INFO", f"{prefix}{event.text}")
        elif isinstance(event, Acknowledged):
            self._acknowledge(self._reads[event.stream], event)

    def _acknowledge(self, read: StreamRead, event: Acknowledged) -> None:
        commit = event.commit
        read.figures.add(commit)
        policy = {"elt/policy": read.stream.destination_sync_mode}
        if event.final:
            read.metadata = {**self._final_metadata(read), **policy}
            self._log_end(read)
            return
        head = CommitMetadata(commit.sequence, commit.generation, commit.state)
        metadata = {**head_metadata(head, commit.version), **read.figures.metadata(), **policy}
        self._run.log_event(
            dg.AssetObservation(read.asset.key, metadata=metadata, partition=read.partition)
        )

    def _final_metadata(self, read: StreamRead) -> dict[str, Any]:
        table, shown = read.tables.main, {}
        if self._source.destination is None:
            shown = dict(self._table_metadata(read))
        return {
            **head_metadata(read.tables.head, table.version),
            **read.figures.metadata(),
            **shown,
            **source_metadata(read.progress),
            **schema_metadata(self._writers[read.id].schema_changes),
        }

    def _table_metadata(self, read: StreamRead) -> Mapping[str, Any]:
        table, part = read.tables.main, read.partition
        rows = None if part is None else partition_files.count(self._spark, table, part)
        name = read.asset.table_name
        return table_metadata(table, name, read.asset.landed(), partition_rows=rows)


def _refuse_other_making(read: StreamRead, land: WriteSpec) -> None:
    """Refuse rows that would begin a refresh anew of which this sync has committed some already."""
    if has_incompatible_refresh(land.stream, land.generation, read.tables.head, land.salt):
        raise ConfigError(
            f"the source changed the schema of stream {str(read.id)!r} in the middle of a sync that replaces "
            "its rows",
            guidance="write the catalog anew with `elt discover`, and sync again; the table is as it was",
        )
