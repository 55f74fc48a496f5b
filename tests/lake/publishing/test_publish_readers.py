"""Readers that nobody here wrote read what is published as the Delta table is: Polars, and DuckDB.

pyiceberg reads it after each step of `test_publish_histories`. Here the same histories are read by all three,
by seed: the long form (`-m long`) has 100 seeds, each a test of its own (`-k seed-17-` runs one), of which
`ELT_PUBLISH_SEEDS=40-99` are those that are left.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.lake.modelled import THEMES
from tests.lake.plain import SMALL_COMMITS, without_spark
from tests.lake.publishing import oracle
from tests.lake.publishing.histories import Published
from tests.lake.test_commit_model import bounded
from tests.support.iceberg_readers import DuckDb, read_by_polars
from tests.support.seeds import read_range

pytestmark = [pytest.mark.spark, pytest.mark.external]


def seeds_of_long_form() -> list[Any]:
    """Return the seeds as parameters of a test, of which each has the name `seed-NUMBER-`."""
    numbers = read_range("ELT_PUBLISH_SEEDS", 100)
    return [pytest.param(number, id=f"seed-{number}-") for number in numbers]


class ReadByAll(Published):
    """A machine whose tables are published at its end, and read by all readers."""

    duck: ClassVar[DuckDb]

    def teardown(self) -> None:
        try:
            for table in self.tables():
                self.publisher.publish(table)
                oracle.check_current(self.publisher, table)
                for read in (read_by_polars, self.duck.read):
                    oracle.check(self.publisher, table, read)
        finally:
            super().teardown()


def run_machine(theme: str, duck: DuckDb, how: Any, number: int) -> None:
    machine = type("Machine", (ReadByAll,), {"theme": THEMES[theme], "duck": duck})
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(seed(number)(machine), settings=how)


def test_all_readers_read_what_is_published(duck: DuckDb) -> None:
    run_machine("all", duck, bounded(4, 8, repeats=False), 1)


@pytest.mark.long
@pytest.mark.parametrize("number", seeds_of_long_form())
def test_all_readers_read_what_is_published_in_long_histories(number: int, duck: DuckDb) -> None:
    theme = list(THEMES)[number % len(THEMES)]
    run_machine(theme, duck, bounded(3, 20, repeats=False), number)
