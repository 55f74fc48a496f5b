"""The last sync of each stream, from Dagster's event log, and the results of its checks.

`status` reads them, and `attention` judges them; `alert_sensor` asks why the last run of a job failed.

First the values; then `StoredEvents`, which has what Dagster knows of many streams from a few queries; then
what became of a stream in its newest run, the counts of its partitions, and why a job failed.

A stream is complete in a run if it was materialised there, whatever became of the rest of the run: a run
reads several streams, and a blocking check fails it after the commit. A run of several partitions
materialises some of them before it fails, so there the end of its step decides.

Dagster keeps the newest materialisation and the newest run of each asset, and gives those of all assets in
one query. Only where they are of another table than that of the stream (`table_events`) is the log of the
stream looked through. A run that has not ended yet may be newer than the last one that materialised.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeVar

import dagster as dg
from dagster import DagsterEventType, DagsterInstance
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from elt_assets.lake.delta.table import Table
from elt_assets.orchestration.checks import check_specs
from elt_assets.orchestration.days import Days, from_json
from elt_assets.orchestration.materialize import is_blocked, message_of
from elt_assets.orchestration.metadata import DAYS, RECORDS_READ, figures_of, unwrap
from elt_assets.orchestration.runs.liveness import DIED, IN_PROGRESS, has_died
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import (
    Relation,
    TableEvent,
    TableEvents,
    find_newest_run,
    is_of_lake,
    relate,
)
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.storage.location import Location

T = TypeVar("T")
_MAX_KEYS = 100
"""Number of assets in one query: SQLite limits the number of values in one."""

Result = Literal["complete", "failed", "running", "queued", "never", "unknown"]
"""`unknown`: the table was synced, but Dagster has no event of it: it has another name, or another home."""
_ENDS = {
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.RUN_FAILURE,
    DagsterEventType.RUN_CANCELED,
}
_WAITING = {dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED}
_PLANNED = DagsterEventType.ASSET_MATERIALIZATION_PLANNED


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

    @property
    def is_error(self) -> bool:
        return self.severity == dg.AssetCheckSeverity.ERROR.value


@dataclass(frozen=True)
class LastSync:
    """How a stream stands."""

    result: Result  # of the newest run that was to sync the stream
    complete: dt.datetime | None = None  # the time of the last complete sync; None if there is none
    run_id: str | None = None  # the run of that sync
    figures: SyncFigures | None = None  # those of that sync
    # Why the newest run did not complete the stream; None if it did.
    failure: SyncFailure | None = None
    # The metadata of the event of that sync, and the days before it in short.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    days: Days = field(default_factory=dict)


class StoredEvents:
    """What Dagster has of some streams.

    Args:
        lake: the root of the tables; runs and events of other lakes are left out.
    """

    def __init__(self, assets: Sequence[StreamAsset], lake: str, instance: DagsterInstance):
        self._lake, self._instance = lake, instance
        keys = [asset.key for asset in assets]
        self._entries = {
            record.asset_entry.asset_key: record.asset_entry
            for part in _parts(keys)
            for record in instance.get_asset_records(part)
        }
        self._checks = {asset.key: [spec.key for spec in check_specs(asset)] for asset in assets}
        self._results = {
            key: record for part in _parts(keys) for key, record in self._read_results(part).items()
        }

    def _read_results(
        self, keys: Sequence[dg.AssetKey]
    ) -> Mapping[dg.AssetCheckKey, AssetCheckExecutionRecord]:
        checks = list(chain.from_iterable(self._checks[key] for key in keys))
        return self._instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)

    @cached_property
    def _runs(self) -> Mapping[str, dg.DagsterRun]:
        """The newest runs of the assets, and those of the failed checks."""
        named = {entry.last_run_id for entry in self._entries.values() if entry.last_run_id}
        named |= {record.run_id for record in self._results.values() if not _has_passed(record)}
        return {
            run.run_id: run
            for part in _parts(sorted(named))
            for run in self._instance.get_runs(dg.RunsFilter(run_ids=list(part)))
        }

    @cached_property
    def _unfinished(self) -> Mapping[dg.AssetKey, dg.DagsterRun]:
        """The newest run of each asset among those that have not ended and that sync into the lake."""
        statuses = [*_WAITING, *IN_PROGRESS]
        newest: dict[dg.AssetKey, dg.DagsterRun] = {}
        for run in self._instance.get_runs(dg.RunsFilter(statuses=statuses)):
            if not is_of_lake(run, self._lake):
                continue
            for record in self._instance.get_records_for_run(run.run_id, of_type=_PLANNED).records:
                event = record.event_log_entry.dagster_event
                if event is not None and event.asset_key is not None:
                    newest.setdefault(event.asset_key, run)
        return newest

    def find_last_sync(self, asset: StreamAsset, table: Table | None) -> LastSync:
        """Return the last sync of a stream.

        Args:
            table: the stream's table; None if it is not known.
        """
        event = self._find_event(asset.key, table or Location(self._lake))
        done = LastSync("never") if event is None else _describe(event)
        run = self._find_run(asset.key)
        if run is None:
            return done
        result, failure = _judge(asset, run, done, self._instance)
        return replace(done, result=result, failure=failure)

    def _find_event(self, key: dg.AssetKey, table: Table | Location) -> TableEvent | None:
        """Return the newest materialisation by a sync."""
        entry = self._entries.get(key)
        if entry is None or entry.last_materialization_record is None:
            return None
        event = relate(entry.last_materialization_record, table)
        is_here = event is not None and event.relation is Relation.SAME_PLACE
        if event is not None and is_here and RECORDS_READ in event.metadata:
            return event  # one without figures is of no sync
        return TableEvents(self._instance, key, table).newest_materialization(RECORDS_READ)

    def _find_run(self, key: dg.AssetKey) -> dg.DagsterRun | None:
        """Return the newest run that was to materialise an asset."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if key in self._unfinished:
            return self._unfinished[key]
        run = self._runs.get(entry.last_run_id or "")
        if run is not None and is_of_lake(run, self._lake):
            return run
        return find_newest_run(self._instance, key, self._lake)

    def list_failed_checks(self, asset: StreamAsset) -> Sequence[StoredCheck]:
        """Return the checks of a stream whose latest result is a failure, in a run of this lake."""
        failed = []
        for key in self._checks[asset.key]:
            record = self._results.get(key)
            if record is None or _has_passed(record):
                continue
            run, evaluation = self._runs.get(record.run_id), record.evaluation
            if evaluation is not None and (run is None or is_of_lake(run, self._lake)):
                failed.append(StoredCheck(evaluation.check_name, str(evaluation.severity.value)))
        return failed


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _MAX_KEYS] for start in range(0, len(items), _MAX_KEYS))


