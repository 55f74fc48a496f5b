"""The kit on streams of the SDK that say what is read: by steps, in descending order, of changed parents."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import run
from connectors.testing import Kit, KitOptions, Report
from connectors.testing.connector import Processes
from connectors.testing.process import Ended, Stopped
from tests.programs.ranged_source import Ranged


def run_here(command: Sequence[str], stdout: Path, stderr: Path, _seconds: float) -> Ended:
    """Run the source in this process: the kit starts it more than fifty times."""
    with stdout.open("wb") as out, stderr.open("w") as log, contextlib.redirect_stderr(log):
        return Ended(run(Ranged(), command[1:], out), 0.0)


def stop_here(_command: Sequence[str], _: Path, after: float) -> Stopped:
    return Stopped(Ended(-15, after), 0)


def check(config: dict[str, Any], **options: Any) -> Report:
    processes = Processes(execute=run_here, stop=stop_here, converse=None)
    return Kit(["ranged"], config, KitOptions(**options), processes).report()


@pytest.mark.parametrize("tap", [False, True], ids=["Airbyte", "Singer"])
def test_streams_that_say_what_is_read_follow_all_rules(tap: bool) -> None:
    outcome = check({}, tap=tap)
    assert outcome.passed, "\n".join(outcome.lines())


def test_a_stream_that_looks_back_sends_its_last_rows_again() -> None:
    outcome = check({"lookback": True}, streams=["late"])
    assert outcome.failed_rules == ["final-state-is-final"], "\n".join(outcome.lines())
