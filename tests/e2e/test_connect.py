"""Syncs on a Spark Connect server: the settings file names it, and the run itself starts no Java."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.daemons import python_of_executors, run_connect_server
from tests.programs.scripted import record, script, state
from tests.support.project import Project

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


def _sync(project: Project, lines: list[Any]) -> None:
    for policy, settings in POLICIES.items():
        script(project, lines, name=policy, destination_sync_mode=policy, **settings)
    done = project.materialize(ALL, JAVA_HOME=str(project.root / "no-java"))
    assert done.returncode == 0, done.stdout + done.stderr
