"""Report a read to Dagster: log lines, an observation for each commit but the last, and metadata of events.

`planning`, `step` and `source_jobs` log what a connector prints with `connector_lines`; `materialize` watches
reads with `WATCH`.

First `connector_lines`, then the summary of a materialisation, then `ReportedRead`, which the IO manager
runs, and which has the metadata of each stream's event.

What a kill leaves, so that no commit stays without an event:

- STATE_OBSERVED: an event that names the commit. The next run goes on after it.
- STREAM_COMPLETE: a commit without an event. Its sequence is in the table, and greater than that of the last
  event, so the next run of the stream or partition reports it (`EVENT_RECOVERED`).

Test: `tests/orchestration/test_crash_events.py::test_partitions_survive_a_kill_between_commit_and_event`
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import dagster as dg

from elt_assets.connection.automation import Follow
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.maintenance import combine_small_files
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.merge import partition_files
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.blocks import parse_name
from elt_assets.orchestration.continuous import Turns
from elt_assets.orchestration.days import days_metadata
from elt_assets.orchestration.metadata import (
    GENERATION,
    ICEBERG_LAG,
    MAX_MEASURES,
    NOT_PUBLISHED,
    ROW_COUNT,
    SCHEMA_CHANGES,
    TABLE_VERSION,
    commit_metadata,
    dead_letter_metadata,
    figures_metadata,
    figures_of,
    lag_metadata,
    measures_metadata,
    publication_metadata,
    schema_metadata,
    source_metadata,
    table_metadata,
    unwrap,
)
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.table_events import TableEvents
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import (
    SyncFigures,
    describe_losses,
    describe_undeclared,
    report_phases,
)
from elt_assets.pipeline.publication import show_name_of
from elt_assets.pipeline.read import run_read
from elt_assets.pipeline.stream import cluster_columns
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import SOURCE_COMMIT_TIME
from elt_assets.runner.connector_log import LogFunction
from elt_assets.sync.events import (
    Acknowledged,
    Estimated,
    Logged,
    Measured,
    SessionEvent,
    Settled,
)
from elt_assets.sync.source_lag import SourceLag

LAST_LINES = 30
"""Number of lines that are shown if the connector fails."""
MAX_LINE = 500
"""Maximum number of characters of each of them."""
SHOWS_DETAILS: ContextVar[bool] = ContextVar("shows_details", default=False)
"""Whether all lines of connectors go to stderr, which Dagster stores as the compute log: `--verbose`."""
_EVENTS = {"FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING}


@contextlib.contextmanager
def connector_lines(log: dg.DagsterLogManager) -> Iterator[LogFunction]:
    """Yield a function that logs a line of a connector; log the last lines if the block fails.

    A quiet sync says little: only warnings and errors of a connector are lines of the run. All others are
    shown and stored only if the instance asks for DEBUG. They matter when something fails: then the last of
    them become one line of the run, which is stored and shown.
    """
    last: deque[str] = deque(maxlen=LAST_LINES)
    # An instance without a level shows and stores every line: it has not asked for those of connectors.
    asks_for_debug = logging.NOTSET < log.level <= logging.DEBUG

    def write(level: str, text: str) -> None:
        line = f"{level} {text}"
        if level in _EVENTS:
            log.log(_EVENTS[level], text)
        elif SHOWS_DETAILS.get():
            sys.stderr.write(f"{line}\n")
        elif asks_for_debug:
            log.debug(line)
        else:
            last.append(line[:MAX_LINE])

    try:
        yield write
    except Exception:  # also a fault of the machine, which becomes an error of this project later
        if last:
            log.warning("\n".join(["the last lines of the connector's log:", *last]))
        raise


SUMMARY = "elt/summary"
POLICY = "elt/policy"
_MAX_FIELDS = 5
"""Maximum number of fields that the summary names."""


def summary_metadata(events: TableEvents, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the summary of an event that is not logged yet.

    Args:
        events: the events of the table, or of its partition, before this one.
    """
    former = events.newest_materialization()
    lines = (
        summarize(metadata, None)
        if former is None
        else summarize(metadata, former.metadata, former.timestamp)
    )
    return {SUMMARY: dg.MetadataValue.md("\n".join(f"- {line}" for line in lines))}


def summarize(
    metadata: Mapping[str, Any], former: Mapping[str, Any] | None, timestamp: float = 0.0
) -> list[str]:
    """Return the lines of a summary: how many rows there are, whether all is well, and what has changed.

    It is the text that answers at a glance. Everything in it is from the other metadata of the event, and
    from the event of the same table (or partition of it) before it.

    Args:
        metadata: the metadata of the event.
        former: the metadata of the event before it; None if it is the first one.
        timestamp: the time of that event, in seconds since 1970.
    """
    figures = figures_of(metadata)
    lines = [_describe_rows(metadata, former), _describe_health(metadata)]
    if former is None:
        return [*lines, "the first materialisation"]
    changes = list(_changes(metadata, former))
    if figures.committed:
        changes.insert(0, f"{_count(figures.committed, 'record')} committed")
    time = dt.datetime.fromtimestamp(timestamp, dt.timezone.utc)
    text = "; ".join(changes) or "nothing"
    return [*lines, f"changed since {time:%Y-%m-%d %H:%M} UTC: {text}"]


