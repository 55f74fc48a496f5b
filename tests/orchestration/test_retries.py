"""Errors that may pass are tried again from the last commit; others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import calls, windowed
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

KEY = 'key:"weather/readings"'
LIVE: Any = {"sync_mode": "incremental", "destination_sync_mode": "append"}
BEFORE, FIRST = {"at": "2025-12-31T23:00:00+00:00"}, {"at": "2026-01-01T23:00:00+00:00"}
SOON = {"attempts": 2, "delay": "0.1s"}

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.spec("protocol.146")
def test_a_transient_error_is_retried_from_the_last_state(own: Project) -> None:
    file = windowed(own, config={"fails_at": "2026-01-03T12:00:00+00:00"}, **LIVE)
    own.amend("weather", retry=SOON)
    assert "the line is dead" in failure_of(materialize(own, KEY))
    second = {"at": "2026-01-02T23:00:00+00:00"}
    assert [call["state"] for call in calls(file)] == [None, second, second]
    assert len(own.rows("weather", "readings")) == 96


def test_a_successful_retry_makes_the_run_succeed(own: Project, tmp_path: Path) -> None:
    mark = tmp_path / "failed-once"
    lines = [record(id=1), state(1), f"!once {mark}", record(id=2), state(2)]
    script(own, lines)
    own.amend("scripted", retry=SOON)
    assert materialize(own, 'key:"scripted/things"').success
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 1, 2]


@pytest.mark.spec("protocol.146")
@pytest.mark.parametrize("failure_type", ["config_error", "system_error"])
def test_permanent_errors_are_not_retried(own: Project, failure_type: str) -> None:
    error = {"message": "no", "failure_type": failure_type}
    trace = {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}}
    script(own, [trace, "!exit 1"])
    own.amend("scripted", retry={"attempts": 2, "delay": "1h"})
    assert not materialize(own, 'key:"scripted/things"').success


def test_a_silent_connector_is_stopped(own: Project) -> None:
    script(own, [record(id=1), state(1), "!sleep 600"])
    own.amend("scripted", heartbeat="2s")
    failure = failure_of(materialize(own, 'key:"scripted/things"'))
    assert "sent no output for 2 seconds and was stopped" in failure
    assert "`heartbeat`" in failure
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]


@pytest.mark.parametrize(
    ("options", "rows"),
    [({"refresh": "retain"}, 144), ({"refresh": "truncate"}, 96), ({"state": BEFORE}, 144)],
)
def test_a_retry_resumes_the_request_of_the_run(own: Project, options: Any, rows: int) -> None:
    """A retry of the step, and a run that re-executes the failed one."""
    file = windowed(own, config={"to": "2026-01-02"}, **LIVE)
    assert materialize(own, KEY).success
    own.amend("weather", retry={"attempts": 1, "delay": "0.1s"})
    own.reconfigure("weather", to="2026-01-03", fails_at="2026-01-02T12:00:00+00:00")
    failed = materialize(own, KEY, **options)
    assert not failed.success
    own.reconfigure("weather", fails_at="")
    again = materialize(own, KEY, parent=failed.run_id, **options)
    assert again.success
    assert [call["state"] for call in calls(file)[1:]] == [options.get("state"), FIRST, FIRST]
    assert len(own.rows("weather", "readings")) == rows


def test_a_new_request_restarts_from_the_beginning(own: Project) -> None:
    """A run of its own, and a run that re-executes one that succeeded."""
    file = windowed(own, config={"to": "2026-01-02"}, **LIVE)
    first = materialize(own, KEY, refresh="retain")
    assert materialize(own, KEY, parent=first.run_id, refresh="retain").success
    assert materialize(own, KEY, refresh="retain").success
    assert [call["state"] for call in calls(file)] == [None, None, None]
    assert len(own.rows("weather", "readings")) == 144
