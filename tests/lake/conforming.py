"""Records parsed to rows, in this process, for the tests of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import types as t

from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.columns.logical_types import Column
from elt_assets.lake.delta.table import Table
from elt_assets.lake.worker.job import ParseJob
from elt_assets.lake.worker.lines import parse_lines
from elt_assets.lake.write.parsing import Key, Rejections, SegmentParser, SyncIds, tasks_of
from elt_assets.storage.location import Location
from elt_assets.sync.segments import Segment
from tests.lake.staging import APP, stage

PREFIX = "0f0e0d0c-0000-4000-8000-"
STAMP = SyncIds(PREFIX, generation_id=3, sync_id=42)
DEAD = t.StructType(
    [
        *(t.StructField(name, t.StringType()) for name in ("record", "reason", "meta", "row_id")),
        *(t.StructField(n, t.TimestampType()) for n in ("extracted_at", "rejected_at")),
        t.StructField("place", t.LongType()),
    ]
)

Row = dict[str, Any]


class Conformer:
    """Parses records of one schema.

    Properties may be columns already; the fields in `strict` are.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def parse(
        self, segment: Segment, properties: Any, **options: Any
    ) -> tuple[list[Row], list[Row]]:
        """The rows of a segment and the rejected records, each in the order they were extracted."""
        table, dead = self._tables
        job = self.job(properties, **options)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(4_000)  # as in a task
        try:
            tasks = tasks_of(segment, Location.parse(str(segment.path)), 1)
            self.results = [parse_lines(job, task) for task in tasks]
        finally:
            sys.setrecursionlimit(limit)
        rows = _rows(table, [path for result in self.results for path, *_ in result.files])
        rejects = _rows(dead, [path for result in self.results for path, *_ in result.dead_files])
        return (
            sorted(rows, key=lambda row: str(row["_airbyte_raw_id"])),
            sorted(rejects, key=lambda row: int(row["place"])),
        )

    def job(self, properties: Any, **options: Any) -> ParseJob:
        """The job of tasks that parse records of a schema."""
        table, dead = self._tables
        read = _columns(properties, options.pop("strict", ()))
        declared = options.pop("declared", None)
        key, rejections = options.pop("key", ()), Rejections(dead, DEAD, {})
        parser = SegmentParser(table, rejections, read, declared or read, STAMP, key, **options)
        return parser.make_job()

    @property
    def _tables(self) -> list[Table]:
        return [Table(str(self.folder / name), APP) for name in ("rows", "dead")]

    def rows(
        self,
        properties: Any,
        data: Sequence[Any],
        *,
        key: Key = (),
        meta: Any = None,
        strict: Sequence[str] = (),
        partition: str | None = None,
    ) -> list[Row]:
        """The accepted rows, in the order they were extracted."""
        segment = stage(self.folder, data, meta=meta)
        return self.parse(segment, properties, key=key, strict=strict, partition=partition)[0]

    def rejects(
        self, properties: Any, data: Sequence[Any], key: Key = (), strict: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """(record, reason) of the others."""
        _, dead = self.parse(stage(self.folder, data), properties, key=key, strict=strict)
        return [(row["record"], row["reason"]) for row in dead]


def _rows(table: Table, paths: Sequence[str]) -> list[Row]:
    parts = [pq.read_table(f"{table.storage.root}/{path}") for path in paths if path]
    return [row for part in parts for row in part.to_pylist()]


def _columns(properties: Any, strict: Sequence[str]) -> list[Column]:
    found = properties if isinstance(properties, list) else columns({"properties": properties})
    return [replace(c, strict=True) if c.source in strict else c for c in found]


def changes(row: Row) -> list[Row]:
    found: list[Row] = row["_airbyte_meta"]["changes"]
    return found


def change_triples(row: Row) -> list[tuple[str, str, str]]:
    """The field, change and reason of each change."""
    return [(change["field"], change["change"], change["reason"]) for change in changes(row)]


def changed(row: Row) -> list[str]:
    """The fields that were nulled for their type."""
    kinds = {(change, reason) for _, change, reason in change_triples(row)}
    assert kinds <= {("NULLED", "DESTINATION_TYPECAST_ERROR")}
    return [field for field, *_ in change_triples(row)]
