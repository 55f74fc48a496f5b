"""The table that batches are merged into, its history, and delta-rs's copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from benchmarks.measure import FREE, Cost, timed
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import TARGET_ROWS, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import history, key_order
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.history import IS_CURRENT, VALID_FROM, VALID_TO, history_schema
from elt_assets.lake.merge.key_order import MergeResult, MergeTarget, Ordering
from elt_assets.lake.session import side_by_side

SCHEMA = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("name", t.StringType()),
        t.StructField("email", t.StringType()),
        t.StructField("balance", t.DoubleType()),
        t.StructField("updated_at", t.TimestampType()),
        *metadata_columns.METADATA_FIELDS,
    ]
)
BY = Ordering([["id"]], ["updated_at"])
APP = "elt:bench/users"
BEGAN = (
    1_700_000_000  # epoch seconds: of the rows that are there first; each batch is a second later
)
SEED = 7


@dataclass(frozen=True)
class Took:
    """The cost of one batch, published; `history`: what the history took besides; `rewritten`:
    the table's files that were."""

    merge: Cost
    history: Cost | None
    rewritten: int


def users(ids: DataFrame, turn: int) -> DataFrame:
    """The users of these ids as the sync number `turn` would land them."""
    number, second = f.col("id"), BEGAN + turn
    order = f.lpad(f.lower(f.hex(number)), 12, "0")
    meta = f.struct(f.lit(turn).alias("sync_id"), f.array().alias("changes"))
    return ids.select(
        number,
        f.concat(f.lit("user name "), number * 7919 % 1_000_003).alias("name"),
        f.concat(f.lit("u"), number, f.lit("@example.com")).alias("email"),
        f.round(f.rand(SEED + turn) * 10_000, 2).alias("balance"),
        f.timestamp_seconds(f.lit(second)).alias("updated_at"),
        f.concat(f.lit(f"0195a1b2-c3d4-7abc-8{turn:03x}-"), order).alias(metadata_columns.RAW_ID),
        f.timestamp_seconds(f.lit(second)).alias(metadata_columns.EXTRACTED_AT),
        f.lit(1).cast("long").alias(metadata_columns.GENERATION_ID),
        meta.cast(metadata_columns.META_TYPE).alias(metadata_columns.META),
    )


class Users:
    """A table of `rows` users, perhaps with a history, in files of the writer's target; ids ascend."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, *, has_history: bool = False):
        self.rows = rows
        self._uri = f"{folder}/users-{rows}"
        self._spark = spark
        self._turn = 0
        ids = spark.range(0, rows, 1, ceil(rows / TARGET_ROWS))
        first = users(ids, 0)
        self.table = self._made("", SCHEMA, first)
        self.history: Table | None = None
        if has_history:
            ends = f.lit(None).cast("timestamp").alias(VALID_TO)
            validity = (f.col("updated_at").alias(VALID_FROM), ends)
            versions = first.select("*", *validity, f.lit(True).alias(IS_CURRENT))
            self.history = self._made(history.SUFFIX, history_schema(SCHEMA), versions)

    def _made(self, suffix: str, schema: t.StructType, rows: DataFrame) -> Table:
        table = Table(self._uri + suffix, APP + suffix)
        table.prepare(schema)
        table.commit(TableChange(table.write_files(rows)), CommitMetadata(1, 1, None), self.rows)
        return table

    def batch(self, ids: Sequence[int]) -> Batch:
        """One file of these users, changed since."""
        self._turn += 1
        numbers = self._spark.createDataFrame(pa.table({"id": pa.array(ids, pa.int64())}))
        written = self.table.write_files(users(numbers, self._turn).coalesce(1))
        return Batch(self.table, written)

    def merge(self, batch: Batch) -> Took:
        """Merge as a sync publishes a checkpoint: the table and its history together. The merge of the table
        alone is measured first, and its result is discarded."""
        merged, merging = timed(lambda: self._merged(batch))
        extra = FREE
        if self.history is not None:
            self.table.storage.discard([*merged.change.add, *merged.tombstones])
            merged, extra = self._both(self.history, batch)
        committing = timed(lambda: _commit(self.table, merged, batch))[1]
        self.table.storage.discard(batch.files)
        besides = None if self.history is None else extra - merging
        return Took(merging + committing, besides, len(merged.change.remove))

    def _merged(self, batch: Batch) -> MergeResult:
        target = MergeTarget(self.table.files, self.table.metadata.tombstones)
        return key_order.merge_latest(self._spark, self.table, target, batch, BY, SCHEMA)

    def _both(self, table: Table, batch: Batch) -> tuple[MergeResult, Cost]:
        def followed() -> MergeResult:
            target = MergeTarget(table.files, table.metadata.tombstones)
            return history.merge(self._spark, table, target, batch, BY, SCHEMA)

        def both() -> MergeResult:
            past, merged = side_by_side(followed, lambda: self._merged(batch))
            _commit(table, past, batch)
            return merged

        return timed(both)


class Peer:
    """Merge with delta-rs into a copy of a table, file by file."""

    def __init__(self, table: Table):
        self.uri = f"{table.uri}_peer"
        shutil.copytree(table.uri, self.uri)

    def merge(self, batch: Batch) -> Cost:
        """The cost of the same rows by the same rule."""
        rows = pq.read_table([batch.table.storage.locate(file) for file in batch.files])
        return timed(lambda: self._merge(rows))[1]

    def _merge(self, rows: pa.Table) -> None:
        # Without streaming it derives bounds from the batch, and so skips files, as we do.
        merger = DeltaTable(self.uri).merge(
            rows,
            predicate="t.id = s.id",
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
        )
        matched = merger.when_matched_update_all("s.updated_at >= t.updated_at")
        matched.when_not_matched_insert_all().execute()


def left_by(uri: str, *, current: bool = False) -> pa.Table:
    """Return in what all merges of the same batches must agree: for each batch its rows that are left in a
    table (the `current` ones, of a history), and the sum of their ids."""
    only = pc.field(IS_CURRENT) if current else None
    rows = DeltaTable(uri).to_pyarrow_dataset().to_table(columns=["id", "updated_at"], filter=only)
    sums = rows.group_by("updated_at").aggregate([("id", "count"), ("id", "sum")])
    return sums.sort_by("updated_at")


def _commit(table: Table, merged: MergeResult, batch: Batch) -> None:
    head = CommitMetadata(table.metadata.sequence + 1, 1, None, tombstones=tuple(merged.tombstones))
    table.commit(merged.change, head, batch.records)
