"""Connectors that attack their reader, each by its messages, its folder or its process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs.hostile_connector import ATTACKS, SECRET

pytestmark = pytest.mark.process

MEMORY = 300
"""The most memory of the process that reads, in MiB, of which 60 are Python and this project."""
EVENTS = 300
"""The most events of a sync with one record: 200 lines of the log, and what is left."""


def read_all(top: Path, scale: int, *names: str) -> dict[str, Any]:
    """Run attacks in one process, all if none is named; return what came of each, by its name."""
    canaries = top / "canaries"
    canaries.mkdir(parents=True)
    (canaries / "file").write_text("x")
    command = [sys.executable, "-m", "tests.hostile.reading", str(top), str(scale), *names]
    environment = {**os.environ, "OTHER_PASSWORD": "another-secret-value"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "another-secret" not in done.stdout + done.stderr
    assert [path.name for path in canaries.iterdir()] == ["file"]
    outcomes = map(json.loads, done.stdout.splitlines())
    return {outcome["name"]: outcome for outcome in outcomes}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_all(tmp_path_factory.mktemp("hostile"), 1)


def check(name: str, outcome: dict[str, Any], memory: int) -> None:
    attack, error, log = ATTACKS[name], outcome["error"], "\n".join(outcome["logs"])
    if attack.error is None:
        assert error is None
    else:
        assert error is not None and re.search(attack.error, error)
        assert len(error) < 30_000
    assert all(re.search(pattern, log) for pattern in attack.logs), log[:2000]
    assert len(log) < 300_000 and outcome["events"] < EVENTS
    if attack.verb == "read":
        assert outcome["rows"] == attack.rows
    assert outcome["left"] == []
    assert outcome["peak"] < memory


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_a_complete_sync_or_in_one_clear_error(
    name: str, outcomes: dict[str, Any]
) -> None:
    check(name, outcomes[name], MEMORY)


@pytest.mark.long
def test_the_size_of_an_attack_does_not_matter(tmp_path: Path) -> None:
    for name in (
        ATTACKS
    ):  # each in a process of its own: a process keeps what large values took of its heap
        check(name, read_all(tmp_path / name, 10, name)[name], 3 * MEMORY)
