"""Compare the state of a table with the event log before a sync.

The state of the table is always used, because it was committed with the data. The event log can be behind
the table (a run was killed between commit and event) or ahead of it (the table was restored or deleted). Only
events of the same table are compared with it (`table_events`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster import DagsterInstance

from elt_assets import paths
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables, app_id
from elt_assets.orchestration.events.metadata import GENERATION, SEQUENCE, unwrap
from elt_assets.orchestration.events.table_events import Relation, TableEvent, TableEvents
from elt_assets.orchestration.runs.liveness import has_died
from elt_assets.pipeline.stream import ConnectionStream

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
