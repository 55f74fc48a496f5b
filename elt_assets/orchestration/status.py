"""The status of each stream of a connection, for `elt status`: its last sync and its table.

First `LastSync`, from Dagster's event log: when it was, and how it ended; then `stream_statuses`.

A stream is complete in a run if it was materialised there, whatever became of the rest of the run: a run
reads several streams, and a blocking check fails it after the commit. A run of several partitions
materialises some of them before it fails, so there the end of its step decides.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import dagster as dg
from dagster import DagsterEventType, DagsterInstance

from elt_assets.errors import EltError
from elt_assets.lake.delta.table import Table
from elt_assets.machine_faults import translated
from elt_assets.orchestration.checks import check_specs
from elt_assets.orchestration.materialize import is_blocked, message_of
from elt_assets.orchestration.metadata import RECORDS_READ, figures_of
from elt_assets.orchestration.runs.liveness import DIED, has_died
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import (
    TableEvent,
    TableEvents,
    find_newest_run,
    is_of_lake,
)
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.pipeline.publication import CatalogLook, PublishedState
from elt_assets.pipeline.stream_plan import source_state
from elt_assets.protocol.catalog import stream_names
from elt_assets.storage.location import Location

Result = Literal["complete", "failed", "running", "queued", "never", "unknown"]
"""`unknown`: the table was synced, but Dagster has no event of it: it has another name, or another home."""
_ENDS = {
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.RUN_FAILURE,
    DagsterEventType.RUN_CANCELED,
}
_WAITING = {dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED}


@dataclass(frozen=True)
class SyncFailure:
    """A run that did not complete a stream: when it ended, and the first line of the reason."""

    time: dt.datetime
    run_id: str
    message: str


@dataclass(frozen=True)
class StoredCheck:
    """The latest result of a check that failed. `severity`: ERROR or WARN."""

    check: str
    severity: str


@dataclass(frozen=True)
class LastSync:
    """How a stream stands."""

    result: Result  # of the newest run that was to sync the stream
    complete: dt.datetime | None = None  # the time of the last complete sync; None if there is none
    run_id: str | None = None  # the run of that sync
    figures: SyncFigures | None = None  # those of that sync
    # Why the newest run did not complete the stream; None if it did.
    failure: SyncFailure | None = None


def find_last_sync(
    asset: StreamAsset, table: Table | None, lake: str, instance: DagsterInstance
) -> LastSync:
    """Return the last sync of a stream into a lake.

    Args:
        table: the stream's table; None if it cannot be opened.
    """
    events = TableEvents(instance, asset.key, table or Location(lake))
    event = events.newest_materialization(RECORDS_READ)  # one without figures is of no sync
    done = LastSync("never") if event is None else _describe(event)
    run = find_newest_run(instance, asset.key, lake)
    if run is None:
        return done
    result, failure = _judge(asset, run, done, instance)
    return LastSync(result, done.complete, done.run_id, done.figures, failure)


def find_failed_checks(
    asset: StreamAsset, lake: str, instance: DagsterInstance
) -> Sequence[StoredCheck]:
    """Return the checks of a stream whose latest result is a failure, in a run of this lake."""
    keys = [dg.AssetCheckKey(asset.key, spec.name) for spec in check_specs(asset)]
    if not keys:
        return []
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    evaluations = [
        (record.run_id, record.event.dagster_event.asset_check_evaluation_data)
        for key in keys
        if (record := records.get(key)) is not None
        and record.event is not None
        and record.event.dagster_event is not None
        and record.event.dagster_event_type is DagsterEventType.ASSET_CHECK_EVALUATION
    ]
    return [
        StoredCheck(evaluation.check_name, str(evaluation.severity.value))
        for run_id, evaluation in evaluations
        if not evaluation.passed
        and ((run := instance.get_run_by_id(run_id)) is None or is_of_lake(run, lake))
    ]


def count_partitions(asset: StreamAsset, instance: DagsterInstance) -> Mapping[str, int] | None:
    """Return how many partitions a stream has, and how many of them are complete, failed and in progress.

    None for a stream without partitions.
    """
    if asset.partitions is None:
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        keys = asset.partitions.get_partition_keys()
        statuses = instance.get_status_by_partition(asset.key, keys, asset.partitions) or {}
    names = [status.value for status in statuses.values() if status is not None]
    return {
        "all": len(keys),
        "complete": names.count("MATERIALIZED"),
        "failed": names.count("FAILED"),
        "running": names.count("IN_PROGRESS"),
    }


def _describe(event: TableEvent) -> LastSync:
    return LastSync("complete", _utc(event.timestamp), event.run_id, figures_of(event.metadata))


def _judge(
    asset: StreamAsset, run: dg.DagsterRun, done: LastSync, instance: DagsterInstance
) -> tuple[Result, SyncFailure | None]:
    """Return what became of a stream in the newest run that was to sync it."""
    is_partitioned = asset.partitions is not None
    if done.run_id == run.run_id and not is_partitioned:
        return "complete", None
    if not run.is_finished:
        if has_died(instance, run.run_id):
            return "failed", SyncFailure(_last_change(run, instance), run.run_id, DIED)
        return ("queued" if run.status in _WAITING else "running"), None
    failure = _find_failure(asset, run, instance)
    return (done.result, None) if failure is None else ("failed", failure)


def _find_failure(
    asset: StreamAsset, run: dg.DagsterRun, instance: DagsterInstance
) -> SyncFailure | None:
    """Return why a run that has ended did not complete a stream; None if the step of the stream did."""
    if run.is_success:
        return None
    records = instance.get_records_for_run(run.run_id, of_type=_ENDS).records
    events = [(record, record.event_log_entry.dagster_event) for record in records]
    own = [entry for entry in events if entry[1] and entry[1].step_key == asset.step_name]
    of_run = [entry for entry in events if entry[1] and entry[1].step_key is None]
    for record, event in [*own[-1:], *of_run[-1:]]:
        assert event is not None
        if not event.is_step_failure:
            reason = event.message or event.event_type.value
        elif is_blocked(event.step_failure_data):
            return None
        else:
            reason = message_of(event.step_failure_data)
        if event.event_type is DagsterEventType.STEP_SUCCESS:
            return None
        line = next(iter(reason.strip().splitlines()), "")
        return SyncFailure(_utc(record.timestamp), run.run_id, line)
    return SyncFailure(_utc(0), run.run_id, f"the run ended as {run.status.value}")


def _last_change(run: dg.DagsterRun, instance: DagsterInstance) -> dt.datetime:
    """Return when Dagster last changed a run: the last sign of life of a killed one."""
    record = instance.get_run_record_by_id(run.run_id)
    if record is None:
        return _utc(0)
    time = record.update_timestamp
    return time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)


def _utc(timestamp: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp, dt.timezone.utc)


@dataclass(frozen=True)
class TableStatus:
    """The table of a stream."""

    # Their number; with another destination than the lake (`is_elsewhere`), the number of records that it
    # committed in all syncs.
    rows: int
    state: str | None  # the state in the table, without the protocol envelope, as JSON
    path: str  # the URI
    exists: bool  # whether there is a table
    is_elsewhere: bool
    committed: dt.datetime | None  # the time of the stream's newest commit
    # What is published of it in Iceberg; None if it is not to be published.
    published: PublishedState | None = None


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream."""

    stream: str
    policy: str
    sync: LastSync
    # Of the last sync, and the time of the last complete one; if Dagster has no event of a table, `unknown`,
    # and the time of its last commit.
    result: Result
    complete: dt.datetime | None
    failed_checks: Sequence[StoredCheck]
    partitions: Mapping[str, int] | None  # how many there are, by their state
    table: TableStatus | None  # None if it cannot be read; `error` says why
    error: EltError | None = None