def _has_passed(record: AssetCheckExecutionRecord) -> bool:
    """Return whether the result of a check is not a failure; one that is still to come is none."""
    return record.status is not AssetCheckExecutionRecordStatus.FAILED


@dataclass(frozen=True)
class PartitionCounts:
    """How many partitions a stream has, and how many of them are complete, failed and in progress.

    `failed_key`: the first one that failed.
    """

    all: int
    complete: int
    failed: int
    running: int
    failed_key: str | None = None

    def to_json(self) -> dict[str, int]:
        """Return the counts."""
        names = ("all", "complete", "failed", "running")
        return {name: getattr(self, name) for name in names}


def count_partitions(asset: StreamAsset, instance: DagsterInstance) -> PartitionCounts | None:
    """Return the partitions of a stream by their state; None for a stream without partitions."""
    if asset.partitions is None:
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        keys = asset.partitions.get_partition_keys()
        statuses = instance.get_status_by_partition(asset.key, keys, asset.partitions) or {}
    names = {key: status.value for key, status in statuses.items() if status is not None}
    counts = Counter(names.values())
    failed = next((key for key, name in names.items() if name == "FAILED"), None)
    return PartitionCounts(
        len(keys), counts["MATERIALIZED"], counts["FAILED"], counts["IN_PROGRESS"], failed
    )


def _describe(event: TableEvent) -> LastSync:
    return LastSync(
        "complete",
        _utc(event.timestamp),
        event.run_id,
        figures_of(event.metadata),
        metadata=event.metadata,
        days=from_json(unwrap(event.metadata.get(DAYS))),
    )


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
        return SyncFailure(_utc(record.timestamp), run.run_id, _first_line(reason))
    return SyncFailure(_utc(0), run.run_id, f"the run ended as {run.status.value}")


def find_failed_job(name: str, instance: DagsterInstance) -> SyncFailure | None:
    """Return why the last run of a job that has ended failed; None if it did not, or was cancelled."""
    ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    runs = instance.get_run_records(dg.RunsFilter(job_name=name, statuses=ended), limit=1)
    if not runs or runs[0].dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return None
    run_id = runs[0].dagster_run.run_id
    records = instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_FAILURE).records
    events = [record.event_log_entry.dagster_event for record in records]
    texts = [message_of(event.step_failure_data) for event in events if event is not None]
    line = _first_line("".join(texts[:1])) or "the run failed"
    return SyncFailure(_utc(runs[0].end_time or 0), run_id, line)


def _first_line(text: str) -> str:
    """Return the first line of a text, with the second one if the first only announces it."""
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _last_change(run: dg.DagsterRun, instance: DagsterInstance) -> dt.datetime:
    """Return when Dagster last changed a run: the last sign of life of a killed one."""
    record = instance.get_run_record_by_id(run.run_id)
    if record is None:
        return _utc(0)
    time = record.update_timestamp
    return time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)


def _utc(timestamp: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp, dt.timezone.utc)
