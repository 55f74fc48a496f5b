"""The removal of old runs, logs, environments and temporary files by `elt_maintenance`."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import os
import time
from pathlib import Path

import dagster as dg
import pytest

from elt_assets.orchestration.table_jobs import remove_compute_logs, remove_runs
from elt_assets.runner.packages import sweep
from elt_assets.storage.folders import sweep_temporary

DAY = 86400.0


@dg.asset
def things() -> None:
    """An asset."""


@dg.op
def work(context: dg.OpExecutionContext) -> None:
    print("a line of a compute log")


@dg.job
def other() -> None:
    work()


@dg.op
def fail() -> None:
    raise RuntimeError("broken")


@dg.job
def broken() -> None:
    fail()


def _age(folder: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then), follow_symlinks=False)


def test_only_runs_that_reported_nothing_about_an_asset_are_removed(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        materialized = dg.materialize([things], instance=instance).run_id
        jobs = [
            job.execute_in_process(instance=instance, raise_on_error=False).run_id
            for job in (other, broken)
        ]
        assert remove_runs(instance, DAY) == 0
        assert remove_runs(instance, -DAY) == 2
        assert [run.run_id for run in instance.get_runs()] == [materialized]
        assert all(not instance.get_records_for_run(run).records for run in jobs)
        assert instance.get_latest_materialization_event(things.key) is not None


def test_compute_logs_are_removed_by_age(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        old, new = (other.execute_in_process(instance=instance).run_id for _ in range(2))
        logs = {run: next(tmp_path.rglob(f"{run}/compute_logs")) for run in (old, new)}
        _age(logs[old], 40)
        assert remove_compute_logs(instance, 30 * DAY) == 1
        assert [run for run in logs if logs[run].exists()] == [new]
        assert {run.run_id for run in instance.get_runs()} == {old, new}


def test_unused_environments_of_packages_are_removed(tmp_path: Path) -> None:
    for name in ("source-x==1.0-py3.11", "source-x==1.1-py3.11", "my own folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".installed").touch()
        _age(tmp_path / name, 100)
    (tmp_path / "source-x==1.1-py3.11" / ".installed").touch()  # it was used today
    assert sweep(tmp_path, 90 * DAY) == 1
    names = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert names == {"source-x==1.1-py3.11", "my own folder"}


@pytest.mark.parametrize(("days", "is_removed"), [(8, True), (6, False)])
def test_scratch_of_killed_jvms_is_removed_by_age(
    tmp_path: Path, days: float, is_removed: bool
) -> None:
    scratch = tmp_path / "spark-0b1c"
    (scratch / "blocks" / "00").mkdir(parents=True)
    (scratch / "blocks" / "00" / "shuffle").write_bytes(b"x")
    (tmp_path / "sparkling").mkdir()
    (tmp_path / "spark-link").symlink_to(tmp_path / "sparkling")
    _age(tmp_path, 100)
    newest = time.time() - days * DAY
    os.utime(scratch / "blocks" / "00" / "shuffle", (newest, newest))
    assert sweep_temporary(tmp_path, 7 * DAY) == is_removed
    assert scratch.exists() is not is_removed
    assert (tmp_path / "sparkling").is_dir()
    assert (tmp_path / "spark-link").is_symlink()
