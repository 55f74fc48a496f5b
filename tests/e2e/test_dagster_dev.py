"""Tests of a project in a real `dagster dev`: queue, run monitor, schedules, sensors and alerts.

The short form starts it once. The long form is behind the mark `long`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from elt_assets.orchestration.runs.liveness import DIED, FOLDER, fail_dead_runs
from tests.e2e.daemons import wait
from tests.e2e.dagster_dev import DagsterDev, DevProject, dagster_dev, runs
from tests.programs.hostile_source import gone
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.runs import START

STARTED = dg.DagsterRunStatus.STARTED
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
HOOK = """
import json, sys
def hear(alert):
    with open({path!r}, "a") as file:
        file.write(json.dumps([alert.run_id, alert.job, list(alert.assets), alert.error]) + chr(10))
"""


@pytest.fixture
def dev_project(tmp_path: Path) -> DevProject:
    return DevProject(tmp_path)


def hook(project: DevProject) -> dict[str, str]:
    """Return the environment of an alert hook that writes a file."""
    (project.root / "hook_of_test.py").write_text(HOOK.format(path=str(project.root / "alerts")))
    return {"ELT_ALERT_HOOK": "hook_of_test:hear", "PYTHONPATH": str(project.root)}


def alerts(project: DevProject) -> list[Any]:
    path = project.root / "alerts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.contextmanager
def start_reading(dev: DagsterDev, project: DevProject, connection: str) -> Iterator[str]:
    """An `elt sync` that has started to read; it is killed with the block. Yields the id of its run."""
    before = set(runs(dev.instance))
    sync = project.start_elt("sync", connection)

    def list_started() -> list[str]:
        runs_by_id = runs(dev.instance).values()
        return [
            run.run_id for run in runs_by_id if run.run_id not in before and run.status is STARTED
        ]

    try:
        wait(lambda: bool(list_started()), "the run", seconds=120)
        (run_id,) = list_started()
        yield run_id
    finally:
        project.kill(sync)


def test_dead_runs_queue_alerts_and_schedules(dev_project: DevProject) -> None:
    """One start of `dagster dev`, since it is half of the cost. The queue has one place."""
    script(dev_project, [record(id=1), "!sleep 600"])
    many = {"type": "static", "keys": [f"k{n:04}" for n in range(2_500)], "bind": "station"}
    windowed(dev_project)
    streams = [("readings", DAILY), ("stations", many)]
    dev_project.amend(
        "weather",
        schedule="0 2 * * *",
        streams=[{"name": name, "partitions": partitions} for name, partitions in streams],
    )

    with dagster_dev(dev_project, **hook(dev_project)) as dev:
        assert dev.load_error() is None
        dev.start_sensor("elt_failure_alert")
        with start_reading(dev, dev_project, "scripted") as killed:
            check = dev.launch("scripted_check")
            dev.wait_for(check, dg.DagsterRunStatus.SUCCESS)
        dev.wait_for(killed, dg.DagsterRunStatus.FAILURE)

        time = dt.datetime(2026, 1, 9, 2, tzinfo=dt.timezone.utc).timestamp()
        (day,) = dev.tick("weather_schedule", time)
        assert (day["assets"], day["dagster/partition"]) == (["weather/readings"], "2026-01-08")
        batches = dev.tick("weather__stations_schedule", time)
        assert [batch[START] for batch in batches] == ["k0000", "k1000", "k2000"]

        wait(lambda: bool(alerts(dev_project)), "the alert", seconds=180)
        ((run_id, job, assets, error),) = alerts(dev_project)
        assert (run_id, job, assets) == (killed, "elt_sync", ["scripted/things"])
        assert DIED in error


SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
JOB = "__ASSET_JOB"


def shop(project: DevProject, count: int = 20) -> None:
    """A connection with two streams of the built-in source."""
    streams = [
        {"name": name, "sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
        for name in ("users", "orders")
    ]
    source = {"connector": "faker", "config": {"count": count}}
    project.connection("shop", source=source, streams=streams, dead_letter="asset")
    project.discover("shop")


@pytest.mark.long
def test_runs_of_the_launchpad_wiping_and_reloading(dev_project: DevProject) -> None:
    shop(dev_project)
    script(dev_project, [record(id=1), state(1), f"!once {dev_project.root / 'failed'}", state(1)])
    things = "scripted/things"
    both = {"shop__users": {"config": {"refresh": "truncate"}}, "shop__orders": {"config": {}}}

    with dagster_dev(dev_project) as dev:
        # the launchpad: several assets, each with its config
        run = dev.launch(JOB, ["shop/users", "shop/orders"], ops=both)
        dev.wait_for(run, SUCCESS)
        assert dev_project.metadata("shop", "users")["elt/generation"] == 1
        users = dev_project.rows("shop", "users")

        # a companion and a check alone
        version = dev_project.table("shop", "users").version()
        run = dev.launch(JOB, ["shop/users_dead_letter"], ["shop/users:columns"])
        dev.wait_for(run, SUCCESS)
        assert dev_project.table("shop", "users").version() == version

        # a re-execution from failure runs only the step that failed
        run = dev.launch(JOB, [things, "shop/users"])
        dev.wait_for(run, FAILURE)
        sequence = dev_project.metadata("shop", "users")["elt/sequence"]
        dev.wait_for(dev.reexecute_from_failure(run), SUCCESS)
        assert dev_project.metadata("scripted", "things")["elt/records_read"] == 1
        assert dev_project.metadata("shop", "users")["elt/sequence"] == sequence

        # wiped events: the next run goes on from the state of the table
        dev.wipe("shop/users")
        dev.wait_for(dev.launch(JOB, ["shop/users"]), SUCCESS)
        assert dev_project.metadata("shop", "users")["elt/sequence"] > sequence
        ids = {row["id"] for row in dev_project.rows("shop", "users")}
        assert ids >= {row["id"] for row in users}

        # another catalog, and then a connection that cannot be loaded
        script(dev_project, [record(id=1, note="x"), state(2)], schema=NOTED)
        dev.reload()
        dev.wait_for(dev.launch(JOB, [things]), SUCCESS)
        assert "note" in dev_project.rows("scripted", "things")[0]
        dev_project.amend("shop", schedule="often")
        dev.reload("schedule: 'often' is not a valid cron expression")
        dev_project.amend("shop", schedule=None)
        dev.reload()


NOTED = {"id": {"type": "integer"}, "note": {"type": "string"}}


@pytest.mark.long
def test_a_run_of_the_queue_is_started_again_after_its_processes_were_killed(
    dev_project: DevProject,
) -> None:
    """All of `dagster dev` is killed, as by a restart of the machine."""
    script(dev_project, [record(id=1), state(1), "!sleep 600"])
    with dagster_dev(dev_project) as dev:
        run = dev.launch(JOB, ["scripted/things"])
        dev.wait_for(run, STARTED)
        wait(lambda: bool(calls_of(dev_project)), "the source", seconds=180)
        dev.kill()
    script(dev_project, [record(id=1), state(1)])
    with dagster_dev(dev_project) as dev:
        dev.wait_for(run, FAILURE)
        wait(lambda: len(runs(dev.instance)) == 2, "the run that retries", seconds=180)
        (again,) = set(runs(dev.instance)) - {run}
        dev.wait_for(again, SUCCESS)


@pytest.mark.long
def test_a_run_that_is_terminated_in_the_ui_leaves_no_processes(dev_project: DevProject) -> None:
    script(dev_project, [record(id=1), state(1), "!sleep 600"])
    with dagster_dev(dev_project) as dev:
        run = dev.launch(JOB, ["scripted/things"])
        wait(lambda: bool(calls_of(dev_project)), "the source", seconds=180)
        (source,) = [
            process for process in dev.processes() if "tests.programs.scripted" in process.cmdline()
        ]
        workers = [
            process
            for process in source.parents()
            if "multiprocessing" in " ".join(process.cmdline())
        ]
        processes = [workers[-1], *workers[-1].children(recursive=True)]
        dev.terminate(run)
        dev.wait_for(run, dg.DagsterRunStatus.CANCELED)
        assert [process.cmdline() for process in processes if not gone(process.pid)] == []


@pytest.mark.long
def test_a_killed_run_of_dagsters_own_command_line_is_marked(dev_project: DevProject) -> None:
    script(dev_project, [record(id=1), "!sleep 600"])
    run = dev_project.start('key:"scripted/things"')
    try:
        wait(lambda: any((dev_project.home / FOLDER).glob("*-*")), "the run", seconds=180)
    finally:
        dev_project.kill(run)
    with dg.DagsterInstance.from_config(dev_project.environment["DAGSTER_HOME"]) as instance:
        fail_dead_runs(instance)
        assert [run.status for run in instance.get_runs()] == [FAILURE]


def calls_of(project: DevProject) -> list[Path]:
    """Return the staged files of a source that is being read."""
    return list(project.home.glob("staging/sync-*/*"))
