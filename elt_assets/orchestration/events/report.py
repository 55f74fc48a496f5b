"""What a run is told of a read: its log, an observation at each commit, and what the streams' events say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import dagster as dg

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.merge import partition_files
from elt_assets.lake.parse import undeclared
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.events.metadata import (
    figures_metadata,
    head_metadata,
    schema_metadata,
    source_metadata,
    table_metadata,
)
from elt_assets.pipeline.progress import Progress, reporting
from elt_assets.pipeline.read_plan import ReadPlan
from elt_assets.pipeline.read_run import ReadRun
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.sync.events import Acknowledged, Estimated, Logged, SessionEvent
from elt_assets.sync.selection import fields


class Running(Protocol):
    """What is wanted of Dagster's context, of an op or of an output."""

    @property
    def log(self) -> dg.DagsterLogManager: ...

    def log_event(self, event: Any) -> None: ...


Watch: TypeAlias = Callable[
    [ReadPlan, Callable[[], Progress]], contextlib.AbstractContextManager[object]
]
"""Entered while a read runs, with its plan and what says how far it is, from any thread."""


def _unwatched(_plan: ReadPlan, _look: Callable[[], Progress]) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


WATCH: ContextVar[Watch] = ContextVar("watch", default=_unwatched)
"""Watches the reads that this thread runs: of a command line that shows them, say."""


@dataclass(frozen=True)
class Complete:
    """A stream whose read was committed to its end: what its event says, and how many records it rejected."""

    read: StreamPlan
    metadata: Mapping[str, Any]
    rejected: int


class Report:
    """Runs a read, and tells a run of it.

    Args:
        run: that the read is part of, and its id.
    """

    def __init__(self, spark: SparkProvider, run: Running, run_id: str, plan: ReadPlan):
        self._spark = spark
        self._log = run.log
        self._log_event = run.log_event
        self._plan = plan
        self._reads = {read.id: read for read in plan.streams}
        self._run = ReadRun(plan, spark, run_id, self._warn_of_schema)

    def complete(self) -> Iterator[Complete]:
        """Read to the end; yields each stream that is complete.

        Raises:
            EltError: as `ReadRun.run`; some streams may be complete before it.
        """
        with (
            reporting(self._run.look, self._log_progress),
            WATCH.get()(self._plan, self._run.look),
            contextlib.closing(self._run.run()) as events,
        ):
            for event in events:
                self._tell(event)
                if isinstance(event, Acknowledged) and event.final:
                    yield self._complete(self._reads[event.stream])

    def _tell(self, event: SessionEvent) -> None:
        if isinstance(event, Logged):
            hearing(self._log)(event.level, event.message)
        elif isinstance(event, Estimated):
            prefix = "" if event.stream is None else self._prefix(self._reads[event.stream])
            hearing(self._log)("INFO", f"{prefix}{event.text}")
        elif isinstance(event, Acknowledged) and not event.final:
            self._observe(self._reads[event.stream], event)

    def _observe(self, read: StreamPlan, event: Acknowledged) -> None:
        commit = event.commit
        head = CommitMetadata(commit.sequence, commit.generation, commit.state)
        metadata = {**head_metadata(head, commit.version), **self._figures(read)}
        key = dg.AssetKey(list(read.of.levels))
        self._log_event(dg.AssetObservation(key, metadata=metadata, partition=read.partition))

    def _complete(self, read: StreamPlan) -> Complete:
        table, shown = read.tables.main, {}
        if self._plan.destination is None:
            shown = dict(self._table_metadata(read))
        metadata = {
            **head_metadata(read.tables.head, table.version),
            **self._figures(read),
            **shown,
            **source_metadata(self._run.progress(read.id)),
            **schema_metadata(self._run.schema_changes(read.id)),
        }
        self._log_end(read)
        return Complete(read, metadata, self._run.figures[read.id].rejected)

    def _figures(self, read: StreamPlan) -> dict[str, Any]:
        policy = {"elt/policy": read.stream.destination_sync_mode}
        return {**figures_metadata(self._run.figures[read.id]), **policy}

    def _table_metadata(self, read: StreamPlan) -> Mapping[str, Any]:
        table, part = read.tables.main, read.partition
        rows = None if part is None else partition_files.count(self._spark, table, part)
        landed = read.of.landed()
        return table_metadata(table, read.of.table_name, landed, partition_rows=rows)

    def _log_progress(self, text: str) -> None:
        partition = self._plan.streams[0].partition
        self._log.info(text if partition is None else f"partition {partition}: {text}")

    def _log_end(self, read: StreamPlan) -> None:
        figures = self._run.figures[read.id]
        text = (
            f"{self._prefix(read)}done in {figures.seconds:,.0f} s: {figures.read:,} records read"
        )
        counts = {"committed": figures.committed, "rejected": figures.rejected}
        self._log_progress(", ".join([text, *(f"{n:,} {what}" for what, n in counts.items() if n)]))
        if figures.undeclared:
            self._log_undeclared(read, figures.undeclared)

    def _log_undeclared(self, read: StreamPlan, counts: Mapping[str, int]) -> None:
        done = (
            f"kept in the column {fields.UNDECLARED}"
            if read.of.wanted.on_undeclared == "keep"
            else "not stored; declare them in catalog.json (`elt discover`), or set `on_undeclared: keep`"
        )
        found = undeclared.described(counts)
        self._log.info(
            f"{self._prefix(read)}fields that the catalog does not declare: {found}; they are {done}"
        )

    def _warn_of_schema(self, read: StreamPlan, change: str) -> None:
        self._log.warning(f"{self._prefix(read)}the schema has changed: {change}")

    def _prefix(self, read: StreamPlan) -> str:
        return f"{read.id}: " if len(self._reads) > 1 else ""
