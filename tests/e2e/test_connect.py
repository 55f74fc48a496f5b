"""Syncs on a Spark Connect server: the settings file names it, and the run itself starts no Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.e2e.daemons import python_of_executors, run_connect_server
from tests.programs.scripted import record, script, state
from tests.support.project import REPOSITORY, Project

pytestmark = pytest.mark.external

POLICIES: dict[str, dict[str, Any]] = {
    "append": {},
    "append_dedup": {"primary_key": [["id"]], "history": True},
}
NOT_AN_OBJECT = '{"type": "RECORD", "record": {"stream": "things", "data": [1], "emitted_at": 1}}'
DOWNSTREAM = """
import dagster as dg


@dg.asset(ins={"things": dg.AssetIn(["append_dedup", "things"])}, io_manager_key="io_manager")
def counts(things):
    return things.groupBy("name").count()
"""
ALL = "group:append or group:append_dedup or key:counts"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server whose Python workers have no package of this project."""
    work = tmp_path_factory.mktemp("server")
    with run_connect_server(work, str(python_of_executors(work / "executors"))) as url:
        yield url


def test_a_connect_server_syncs_merges_and_loads(server: str, project: Project) -> None:
    (project.home / "spark-defaults.conf").write_text(f"spark.remote {server}\n")
    (project.root / "defs").mkdir()
    (project.root / "defs" / "counts.py").write_text(DOWNSTREAM)
    _sync(project, [record(id=1, name="a"), record(id="x", name="b"), NOT_AN_OBJECT, state(1)])
    _sync(project, [record(id=1, name="c"), record(id=2, name="c"), state(2)])
    assert project.rows("append", "things") == [
        {"id": 1, "name": "a"},
        {"id": 1, "name": "c"},
        {"id": 2, "name": "c"},
        {"id": None, "name": "b"},
    ]
    assert project.rows("append_dedup", "things") == [
        {"id": 1, "name": "c"},
        {"id": 2, "name": "c"},
    ]
    versions = project.rows("append_dedup", "things_history")
    assert {(version["id"], version["name"]) for version in versions if version["_is_current"]} == {
        (1, "c"),
        (2, "c"),
    }
    for policy, rejected in {"append": 1, "append_dedup": 2}.items():
        assert len(project.rows(policy, "things_dead_letter")) == rejected
    assert project.rows("counts") == [{"name": "c", "count": 2}]


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import elt_assets

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
elt_assets.register(spark)
users = spark.read.format("elt").option("columns", "id").load("shop/users")
print(sorted(row.id for row in users.collect()))
rows = spark.readStream.format("elt").load("shop/users")
query = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
while True:
    try:
        query.trigger(availableNow=True).start(f"{folder}/out").awaitTermination()
        break
    except Exception as error:  # Spark waits ten seconds for a worker, which a busy machine may not do
        if "failed to connect back" not in str(error):
            raise
print(spark.read.parquet(f"{folder}/out").count())
"""


def _read_on(url: str, project: Project) -> subprocess.CompletedProcess[str]:
    (project.root / "defs").mkdir()
    write_deltalake(str(project.home / "lake" / "shop" / "users"), pa.table({"id": [1, 2]}))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(project.root)],
        env=project.environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_format_elt_is_read_on_a_server(project: Project, tmp_path: Path) -> None:
    """The server has the package, and neither the project nor its settings."""
    with run_connect_server(tmp_path, sys.executable, str(REPOSITORY)) as url:
        done = _read_on(url, project)
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n2\n"), done.stderr


def test_a_server_without_the_package_says_so(server: str, project: Project) -> None:
    done = _read_on(server, project)
    assert "install it for the driver (with Spark Connect, on the server)" in done.stderr


def _sync(project: Project, lines: list[Any]) -> None:
    for policy, settings in POLICIES.items():
        script(project, lines, name=policy, destination_sync_mode=policy, **settings)
    done = project.materialize(ALL, JAVA_HOME=str(project.root / "no-java"))
    assert done.returncode == 0, done.stdout + done.stderr
