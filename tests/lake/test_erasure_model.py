"""Erasures at any moment of a table's history: exactly the selected rows are gone, from wherever they were.

`erasing.py` says what an erasure is in the model of `modelled.py`: syncs under way beside it, refreshes that
are not complete, histories, rejected records, partitions, restores and replays after it; killed at any
failpoint and run again. In the long form (`-m long`) each seed is a test of its own (`-k seed-17-` runs one);
`ELT_ERASE_SEEDS=40-59` are those that are left.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.lake.erasing import Erasing
from tests.lake.modelled import THEMES
from tests.lake.plain import SMALL_COMMITS, without_spark
from tests.lake.test_commit_model import bounded
from tests.support.seeds import read_range

pytestmark = pytest.mark.spark

NAMES = [name for name, theme in THEMES.items() if "erase" in theme.rules]


def run_machine(name: str, how: Any, number: int) -> None:
    machine = type("Machine", (Erasing,), {"theme": THEMES[name]})
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(seed(number)(machine), settings=how)


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_selected_rows_are_gone(name: str) -> None:
    run_machine(name, bounded(4, 10, repeats=True), 0)


def seeds_of_long_form() -> list[Any]:
    numbers = read_range("ELT_ERASE_SEEDS", 60)
    return [pytest.param(number, id=f"seed-{number}-") for number in numbers]


@pytest.mark.long
@pytest.mark.parametrize("number", seeds_of_long_form())
def test_exactly_the_selected_rows_are_gone_in_long_histories(number: int) -> None:
    run_machine(NAMES[number % len(NAMES)], bounded(5, 20, repeats=False), number)
