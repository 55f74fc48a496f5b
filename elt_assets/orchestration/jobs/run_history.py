"""Removal of old runs and of their compute logs from a Dagster instance.

Runs that reported something about an asset are never removed: the event log is the history of the assets, and
says which partitions are materialised. Without these events, Dagster would show partitions as missing, and
automation conditions would request them again.
"""

import datetime as dt
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster import DagsterEventType, DagsterRunStatus, RunsFilter
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager

from elt_assets.storage.folders import newest_change

_FINISHED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_OF_ASSETS = (
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.ASSET_OBSERVATION,
    DagsterEventType.ASSET_CHECK_EVALUATION,
)
_PAGE = 200


def remove_runs(instance: dg.DagsterInstance, seconds: float) -> int:
    """Remove finished runs that were created more than `seconds` ago and reported nothing about an asset.

    Returns:
        The number of removed runs.
    """
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    old = [
        run
        for run in _list_finished_runs(instance, before)
        if not any(instance.get_records_for_run(run, None, kind, 1).records for kind in _OF_ASSETS)
    ]
    for run in old:
        instance.delete_run(run)
    return len(old)


def remove_compute_logs(instance: dg.DagsterInstance, seconds: float) -> int:
    """Remove local compute logs that have not changed for `seconds`. Those in a store are left to the store.

    Returns:
        The number of runs whose logs were removed.
    """
    manager = instance.compute_log_manager
    if not isinstance(manager, LocalComputeLogManager):
        return 0
    root = Path(manager.get_captured_local_path(["run"], "out")).parent
    oldest = time.time() - seconds
    old = [logs for logs in root.glob("*/compute_logs") if newest_change(logs) < oldest]
    for logs in old:
        shutil.rmtree(logs, ignore_errors=True)
    return len(old)


def _list_finished_runs(instance: dg.DagsterInstance, before: dt.datetime) -> Iterator[str]:
    """Yield the ids of the finished runs that were created before a time."""
    filters, cursor = RunsFilter(statuses=_FINISHED, created_before=before), None
    while True:
        runs = instance.get_runs(filters, cursor=cursor, limit=_PAGE)
        yield from (run.run_id for run in runs)
        if len(runs) < _PAGE:
            return
        cursor = runs[-1].run_id
