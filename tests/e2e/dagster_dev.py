"""A real `dagster dev` for tests: webserver, daemon and code server of a project, driven by GraphQL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import psutil
import yaml

from tests.e2e.daemons import free_ports, wait
from tests.e2e.graphql import ask
from tests.support.project import BIN, REPOSITORY, Project

LOCATION, REPOSITORY_NAME = "elt_assets.definitions", "__repository__"
HERE = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY_NAME}

LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename ... on PythonError { message causes { message } } } } } } }
"""
INSTIGATORS = """
query ($repository: RepositorySelector!) { repositoryOrError(repositorySelector: $repository) {
  ... on Repository { schedules { name } sensors { name } } } }
"""
LAUNCH = """
mutation ($run: ExecutionParams!) { launchRun(executionParams: $run) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
REEXECUTE = """
mutation ($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
TERMINATE = """
mutation ($id: String!) { terminateRun(runId: $id) {
  __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }
"""
WIPE = """
mutation ($ranges: [PartitionsByAssetSelector!]!) { wipeAssets(assetPartitionRanges: $ranges) {
  __typename ... on PythonError { message } } }
"""
RELOAD = """
mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  __typename ... on PythonError { message } } }
"""
START_SENSOR = """
mutation ($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) {
  __typename ... on PythonError { message } } }
"""
START_SCHEDULE = """
mutation ($schedule: ScheduleSelector!) { startSchedule(scheduleSelector: $schedule) {
  __typename ... on PythonError { message } } }
"""
SCHEDULE_TICK = """
mutation ($schedule: ScheduleSelector!, $at: Float) {
  scheduleDryRun(selectorData: $schedule, timestamp: $at) {
    __typename
    ... on PythonError { message }
    ... on DryRunInstigationTick { evaluationResult {
      error { message } skipReason runRequests { runKey tags { key value } assetSelection { path } } } } } }
"""


@dataclass(frozen=True)
class DevProject(Project):
    """A project with the `dagster.yaml` of the repository, but a queue of one run and short intervals."""

    @property
    def environment(self) -> dict[str, str]:
        variables = super().environment
        path = self.home / "dagster.yaml"
        document = yaml.safe_load(path.read_text())
        queue = {"dequeue_interval_seconds": 1, "max_concurrent_runs": 1}
        document["run_coordinator"]["config"] = queue
        document["run_monitoring"]["poll_interval_seconds"] = 1
        path.write_text(yaml.safe_dump(document))
        return variables

    def start_elt(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run `elt` in the background, in a process group of its own, for `kill` to end."""
        return subprocess.Popen(
            [str(BIN / "elt"), *arguments],
            env=self.environment,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def runs(instance: dg.DagsterInstance) -> dict[str, dg.DagsterRun]:
    """Return the runs by id, the newest first."""
    return {run.run_id: run for run in instance.get_runs()}


@dataclass
class DagsterDev:
    """A running `dagster dev` of a project."""

    instance: dg.DagsterInstance
    process: subprocess.Popen[bytes]
    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the value of the only field of a query or a mutation."""
        return ask(self.url, query, **variables)

    def load_error(self) -> str | None:
        """Return why the code location cannot be loaded; None if it is loaded."""
        (entry,) = self.ask(LOCATIONS)["locationEntries"]
        error = entry["locationOrLoadError"]
        if "message" not in error:
            return None
        return "".join(cause["message"] for cause in (error, *error["causes"]))

    def names(self, kind: str) -> set[str]:
        """Return the names of the schedules or of the sensors."""
        return {instigator["name"] for instigator in self.ask(INSTIGATORS, repository=HERE)[kind]}

    def launch(
        self, job: str, assets: Sequence[str] = (), checks: Sequence[str] = (), **config: Any
    ) -> str:
        """Launch a job, or some assets and checks (`shop/users:counts`) of it; return the id of its run."""
        selector: dict[str, Any] = {**HERE, "jobName": job}
        if assets or checks:
            selector["assetSelection"] = [{"path": key.split("/")} for key in assets]
            selector["assetCheckSelection"] = [
                {"assetKey": {"path": key.split("/")}, "name": name}
                for key, _, name in (check.partition(":") for check in checks)
            ]
        run = {"selector": selector, "runConfigData": json.dumps(config)}
        return str(self.ask(LAUNCH, run=run)["run"]["runId"])

    def reexecute_from_failure(self, run_id: str) -> str:
        """Return the id of the new run."""
        params = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return str(self.ask(REEXECUTE, params=params)["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        """Terminate a run as the button of the UI does."""
        answer = self.ask(TERMINATE, id=run_id)
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def wipe(self, *assets: str) -> None:
        """Remove the events of assets."""
        ranges = [{"assetKey": {"path": key.split("/")}} for key in assets]
        self.ask(WIPE, ranges=ranges)

    def reload(self, error: str | None = None) -> None:
        """Load the definitions again, and wait for an error that has a text; None: until there is none."""
        self.ask(RELOAD, name=LOCATION)

        def is_loaded() -> bool:
            message = self.load_error()
            return message is None if error is None else error in (message or "")

        wait(is_loaded, f"the load error {error!r}", seconds=120)

    def start_sensor(self, name: str) -> None:
        """Turn on a sensor, and wait for its first tick."""
        self.ask(START_SENSOR, sensor={**HERE, "sensorName": name})

        def has_cursor() -> bool:
            states = self.instance.all_instigator_state()
            data = [state.instigator_data for state in states if state.name == name]
            return bool(data and getattr(data[0], "cursor", None))

        wait(has_cursor, f"the first tick of {name}", seconds=180)

    def start_schedule(self, name: str) -> None:
        self.ask(START_SCHEDULE, schedule={**HERE, "scheduleName": name})

    def tick(self, schedule: str, time: float) -> list[dict[str, Any]]:
        """Return the run requests of a schedule at a time, each with its assets and tags."""
        answer = self.ask(SCHEDULE_TICK, schedule={**HERE, "scheduleName": schedule}, at=time)
        result = answer["evaluationResult"]
        assert result["error"] is None, result["error"]
        return [
            {
                "assets": ["/".join(asset["path"]) for asset in request["assetSelection"] or []],
                **{tag["key"]: tag["value"] for tag in request["tags"]},
            }
            for request in result["runRequests"] or []
        ]

    def processes(self) -> set[psutil.Process]:
        """Return all processes that descend from `dagster dev`."""
        return set(psutil.Process(self.process.pid).children(recursive=True))

    def kill(self) -> None:
        """Kill all processes at once, those of runs too."""
        for process in {*self.processes(), psutil.Process(self.process.pid)}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def wait_for(self, run_id: str, status: dg.DagsterRunStatus) -> None:
        """Wait until a run has a status.

        Raises:
            AssertionError: it has ended with another one.
        """

        def has_status() -> bool:
            run = runs(self.instance)[run_id]
            assert run.status is status or not run.is_finished, run.status
            return run.status is status

        wait(has_status, f"run {run_id} to be {status.value}", seconds=180)


@contextlib.contextmanager
def dagster_dev(project: DevProject, **environment: str) -> Iterator[DagsterDev]:
    """Run `dagster dev` for a project; all its processes are ended with the block."""
    variables = {**project.environment, **environment}
    (port,) = free_ports(1)
    command = [str(BIN / "dagster"), "dev", "-m", LOCATION, "-h", "127.0.0.1", "-p", str(port)]
    with (project.root / "dagster_dev.log").open("a") as log:
        process = subprocess.Popen(
            command, env=variables, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True
        )
    try:
        with dg.DagsterInstance.from_config(str(project.home)) as instance:
            dev = DagsterDev(instance, process, f"http://127.0.0.1:{port}")
            wait(lambda: bool(dev.ask(LOCATIONS)["locationEntries"]), "the webserver", seconds=180)
            yield dev
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what did not end by itself
