"""Whatever happens to a table, in whatever order, what is acknowledged stays and belongs together.

`modelled.py` says what can happen. In the short form each theme is a few examples, nearly all without
Spark. The long form (`-m long`) takes `ELT_MODEL_MINUTES` (30), a part of them with Spark, and says how far
it came; each round tells its seed, and `ELT_MODEL_SEED` makes the first round of a run begin with it.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.writer import TableWriter
from tests.lake.modelled import STEPS, THEMES, Machine, Theme
from tests.lake.plain import SMALL_COMMITS, without_spark

pytestmark = pytest.mark.spark

MINUTES = float(os.environ.get("ELT_MODEL_MINUTES", "30"))
SEED = int(os.environ.get("ELT_MODEL_SEED", "0"))
SPARK_EVERY = 8
"""The number of rounds of the long form of which one is with Spark."""


def machine(theme: Theme) -> type[Machine]:
    return type("Machine", (Machine,), {"theme": theme})


def bounded(examples: int, steps: int, *, repeats: bool) -> settings:
    """`repeats`: the same examples each time, as they are; else what fails is made as short as can be, which
    may take minutes."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=repeats,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate] if repeats else [Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        print_blob=False,
    )


def with_spark(theme: Theme, provider: SparkProvider) -> Theme:
    """The same, rows being Spark's."""
    worlds = [replace(world, provider=provider, writer=TableWriter) for world in theme.worlds]
    return replace(theme, worlds=tuple(worlds))


@pytest.mark.parametrize("name", [name for name in THEMES if name != "all"])
def test_acknowledged_records_are_never_lost(name: str) -> None:
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(machine(THEMES[name]), settings=bounded(8, 10, repeats=True))


@pytest.mark.parametrize("name", ["keys", "companions"])
def test_acknowledged_records_are_never_lost_with_spark(
    name: str, spark_provider: SparkProvider
) -> None:
    theme = with_spark(THEMES[name], spark_provider)
    run_state_machine_as_test(machine(theme), settings=bounded(2, 2, repeats=True))


@pytest.mark.long
def test_acknowledged_records_are_never_lost_in_long_runs(
    spark_provider: SparkProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    STEPS.clear()
    end, names = time.monotonic() + MINUTES * 60, list(THEMES)
    first = SEED or random.SystemRandom().randrange(1, 10**6)
    rounds = 0
    try:
        while time.monotonic() < end:
            name = names[rounds % len(names)]
            is_with_spark = rounds % SPARK_EVERY == SPARK_EVERY - 1
            with capsys.disabled():
                engine = "with Spark" if is_with_spark else "without Spark"
                print(f"\nseed {first + rounds}: {name}, {engine}", end="", flush=True)
            one_round(THEMES[name], first + rounds, spark_provider if is_with_spark else None)
            rounds += 1
    finally:
        with capsys.disabled():
            print(f"\n{rounds} rounds; " + ", ".join(f"{n} × {s}" for s, n in STEPS.most_common()))


def one_round(theme: Theme, number: int, provider: SparkProvider | None) -> None:
    """Some examples that a seed makes."""
    found = theme if provider is None else with_spark(theme, provider)
    how = bounded(5, 20, repeats=False) if provider is None else bounded(3, 8, repeats=False)
    with without_spark(SMALL_COMMITS) if provider is None else contextlib.nullcontext():
        run_state_machine_as_test(seed(number)(machine(found)), settings=how)
