"""The same syncs on a standalone cluster and in the embedded session: only the settings file differs."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.e2e.standalone import Cluster, check_work, cluster, configure
from tests.programs.scripted import record, script, state
from tests.support.object_store import new_bucket, s3_server
from tests.support.project import Project

__all__ = ["cluster"]

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
LOADED = """
import dagster as dg


@dg.asset(ins={"rows": dg.AssetIn(["scripted", "things"])}, io_manager_key="io_manager")
def loaded(rows):
    return rows.groupBy().count()
"""


@pytest.mark.long
def test_syncs_and_merges_run_on_both_workers(cluster: Cluster, tmp_path: Path) -> None:
    remote = Project(tmp_path / "remote")
    _connect(remote)
    configure(remote, cluster, tmp_path)
    earlier = cluster.list_finished()
    first = _sync_twice(remote, "group:increments")
    assert _merge(first, remote.rows("increments", "users"))
    assert all(remote.rows(*table) for table in TABLES if table[0] == "increments")
    check_work(cluster, earlier)


@pytest.mark.long
def test_every_policy_gives_the_same_tables_as_a_local_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    local, remote = Project(tmp_path / "local"), Project(tmp_path / "remote")
    _connect(local)
    shutil.copytree(local.root / "defs", remote.root / "defs")
    configure(remote, cluster, tmp_path)
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
    executors, if this user can hide it. The asset beside the connection runs in a process of its own."""
    project = Project(cluster.hidden / tmp_path.name)
    configure(project, cluster, tmp_path)
    earlier = cluster.list_finished()
    folder = project.root / "defs"
    folder.mkdir()
    (folder / "loaded.py").write_text(LOADED)
    dedup: dict[str, Any] = {"primary_key": [["key"]], "history": True, **DEDUP}
    schema = {"key": {"type": "integer"}, "id": {"type": "integer"}, "text": {"type": "string"}}
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
            # More bytes than one task parses: with fewer, one of the two workers may have all tasks.
            records = [record(key=key, id=cursor, text=os.urandom(100_000).hex()) for key in keys]
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
    check_work(cluster, earlier, 2 * syncs)


def _check_maintenance(remote: Project) -> None:
    """The tasks of the job are in Python, as those of a large merge are."""
    assert len(remote.table("increments", "orders").file_uris()) > 1
    remote.run_job("elt_maintenance")
    assert len(remote.table("increments", "orders").file_uris()) == 1


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