def stream_statuses(
    assets: Sequence[StreamAsset], lake: Location | str, instance: dg.DagsterInstance
) -> list[StreamStatus]:
    """Return the status of each stream of a connection, in the given order."""
    names, catalog = stream_names([asset.stream.id for asset in assets]), CatalogLook()
    return [_status(asset, names[asset.stream.id], lake, instance, catalog) for asset in assets]


def _status(
    asset: StreamAsset,
    name: str,
    lake: Location | str,
    instance: dg.DagsterInstance,
    catalog: CatalogLook,
) -> StreamStatus:
    main: Table | None = None
    table: TableStatus | None = None
    error: EltError | None = None
    try:
        with translated():
            tables = asset.tables(lake)
            main = tables.main
            table = replace(
                _read_table(asset, main, instance), published=catalog.look(asset, tables)
            )
    except EltError as failure:
        error = failure
    sync = find_last_sync(asset, main, str(lake), instance)
    result, complete = sync.result, sync.complete
    if result == "never" and table is not None and table.exists:
        result, complete = "unknown", table.committed
    return StreamStatus(
        stream=name,
        policy=f"{asset.stream.sync_mode} → {asset.stream.destination_sync_mode}",
        sync=sync,
        result=result,
        complete=complete,
        failed_checks=find_failed_checks(asset, str(lake), instance),
        partitions=count_partitions(asset, instance),
        table=table,
        error=error,
    )


def _read_table(asset: StreamAsset, table: Table, instance: dg.DagsterInstance) -> TableStatus:
    destination = asset.connection.destination
    events = TableEvents(instance, asset.key, table)
    return TableStatus(
        rows=table.records
        if destination is None
        else sum(figures_of(event.metadata).committed for event in events.all_materializations()),
        state=source_state(table.metadata.state),
        path=table.uri,
        exists=table.exists,
        is_elsewhere=destination is not None,
        committed=next((commit.time for commit in table.past_commits()), None),
    )
