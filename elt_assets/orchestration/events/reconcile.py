"""Where a sync starts from: the table's own state, compared with what the event log last said.

The table is right, always: its state was committed with its data. The event log mirrors it, and may
lag (a run was killed between commit and event) or lead (the table was restored or deleted).
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

FEW = 20
"""Observations to look at: some, of drift say, tell of no commit."""


@dataclass(frozen=True)
class Standing:
    """What a stream's next sync starts from.

    `warnings` are for the log; `unreported` says that the event log lacks the table's last commit.
    """

    head: CommitMetadata
    warnings: tuple[str, ...] = ()
    unreported: bool = False


def reconcile(
    instance: DagsterInstance, key: dg.AssetKey, table: Table, partition: str | None = None
) -> Standing:
    """Compare a stream's table, or one partition's part of it, with its events; the table's state is
    used in every case."""
    head, known = table.head, last_sequence(instance, key, partition)
    if not os.environ.get("DAGSTER_HOME"):
        warning = (
            "DAGSTER_HOME is not set, so this run's events will be lost; "
            f"what is kept of it is in {paths.home()}, the table in {table.uri}"
        )
        if head.sequence:
            warning += f"; the cursor comes from the table (sequence {head.sequence})"
        return Standing(head, (warning,))
    if head.restored:
        return Standing(head, (_restored(table),))
    if known is not None and known > head.sequence:
        return Standing(head, (_leads(known, table),))
    unreported = head.sequence > (known or 0)
    return Standing(head, (_lags(known, table),) if unreported else (), unreported)


def last_sequence(
    instance: DagsterInstance, key: dg.AssetKey, partition: str | None = None
) -> int | None:
    """What the newer of the asset's latest materialisation and latest observation says. Not the
    higher one: after a rollback the sequence begins anew."""
    found: dict[int, int] = {}
    wanted = [partition] if partition is not None else None
    records = AssetRecordsFilter(asset_key=key, asset_partitions=wanted)
    for record in (
        *instance.fetch_materializations(records, limit=1).records,
        *instance.fetch_observations(records, limit=FEW).records,
    ):
        event = record.asset_materialization or record.event_log_entry.asset_observation
        value = event.metadata.get(SEQUENCE) if event else None
        if value is not None and isinstance(value.value, int):
            found[record.storage_id] = value.value
    return found[max(found)] if found else None


def _restored(table: Table) -> str:
    return (
        f"the table {table.uri} was restored to an older version, whose state is used: "
        "what came after it is read again."
    )


def _leads(known: int, table: Table) -> str:
    return (
        f"the last event tells of commit {known}, but the table {table.uri} is at "
        f"{table.head.sequence}: it was rolled back or deleted. The table's state is used; "
        "what came after it is read again."
    )


def _lags(known: int | None, table: Table) -> str:
    told = f"stops at commit {known}" if known is not None else "tells of no commit"
    return (
        f"the table {table.uri} is at commit {table.head.sequence}, but the event log {told}: "
        "an earlier run ended before it could tell. The table's state is used, and the missing "
        "event reported."
    )
