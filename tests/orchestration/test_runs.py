"""Runs whose process has died are marked as failed; runs outside the queue take no place in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.launcher import WorkerStatus

from elt_assets.orchestration.runs import liveness
from elt_assets.orchestration.runs.daemon import MonitoredRunLauncher, RunQueue
from elt_assets.orchestration.runs.liveness import FOLDER, alive, fail_dead_runs, has_died
from tests.orchestration.ticking import instance_of
from tests.support.project import REPOSITORY, Project

RUNNING = WorkerStatus.RUNNING
STARTED = dg.DagsterRunStatus.STARTED
HOLD = """
import sys, dagster as dg
from elt_assets.orchestration.runs.liveness import alive
with dg.DagsterInstance.from_config(sys.argv[1]) as instance, alive(instance, sys.argv[2]):
    print("held", flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@contextlib.contextmanager
def process_of(project: Project, run_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process that shows that it executes a run, until its stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(project.home), run_id]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process


def start_run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus = STARTED) -> str:
    run = instance.create_run_for_job(EMPTY, status=status)
    return run.run_id


@dg.job
def EMPTY() -> None: ...


def statuses(instance: dg.DagsterInstance, *runs: str) -> list[dg.DagsterRunStatus]:
    status_by_id = {run.run_id: run.status for run in instance.get_runs()}
    return [status_by_id[run_id] for run_id in runs]


def test_a_run_whose_process_was_killed_is_marked_by_the_next_one(own: Project) -> None:
    with instance_of(own) as instance:
        killed, living, other = (start_run(instance) for _ in range(3))
        canceled = start_run(instance, dg.DagsterRunStatus.CANCELING)
        launcher = MonitoredRunLauncher()
        launcher.register_instance(instance)
        with (
            process_of(own, living),
            process_of(own, killed) as process,
            process_of(own, canceled) as canceling,
        ):
            assert not has_died(instance, killed)
            for victim in (process, canceling):
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
            assert has_died(instance, killed)
            looks = [
                [
                    launcher.check_run_worker_health(_run(instance, run)).status
                    for run in (killed, living, other)
                ]
                for _ in range(2)
            ]
            assert looks == [[RUNNING, RUNNING, RUNNING], [WorkerStatus.FAILED, RUNNING, RUNNING]]
            with alive(instance, "next"):
                marks = statuses(instance, killed, canceled, living, other)
            assert [status.value for status in marks] == [
                "FAILURE",
                "CANCELED",
                "STARTED",
                "STARTED",
            ]
        assert not has_died(instance, killed)  # it is marked, and its file is gone
        assert list((own.home / FOLDER).iterdir()) == []


def _run(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def test_a_finished_run_is_not_marked(own: Project) -> None:
    with instance_of(own) as instance:
        run_id = start_run(instance)
        with pytest.raises(RuntimeError), alive(instance, run_id):
            raise RuntimeError
        instance.report_run_canceled(_run(instance, run_id))
        fail_dead_runs(instance)
        assert statuses(instance, run_id) == [dg.DagsterRunStatus.CANCELED]
        assert list((own.home / FOLDER).iterdir()) == []


def test_a_run_of_a_command_line_is_ended_with_the_signal_of_ctrl_c(own: Project) -> None:
    with instance_of(own) as instance:
        ended, elsewhere, continuing = (start_run(instance) for _ in range(3))
        launcher = MonitoredRunLauncher()
        launcher.register_instance(instance)
        with process_of(own, ended) as process, process_of(own, continuing):
            # As if the file came from another machine: its process id is that of a process here.
            (own.home / FOLDER / elsewhere).write_text(str(process.pid))
            assert not launcher.terminate(elsewhere)
            assert process.poll() is None
            assert launcher.terminate(ended)
            process.wait()
            assert [status.value for status in statuses(instance, ended, continuing)] == [
                "CANCELING",
                "STARTED",
            ]
            fail_dead_runs(instance)
            assert statuses(instance, ended) == [dg.DagsterRunStatus.CANCELED]
            assert not launcher.terminate(ended)  # it is finished


def test_an_ordinary_run_leaves_no_file(own: Project) -> None:
    script = """
import os
import dagster as dg
from elt_assets.orchestration.runs.executor import STEP_TAGS, executor

@dg.op(tags=STEP_TAGS)
def look(context):
    assert os.listdir(f"{context.instance.root_directory}/run_locks") == [context.run_id]

@dg.job(executor_def=executor)
def job():
    look()

if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        assert dg.execute_job(dg.reconstructable(job), instance).success
"""
    path = own.root / "one_run.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{own.root}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((own.home / FOLDER).iterdir()) == []


def test_runs_outside_of_the_queue_take_no_place_in_it(own: Project) -> None:
    with instance_of(own) as instance:
        for configured in (4, -1, 0):
            queue = RunQueue(max_concurrent_runs=configured)
            queue.register_instance(instance)
            before = queue.get_run_queue_config().max_concurrent_runs
            start_run(instance)
            after = queue.get_run_queue_config().max_concurrent_runs
            assert after - before == (1 if configured > 0 else 0)


def test_the_instance_of_the_project_has_the_launcher_and_the_queue(tmp_path: Path) -> None:
    settings: Any = yaml.safe_load((REPOSITORY / "dagster_home" / "dagster.yaml").read_text())
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.run_launcher, MonitoredRunLauncher)
        assert instance.run_launcher.supports_check_run_worker_health
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None and queue.max_concurrent_runs == 4


def test_a_process_of_many_runs_holds_the_files_of_those_in_progress(own: Project) -> None:
    """A run is not over with its last step, so its file is held until the process executes another run."""
    folder = own.home / FOLDER

    def count_open() -> int:
        return sum(path.resolve().parent == folder for path in Path("/proc/self/fd").iterdir())

    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        for _ in range(20):
            run = dg.DagsterRun("sync", run_id=str(uuid.uuid4()), status=STARTED)
            instance.add_run(run)
            liveness.hold_until_exit(instance, run.run_id)
            liveness.hold_until_exit(instance, run.run_id)
            assert not has_died(instance, run.run_id)
            assert count_open() == len(list(folder.iterdir())) == 1
            instance.report_run_canceled(run)
        other = dg.DagsterRun("sync", run_id=str(uuid.uuid4()), status=STARTED)
        instance.add_run(other)
        liveness.hold_until_exit(instance, other.run_id)
        beside = dg.DagsterRun("sync", run_id=str(uuid.uuid4()), status=STARTED)
        instance.add_run(beside)
        liveness.hold_until_exit(instance, beside.run_id)
        assert count_open() == 2
