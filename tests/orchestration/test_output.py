"""The output of a run: short if all is well; an error is at the end, where people look for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import dagster

from tests.programs.scripted import script
from tests.support.project import Project

REPORT = re.compile(r" (reading|writing|committing|starting Spark|installing \S+): ")
"""A report within a phase: how many there are depends on the speed of the machine."""


DAGSTER = f"{Path(dagster.__file__).parent}{os.sep}"
"""In a warning that Dagster's own command line gives of itself."""


def lines(project: Project, select: str, *, code: int = 0) -> list[str]:
    """Return what the README's command prints on stdout and stderr."""
    done = project.materialize(select, without=("PYTHONWARNINGS",))
    assert done.returncode == code, done.stdout + done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if not REPORT.search(line)]


def test_a_successful_run_prints_at_most_ten_lines_per_stream(project: Project) -> None:
    streams = [
        {"name": "users", "sync_mode": "incremental", "destination_sync_mode": "append_dedup"},
        {"name": "products", "destination_sync_mode": "overwrite"},
    ]
    source = {"connector": "faker", "config": {"count": 30}}
    project.connection("small", source=source, streams=streams)
    project.discover("small")
    printed = lines(project, "group:small")
    text = "\n".join(printed)
    assert len(printed) <= 20, text
    own = "\n".join(line for line in printed if DAGSTER not in line)
    assert not re.search(r"BetaWarning|PreviewWarning| DEBUG |log4j| WARN ", own), text
    assert " - small__users - done in " in text and "30 records read, 30 committed" in text


def test_the_last_lines_of_a_failed_run_show_the_error(project: Project) -> None:
    error = {"message": "the token has expired", "failure_type": "config_error"}
    trace = {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.5, "error": error}}
    script(project, [trace, "!exit 1"])
    printed = lines(project, "group:scripted", code=1)
    assert "the token has expired" in "\n".join(printed[-30:])
    assert "The above exception" not in "\n".join(printed)


def test_the_last_lines_name_a_connection_that_cannot_be_loaded(project: Project) -> None:
    script(project, [])
    project.connection("fresh", source={"connector": "faker"}, streams=[{"name": "users"}])
    folder = project.root / "defs" / "fresh"
    printed = lines(project, "group:scripted", code=1)
    assert printed[-3:] == [
        f"elt_assets.errors.ConfigError: {folder / 'defs.yaml'}: connection 'fresh' cannot be loaded",
        f"{folder / 'catalog.json'} does not exist",
        "write it with `elt discover fresh`",
    ]
    assert "The above exception" not in "\n".join(printed)
