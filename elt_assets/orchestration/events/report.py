"""Report a read to a Dagster run: log lines, an observation for each commit, and the events of streams.

What a kill leaves, so that no commit stays without an event:

- STATE_OBSERVED: an event that names the commit. The next run goes on after it.
- STREAM_COMPLETE: a commit without an event. Its sequence is in the table, and greater than that of the last
  event, so the next run of the stream or partition reports it (`EVENT_RECOVERED`).

Test: `tests/orchestration/test_crash_events.py::test_partitions_survive_a_kill_between_commit_and_event`
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import dagster as dg

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.merge import partition_files
from elt_assets.lake.session import SparkProvider
from elt_assets.orchestration.events.connector_log import connector_lines
from elt_assets.orchestration.events.metadata import (
    MAX_MEASURES,
    commit_metadata,
    dead_letter_metadata,
    figures_metadata,
    measures_metadata,
    schema_metadata,
    source_metadata,
    table_metadata,
)
from elt_assets.orchestration.events.summary import POLICY, summary_metadata
from elt_assets.orchestration.events.table_events import TableEvents
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import describe_losses, describe_undeclared, report_phases
from elt_assets.pipeline.read import run_read
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.runner.connector_log import LogFunction
from elt_assets.sync.events import Acknowledged, Estimated, Logged, Measured, SessionEvent

Watch: TypeAlias = Callable[[ConnectionRead], contextlib.AbstractContextManager[object]]
"""Factory of a context manager that is active while a read runs."""
WATCH: ContextVar[Watch] = ContextVar("watch", default=contextlib.nullcontext)
"""Observer of the reads in this thread, for example the progress display of the command line."""


@dataclass(frozen=True)
class CompleteStream:
    """A fully committed stream, and the metadata of its event."""

    plan: StreamPlan
    metadata: Mapping[str, Any]


IN_RESULT: Mapping[str, Any] = MappingProxyType({"elt_in_result": True})
"""The `extra` of a log line about what the result of a run has too. Who shows the result leaves it out."""


class ReportedRead:
    """Runs a read and reports it to a Dagster run.

    Args:
        context: the context of the step that the read belongs to.
    """

    def __init__(
        self, spark: SparkProvider, context: dg.AssetExecutionContext, read: ConnectionRead
    ):
        self._spark = spark
        self._log = context.log
        self._log_event = context.log_event
        self._instance = context.instance
        self._read = read
        self._measures: dict[str, float] = {}

    def report_streams(self) -> Iterator[CompleteStream]:
        """Read to the end; yield each stream when it is complete.

        Raises:
            EltError: see `run_read`; some streams may be complete before the error.
        """
        with (
            report_phases(self._read.current_progress, self._log_progress),
            WATCH.get()(self._read),
            connector_lines(self._log) as log_line,
            contextlib.closing(run_read(self._read)) as events,
        ):
            for event in events:
                self._report(event, log_line)
                if isinstance(event, Acknowledged) and event.final:
                    reach(Failpoint.STREAM_COMPLETE)
                    yield self._complete(self._read.streams[event.stream])

    def _report(self, event: SessionEvent, log_line: LogFunction) -> None:
        if isinstance(event, Logged):
            log_line(event.level, event.message)
        elif isinstance(event, Estimated):
            prefix = "" if event.stream is None else self._read.prefix(event.stream)
            log_line("INFO", f"{prefix}{event.text}")
        elif isinstance(event, Measured):
            self._measures[event.name] = event.value
            if (
                len(self._measures) > MAX_MEASURES
            ):  # the names are the source's; events have the first ones
                del self._measures[max(self._measures)]
        elif isinstance(event, Acknowledged) and not event.final:
            self._observe(self._read.streams[event.stream], event)

    def _observe(self, plan: StreamPlan, event: Acknowledged) -> None:
        commit = event.commit
        acknowledged = CommitMetadata(commit.sequence, commit.generation, commit.state)
        table = plan.tables.main
        metadata = {**commit_metadata(table, acknowledged, commit.version), **self._figures(plan)}
        key = dg.AssetKey(list(plan.asset.levels))
        self._log_event(dg.AssetObservation(key, metadata=metadata, partition=plan.partition))
        reach(Failpoint.STATE_OBSERVED)

    def _complete(self, plan: StreamPlan) -> CompleteStream:
        read, table = self._read, plan.tables.main
        metadata = {
            **commit_metadata(table),
            **self._figures(plan),
            **(self._table_metadata(plan) if read.stores_rows else {}),
            **source_metadata(read.progress(plan.id)),
            **schema_metadata(read.schema_changes(plan.id)),
            **measures_metadata(self._measures),
        }
        self._log_end(plan)
        key = dg.AssetKey(list(plan.asset.levels))
        events = TableEvents(self._instance, key, table, plan.partition)
        summary = summary_metadata(events, metadata)
        return CompleteStream(plan, {**summary, **metadata})

    def _figures(self, plan: StreamPlan) -> dict[str, Any]:
        policy = {POLICY: plan.stream.destination_sync_mode}
        return {**figures_metadata(self._read.figures(plan.id)), **policy}

    def _table_metadata(self, plan: StreamPlan) -> Mapping[str, Any]:
        table, partition = plan.tables.main, plan.partition
        rows = None if partition is None else partition_files.count(self._spark, table, partition)
        landed = plan.asset.make_stored_stream()
        values = table_metadata(table, plan.asset.name_of(table), landed, partition_rows=rows)
        return {**values, **dead_letter_metadata(plan.tables)}

    def _log_progress(self, text: str) -> None:
        partition = self._read.partition
        self._log.info(text if partition is None else f"partition {partition}: {text}")

    def _log_end(self, plan: StreamPlan) -> None:
        figures, prefix = self._read.figures(plan.id), self._read.prefix(plan.id)
        text = f"{prefix}done in {figures.seconds:,.0f} s: {figures.read:,} records read"
        counts = {
            "filtered out": figures.filtered,
            "committed": figures.committed,
            "rejected": figures.rejected,
            "changed": figures.changed,
            "documents": figures.documents,
        }
        self._log_progress(", ".join([text, *(f"{n:,} {name}" for name, n in counts.items() if n)]))
        for loss in describe_losses(figures):
            self._log.warning(f"{prefix}{loss}", extra=IN_RESULT)
        if figures.undeclared:
            undeclared = describe_undeclared(plan.asset, figures.undeclared)
            self._log.info(f"{prefix}{undeclared}", extra=IN_RESULT)
