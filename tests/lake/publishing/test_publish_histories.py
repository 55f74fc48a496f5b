"""Histories of syncs, merges, refreshes, schema changes, restores, compactions, vacuums and kills, published.

The long form (`-m long`) takes `ELT_MODEL_MINUTES` (30); each round tells its seed, and `ELT_MODEL_SEED`
makes the first round of a run begin with it.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.lake.modelled import STEPS, THEMES, Theme
from tests.lake.plain import SMALL_COMMITS, without_spark
from tests.lake.publishing.histories import Published
from tests.lake.test_commit_model import bounded

pytestmark = pytest.mark.spark

MINUTES = float(os.environ.get("ELT_MODEL_MINUTES", "30"))
SEED = int(os.environ.get("ELT_MODEL_SEED", "0"))


def machine(theme: Theme) -> type[Published]:
    return type("Machine", (Published,), {"theme": theme})


@pytest.mark.parametrize("name", ["maintenance", "histories", "schemas", "all"])
def test_what_is_published_equals_its_delta_version_and_catches_up(name: str) -> None:
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(machine(THEMES[name]), settings=bounded(3, 10, repeats=True))


@pytest.mark.long
def test_long_histories_are_published(capsys: pytest.CaptureFixture[str]) -> None:
    STEPS.clear()
    end, names = time.monotonic() + MINUTES * 60, [*THEMES]
    first = SEED or random.SystemRandom().randrange(1, 10**6)
    rounds = 0
    try:
        while time.monotonic() < end:
            name = names[rounds % len(names)]
            with capsys.disabled():
                print(f"\nseed {first + rounds}: {name}", end="", flush=True)
            with without_spark(SMALL_COMMITS):
                how = bounded(5, 20, repeats=False)
                run_state_machine_as_test(seed(first + rounds)(machine(THEMES[name])), settings=how)
            rounds += 1
    finally:
        with capsys.disabled():
            print(f"\n{rounds} rounds; " + ", ".join(f"{n} × {s}" for s, n in STEPS.most_common()))
