"""Clocks that jump, of the source (`emitted_at`) and of this machine: back, forward, and within a sync."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from msgspec import Raw

from elt_assets.lake.write.stored_stream import next_sync_id
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.messages import RawRecord
from elt_assets.sync.segments import SegmentWriter
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, checkpoint, rows, stream

HOUR = 3_600_000
NOW = 1_750_000_000_000
MONTH = 30 * 24 * 3600


def sync(
    lake: Lake, number: int, *times: int, has_cursor: bool, machine_seconds: float = 0
) -> None:
    """Sync a new version of one key for each time, in this order; `number` begins the names of the versions.

    `machine_seconds`: how far the machine's clock is ahead.
    """
    properties = {"id": INTEGER, "v": STRING, "c": INTEGER}
    configured = stream(properties, "append_dedup", key=["id"], cursor=["c"] if has_cursor else [])
    tables = lake.tables()
    tables.roll_back_companions("run")
    with pytest.MonkeyPatch.context() as patch:
        now = time.time() + machine_seconds
        patch.setattr(time, "time", lambda: now)
        configured.sync_id = next_sync_id(tables.metadata)
    writer = TableWriter(
        lake.provider, tables, WriteSpec(configured, "run", lake.history), lake.staging
    )
    (lake.folder / "staging").mkdir(exist_ok=True)
    segment = SegmentWriter(lake.folder / "staging" / f"{number}.jsonl", 0)
    for position, emitted_at in enumerate(times):
        data = {"id": 1, "v": f"{number}.{position}", "c": number * 10 + position}
        segment.append(RawRecord("users", Raw(json.dumps(data).encode()), emitted_at))
    writer.write(segment.close())
    writer.commit(checkpoint(number, final=True))


def check_history(lake: Lake, newest: str) -> None:
    """Check that the table has the newest version, and that the intervals of the history are a chain."""
    assert rows(lake.spark, lake.table, "v") == [(newest,)]
    names = ("_valid_from", "_valid_to", "_is_current", "v")
    versions: list[Any] = sorted(
        lake.versions(*names), key=lambda row: (row[0], row[1] is None, row[1])
    )
    assert [row[3] for row in versions if row[2]] == [newest]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(versions))
    assert all(row[1] is None or row[0] <= row[1] for row in versions)


@pytest.mark.parametrize("has_cursor", [False, True])
def test_what_arrives_later_is_later_whatever_the_clocks_say(lake: Lake, has_cursor: bool) -> None:
    lake.history = True
    sync(lake, 1, NOW, has_cursor=has_cursor)
    sync(lake, 2, NOW - HOUR, has_cursor=has_cursor, machine_seconds=-3600)
    check_history(lake, "2.0")
    sync(lake, 3, NOW, NOW - HOUR, NOW - HOUR + 5, has_cursor=has_cursor, machine_seconds=MONTH)
    check_history(lake, "3.2")
    sync(lake, 4, NOW + 24 * 365 * HOUR, has_cursor=has_cursor)
    sync(lake, 5, 0, has_cursor=has_cursor)
    check_history(lake, "5.0")
