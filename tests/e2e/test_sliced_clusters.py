"""Slices that are read by the executors of a cluster, and by the workers of a Spark Connect server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable

from connectors.postgres import Postgres as Source
from tests.e2e.daemons import python_of_executors, run_connect_server
from tests.e2e.standalone import Cluster, check_work, cluster, configure
from tests.programs.sliced_source import Numbers
from tests.support.object_store import ObjectStore, new_bucket, s3_server
from tests.support.postgres import Postgres, run_postgres
from tests.support.project import REPOSITORY, Project, write_plugin

__all__ = ["cluster"]

pytestmark = [pytest.mark.external, pytest.mark.long]

DEDUP: Any = {"destination_sync_mode": "append_dedup", "sync_mode": "incremental"}
ROWS = 12_000


@contextmanager
def store_lake(project: Project, folder: Path) -> Iterator[tuple[ObjectStore, Any]]:
    """Yield an object store for the lake and the staging of a project, and the variables that name it."""
    with s3_server(folder / "log") as endpoint:
        store = new_bucket(endpoint, folder / "log")
        options = project.root / "store.yaml"
        options.write_text(json.dumps(store.options))
        variables = {
            "ELT_STORAGE_OPTIONS": str(options),
            "ELT_LAKE": store.uri,
            "ELT_STAGING": f"s3://{store.bucket}/staging",
        }
        yield store, variables


def connect_numbers(project: Project, folder: Path, **config: Any) -> dict[str, str]:
    """Connect a project to the source `numbers`; return the variables for it."""
    package = write_plugin(
        folder / "package",
        "any",
        "",
        "elt_assets.connectors",
        "numbers = tests.programs.sliced_source",
    )
    source = {"connector": "numbers", "config": {"failed": str(folder / "failed"), **config}}
    connection = project.connection("sliced", source=source, streams=[{"name": "numbers", **DEDUP}])
    catalog = {"streams": [json.loads(Numbers(config).describe().to_json())]}
    (connection / "catalog.json").write_text(json.dumps(catalog))
    return {"PYTHONPATH": os.pathsep.join([package, str(REPOSITORY)])}


@contextmanager
def change_rows(server: Postgres) -> Iterator[None]:
    """Change rows of the table `t` while the context is open. In each state of it, the sum of `v` is 0."""
    is_over = Event()

    def change() -> None:
        for number in count(1):
            if is_over.is_set():
                return
            first, second = number * 997 % ROWS + 1, number * 1499 % ROWS + 1
            server.execute(
                f"BEGIN; UPDATE t SET v = v + 1 WHERE id = {first};"
                f"UPDATE t SET v = v - 1 WHERE id = {second}; COMMIT"
            )

    with ThreadPoolExecutor(1) as thread:
        changes = thread.submit(change)
        try:
            yield
        finally:
            is_over.set()
        changes.result()


@pytest.fixture
def logged() -> Iterator[Postgres]:
    with run_postgres("wal_level=logical") as server:
        yield server


@pytest.mark.parametrize("incremental", ["xmin", "log"])
def test_two_workers_read_one_snapshot_without_a_shared_file_system(
    cluster: Cluster, logged: Postgres, tmp_path: Path, incremental: str
) -> None:
    """The table changes while it is read: all slices show the same state of it. The changes of the log are
    files of the connector's machine."""
    logged.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, body jsonb, pad text DEFAULT repeat('x', 900));"
        f"INSERT INTO t SELECT g, 0, jsonb_build_object('g', g) FROM generate_series(1, {ROWS}) g; ANALYZE t;"
        "CREATE PUBLICATION p FOR TABLE t"
    )
    project = Project(cluster.hidden / tmp_path.name)
    project.root.mkdir()
    configure(project, cluster, tmp_path, sys.executable)
    earlier = cluster.list_finished()
    config = {"host": "127.0.0.1", "port": logged.port, "database": "postgres", "user": "elt"}
    config |= {"incremental": incremental, "slice_megabytes": 1}
    if incremental == "log":
        config |= {"slot": "s", "publication": "p"}
    stream = {"name": "t", "namespace": "public", **DEDUP}
    folder = project.connection(
        "shop",
        source={"connector": "postgres", "config": config},
        streams=[stream],
        read_together=True,
    )
    described = [json.loads(stream.describe().to_json()) for stream in Source().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": described}))
    with store_lake(project, tmp_path) as (store, variables):

        def sync() -> list[dict[str, int]]:
            done = project.materialize("group:shop", **variables)
            assert done.returncode == 0, done.stdout + done.stderr
            table = DeltaTable(f"{store.uri}/shop/public/t", storage_options=store.options)
            return list(table.to_pyarrow_table(columns=["id", "v"]).to_pylist())

        with change_rows(logged):
            rows = sync()
        assert sorted(row["id"] for row in rows) == [*range(1, ROWS + 1)]
        assert sum(row["v"] for row in rows) == 0
        lines = logged.execute("SELECT id, v FROM t").splitlines()
        stored = {row["id"]: row["v"] for row in sync()}
        assert stored == {int(i): int(v) for i, v in (line.split("|") for line in lines)}
        assert not [name for name in store.objects() if "/staging/" in name]
    check_work(cluster, earlier, 2)


@pytest.mark.parametrize("process", ["worker", "executor"])
def test_a_slice_whose_process_is_killed_is_read_again(
    cluster: Cluster, tmp_path: Path, process: str
) -> None:
    project = Project(tmp_path / "project")
    configure(
        *(project, cluster, tmp_path, sys.executable),
        spark__executorEnv__PYTHONPATH=str(REPOSITORY),
    )
    dies = {"worker": 1, "executor": 3}[process]
    variables: Any = connect_numbers(project, tmp_path, slices=6, rows=10, fails_at=4, dies=dies)
    done = project.materialize("group:sliced", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "failed").exists()
    assert sorted(row["id"] for row in project.rows("sliced", "numbers")) == [*range(60)]


def test_a_connect_server_commits_the_slices_before_one_that_fails(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    variables: Any = connect_numbers(project, tmp_path, slices=6, rows=10, fails_at=4, dies=1)
    with run_connect_server(tmp_path, sys.executable, str(REPOSITORY)) as url:
        project.home.mkdir(parents=True, exist_ok=True)
        (project.home / "spark-defaults.conf").write_text(f"spark.remote {url}\n")
        done = project.materialize("group:sliced", **variables)
        assert "the machine has too little memory" in done.stdout + done.stderr
        committed = len(project.rows("sliced", "numbers"))
        # A slice that is under way when the worker dies is read again.
        assert committed in (10, 20, 30, 40)
        done = project.materialize("group:sliced", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
    assert project.metadata("sliced", "numbers")["elt/records_read"] == 60 - committed
    assert sorted(row["id"] for row in project.rows("sliced", "numbers")) == [*range(60)]


def test_workers_without_the_package_say_what_to_install(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    variables: Any = connect_numbers(project, tmp_path, slices=2, rows=3)
    python = str(python_of_executors(tmp_path / "executors"))
    with run_connect_server(tmp_path, python) as url:
        project.home.mkdir(parents=True, exist_ok=True)
        (project.home / "spark-defaults.conf").write_text(f"spark.remote {url}\n")
        done = project.materialize("group:sliced", **variables)
    output = done.stdout + done.stderr
    assert done.returncode and "they have no module" in output, output
    assert "install this project, with what the source needs, on the executors" in output
