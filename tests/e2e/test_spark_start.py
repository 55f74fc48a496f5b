"""The time at which a run starts Spark: at the first record, and not at all if the source sends none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.programs.scripted import record, script, state, status
from tests.support.project import Project

MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "append_dedup": {"primary_key": [["id"]], "history": True},
    "overwrite": {"sync_mode": "full_refresh"},
    "overwrite_dedup": {"sync_mode": "full_refresh", "primary_key": [["id"]]},
}
EVERY = " or ".join(f"group:{mode}" for mode in MODES)
STATEFUL = ("append", "append_dedup")


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A home of a Java that cannot start; it makes the file `called` beside its `bin`."""
    home = tmp_path / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch '{home}/called'\nexit 1\n")
    program.chmod(0o755)
    return home


def _say(project: Project, lines: dict[str, list[Any]]) -> None:
    for mode, settings in MODES.items():
        script(project, lines[mode], name=mode, destination_sync_mode=mode, **settings)


def _sync(project: Project, select: str, java: Path) -> subprocess.CompletedProcess[str]:
    return project.materialize(select, JAVA_HOME=str(java))


@pytest.mark.long
def test_a_sync_without_records_starts_no_java(project: Project, java: Path) -> None:
    """Neither for an unchanged state nor for a new one, nor where a refresh removes the rows."""
    _say(project, {mode: [record(id=1), state(1)] for mode in MODES})
    project.sync(EVERY)
    complete = {mode: [status("COMPLETE")] for mode in MODES}
    _say(project, {**complete, "append": [state(1)], "append_dedup": [state(2)]})
    for _ in range(2):
        done = _sync(project, EVERY, java)
        assert done.returncode == 0, done.stderr
    assert not (java / "called").exists()
    rows = {mode: [row["id"] for row in project.rows(mode, "things")] for mode in MODES}
    assert rows == {mode: [1] if mode in STATEFUL else [] for mode in MODES}
    committed = project.committed_state("append_dedup", "things")
    assert committed["stream"]["stream_state"] == {"cursor": 2}


def test_the_first_sync_of_an_empty_source_starts_no_java(project: Project, java: Path) -> None:
    """The run creates the tables, and the first record starts Spark."""
    _say(project, {mode: [state(1)] if mode in STATEFUL else [] for mode in MODES})
    done = _sync(project, EVERY, java)
    assert done.returncode == 0, done.stderr
    assert not (java / "called").exists()
    assert [project.rows(mode, "things") for mode in MODES] == [[], [], [], []]
    script(project, [record(id=1), state(2)], name="append")
    failed = _sync(project, "group:append", java)
    assert failed.returncode != 0
    assert "Spark cannot be started" in failed.stdout + failed.stderr
    assert (java / "called").exists()