def _describe_rows(metadata: Mapping[str, Any], former: Mapping[str, Any] | None) -> str:
    rows = unwrap(metadata.get(ROW_COUNT))
    if rows is None:  # a table of another destination
        return f"**{_count(figures_of(metadata).committed, 'record')}** committed"
    before = None if former is None else unwrap(former.get(ROW_COUNT))
    growth = f" ({rows - before:+,})" if isinstance(before, int) and before != rows else ""
    return f"**{_count(rows, 'row')}**{growth}"


def _describe_health(metadata: Mapping[str, Any]) -> str:
    figures = figures_of(metadata)
    undeclared = sum(figures.undeclared.values())
    problems = [
        f"{_count(count, noun)} {text}"
        for count, noun, text in (
            (figures.rejected, "record", "rejected: see the dead letter"),
            (figures.changed, "record", f"with values that did not fit{_list_fields(figures)}"),
            (undeclared, "value", "of fields that the catalog does not declare"),
        )
        if count
    ]
    return "; ".join(problems) or "every record was stored as it came"


def _list_fields(figures: SyncFigures) -> str:
    """Return the fields with changed values, those of most records first."""
    most = sorted(figures.changed_fields.items(), key=lambda item: (-item[1], item[0]))
    fields = list(dict.fromkeys(parse_name(name).field for name, _ in most))
    rest = " …" if len(fields) > _MAX_FIELDS else ""
    return f" ({', '.join(fields[:_MAX_FIELDS])}{rest})" if fields else ""


