"""Segments, streams and tables for the tests of the lake."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Raw
from pyspark.sql import SparkSession

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.protocol.catalog import (
    APPEND,
    FULL_REFRESH,
    INCREMENTAL,
    OVERWRITE,
    OVERWRITE_DEDUP,
    AirbyteStream,
    ConfiguredStream,
)
from elt_assets.protocol.messages import NULL, RawRecord, State
from elt_assets.sync.events import Checkpoint
from elt_assets.sync.segments import Segment, SegmentWriter

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
DATE = {"type": "string", "format": "date"}
TIMESTAMP = {"type": "string", "format": "date-time"}
NTZ = {**TIMESTAMP, "airbyte_type": "timestamp_without_timezone"}
BINARY = {"type": "string", "contentEncoding": "base64"}
BIG_INTEGER = {"type": "integer", "airbyte_type": "big_integer"}
BIG_NUMBER = {"type": "number", "airbyte_type": "big_number"}
JSON: dict[str, Any] = {}
SCALARS: dict[str, Any] = {
    "boolean": BOOLEAN,
    "integer": INTEGER,
    "big_integer": BIG_INTEGER,
    "number": NUMBER,
    "big_number": BIG_NUMBER,
    "date": DATE,
    "ntz": NTZ,
    "timestamp": TIMESTAMP,
    "binary": BINARY,
    "string": STRING,
    "json": JSON,
}

EMITTED_AT = 1_700_000_000_123
APP = "elt:shop/users"


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def struct(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def stage(
    folder: Path, data: Sequence[Any], *, first: int = 0, meta: Any = None, at: int = EMITTED_AT
) -> Segment:
    """A segment of records, emitted at a time; `data` is encoded unless it is bytes already."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = SegmentWriter(folder / f"{uuid4().hex}.jsonl", first)
    for each in data:
        encoded = each if isinstance(each, bytes) else json.dumps(each).encode()
        own = NULL if meta is None else Raw(json.dumps(meta).encode())
        writer.append(RawRecord("users", Raw(encoded), at, meta=own))
    return writer.close()


def stream(
    properties: dict[str, Any],
    policy: str = APPEND,
    *,
    key: Sequence[str] = (),
    cursor: Sequence[str] = (),
    generation: int = 1,
) -> ConfiguredStream:
    replaces = policy in (OVERWRITE, OVERWRITE_DEDUP)
    return ConfiguredStream(
        stream=AirbyteStream(name="users", json_schema={"properties": properties}),
        sync_mode=FULL_REFRESH if replaces or not cursor else INCREMENTAL,
        destination_sync_mode=policy,
        primary_key=[[name] for name in key],
        cursor_field=list(cursor),
        generation_id=generation,
        minimum_generation_id=generation if replaces else 0,
        sync_id=42,
    )


def take_generations(
    configured: ConfiguredStream, head: CommitMetadata, refresh: RefreshMode = "none"
) -> None:
    """Give a stream the generations that a run gives it, by the last commit of its table."""
    configured.generation_id, configured.minimum_generation_id = astuple(
        StoredStream(configured, head).generations(refresh)
    )


def checkpoint(value: Any = None, *, final: bool = False) -> Checkpoint:
    """A checkpoint with one state of that value, or with none."""
    if value is None:
        return Checkpoint((), final)
    body = {"stream_descriptor": {"name": "users"}, "stream_state": value}
    state = State.from_json(json.dumps({"type": "STREAM", "stream": body}))
    return Checkpoint((state,), final)


def rows(spark: SparkSession, table: Table, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of a table as it is on disk now, sorted."""
    found = Table(table.uri, table.app_id).dataframe(spark).select(*names).collect()
    return sorted(map(tuple, found), key=repr)


def data_files(uri: str) -> list[str]:
    """The Parquet files under a table's root, committed or not."""
    return sorted(path.name for path in Path(uri).rglob("*.parquet"))


def unnamed_files(folder: Path) -> list[Path]:
    """The Parquet files of the tables in a folder that no commit has ever named."""
    logs = (path.read_text() for path in folder.glob("*/_delta_log/*.json"))
    named = {name for text in logs for name in re.findall(r"\w+\.parquet|part-[^\"]+parquet", text)}
    return [path for path in folder.glob("*/[!_]*/**/*.parquet") if path.name not in named]
