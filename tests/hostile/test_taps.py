"""Taps that attack their reader, each by its messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.programs.hostile_tap import ATTACKS

pytestmark = pytest.mark.process

MEMORY = 300
"""The most memory of the process that reads, in MiB."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each attack; all are run in one process."""
    command = [
        sys.executable,
        "-m",
        "tests.hostile.reading_tap",
        str(tmp_path_factory.mktemp("taps")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {outcome["name"]: outcome for outcome in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_a_complete_sync_or_in_one_clear_error(
    name: str, outcomes: dict[str, Any]
) -> None:
    outcome, expected = outcomes[name], ATTACKS[name].error
    if expected is None:
        assert outcome["error"] is None and outcome["rows"] == [1]
    else:
        assert re.search(expected, outcome["error"] or "") and len(outcome["error"]) < 30_000
    assert outcome["peak"] < MEMORY
