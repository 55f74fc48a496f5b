"""The same syncs on a standalone cluster and in the embedded session: only the settings file differs."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import SHORT_LIVED
from tests.e2e.daemons import daemon, free_ports, python_of_executors, wait
from tests.object_store import new_bucket, s3_server
from tests.programs.scripted import record, script, state
from tests.project import Project

pytestmark = pytest.mark.external

DEDUP = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
CONNECTIONS: dict[str, list[dict[str, Any]]] = {
    "increments": [
        {"name": "users", "history": True, **DEDUP},
        {"name": "orders", "sync_mode": "incremental", "destination_sync_mode": "append"},
    ],
    "wholes": [
        {"name": "users", "destination_sync_mode": "overwrite_dedup"},
        {"name": "products", "destination_sync_mode": "overwrite"},
    ],
}
STREAMS = [(name, stream["name"]) for name, streams in CONNECTIONS.items() for stream in streams]
TABLES = [*STREAMS, ("increments", "users_history")]
WORKERS = 2
LOADED = """
import dagster as dg


@dg.asset(ins={"rows": dg.AssetIn(["scripted", "things"])}, io_manager_key="io_manager")
def loaded(rows):
    return rows.groupBy().count()
"""


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


@pytest.mark.long
def test_syncs_and_merges_run_on_both_workers(cluster: Cluster, tmp_path: Path) -> None:
    remote = Project(tmp_path / "remote")
    _connect(remote)
    _configure(remote, cluster, tmp_path)
    earlier = cluster.list_finished()
    first = _sync_twice(remote, "group:increments")
    assert _merge(first, remote.rows("increments", "users"))
    assert all(remote.rows(*table) for table in TABLES if table[0] == "increments")
    _check_work(cluster, earlier)


@pytest.mark.long
def test_every_policy_gives_the_same_tables_as_a_local_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    local, remote = Project(tmp_path / "local"), Project(tmp_path / "remote")
    _connect(local)
    shutil.copytree(local.root / "defs", remote.root / "defs")
    _configure(remote, cluster, tmp_path)
    with ThreadPoolExecutor() as both:
        list(both.map(_sync_twice, (local, remote)))
    _check_maintenance(remote)
    for table in TABLES:
        assert remote.rows(*table) == local.rows(*table)
    for stream in STREAMS:
        assert _counters(remote, stream) == _counters(local, stream)


@pytest.mark.parametrize("syncs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_syncs_run_on_both_workers_and_need_no_file_system_that_they_share(
    cluster: Cluster, tmp_path: Path, syncs: int
) -> None:
    """The lake and staging are in a store. The folder of the project, with local staging, is empty for the
    executors, if this user can hide it."""
    project = Project(cluster.hidden / tmp_path.name)
    _configure(project, cluster, tmp_path)
    earlier = cluster.list_finished()
    folder = project.root / "defs"
    folder.mkdir()
    (folder / "loaded.py").write_text(LOADED)
    dedup: dict[str, Any] = {"primary_key": [["key"]], "history": True, **DEDUP}
    schema = {"key": {"type": "integer"}, "id": {"type": "integer"}}
    with s3_server(tmp_path / "log") as endpoint:
        store = new_bucket(endpoint, tmp_path / "log")
        (project.root / "store.yaml").write_text(json.dumps(store.options))
        places: Any = {
            "ELT_STORAGE_OPTIONS": str(project.root / "store.yaml"),
            "ELT_LAKE": store.uri,
            "ELT_STAGING": f"s3://{store.bucket}/staging",
        }
        for cursor in range(1, syncs + 1):
            keys = (*range(cursor, cursor + 100), None)
            records = [record(key=key, id=cursor) for key in keys]
            script(project, [*records, state(cursor)], schema=schema, **dedup)
            done = project.materialize('group:scripted or key:"loaded"', **places)
            assert done.returncode == 0, done.stdout + done.stderr
        for process in cluster.processes if os.geteuid() == 0 else ():
            assert not list(Path(f"/proc/{process}/root", *cluster.hidden.parts[1:]).iterdir())
        counts = {
            name: DeltaTable(f"{store.uri}/{name}", storage_options=store.options).count()
            for name in (
                "scripted/things",
                "scripted/things_history",
                "scripted/things_dead_letter",
            )
        }
        assert list(counts.values()) == [100 + syncs - 1, 100 * syncs, syncs]
        loaded = DeltaTable(f"{store.uri}/loaded", storage_options=store.options)
        assert loaded.to_pyarrow_table()["count"].to_pylist() == [100 + syncs - 1]
        assert any(
            request.startswith("PUT ") and "/staging/" in request for request in store.requests()
        )
        assert not [name for name in store.objects() if "/staging/" in name]
    _check_work(cluster, earlier, syncs)


def _executors(port: int) -> list[dict[str, Any]]:
    answer = _json(port)
    return [*answer["executors"], *answer["finishedexecutors"]]


def _configure(remote: Project, cluster: Cluster, tmp_path: Path) -> None:
    remote.home.mkdir(parents=True, exist_ok=True)
    (remote.home / "spark-defaults.conf").write_text(
        f"""# the driver is this machine's, so that nothing listens on others' addresses
        spark.master            {cluster.url}
        spark.driver.bindAddress 127.0.0.1
        spark.driver.host=127.0.0.1
        spark.executor.memory   512m
        spark.executor.defaultJavaOptions {SHORT_LIVED}
        spark.executor.cores    1
        spark.cores.max         {WORKERS}
        spark.pyspark.python    {python_of_executors(tmp_path / "executors")}
        """
    )


def _check_maintenance(remote: Project) -> None:
    """The tasks of the job are in Python, as those of a large merge are."""
    assert len(remote.table("increments", "orders").file_uris()) > 1
    remote.run_job("elt_maintenance")
    assert len(remote.table("increments", "orders").file_uris()) == 1


def _check_work(cluster: Cluster, earlier: list[dict[str, Any]], runs: int = 2) -> None:
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


def _connect(project: Project) -> None:
    for name, streams in CONNECTIONS.items():
        source = {"connector": "faker", "config": {"count": 300}}
        project.connection(name, source=source, streams=streams)
        project.discover(name)


def _sync_twice(
    project: Project, selection: str = "group:increments or group:wholes"
) -> list[dict[str, Any]]:
    """Returns the rows of the merged table in between."""
    project.sync(selection)
    first = project.rows("increments", "users")
    project.sync(selection)
    return first


def _counters(project: Project, table: tuple[str, str]) -> dict[str, Any]:
    metadata = project.metadata(*table)
    names = ("state", "sequence", "generation", "records_read", "records_committed")
    return {name: metadata[f"elt/{name}"] for name in names}


def _merge(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Return whether rows were added, rows were replaced, and each key is there once."""
    old, new = ({row["id"]: row for row in rows} for rows in (before, after))
    replaced = [key for key in old if new[key] != old[key]]
    return len(after) == len(new) > len(old) and bool(replaced)


def _json(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as answer:
        return json.load(answer)
