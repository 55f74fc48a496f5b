"""A history's closed versions have files of their own, which a merge reads only to change one of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.admin import maintenance
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import file_splitting, history, key_order
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.history import VALID_TO, history_schema
from elt_assets.lake.merge.key_order import MergeTarget, Ordering
from elt_assets.protocol.catalog import DELETED_AT
from tests.lake.test_key_merge import content
from tests.lake.windows import merge_by_windows

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
CURSORS = ("hour", "number", "none")
SCHEMA = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("hour", t.TimestampType()),
        t.StructField("number", t.LongType()),
        t.StructField("name", t.StringType()),
        t.StructField(DELETED_AT, t.StringType()),
        *metadata_columns.METADATA_FIELDS,
    ]
)
Record = tuple[int, int | None, str, bool]
"""Key, cursor, content, and whether the record is a delete."""


@pytest.fixture(autouse=True)
def split_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are not split, and so their versions are not separated; let these be large."""
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)


@dataclass
class History:
    """A history alone, to which batches are published."""

    spark: SparkSession
    folder: Path
    by: Ordering

    def __post_init__(self) -> None:
        self.main = Table(str(self.folder / "users"), "users")
        self.table = Table(str(self.folder / "users_history"), "users_history")
        self.main.prepare(SCHEMA)
        self.table.prepare(history_schema(SCHEMA))
        self.batches = 0

    def merge(self, records: Sequence[Record], *, late: bool = False) -> None:
        rows = self.spark.createDataFrame(landed(records, self.batches), SCHEMA).coalesce(1)
        batch = Batch(self.main, self.main.write_files(rows))
        target = MergeTarget(self.table.files, self.table.metadata.tombstones)
        by = replace(self.by, is_replay=late)
        merged = history.merge(self.spark, self.table, target, batch, by, SCHEMA)
        self.batches += 1
        head = CommitMetadata(self.batches, 1, None, tombstones=tuple(merged.tombstones))
        self.table.commit(merged.change, head, batch.records)

    @property
    def closed(self) -> set[str]:
        """The files that hold closed versions only."""
        return self.table.paths_lacking_nulls([VALID_TO])

    def rows(self) -> tuple[list[str], list[str]]:
        """The contents for readers, and the ends of keys."""
        names = [*history_schema(SCHEMA).names, "_elt_epoch", "_elt_closed_at"]
        hidden = self.table.metadata.tombstones
        return content(self.table, self.table.files, names), content(self.table, hidden, names)


def landed(records: Sequence[Record], number: int) -> list[tuple[Any, ...]]:
    """The records as rows of a batch, in the order in which they were extracted."""
    extracted = NOON + dt.timedelta(days=1, hours=number)
    return [
        (
            *(key, None if cursor is None else NOON + dt.timedelta(hours=cursor), cursor, name),
            "gone" if is_deleted else None,
            *(f"{number:04}-{place:04}", extracted, 1, (number, [])),
        )
        for place, (key, cursor, name, is_deleted) in enumerate(records)
    ]


def ordering(cursor: str) -> Ordering:
    return Ordering([["id"]], [] if cursor == "none" else [cursor])


@pytest.fixture
def users(spark: SparkSession, tmp_path: Path) -> History:
    """A history of two keys, with a file of closed versions."""
    made = History(spark, tmp_path, ordering("hour"))
    made.merge([(1, 1, "Ann", False), (2, 1, "Bob", False)])
    made.merge([(1, 2, "Anna", False)])
    return made


def test_closed_versions_are_not_read_for_later_ones(users: History) -> None:
    before = users.closed
    assert len(before) == 1
    for path in before:  # a merge that reads it would fail
        Path(users.table.storage.root, path).rename(users.folder / "away")
    users.merge([(1, 3, "An", False), (1, 2, "Anna", False), (3, 1, "Cid", True)])
    assert before < users.closed


@pytest.mark.parametrize(
    "record",
    [(1, 0, "A", False), (1, 2, "A", False), (1, None, "A", True)],
    ids=["before all", "in place of the current", "without a cursor"],
)
def test_a_late_version_changes_closed_ones(users: History, record: Record) -> None:
    expected = by_windows(
        users, [[(1, 1, "Ann", False), (2, 1, "Bob", False)], [(1, 2, "Anna", False)], [record]]
    )
    users.merge([record])
    assert users.rows() == expected


def test_small_files_of_closed_versions_are_combined(
    users: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_splitting, "MIN_SMALL_FILES", 3)
    for hour in range(3, 8):
        users.merge([(1, hour, f"A{hour}", False)])
        assert len(users.closed) <= 3


def test_maintenance_leaves_closed_versions_in_files_of_their_own(users: History) -> None:
    users.merge([(1, 3, "An", False)])
    seen = users.rows()
    assert len(users.closed) == 2
    maintenance.compact(users.spark, users.table)
    assert len(users.closed) == 1
    assert len(users.table.files) == 2
    assert users.rows() == seen


def by_windows(like: History, batches: Sequence[Sequence[Record]]) -> tuple[list[str], list[str]]:
    """The rows of a history into which Spark's windows merged the same batches."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_order, "merge_in_tasks", merge_by_windows)
        other = replace(like, folder=Path(folder))
        for records in batches:
            other.merge(records)
        return other.rows()


RECORD = st.tuples(
    st.integers(1, 3),
    st.none() | st.integers(0, 6),
    st.sampled_from("ab"),
    st.sampled_from([False, False, True]),
)


@pytest.mark.long
@pytest.mark.parametrize("cursor", CURSORS)
def test_batches_in_any_order_give_the_same_history_as_windows(
    spark: SparkSession, cursor: str
) -> None:
    @settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(
        st.lists(st.lists(RECORD, min_size=1, max_size=4), min_size=3, max_size=6), st.booleans()
    )
    def check(batches: list[list[Record]], is_ordered: bool) -> None:
        if is_ordered:  # as most sources deliver
            batches = [
                [
                    (key, 10 * number + (order or 0), name, gone)
                    for key, order, name, gone in records
                ]
                for number, records in enumerate(batches)
            ]
        with TemporaryDirectory() as folder:
            here = History(spark, Path(folder), ordering(cursor))
            for records in batches:
                here.merge(records)
            assert here.rows() == by_windows(here, batches)

    check()
