"""Retries: a retry of a step reads only what no earlier attempt has completed.

A retry of the step has the same run. A run that re-executes a failed one *from failure*, by hand or by
`dagster/max_retries`, names that one as its parent. Every other run is a new request and reads all that it
selects. Like Dagster, which does not execute a complete step again, a retry leaves what is complete as it is,
also if the config or the code has changed since.

A partition is complete if an attempt has made its newest commit and the event of this commit: a read is
reported after its last commit. So a partition that was restored, deleted, given another state or read by
another run is read again. An attempt that was killed between commit and event has not reported its last
partition. That is why the next run of the stream first reports what killed runs owe.

Tests: `tests/orchestration/test_partition_retries.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from elt_assets.orchestration.assets.read_events import CommittedRead, ReadReporter
from elt_assets.orchestration.events.metadata import SEQUENCE, unwrap
from elt_assets.orchestration.events.reconcile import (
    is_unreported_read,
    keeps_events,
    partitions_of_dead_runs,
)
from elt_assets.orchestration.events.table_events import TableEvents
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import FULL_REFRESH


class EarlierAttempts:
    """The earlier attempts of a step to read the partitions of a stream, as reported until now."""

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
