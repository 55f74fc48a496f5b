"""Records conformed, for the tests of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from elt_assets.lake.parse.conform import Key, Stamp, conform, rejected
from elt_assets.lake.schema.from_json_schema import columns
from elt_assets.lake.schema.logical_types import Column
from tests.lake.staging import stage

PREFIX = "0f0e0d0c-0000-4000-8000-"
STAMP = Stamp(PREFIX, generation_id=3, sync_id=42)

Row = dict[str, Any]


class Conformer:
    """Conforms records of one schema.

    Properties may be columns already; the fields in `strict` are.
    """

    def __init__(self, spark: SparkSession, folder: Path):
        self.spark = spark
        self.folder = folder

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
        path = str(stage(self.folder, data, meta=meta).path)
        found = _columns(properties, strict)
        frame = conform(self.spark, [path], found, STAMP, key, partition)
        instants = [e.name for e in frame.schema.fields if isinstance(e.dataType, TimestampType)]
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        for row in rows:  # Spark gives them in the machine's zone, without saying so
            row |= {n: row[n].astimezone(timezone.utc) for n in instants if row[n] is not None}
        return sorted(rows, key=lambda row: str(row["_airbyte_raw_id"]))

    def rejects(
        self, properties: Any, data: Sequence[Any], key: Key = (), strict: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """(line, reason) of the others."""
        path = str(stage(self.folder, data).path)
        frame = rejected(self.spark, [path], _columns(properties, strict), STAMP, key)
        return [(row["line"], row["reason"]) for row in frame.collect()]


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
