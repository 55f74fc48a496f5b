"""Each policy against a model of ten lines: a dict, or a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.merge import file_splitting
from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, checkpoint, rows, stage, stream, take_generations
from tests.support.examples import few

PROPERTIES = {"k": INTEGER, "c": INTEGER, "v": INTEGER}

Record = tuple[int | None, int | None, int]
"""Key, cursor, and a number that tells the record from all others."""
Batch = list[Record]
Sync = list[Batch]


def sync(lake: Lake, policy: str, batches: Sync) -> None:
    key = ["k"] if policy in (APPEND_DEDUP, OVERWRITE_DEDUP) else []
    configured = stream(PROPERTIES, policy, key=key, cursor=["c"])
    take_generations(configured, lake.table.metadata)
    writer, first = lake.writer(configured), 0
    for number, batch in enumerate(batches):
        data = [dict(zip("kcv", record, strict=True)) for record in batch]
        writer.write(stage(lake.folder / "staging", data, first=first))
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


def numbered(drawn: list[list[list[tuple[int, int | None]]]]) -> list[Sync]:
    numbers = iter(range(10_000))
    return [[[(k, c, next(numbers)) for k, c in batch] for batch in sync] for sync in drawn]


@pytest.mark.spec("protocol.82", "protocol.86")
@pytest.mark.parametrize("policy", MODELS)
@few(2)
@given(drawn=syncs)
def test_a_policy_equals_its_model(
    spark_provider: SparkProvider,
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    drawn: list[list[list[tuple[int, int | None]]]],
) -> None:
    lake = Lake(spark_provider, tmp_path_factory.mktemp(policy))
    expected: list[Record] = []
    for batches in numbered(drawn):
        sync(lake, policy, batches)
        expected = MODELS[policy](expected, batches)
        assert records(lake) == sorted(expected, key=repr)


def records(lake: Lake) -> list[tuple[Any, ...]]:
    return rows(lake.spark, lake.table, "k", "c", "v")


def after(lake: Lake, *batches: Batch) -> list[tuple[Any, ...]]:
    """Return the rows that `append_dedup` leaves of batches, each of them a sync."""
    for batch in batches:
        sync(lake, APPEND_DEDUP, [batch])
    return records(lake)


@pytest.mark.spec("protocol.92")
def test_the_later_of_two_records_with_equal_cursors_replaces_the_earlier(lake: Lake) -> None:
    assert after(lake, [(1, 5, 0), (1, 5, 1)], [(1, 5, 2)]) == [(1, 5, 2)]


@pytest.mark.spec("protocol.92")
def test_a_late_record_does_not_replace_a_newer_one(lake: Lake) -> None:
    assert after(lake, [(1, 5, 0)], [(1, 4, 1), (2, 0, 2)]) == [(1, 5, 0), (2, 0, 2)]


def test_a_null_cursor_is_less_than_any_value(lake: Lake) -> None:
    first: Batch = [(1, 0, 0), (2, None, 1), (3, None, 2)]
    second: Batch = [(1, None, 3), (2, 0, 4), (3, None, 5)]
    assert after(lake, first, second) == [(1, 0, 0), (2, 0, 4), (3, None, 5)]


def test_a_merge_rewrites_only_files_that_contain_its_keys(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)  # a table that is worth taking apart
    after(lake, [(1, 0, 0)])
    untouched = set(lake.table.files)
    after(lake, [(2, 0, 1)], [(2, 1, 2), (3, 0, 3)])
    assert untouched < set(lake.table.files)


def test_a_repeated_batch_changes_nothing(lake: Lake) -> None:
    batch: Batch = [(k, k % 3, k) for k in range(20)]
    assert after(lake, batch) == after(lake, batch)
