"""What earlier runs of a stream left: commits without an event, and partitions that a retry need not read.

`planning` calls `reconcile` just before a read; `step` uses the rest.

First `reconcile`, which compares the table of a stream with the event log before a sync; then
`EarlierAttempts`, and `report_killed_runs`, which reports what killed runs owe.

The state of the table is always used, because it was committed with the data. The event log can be behind the
table (a run was killed between commit and event) or ahead of it (the table was restored or deleted). Only
events of the same table are compared with it (`table_events`).

A retry of a step reads only what no earlier attempt has completed. A partition is complete if an attempt has
made its newest commit and the event of this commit: a read is reported after its last commit. So a partition
that was restored, deleted, given another state or read by another run is read again. An attempt that was
killed between commit and event has not reported its last partition. That is why the next run of the stream
first reports what killed runs owe.
Test: `tests/orchestration/test_partition_retries.py`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from elt_assets import paths
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables, app_id
from elt_assets.orchestration.metadata import GENERATION, SEQUENCE, unwrap
from elt_assets.orchestration.read_events import CommittedRead, ReadReporter
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.runs.liveness import has_died
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import Relation, TableEvent, TableEvents
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import FULL_REFRESH

RECENT_COMMITS = 20
"""Number of commits in which to look for runs that were killed before they reported their last one."""
WARNED = "elt/warned_of_lost_events"
"""Tag of a run whose log says that its events are not kept."""
_TEMPORARY_HOME = ".tmp_dagster_home_"
"""Beginning of the name of a home that a command of Dagster makes, and removes at its end."""


@dataclass(frozen=True)
class StartingPoint:
    """The commit that the next sync of a stream starts from."""

    metadata: CommitMetadata
    warnings: tuple[str, ...] = ()  # lines for the log
    is_unreported: bool = False  # the event log has no event for this commit


def reconcile(
    instance: DagsterInstance, key: dg.AssetKey, table: Table, partition: str | None = None
) -> StartingPoint:
    """Compare the table of a stream, or one of its partitions, with the events of the table."""
    metadata = table.metadata
    if not keeps_events(instance):  # those of earlier runs are gone, so nothing can be compared
        return StartingPoint(metadata)
    if metadata.restored:
        warning = (
            f"the table {table.uri} was restored to an older version. The sync starts from the state of this "
            "version and reads later data again."
        )
        return StartingPoint(metadata, (warning,))
    event = TableEvents(instance, key, table, partition).newest_commit()
    reported_sequence = None if event is None else int(unwrap(event.metadata[SEQUENCE]))
    if event is not None and (reported_sequence or 0) > metadata.sequence:
        return StartingPoint(metadata, (_ahead_warning(event, table),))
    if metadata.sequence > (reported_sequence or 0):
        return StartingPoint(
            metadata, (_behind_warning(reported_sequence, table),), is_unreported=True
        )
    return StartingPoint(metadata)


def keeps_events(instance: DagsterInstance) -> bool:
    """Return whether the events of a run are there after the process that executes it has ended."""
    is_temporary = Path(instance.root_directory).name.startswith(_TEMPORARY_HOME)
    return not (instance.is_ephemeral or is_temporary)


def describe_lost_events(instance: DagsterInstance, run_id: str) -> str | None:
    """Return the warning that the events of a run are not kept: once for each run, else None.

    The run remembers it by a tag, since its steps may be in several processes.
    """
    run = None if keeps_events(instance) else instance.get_run_by_id(run_id)
    if run is None or WARNED in run.tags:
        return None
    instance.add_run_tags(run_id, {WARNED: "true"})
    return (
        "DAGSTER_HOME is not set, so Dagster loses the events of this run when it ends. No row is lost: the "
        f"files are in {paths.home()}, and each stream goes on from the state in its table. To keep the "
        f"events, set DAGSTER_HOME to that folder, or run `elt sync`, which uses it by itself"
    )


def partitions_of_dead_runs(
    instance: DagsterInstance, of: ConnectionStream, table: Table
) -> list[str]:
    """Return the partitions that runs committed last, of the runs among the newest commits that have ended.

    A run reports each partition before it reads the next, so no other one can lack its event.
    """
    prefix, partitions = f"{app_id(of.levels)}|", list[str]()
    for run_id, writer in table.newest_by_run(RECENT_COMMITS).items():
        run = instance.get_run_by_id(run_id)
        has_ended = run is None or run.is_finished or has_died(instance, run_id)
        if has_ended and writer.startswith(prefix):
            partitions.append(writer.removeprefix(prefix))
    return partitions


def is_unreported_read(
    instance: DagsterInstance, of: ConnectionStream, tables: StreamTables, partition: str
) -> bool:
    """Return whether the newest commit of a partition completes a read that has no event.

    It completes one if the read replaced the rows of the partition: then its generation is a new one, and the
    refresh that built it has ended. Reads that resume from a state are not found.
    """
    metadata = tables.metadata
    if not of.make_stored_stream().overwrites or metadata.refresh is not None or metadata.restored:
        return False
    events = TableEvents(instance, dg.AssetKey(list(of.levels)), tables.main, partition)
    event = events.newest_materialization()
    reported = 0 if event is None else unwrap(event.metadata.get(GENERATION, 0))
    return bool(metadata.generation > reported)


def _ahead_warning(event: TableEvent, table: Table) -> str:
    reported_sequence = unwrap(event.metadata[SEQUENCE])
    if event.relation is Relation.SAME_TABLE:
        return (
            f"the last event of this table refers to commit {reported_sequence} at {event.place}, but the "
            f"table {table.uri} is at commit {table.metadata.sequence}: it is an older copy. The sync starts "
            "from the state of the copy and reads later data again."
        )
    return (
        f"the last event refers to commit {reported_sequence}, but the table {table.uri} is at commit "
        f"{table.metadata.sequence}: it was rolled back or deleted. The sync starts from the state of the "
        "table and reads later data again."
    )


def _behind_warning(reported_sequence: int | None, table: Table) -> str:
    gap = (
        f"ends at commit {reported_sequence}" if reported_sequence is not None else "has no commit"
    )
    return (
        f"the table {table.uri} is at commit {table.metadata.sequence}, but the event log {gap}: "
        "an earlier run ended before it reported the commit. The sync starts from the state of the table and "
        "reports the missing event."
    )


class EarlierAttempts:
    """The earlier attempts of a step to read the partitions of a stream, as reported until now.

    A retry of the step has the same run. A run that re-executes a failed one *from failure*, by hand or by
    `dagster/max_retries`, names that one as its parent. Every other run is a new request and reads all that
    it selects. Like Dagster, which does not execute a complete step again, a retry leaves what is complete as
    it is, also if the config or the code has changed since.
    """

    def __init__(
        self,
        asset: StreamAsset,
        lake: LakeResource,
        reporter: ReadReporter,
        context: dg.AssetExecutionContext,
    ):
        self._asset = asset
        self._lake = lake
        self._reporter = reporter
        self._run_ids = _run_ids(context)
        runs = dict.fromkeys([context.run.run_id, *self._run_ids]) if self._run_ids else {}
        events = [_events(asset.key, run_id, context.instance) for run_id in runs]
        self._reported_here = {event.partition for run in events[:1] for event in run}
        self._reads = _reads(event for run in reversed(events) for event in run)

    def find_completed_read(self, partition: str) -> CommittedRead | None:
        """Return the read of a partition that an attempt has completed; None if it must be read.

        The event is logged again in a new run: Dagster shows a partition as failed if a later run that failed
        has no event of it.
        """
        read = self._reads.get(partition)
        if read is None:
            return None
        tables = self._asset.tables(self._lake.location, partition)
        commit = tables.metadata
        if commit.restored or commit.run_id not in self._run_ids:
            return None
        if _sequence(read) != commit.sequence:
            return None
        if partition not in self._reported_here:
            self._reporter.report_again(read, tables)
        return read


def report_killed_runs(
    asset: StreamAsset,
    lake: LakeResource,
    reporter: ReadReporter,
    context: dg.AssetExecutionContext,
) -> None:
    """Report the partitions that killed runs committed and could not report."""
    if not keeps_events(context.instance):
        return
    table = asset.tables(lake.location).main
    for partition in partitions_of_dead_runs(context.instance, asset, table):
        tables = asset.tables(lake.location, partition)
        if is_unreported_read(context.instance, asset, tables, partition):
            context.log.warning(
                f"partition {partition}: an earlier run ended before it reported the commit; "
                "it is reported now"
            )
            reporter.report_recovered(partition, tables)


def complete_refreshes(
    assets: Sequence[StreamAsset], lake: LakeResource, context: dg.AssetExecutionContext
) -> set[dg.AssetKey]:
    """Return the full refreshes that an earlier attempt of this step has completed, of streams read together.

    The step fails if one of its streams does, and a retry runs it as a whole. A full refresh has no state to
    resume from: read once more, `append` would add all its rows again. An incremental stream resumes.
    """
    together = [asset for asset in assets if asset.connection.read_together]
    attempts, complete = _run_ids(context), set()
    for asset in together if attempts else ():
        table = asset.tables(lake.location).main
        event = TableEvents(context.instance, asset.key, table).newest_materialization()
        is_complete = event is not None and event.run_id in attempts
        if is_complete and asset.stream.sync_mode == FULL_REFRESH:
            context.log.info(f"{asset.name}: not read again, an earlier attempt has completed it")
            complete.add(asset.key)
    return complete


def _run_ids(context: dg.AssetExecutionContext) -> list[str]:
    """Return the ids of the runs that attempted this step before, the newest first."""
    run, run_ids = context.run, list[str]()
    if context.op_execution_context.retry_number:
        run_ids.append(run.run_id)
    while run.is_resume_retry and (parent_id := run.get_parent_run_id()) is not None:
        run_ids.append(parent_id)
        parent = context.instance.get_run_by_id(parent_id)
        if parent is None:
            break
        run = parent
    return run_ids


def _events(
    key: dg.AssetKey, run_id: str, instance: dg.DagsterInstance
) -> list[dg.AssetMaterialization]:
    """Return the events of an asset in a run, the oldest first."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    events = (entry.asset_materialization for entry in entries)
    return [event for event in events if event is not None and event.asset_key == key]


def _reads(events: Iterable[dg.AssetMaterialization]) -> dict[str, CommittedRead]:
    """Return the newest read of each partition, given the oldest event first.

    Of several events of one commit it is the first: the others are without the figures of the read.
    """
    reads: dict[str, CommittedRead] = {}
    for event in events:
        if event.partition is None:
            continue
        read = CommittedRead(event.partition, event.metadata)
        earlier = reads.get(event.partition)
        if earlier is None or _sequence(earlier) != _sequence(read):
            reads[event.partition] = read
    return reads


def _sequence(read: CommittedRead) -> Any:
    return unwrap(read.metadata.get(SEQUENCE))
