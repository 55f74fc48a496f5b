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
from elt_assets.orchestration.events.metadata import SEQUENCE

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
    metadata, known = table.metadata, last_sequence(instance, key, partition)
    if not os.environ.get("DAGSTER_HOME"):
        warning = (
            "DAGSTER_HOME is not set, so the events of this run will be lost; "
            f"its files are in {paths.home()}, and the table is {table.uri}"
        )
        if metadata.sequence:
            warning += f"; the state comes from the table (sequence {metadata.sequence})"
        return StartingPoint(metadata, (warning,))
    if metadata.restored:
        return StartingPoint(metadata, (_restored_warning(table),))
    if known is not None and known > metadata.sequence:
        return StartingPoint(metadata, (_ahead_warning(known, table),))
    if metadata.sequence > (known or 0):
        return StartingPoint(metadata, (_behind_warning(known, table),), is_unreported=True)
    return StartingPoint(metadata)


def last_sequence(
    instance: DagsterInstance, key: dg.AssetKey, partition: str | None = None
) -> int | None:
    """Return the sequence in the newest materialisation or observation of the asset; None if there is none.

    The newest event is used and not the highest sequence: after a rollback the sequence restarts.
    """
    found: dict[int, int] = {}
    partitions = [partition] if partition is not None else None
    records = AssetRecordsFilter(asset_key=key, asset_partitions=partitions)
    for record in (
        *instance.fetch_materializations(records, limit=1).records,
        *instance.fetch_observations(records, limit=MAX_OBSERVATIONS).records,
    ):
        event = record.asset_materialization or record.event_log_entry.asset_observation
        value = event.metadata.get(SEQUENCE) if event else None
        if value is not None and isinstance(value.value, int):
            found[record.storage_id] = value.value
    return found[max(found)] if found else None


def _restored_warning(table: Table) -> str:
    return (
        f"the table {table.uri} was restored to an older version. The sync starts from the state of this "
        "version and reads later data again."
    )


def _ahead_warning(known: int, table: Table) -> str:
    return (
        f"the last event refers to commit {known}, but the table {table.uri} is at commit "
        f"{table.metadata.sequence}: it was rolled back or deleted. The sync starts from the state of the "
        "table and reads later data again."
    )


def _behind_warning(known: int | None, table: Table) -> str:
    gap = f"ends at commit {known}" if known is not None else "has no commit"
    return (
        f"the table {table.uri} is at commit {table.metadata.sequence}, but the event log {gap}: "
        "an earlier run ended before it reported the commit. The sync starts from the state of the table and "
        "reports the missing event."
    )
