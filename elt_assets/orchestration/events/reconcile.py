"""Compare the state of a table with the event log before a sync.

The state of the table is always used, because it was committed with the data. The event log can be behind
the table (a run was killed between commit and event) or ahead of it (the table was restored or deleted).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import dagster as dg
from dagster import AssetRecordsFilter, DagsterInstance

from elt_assets import paths
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.stream_tables import StreamTables, app_id
from elt_assets.orchestration.events.metadata import GENERATION, SEQUENCE, unwrap
from elt_assets.orchestration.runs.liveness import has_died
from elt_assets.pipeline.connection_stream import ConnectionStream

RECENT_COMMITS = 20
"""Number of commits in which to look for runs that were killed before they reported their last one."""
MAX_OBSERVATIONS = 20
"""Number of observations to search. Some, for example those of drift, do not refer to a commit."""


@dataclass(frozen=True)
class StartingPoint:
    """The commit that the next sync of a stream starts from.

    `warnings`: lines for the log. `is_unreported`: the event log has no event for this commit.
    """

    metadata: CommitMetadata
    warnings: tuple[str, ...] = ()
    is_unreported: bool = False


def reconcile(
    instance: DagsterInstance, key: dg.AssetKey, table: Table, partition: str | None = None
) -> StartingPoint:
    """Compare the table of a stream, or one of its partitions, with the events of the asset."""
    metadata, reported_sequence = table.metadata, last_sequence(instance, key, partition)
    if not os.environ.get("DAGSTER_HOME"):
        warning = (
            "DAGSTER_HOME is not set, so the events of this run will be lost; "
            f"its files are in {paths.home()}, and the table is {table.uri}"
        )
        if metadata.sequence:
            warning += f"; the state comes from the table (sequence {metadata.sequence})"
        return StartingPoint(metadata, (warning,))
    if metadata.restored:
        return StartingPoint(metadata, (_restore_warning(table),))
    if reported_sequence is not None and reported_sequence > metadata.sequence:
        return StartingPoint(metadata, (_ahead_warning(reported_sequence, table),))
    if metadata.sequence > (reported_sequence or 0):
        return StartingPoint(
            metadata, (_behind_warning(reported_sequence, table),), is_unreported=True
        )
    return StartingPoint(metadata)


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
    records = AssetRecordsFilter(dg.AssetKey(list(of.levels)), asset_partitions=[partition])
    newest = instance.fetch_materializations(records, limit=1).records
    event = newest[0].asset_materialization if newest else None
    reported = 0 if event is None else unwrap(event.metadata.get(GENERATION, 0))
    return bool(metadata.generation > reported)


def last_sequence(
    instance: DagsterInstance, key: dg.AssetKey, partition: str | None = None
) -> int | None:
    """Return the sequence in the newest materialisation or observation of the asset; None if there is none.

    The newest event is used and not the highest sequence: after a rollback the sequence restarts.
    """
    sequences: dict[int, int] = {}
    partitions = [partition] if partition is not None else None
    records = AssetRecordsFilter(asset_key=key, asset_partitions=partitions)
    for record in (
        *instance.fetch_materializations(records, limit=1).records,
        *instance.fetch_observations(records, limit=MAX_OBSERVATIONS).records,
    ):
        event = record.asset_materialization or record.event_log_entry.asset_observation
        value = event.metadata.get(SEQUENCE) if event else None
        if value is not None and isinstance(value.value, int):
            sequences[record.storage_id] = value.value
    return sequences[max(sequences)] if sequences else None


def _restore_warning(table: Table) -> str:
    return (
        f"the table {table.uri} was restored to an older version. The sync starts from the state of this "
        "version and reads later data again."
    )


def _ahead_warning(reported_sequence: int, table: Table) -> str:
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
