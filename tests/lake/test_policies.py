"""Each policy against a model of ten lines: a dict, or a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec, generations
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP
from tests.lake.staging import APP, INTEGER, checkpoint, rows, stage, stream

PROPERTIES = {"k": INTEGER, "c": INTEGER, "v": INTEGER}

Record = tuple[int | None, int | None, int]
"""Key, cursor, and a number that tells the record from all others."""
Batch = list[Record]
Sync = list[Batch]


@dataclass
class Lake:
    """Runs each sync as a new process would: it opens the table again and creates a writer."""

    provider: SparkProvider
    folder: Path
    policy: str
    deduplicates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.deduplicates = self.policy in (APPEND_DEDUP, OVERWRITE_DEDUP)

    @property
    def table(self) -> Table:
        return Table(str(self.folder / "users"), APP)

    def sync(self, batches: Sync) -> None:
        tables = StreamTables(str(self.folder / "users"), APP)
        configured = stream(
            PROPERTIES, self.policy, key=["k"] if self.deduplicates else [], cursor=["c"]
        )
        written = generations(configured, tables.metadata)
        configured.generation_id = written.generation_id
        configured.minimum_generation_id = written.minimum_generation_id
        writer, first = TableWriter(self.provider, tables, WriteSpec(configured, "run")), 0
        for number, batch in enumerate(batches):
            data = [dict(zip("kcv", record, strict=True)) for record in batch]
            writer.write(stage(self.folder / "staging", data, first=first))
            first += len(batch)
            if not configured.overwrites:
                writer.commit(checkpoint(number))
        writer.commit(checkpoint(final=True))
        writer.close()


def appended(table: Iterable[Record], batches: Sync) -> list[Record]:
    return [*table, *(record for batch in batches for record in batch)]


def overwritten(table: Iterable[Record], batches: Sync) -> list[Record]:
    return appended([], batches)


def merged(table: Iterable[Record], batches: Sync) -> list[Record]:
    """The greatest cursor wins, null is less than any; of equal ones the later."""
    latest: dict[int, Record] = {}
    for record in appended(table, batches):
        key, cursor, _ = record
        if key is None:
            continue
        present = latest.get(key, record)[1]
        if cursor == present or present is None or (cursor is not None and cursor > present):
            latest[key] = record
    return list(latest.values())


def replaced(table: Iterable[Record], batches: Sync) -> list[Record]:
    return merged([], batches)


MODELS: dict[str, Callable[[Iterable[Record], Sync], list[Record]]] = {
    APPEND: appended,
    OVERWRITE: overwritten,
    APPEND_DEDUP: merged,
    OVERWRITE_DEDUP: replaced,
}

pairs = st.tuples(st.integers(0, 12), st.none() | st.integers(0, 4))
syncs = st.lists(
    st.lists(st.lists(pairs, min_size=1, max_size=25), min_size=1, max_size=2),
    min_size=2,
    max_size=3,
)
few = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def numbered(drawn: list[list[list[tuple[int, int | None]]]]) -> list[Sync]:
    numbers = iter(range(10_000))
    return [[[(k, c, next(numbers)) for k, c in batch] for batch in sync] for sync in drawn]


@pytest.mark.parametrize("policy", MODELS)
@few
@given(drawn=syncs)
def test_a_policy_equals_its_model(
    spark_provider: SparkProvider,
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    drawn: list[list[list[tuple[int, int | None]]]],
) -> None:
    lake = Lake(spark_provider, tmp_path_factory.mktemp(policy), policy)
    expected: list[Record] = []
    for batches in numbered(drawn):
        lake.sync(batches)
        expected = MODELS[policy](expected, batches)
        found = rows(spark_provider.get(), lake.table, "k", "c", "v")
        assert sorted(found, key=repr) == sorted(expected, key=repr)


def after(provider: SparkProvider, folder: Path, *batches: Batch) -> list[tuple[Any, ...]]:
    """Return the rows that `append_dedup` leaves of batches, each of them a sync."""
    lake = Lake(provider, folder, APPEND_DEDUP)
    for batch in batches:
        lake.sync([batch])
    return rows(provider.get(), lake.table, "k", "c", "v")


def test_the_later_of_two_records_with_equal_cursors_replaces_the_earlier(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    assert after(spark_provider, tmp_path, [(1, 5, 0), (1, 5, 1)], [(1, 5, 2)]) == [(1, 5, 2)]


def test_a_late_record_does_not_replace_a_newer_one(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    assert after(spark_provider, tmp_path, [(1, 5, 0)], [(1, 4, 1), (2, 0, 2)]) == [
        (1, 5, 0),
        (2, 0, 2),
    ]


def test_a_null_cursor_is_less_than_any_value(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    found = after(
        spark_provider,
        tmp_path,
        [(1, 0, 0), (2, None, 1), (3, None, 2)],
        [(1, None, 3), (2, 0, 4), (3, None, 5)],
    )
    assert found == [(1, 0, 0), (2, 0, 4), (3, None, 5)]


def test_a_merge_rewrites_only_files_that_contain_its_keys(
    spark_provider: SparkProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)  # a table that is worth taking apart
    lake = Lake(spark_provider, tmp_path, APPEND_DEDUP)
    lake.sync([[(1, 0, 0)]])
    untouched = set(lake.table.files)
    lake.sync([[(2, 0, 1)]])
    lake.sync([[(2, 1, 2), (3, 0, 3)]])
    assert untouched < set(lake.table.files)


def test_a_repeated_batch_changes_nothing(
    spark_provider: SparkProvider, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark_provider, tmp_path, APPEND_DEDUP)
    batch: Batch = [(k, k % 3, k) for k in range(20)]
    lake.sync([batch])
    once = rows(spark, lake.table, "k", "c", "v")
    lake.sync([batch])
    assert rows(spark, lake.table, "k", "c", "v") == once
