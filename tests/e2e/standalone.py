"""A standalone cluster of Spark of two workers, and what its executors have done."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHORT_LIVED
from tests.e2e.daemons import daemon, free_ports, python_of_executors, wait
from tests.support.project import Project

WORKERS = 2


@dataclass(frozen=True)
class Cluster:
    """A standalone master and its workers, from the installed package, on loopback.

    `hidden`: a folder that is empty for the workers, if this user can hide it. `processes`: of the workers.
    """

    url: str
    master: int
    workers: list[int]
    work: Path
    hidden: Path
    processes: list[int]

    def list_finished(self) -> list[dict[str, Any]]:
        """The applications that have ended, each with the `hosts` (worker ports) of its executors."""
        applications: list[dict[str, Any]] = _json(self.master)["completedapps"]
        # A worker may list an executor as running for a moment after the master has ended its application.
        executors = {port: _executors(port) for port in self.workers}
        for application in applications:
            application["hosts"] = [
                port
                for port, ran in executors.items()
                if application["id"] in {e["appid"] for e in ran}
            ]
        return applications

    def tasks(self, application: str) -> dict[str, int]:
        """Return the number of tasks that each worker's executor has finished, by its own log."""
        logs = self.work.glob(f"*/{application}/*/stderr")
        worker = len(self.work.parts)
        return {log.parts[worker]: log.read_text().count("Finished task") for log in logs}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    work, hidden = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("hidden")
    port, master, *workers = free_ports(2 + WORKERS)
    url = f"spark://127.0.0.1:{port}"
    processes: list[int] = []
    with ExitStack() as stack:
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(master)]
        stack.enter_context(daemon(work, "master.Master", *place))
        for worker_port in workers:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(work / str(worker_port))]
            place = ["--host", "127.0.0.1", "--webui-port", str(worker_port)]
            unseen = hidden if os.geteuid() == 0 else None
            worker = daemon(work, "worker.Worker", *size, *place, url, hidden=unseen)
            processes.append(stack.enter_context(worker))
        wait(lambda: _json(master)["aliveworkers"] == WORKERS, "the workers to register")
        yield Cluster(url, master, workers, work, hidden, processes)


def configure(
    project: Project, cluster: Cluster, tmp_path: Path, python: str | None = None, **settings: str
) -> None:
    """Let a project use the cluster.

    Args:
        python: of the executors; default: one without this project.
        settings: further settings of Spark, with `__` for each point.
    """
    python = python or str(python_of_executors(tmp_path / "executors"))
    more = "\n".join(f"{name.replace('__', '.')} {value}" for name, value in settings.items())
    project.home.mkdir(parents=True, exist_ok=True)
    (project.home / "spark-defaults.conf").write_text(
        f"""# the driver is this machine's, so that nothing listens on others' addresses
        spark.master            {cluster.url}
        spark.driver.bindAddress 127.0.0.1
        spark.driver.host=127.0.0.1
        spark.executor.memory   512m
        spark.executor.defaultJavaOptions {SHORT_LIVED}
        spark.executor.cores    1
        spark.cores.max         {WORKERS}
        # A worker that starts later than the other would find all tasks done.
        spark.scheduler.minRegisteredResourcesRatio 1
        spark.scheduler.maxRegisteredResourcesWaitingTime 60s
        spark.pyspark.python    {python}
        {more}
        """
    )


def check_work(cluster: Cluster, earlier: list[dict[str, Any]], runs: int = 2) -> None:
    """Check that so many runs, besides earlier ones, had tasks, and executors on both workers."""
    wait(lambda: len(cluster.list_finished()) == len(earlier) + runs, "the applications to end")
    earlier_ids = {entry["id"] for entry in earlier}
    tasks = []
    for application in cluster.list_finished():
        if application["id"] not in earlier_ids:
            assert application["state"] == "FINISHED"
            assert sorted(application["hosts"]) == sorted(cluster.workers)
            tasks.append(cluster.tasks(application["id"]))
    assert all(len(counts) == WORKERS and sum(counts.values()) > 0 for counts in tasks)
    # Of one run alone the faster worker may have taken them all.
    assert runs == 1 or all(sum(counts[worker] for counts in tasks) > 0 for worker in tasks[0])


def _executors(port: int) -> list[dict[str, Any]]:
    answer = _json(port)
    return [*answer["executors"], *answer["finishedexecutors"]]


def _json(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as answer:
        return json.load(answer)
