"""Tables whose files pyarrow writes: what commits do to them needs no Spark session."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import types as t

from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.storage import VISIBLE, DataFile, TableChange, TableStorage
from elt_assets.lake.delta.table import Table

DAY = 86_400
LONG, STRING = t.LongType(), t.StringType()


def columns(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


IDS = columns(id=LONG)
PARTED = columns(id=LONG, _elt_partition=STRING)


def put(
    table: Table,
    schema: t.StructType,
    rows: Sequence[dict[str, Any]],
    *,
    days: int = 0,
    kind: str = VISIBLE,
) -> list[DataFile]:
    """Write rows as one file, so many days old, that no commit names."""
    path = f"{TableStorage.new_folder(kind)}/{uuid4().hex}.parquet"
    target = Path(table.storage.root, path)
    target.parent.mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist(list(rows), pa.schema(delta_schema(schema).to_arrow())), target
    )
    make_old(target, days)
    return table.storage.describe([path])


def make_old(path: Path, days: int) -> None:
    """Let a file be so many days old."""
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def commit(
    table: Table, add: Sequence[DataFile] = (), remove: Sequence[DataFile] = (), **head: Any
) -> None:
    """Commit as the table's writer does."""
    after = replace(
        table.metadata, sequence=table.metadata.sequence + 1, commit=None, same_as=None, **head
    )
    table.commit(TableChange(add, remove), after, 0)


def values(uri: str, column: str = "id") -> list[Any]:
    """A column of the rows that readers see, in order."""
    files = [pq.read_table(Path(uri, path)) for path in DeltaTable(uri).file_uris()]
    return sorted(value for file in files for value in file.column(column).to_pylist())


def removed_days_ago(uri: str, days: int) -> None:
    """Let the log say that its last commit removed files so many days ago."""
    last = max(Path(uri, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines() if line]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= days * DAY * 1000
    last.write_text("\n".join(map(json.dumps, actions)) + "\n")
