"""Every table equals that of an uninterrupted run after a kill −9 at the worst moments and another run."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import TableNotFoundError

from tests.support.project import Project

pytestmark = pytest.mark.long  # `test_crash_loop` is the short form

STREAMS = [
    {"name": "users", "sync_mode": "incremental", "destination_sync_mode": "append_dedup"},
    {"name": "orders", "sync_mode": "incremental", "destination_sync_mode": "append"},
]


def _source(**config: Any) -> dict[str, Any]:
    return {"connector": "faker", "config": {"count": 400, "records_per_state": 50, **config}}


def _connect(project: Project, **config: Any) -> None:
    project.connection(
        "crash",
        source=_source(**config),
        streams=STREAMS,
        checkpoint={"rows": 150},
    )
    project.discover("crash")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("uninterrupted"))
    _connect(project)
    project.sync("group:crash")
    return project


@pytest.mark.parametrize("stream", ["users", "orders"])
def test_a_run_killed_while_reading_is_resumed_without_loss(
    project: Project, uninterrupted: Project, stream: str
) -> None:
    _connect(project, delay_ms=700)
    run = project.start(f'key:"crash/{stream}"')
    try:
        _wait_for_commit(project, stream)
    finally:
        project.kill(run)
    partial = len(project.rows("crash", stream))
    assert 0 < partial < len(uninterrupted.rows("crash", stream))

    project.amend("crash", source=_source())
    log = project.sync(f'key:"crash/{stream}"')

    assert project.rows("crash", stream) == uninterrupted.rows("crash", stream)
    assert project.metadata("crash", stream)["elt/records_read"] == (
        len(uninterrupted.rows("crash", stream)) - partial
    )
    assert not list((project.home / "staging").iterdir()), log


def _wait_for_commit(project: Project, stream: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if project.table("crash", stream).version() >= 1:
                return
        except TableNotFoundError:
            pass
        time.sleep(0.1)
    raise TimeoutError("no commit was seen")


@pytest.mark.spec("protocol.103")
def test_a_run_killed_between_commit_and_event_is_reported_by_the_next_run(
    project: Project, uninterrupted: Project
) -> None:
    _connect(project)
    done = project.materialize('key:"crash/orders"', ELT_FAILPOINT="stream_complete")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert project.rows("crash", "orders") == uninterrupted.rows("crash", "orders")

    log = project.sync('key:"crash/orders"')

    assert "the event log" in log
    uninterrupted.sync('key:"crash/orders"')
    assert project.rows("crash", "orders") == uninterrupted.rows("crash", "orders")
    metadata = project.metadata("crash", "orders")
    assert metadata["elt/state"] == project.committed_state("crash", "orders")


def test_the_cursor_is_read_from_the_table_without_a_dagster_home(tmp_path: Path) -> None:
    project = Project(tmp_path)
    _connect(project)
    lake = {"ELT_LAKE": str(project.home / "lake"), "ELT_STAGING": str(tmp_path / "staging")}
    select = 'key:"crash/users"'
    first = project.materialize(select, without=("DAGSTER_HOME",), **lake)
    assert first.returncode == 0, first.stderr
    state = project.committed_state("crash", "users")

    second = project.materialize(select, without=("DAGSTER_HOME",), **lake)

    assert second.returncode == 0, second.stderr
    assert "DAGSTER_HOME is not set" in second.stdout + second.stderr
    assert project.committed_state("crash", "users") != state
    assert int(project.table("crash", "users").history(1)[0]["elt.records"]) < 100