def _changes(metadata: Mapping[str, Any], former: Mapping[str, Any]) -> Iterator[str]:
    yield from unwrap(metadata.get(SCHEMA_CHANGES)) or ()
    for key, name in ((POLICY, "policy"), (GENERATION, "generation")):
        value, before = unwrap(metadata.get(key)), unwrap(former.get(key))
        if before is not None and value != before:
            yield f"{name} {before} → {value}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
        self._lake: LakeResource = context.resources.elt_lake
        self._measures: dict[str, float] = {}
        self._lag = SourceLag()
        self._reported: dict[StreamId, SyncFigures] = {}
        settings = read.connection.follow
        self._turns = Turns(list(read.streams), settings or Follow()) if read.follows else None

    def report_streams(self) -> Iterator[CompleteStream]:
        """Read to the end; yield each stream when it is complete, and in turns while its log is followed.

        Raises:
            EltError: see `run_read`; some streams may be complete before the error.
        """
        try:
            with (
                report_phases(self._read.current_progress, self._log_progress),
                WATCH.get()(self._read),
                connector_lines(self._log) as log_line,
                contextlib.closing(run_read(self._read)) as events,
            ):
                for event in events:
                    self._report(event, log_line)
                    if isinstance(event, Acknowledged) and event.completes:
                        plan = self._read.streams[event.stream]
                        self._log_end(plan)
                        yield self._complete(plan)
                    elif isinstance(event, Settled) and self._turns is not None:
                        yield from map(self._complete_turn, self._turns.take_due())
                        for stream in self._turns.take_fragmented():
                            self._combine_files(self._read.streams[stream])
        except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
            if self._turns is not None:  # whole windows are committed: a run is stopped like this
                yield from map(self._complete_turn, self._turns.take_changed())
            raise

    def _report(self, event: SessionEvent, log_line: LogFunction) -> None:
        self._lag.observe(event)
        if isinstance(event, Logged):
            log_line(event.level, event.message)
        elif isinstance(event, Estimated):
            prefix = "" if event.stream is None else self._read.prefix(event.stream)
            log_line("INFO", f"{prefix}{event.text}")
        elif isinstance(event, Measured) and event.name != SOURCE_COMMIT_TIME:
            self._measures[event.name] = event.value
            if (
                len(self._measures) > MAX_MEASURES
            ):  # the names are the source's; events have the first ones
                del self._measures[max(self._measures)]
        elif (
            isinstance(event, Acknowledged)
            and not event.completes
            and (self._turns is None or self._turns.note(event))
        ):
            self._observe(self._read.streams[event.stream], event)

    def _observe(self, plan: StreamPlan, event: Acknowledged) -> None:
        commit = event.commit
        acknowledged = CommitMetadata(commit.sequence, commit.generation, commit.state)
        table = plan.tables.main
        metadata = {
            **commit_metadata(table, acknowledged, commit.version),
            **self._figures(plan),
            **lag_metadata(self._lag.of(plan.id)),
        }
        key = dg.AssetKey(list(plan.asset.levels))
        self._log_event(dg.AssetObservation(key, metadata=metadata, partition=plan.partition))
        reach(Failpoint.STATE_OBSERVED)

    def _complete_turn(self, stream: StreamId) -> CompleteStream:
        """Return the present result of a stream whose log is followed on."""
        plan = self._read.streams[stream]
        self._warn_of_losses(plan)
        return self._complete(plan)

    def _combine_files(self, plan: StreamPlan) -> None:
        """Combine the small files of a stream's tables, between two of its commits."""
        tables = plan.asset.tables(self._lake.location)
        columns = cluster_columns(plan.asset.settings, plan.asset.make_stored_stream())
        fewer = combine_small_files(self._spark.get(), tables, columns)
        self._log.debug(f"{self._read.prefix(plan.id)}{fewer} fewer files")

    def _complete(self, plan: StreamPlan) -> CompleteStream:
        """Return a stream with the metadata of its event, whose figures are those since its last event."""
        reach(Failpoint.STREAM_COMPLETE)
        read, table = self._read, plan.tables.main
        metadata = {
            **commit_metadata(table),
            **self._figures(plan),
            **(self._table_metadata(plan) if read.stores_rows else {}),
            **self._source_metadata(plan),
            **schema_metadata(read.schema_changes(plan.id)),
            **measures_metadata(self._measures),
            **lag_metadata(self._lag.of(plan.id)),
            **self._publication_metadata(plan),
        }
        self._reported[plan.id] = read.figures(plan.id)
        key = dg.AssetKey(list(plan.asset.levels))
        events = TableEvents(self._instance, key, table, plan.partition)
        summary = summary_metadata(events, metadata)
        days = days_metadata(
            TableEvents(self._instance, key, table), metadata, dt.datetime.now(dt.timezone.utc)
        )
        return CompleteStream(plan, {**summary, **metadata, **days})

    def _source_metadata(self, plan: StreamPlan) -> dict[str, Any]:
        """Return what the source has said of a stream, when it has ended: of all of it, or nothing."""
        progress = self._read.progress(plan.id)
        if self._turns is None:
            return source_metadata(progress)
        return source_metadata(replace(progress, counted=None)) if self._read.source_ended else {}

    def _count(self, plan: StreamPlan) -> SyncFigures:
        """Return the figures of a stream since its last event of this read."""
        figures, reported = self._read.figures(plan.id), self._reported.get(plan.id)
        return figures if reported is None else figures - reported

    def _figures(self, plan: StreamPlan) -> dict[str, Any]:
        policy = {POLICY: plan.stream.destination_sync_mode}
        return {**figures_metadata(self._count(plan)), **policy}

    def _table_metadata(self, plan: StreamPlan) -> Mapping[str, Any]:
        table, partition = plan.tables.main, plan.partition
        rows = None if partition is None else partition_files.count(self._spark, table, partition)
        landed = plan.asset.make_stored_stream()
        name, display_name = plan.asset.name_of(table), show_name_of(plan.asset, table)
        values = table_metadata(table, name, landed, partition_rows=rows, display_name=display_name)
        return {**values, **dead_letter_metadata(plan.tables)}

    def _publication_metadata(self, plan: StreamPlan) -> Mapping[str, Any]:
        """Return the metadata of where a stream's table is published.

        If the catalog does not say what it has, that is what the last event says, at the least.
        """
        values = publication_metadata(*self._read.describe_publication(plan.id))
        if NOT_PUBLISHED not in values or ICEBERG_LAG in values:
            return values
        table, key = plan.tables.main, dg.AssetKey(list(plan.asset.levels))
        former = TableEvents(self._instance, key, table).newest_materialization()
        lag = None if former is None else unwrap(former.metadata.get(ICEBERG_LAG))
        if former is None or lag is None:
            return values
        published = int(unwrap(former.metadata[TABLE_VERSION])) - int(lag)
        return {**values, ICEBERG_LAG: table.version - published}

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
        self._warn_of_losses(plan)
        if added := self._read.list_added_fields(plan.id):
            self._log.warning(
                f"{prefix}columns were added for fields that the catalog does not declare: "
                f"{', '.join(added)}. Rows from before have null in them: `elt backfill` fills them"
            )

    def _warn_of_losses(self, plan: StreamPlan) -> None:
        """Log what was not stored as it came since the last event of the stream."""
        figures, prefix = self._count(plan), self._read.prefix(plan.id)
        for loss in describe_losses(figures):
            self._log.warning(f"{prefix}{loss}", extra=IN_RESULT)
        if figures.undeclared:
            undeclared = describe_undeclared(plan.asset, figures.undeclared)
            log = (
                self._log.warning if plan.asset.settings.on_undeclared == "warn" else self._log.info
            )
            log(f"{prefix}{undeclared}", extra=IN_RESULT)
