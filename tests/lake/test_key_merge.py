"""A merge of few rows in one task leaves the same rows as the same merge by Spark's windows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import history, key_order
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.history import history_schema
from elt_assets.lake.merge.key_order import MergeResult, MergeTarget, Ordering
from elt_assets.lake.merge.partition_files import count_repeated_numbers
from elt_assets.protocol.catalog import DELETED_AT

UTC = dt.timezone.utc
DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOON.replace(year=1960, tzinfo=None)
KINDS: Mapping[str, tuple[t.DataType, Sequence[Any]]] = {
    "integers": (t.LongType(), [-1, 0, 7]),
    "texts": (t.StringType(), ["", "a", "ab", "Z", "é", "\U0001f600", "\uffee"]),
    "days": (t.DateType(), [DAY, dt.date(1969, 12, 31)]),
    "times": (t.TimestampType(), [NOON, NOON.replace(microsecond=1), NOON.replace(year=1960)]),
    "local times": (t.TimestampNTZType(), [NOON.replace(tzinfo=None), LONG_AGO]),
    "numbers": (t.DoubleType(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "decimals": (t.DecimalType(9, 2), [Decimal("1.10"), Decimal("-2.00")]),
    "flags": (t.BooleanType(), [True, False]),
}
"""Types of keys and cursors, and values of each that are hard to order."""
CONTENT = t.StructType(
    [
        t.StructField("number", t.DoubleType()),
        t.StructField("place", t.StructType([t.StructField("x", t.DoubleType())])),
    ]
)
CONTENTS = [(None, None), (0.0, None), (-0.0, None), (float("nan"), (None,)), (1.0, (0.5,))]


def schema_of(key: str, cursor: str) -> t.StructType:
    nested = t.StructType([t.StructField("at", KINDS[cursor][0])])
    own = [t.StructField("id", KINDS[key][0]), t.StructField("when", nested), *CONTENT.fields]
    marker = t.StructField(DELETED_AT, t.StringType())
    return t.StructType([*own, marker, *metadata_columns.METADATA_FIELDS])


def batches(key: str, cursor: str) -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    """A few batches of key, cursor, content, and whether the record is a delete."""
    ids, times = st.sampled_from(KINDS[key][1]), st.none() | st.sampled_from(KINDS[cursor][1])
    record = st.tuples(ids, times, st.sampled_from(CONTENTS), st.booleans(), st.integers(0, 3))
    return st.lists(st.lists(record, min_size=1, max_size=25), min_size=2, max_size=3)


@dataclass
class Lake:
    """A table and its history, merged into in one way."""

    spark: SparkSession
    folder: Path
    by: Ordering
    schema: t.StructType

    def __post_init__(self) -> None:
        self.table = self._made("users", self.schema)
        self.history = self._made("users_history", history_schema(self.schema))
        self.rows, self.versions = MergeTarget([]), MergeTarget([])

    def _made(self, name: str, schema: t.StructType) -> Table:
        table = Table(str(self.folder / name), name)
        table.prepare(schema)
        return table

    def merge(self, rows: Sequence[tuple[Any, ...]]) -> None:
        frame = self.spark.createDataFrame(list(rows), self.schema).coalesce(1)
        batch = Batch(self.table, self.table.write_files(frame))
        common = (batch, self.by, self.schema)
        merged = key_order.merge_latest(self.spark, self.table, self.rows, *common)
        versions = history.merge(self.spark, self.history, self.versions, *common)
        self.rows, self.versions = after(self.rows, merged), after(self.versions, versions)

    def seen(self) -> list[list[str]]:
        """The visible and the hidden rows of both tables."""
        wide = [*history_schema(self.schema).names, "_elt_epoch", "_elt_closed_at"]
        return [
            content(self.table, self.rows.files, self.schema.names),
            content(self.table, self.rows.tombstones, self.schema.names),
            content(self.history, self.versions.files, wide),
            content(self.history, self.versions.tombstones, wide),
        ]


def after(target: MergeTarget, merged: MergeResult) -> MergeTarget:
    return MergeTarget(target.apply(merged.change), merged.tombstones)


def content(table: Table, files: Sequence[DataFile], names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for file in files:
        rows = pq.ParquetFile(f"{table.storage.root}/{file.path}").read().to_pylist()
        found += [repr([row.get(name) for name in names]) for row in rows]
    return sorted(found)


def landed(records: Sequence[tuple[Any, ...]], number: int) -> list[tuple[Any, ...]]:
    """The records as rows of a batch, in the order in which they were extracted."""
    rows = []
    for place, (key, cursor, of, is_deleted, seconds) in enumerate(records):
        extracted = NOON + dt.timedelta(hours=number, seconds=seconds)
        raw_id = f"{number:04}-{place:04}"
        marker = "gone" if is_deleted else None
        rows.append((key, (cursor,), *of, marker, raw_id, extracted, 1, (number, [])))
    return rows


KEYS_AND_CURSORS = [
    ("integers", "times"),
    ("texts", "integers"),
    ("days", "texts"),
    ("times", "days"),
    ("local times", "local times"),
    ("integers", "numbers"),
    ("numbers", "integers"),
    ("decimals", "decimals"),
    ("flags", "integers"),
]


@pytest.mark.long
@pytest.mark.parametrize("has_cursor", [True, False])
@pytest.mark.parametrize(("key", "cursor"), KEYS_AND_CURSORS)
def test_both_ways_give_the_same_rows(
    spark: SparkSession, key: str, cursor: str, has_cursor: bool
) -> None:
    schema = schema_of(key, cursor)
    by = Ordering([["id"]], ["when", "at"] if has_cursor else [])

    @settings(max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(batches(key, cursor))
    def check(found: list[list[tuple[Any, ...]]]) -> None:
        agree(spark, by, schema, found)

    check()


def test_deletes_and_late_versions_are_merged_the_same_way(spark: SparkSession) -> None:
    later = NOON + dt.timedelta(days=1)
    first = [(1, NOON, CONTENTS[4], False, 0), (1, later, CONTENTS[3], True, 0)]
    second = [(1, None, CONTENTS[0], False, 1), (7, NOON, CONTENTS[1], False, 0)]
    third = [(7, NOON, CONTENTS[2], False, 0), (1, later, CONTENTS[3], False, 2)]
    fourth = [(7, None, CONTENTS[2], True, 0), (1, None, CONTENTS[0], True, 0)]
    fifth = [(7, NOON, CONTENTS[2], False, 0), (7, None, CONTENTS[2], False, 0)]
    by = Ordering([["id"]], ["when", "at"])
    agree(spark, by, schema_of("integers", "times"), [first, second, third, fourth, fifth])


def agree(
    spark: SparkSession,
    by: Ordering,
    schema: t.StructType,
    found: Sequence[Sequence[tuple[Any, ...]]],
) -> None:
    """Merge batches in one task, and by windows; compare everything after each."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        here = Lake(spark, Path(folder, "tasks"), by, schema)
        there = replace(here, folder=Path(folder, "windows"))
        for number, records in enumerate(found):
            rows = landed(records, number)
            here.merge(rows)
            with patch.context() as other:
                other.setattr(key_order, "MAX_TASKS", 0)
                there.merge(rows)
            assert here.seen() == there.seen()


@given(st.lists(st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_repeated_numbers_are_counted_once(numbers: list[int]) -> None:
    expected = sum(count > 1 for count in Counter(numbers).values())
    assert count_repeated_numbers(np.array(numbers, np.int64)) == expected
