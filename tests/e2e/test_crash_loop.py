"""Every record and its state are there once after kill −9 again and again, at times that a seed sets.

In the long form (`-m long`) one seed after another for `ELT_CRASH_MINUTES` (30), from `ELT_CRASH_SEED` on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elt_assets.protocol.catalog import INCREMENTAL
from tests.programs.counting_source import MODES, counting, expected
from tests.support.project import Project
from tests.support.runs import materialize

MINUTES = float(os.environ.get("ELT_CRASH_MINUTES", "30"))
SEED = int(os.environ.get("ELT_CRASH_SEED", "0"))
SELECT = "group:loop"
LAST, EVERY, DELAY = 160, 20, 0.2
COMMITS = 6
"""The highest number of commits after which a run is killed."""
LATEST = 1.0
"""Seconds after that: so that a run dies anywhere between two commits."""


def commits(project: Project) -> int:
    return len(list(project.home.glob("lake/loop/*/_delta_log/*.json")))


def run_until_killed(project: Project, chance: random.Random) -> bool:
    """Return whether the run was killed before its end."""
    target = commits(project) + chance.randint(0, COMMITS)
    run = project.start(SELECT)
    try:
        while run.poll() is None and commits(project) < target:
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(chance.uniform(0, LATEST))
    finally:
        is_killed = run.poll() is None
        if is_killed:
            project.kill(run)
    return is_killed


def crash(project: Project, seed: int, kills: int, finish: Callable[[], Any]) -> int:
    """Kill a run so often, and then let one end, `finish`; returns how many were killed."""
    chance = random.Random(seed)
    counting(project, "loop", last=LAST, every=EVERY, delay=DELAY)
    killed = sum(run_until_killed(project, chance) for _ in range(kills))
    counting(project, "loop", last=LAST, every=EVERY, delay=0)
    finish()
    for policy, mode in MODES.items():
        numbers = sorted(row["n"] for row in project.rows("loop", policy))
        assert numbers == expected(policy, LAST), f"seed {seed}: {policy}"
        metadata, committed = (
            project.metadata("loop", policy),
            project.committed_state("loop", policy),
        )
        assert metadata["elt/state"] == committed, f"seed {seed}: {policy}"
        if mode == INCREMENTAL:
            assert committed["stream"]["stream_state"] == {"n": LAST}, f"seed {seed}: {policy}"
    assert not list((project.home / "staging").iterdir()), f"seed {seed}"
    versions = project.rows("loop", "append_dedup_history")
    current = sorted(row["n"] for row in versions if row["_is_current"])
    assert current == expected("append_dedup", LAST), f"seed {seed}"
    assert sorted(row["n"] for row in versions) == list(range(1, LAST + 1)), f"seed {seed}"
    return killed


@pytest.mark.usefixtures("spark")
def test_no_record_is_lost_or_repeated_by_repeated_kills(own: Project) -> None:
    assert crash(own, seed=1, kills=1, finish=lambda: materialize(own, SELECT)) > 0


@pytest.mark.long
def test_no_record_is_lost_or_repeated_by_kills_of_many_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = time.monotonic() + MINUTES * 60
    seeds, killed = 0, 0
    try:
        while time.monotonic() < end:
            project = Project(tmp_path / str(seeds))
            finish = functools.partial(project.sync, SELECT)
            killed += crash(project, SEED + seeds, kills=4, finish=finish)
            seeds += 1
    finally:
        with capsys.disabled():
            print(f"\n{seeds} seeds from {SEED} on, {killed} runs killed")
