"""A merge in one task, or in ranges that Spark sorts, leaves the same rows as windows of Spark."""

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
from tests.lake.windows import merge_by_windows

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
    "bytes": (t.BinaryType(), [b"", b"\x7f", b"\x80", b"\x80\x00"]),
    "floats": (t.FloatType(), [-0.0, 0.0, -1.5, float("nan"), float("-inf")]),
    "objects": (
        t.StructType([t.StructField("a", t.DoubleType()), t.StructField("b", t.StringType())]),
        [(0.0, None), (-0.0, None), (float("nan"), ""), (None, None), (None, "")],
    ),
    "lists": (
        t.ArrayType(t.DoubleType()),
        [[], [0.0], [-0.0], [None], [float("nan"), 1.0], [1.0, float("nan")]],
    ),
}
"""Types of keys and cursors, and values of each that are hard to order."""
PLACE = t.StructType([t.StructField("x", t.DoubleType())])
CONTENT = t.StructType(
    [
        t.StructField("number", t.DoubleType()),
        t.StructField("place", PLACE),
        t.StructField("tags", t.ArrayType(PLACE)),
        t.StructField("counts", t.MapType(t.StringType(), t.LongType())),
    ]
)
CONTENTS = [
    (None, None, None, None),
    (0.0, None, [], {}),
    (-0.0, None, [], {}),
    (float("nan"), (None,), [(0.0,), None], {"a": 1}),
    (float("nan"), (None,), [(-0.0,), None], {"a": 1}),
    (1.0, (0.5,), [(None,), (float("nan"),)], {"a": None, "b": 2}),
]


def schema_of(key: str, cursor: str) -> t.StructType:
    nested = t.StructType([t.StructField("at", KINDS[cursor][0])])
    own = [t.StructField("id", KINDS[key][0]), t.StructField("when", nested), *CONTENT.fields]
    marker = t.StructField(DELETED_AT, t.StringType())
    return t.StructType([*own, marker, *metadata_columns.METADATA_FIELDS])


def batches(key: str, cursor: str) -> st.SearchStrategy[list[tuple[str, list[tuple[Any, ...]]]]]:
    """A few batches of key, cursor, content, and whether the record is a delete; each with its kind."""
    ids, times = st.sampled_from(KINDS[key][1]), st.none() | st.sampled_from(KINDS[cursor][1])
    record = st.tuples(ids, times, st.sampled_from(CONTENTS), st.booleans(), st.integers(0, 3))
    records = st.lists(record, min_size=1, max_size=25)
    kinds = st.sampled_from(["sync", "sync", "refresh", "replay"])
    return st.lists(st.tuples(kinds, records), min_size=2, max_size=4)


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

    def merge(self, kind: str, rows: Sequence[tuple[Any, ...]], number: int) -> None:
        frame = self.spark.createDataFrame(list(rows), self.schema).coalesce(1)
        batch = Batch(self.table, self.table.write_files(frame))
        by = replace(self.by, is_replay=kind == "replay")
        common = (by, self.schema)
        target = MergeTarget([]) if kind == "refresh" else self.rows
        before = Batch(self.table, [*self.rows.files, *self.rows.tombstones])
        merged = key_order.merge_latest(self.spark, self.table, target, batch, *common)
        self.rows = after(target, merged)
        whole = Batch(self.table, [*self.rows.files, *self.rows.tombstones])
        history_table = (self.spark, self.history, self.versions)
        if kind == "refresh":
            epoch = int((NOON + dt.timedelta(hours=number, minutes=30)).timestamp()) * 1_000_000
            versions = history.refresh(*history_table, batch, whole, *common, epoch)
        elif kind == "replay":
            versions = history.merge_replayed(*history_table, batch, before, *common)
        else:
            versions = history.merge(*history_table, batch, *common)
        self.versions = after(self.versions, versions)

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


def landed(kind: str, records: Sequence[tuple[Any, ...]], number: int) -> list[tuple[Any, ...]]:
    """The records as rows of a batch, in the order in which they were extracted.

    Replayed ones were extracted before others.
    """
    rows = []
    time = number / 2 if kind == "replay" else number
    for place, (key, cursor, of, is_deleted, seconds) in enumerate(records):
        extracted = NOON + dt.timedelta(hours=time, seconds=seconds)
        raw_id = f"{time:06.1f}-{place:04}"
        marker = "gone" if is_deleted else None
        rows.append((key, (cursor,), *of, marker, raw_id, extracted, 1, (1, [])))
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
    ("bytes", "bytes"),
    ("floats", "floats"),
    ("objects", "flags"),
    ("lists", "integers"),
]


@pytest.mark.long
@pytest.mark.parametrize("has_cursor", [True, False])
@pytest.mark.parametrize(("key", "cursor"), KEYS_AND_CURSORS)
def test_all_ways_give_the_same_rows(
    spark: SparkSession, key: str, cursor: str, has_cursor: bool
) -> None:
    schema = schema_of(key, cursor)
    by = Ordering([["id"]], ["when", "at"] if has_cursor else [])

    @settings(max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(batches(key, cursor))
    def check(found: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
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
    steps = [("sync", records) for records in (first, second, third, fourth, fifth)]
    agree(spark, by, schema_of("integers", "times"), steps)


def agree(
    spark: SparkSession,
    by: Ordering,
    schema: t.StructType,
    found: Sequence[tuple[str, Sequence[tuple[Any, ...]]]],
) -> None:
    """Merge batches in one task, in sorted ranges, and by windows; compare everything after each."""
    with TemporaryDirectory() as folder:
        task, ranges, windows = (
            Lake(spark, Path(folder, name), by, schema) for name in ("task", "ranges", "windows")
        )
        for number, (kind, records) in enumerate(found):
            rows = landed(kind, records, number)
            task.merge(kind, rows, number)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(key_order, "MAX_TASKS", 0)
                ranges.merge(kind, rows, number)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(key_order, "merge_in_tasks", merge_by_windows)
                windows.merge(kind, rows, number)
            assert task.seen() == windows.seen()
            assert ranges.seen() == windows.seen()


@given(st.lists(st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_repeated_numbers_are_counted_once(numbers: list[int]) -> None:
    expected = sum(count > 1 for count in Counter(numbers).values())
    assert count_repeated_numbers(np.array(numbers, np.int64)) == expected
