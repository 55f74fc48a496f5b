"""What passes is tried again, from where the last attempt got to; what does not pass is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.orchestration.running import failure_of, materialize
from tests.project import Project
from tests.scripted import record, script, state
from tests.windowed_source import calls, windowed

KEY = 'key:"weather/readings"'
LIVE: Any = {"sync_mode": "incremental", "destination_sync_mode": "append"}
SOON = {"attempts": 2, "delay": "0.1s"}

pytestmark = pytest.mark.usefixtures("spark")


def test_a_transient_error_is_tried_again_from_the_last_state(own: Project) -> None:
    file = windowed(own, config={"fails_at": "2026-01-03T12:00:00+00:00"}, **LIVE)
    own.amend("weather", retry=SOON)
    assert "the line is dead" in failure_of(materialize(own, KEY))
    second = {"at": "2026-01-02T23:00:00+00:00"}
    assert [call["state"] for call in calls(file)] == [None, second, second]
    assert len(own.rows("weather", "readings")) == 96


def test_a_retry_that_goes_well_is_a_success(own: Project, tmp_path: Path) -> None:
    mark = tmp_path / "failed-once"
    lines = [record(id=1), state(1), f"!once {mark}", record(id=2), state(2)]
    script(own, lines)
    own.amend("scripted", retry=SOON)
    assert materialize(own, 'key:"scripted/things"').success
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 1, 2]


@pytest.mark.parametrize("failure_type", ["config_error", "system_error"])
def test_what_does_not_pass_is_not_tried_again(own: Project, failure_type: str) -> None:
    error = {"message": "no", "failure_type": failure_type}
    trace = {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}}
    script(own, [trace, "!exit 1"])
    own.amend("scripted", retry={"attempts": 2, "delay": "1h"})
    assert not materialize(own, 'key:"scripted/things"').success


def test_a_connector_that_falls_silent_is_ended(own: Project) -> None:
    script(own, [record(id=1), state(1), "!sleep 600"])
    own.amend("scripted", heartbeat="2s")
    failure = failure_of(materialize(own, 'key:"scripted/things"'))
    assert "said nothing for 2 seconds, and was ended" in failure
    assert "`heartbeat`" in failure
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]
