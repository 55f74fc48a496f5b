"""Partitions of one table: each has rows, a state and rejected records of its own, replaced alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.merge.partition_files import files_of
from elt_assets.lake.read.snapshots import snapshot
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE, ConfiguredStream
from elt_assets.sync.events import Committed
from tests.lake.crashing import EVENTS, event, killed_at, position, read
from tests.lake.harness import Lake
from tests.lake.staging import (
    APP,
    NUMBER,
    STRING,
    TIMESTAMP,
    checkpoint,
    rows,
    stream,
    take_generations,
)

FIRST, SECOND = "2026-01-01", "2026-01-02"

pytestmark = pytest.mark.usefixtures("agreeing_readers")


def tables(lake: Lake, part: str) -> StreamTables:
    return lake.tables(f"{APP}|{part}")


def configured(
    lake: Lake, part: str, policy: str = OVERWRITE, properties: dict[str, Any] = EVENTS
) -> ConfiguredStream:
    wanted = stream(properties, policy)
    take_generations(wanted, tables(lake, part).metadata)
    return wanted


def load(lake: Lake, part: str, *data: Any, value: int = 1, **how: Any) -> Committed:
    return lake.sync(configured(lake, part, **how), *data, value=value, partition=part)


def held(lake: Lake) -> list[tuple[Any, ...]]:
    return rows(lake.spark, lake.table, "_elt_partition", "text")


def test_only_the_synced_partition_is_replaced(lake: Lake) -> None:
    load(lake, FIRST, event(1, 1), value=1)
    load(lake, SECOND, event(2, 1), event(3, 1), value=5)
    load(lake, FIRST, event(4, 1), value=2)
    assert held(lake) == [(FIRST, "4 at 1"), (SECOND, "2 at 1"), (SECOND, "3 at 1")]
    heads = [tables(lake, part).metadata for part in (FIRST, SECOND)]
    assert [(head.generation, position(head.state)) for head in heads] == [(2, 2), (1, 5)]
    assert tables(lake, "2026-01-03").metadata.state is None


def test_only_the_synced_partition_is_emptied(lake: Lake) -> None:
    load(lake, FIRST, event(1, 1))
    load(lake, SECOND, event(2, 1))
    writer = lake.writer(configured(lake, FIRST), partition=FIRST)
    writer.commit(checkpoint(final=True))
    assert held(lake) == [(SECOND, "2 at 1")]


def test_a_partition_is_replaced_in_files_that_mix_partitions(lake: Lake) -> None:
    load(lake, FIRST, event(1, 1))
    load(lake, SECOND, event(2, 1))
    DeltaTable(lake.uri).optimize.compact()
    assert len(lake.table.files) == 1
    load(lake, FIRST, event(3, 1))
    assert held(lake) == [(FIRST, "3 at 1"), (SECOND, "2 at 1")]


def test_a_single_partition_can_be_read(lake: Lake) -> None:
    load(lake, FIRST, event(1, 1))
    load(lake, SECOND, event(2, 1))
    found = snapshot(lake.spark, lake.uri, APP, partitions=[SECOND])
    assert [row.text for row in found.collect()] == ["2 at 1"]
    assert snapshot(lake.spark, lake.uri, APP, partitions=["2026-01-03"]).count() == 0


def test_a_wider_type_of_one_partition_widens_all_partitions(lake: Lake) -> None:
    load(lake, FIRST, event(1, 1))
    load(lake, SECOND, {**event(2, 1), "at": 1.5}, properties={**EVENTS, "at": NUMBER})
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 1.0), (2, 1.5)]
    assert [position(tables(lake, part).metadata.state) for part in (FIRST, SECOND)] == [1, 1]
    load(lake, FIRST, event(3, 3))
    assert rows(lake.spark, lake.table, "id", "at") == [(2, 1.5), (3, 3.0)]


def test_compaction_does_not_mix_partitions(lake: Lake) -> None:
    for number in range(3):
        for part in (FIRST, SECOND):
            load(lake, part, event(number, 1), b"[5]", value=number, policy=APPEND)
    before = held(lake)
    heads = [tables(lake, part).metadata for part in (FIRST, SECOND)]
    maintain(lake.spark, lake.tables())
    bounds = lake.table.bounds(["_elt_partition"])
    assert sorted(bounds.values()) == [(FIRST, FIRST), (SECOND, SECOND)]
    assert len(lake.dead_letter.files) == 2
    assert held(lake) == before
    assert [tables(lake, part).metadata for part in (FIRST, SECOND)] == heads
    load(lake, FIRST, event(9, 9))
    assert held(lake) == [(FIRST, "9 at 9"), *(row for row in before if row[0] == SECOND)]


LAST_TIME = "9999-12-31T23:59:59.999999Z"
"""A time that has no bound in the log, so the log has no bounds of its file."""


def test_files_without_bounds_in_the_log_belong_to_their_partition(lake: Lake) -> None:
    fields = {**EVENTS, "until": TIMESTAMP}
    for number in range(3):
        for part in (FIRST, SECOND):
            more = {"until": LAST_TIME} if part == FIRST or number else {}
            record = {**event(number, 1), **more}
            load(lake, part, record, value=number, policy=APPEND, properties=fields)
    stats = [action["stats"] for action in list_added(lake)]
    assert sum("minValues" not in text for text in stats) == 5
    before, paths = held(lake), {file.path for file in lake.table.files}
    assert lake.table.paths_lacking_nulls(["_elt_partition"]) == paths
    own = files_of(lake.table, [FIRST])
    assert (len(own.own), len(own.mixed)) == (3, 0)
    maintain(lake.spark, lake.tables())
    assert sorted(lake.table.bounds(["_elt_partition"]).values()) == [
        (FIRST, FIRST),
        (SECOND, SECOND),
    ]
    assert held(lake) == before
    maintain(lake.spark, lake.tables(), cluster_by=[["id"]])
    assert len(lake.table.files) == 2 and held(lake) == before
    assert all("/sorted_" in file.path for file in lake.table.files)


def list_added(lake: Lake) -> list[dict[str, Any]]:
    """The entries of files in the log."""
    log = Path(lake.uri, "_delta_log")
    texts = [line for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    return [json.loads(text)["add"] for text in texts if '"add"' in text]


# Rejected records


def rejects(lake: Lake) -> list[tuple[Any, ...]]:
    return rows(lake.spark, lake.dead_letter, "_elt_partition", "record")


def test_rejections_of_a_killed_run_are_rolled_back_only_in_its_partition(lake: Lake) -> None:
    load(lake, FIRST, b"1")
    load(lake, SECOND, b"2")
    before = rejects(lake)
    killed_at(Failpoint.COMMIT_READY, 2, lambda: load(lake, FIRST, b"3"))
    load(lake, SECOND, event(2, 2))  # what it rejected before goes with the rows of that time
    assert [part for part, _ in rejects(lake)] == [FIRST]
    tables(lake, FIRST).roll_back_companions("run-2")
    assert rejects(lake) == [each for each in before if each[0] == FIRST]


def test_a_killed_run_can_be_rolled_back_after_maintenance(lake: Lake) -> None:
    load(lake, FIRST, b"1")
    before = rejects(lake)
    killed_at(Failpoint.COMMIT_READY, 2, lambda: load(lake, FIRST, b"3"))
    maintain(lake.spark, lake.tables())
    tables(lake, FIRST).roll_back_companions("run-2")
    assert rejects(lake) == before


def test_a_snapshot_does_not_show_rejections_of_a_killed_run(lake: Lake) -> None:
    load(lake, FIRST, b"1")
    load(lake, SECOND, b"2")
    killed_at(Failpoint.COMMIT_READY, 2, lambda: load(lake, FIRST, b"3"))
    assert len(read(lake, "_dead_letter", "record")) == 2


def test_a_replay_moves_only_records_of_its_partition(lake: Lake) -> None:
    for part in (FIRST, SECOND):
        wanted = stream(EVENTS, APPEND, key=["id"])
        wanted.destination_sync_mode = "append_dedup"
        lake.sync(wanted, event(None, 1, part), value=1, partition=part)
    again = WriteSpec(configured(lake, FIRST, APPEND), "run-2", partition=FIRST)
    done = replay(lake.provider, tables(lake, FIRST), again, lake.scratch)
    assert done is not None and done.records == 1
    assert held(lake) == [(FIRST, FIRST)]
    assert [part for part, _ in rejects(lake)] == [SECOND]


def test_rejected_records_of_a_partition_with_a_long_name_are_replayed(lake: Lake) -> None:
    """A text of more than 256 characters is no bound in the log: the file itself is asked."""
    parts = ["p" * 300, "p" * 3000, FIRST]
    for part in parts * 2:  # twice, so that there is something to put together
        load(lake, part, event(1, 1), b"[5]", policy=APPEND)
    maintain(lake.spark, lake.tables())
    for part in parts:
        spec = WriteSpec(configured(lake, part, APPEND), "run-2", partition=part)
        found = replay(lake.provider, tables(lake, part), spec, lake.scratch)
        assert found is not None and (found.records, found.rejected) == (0, 2)
    again = rows(lake.spark, lake.dead_letter, "_elt_partition", "run_id")
    assert again == sorted((part, "run-2") for part in parts * 2)


def test_deleted_keys_stay_deleted_after_another_partition_widened_a_type(lake: Lake) -> None:
    """A record that is older than the delete comes after a run with a newer catalog."""
    deleting = {**EVENTS, "_ab_cdc_deleted_at": STRING}
    wider = {**deleting, "at": NUMBER}

    def sync(part: str, properties: dict[str, Any], *data: Any, final: bool = False) -> None:
        wanted = stream(properties, APPEND_DEDUP, key=["id"], cursor=["at"])
        wanted.generation_id, wanted.minimum_generation_id = 1, 0
        writer = lake.writer(wanted, partition=part)
        writer.write(lake.stage(*data))
        writer.commit(checkpoint(1, final=final))
        writer.close()

    sync(FIRST, deleting, event(1, 5), {**event(2, 7), "_ab_cdc_deleted_at": "2026-01-01"})
    sync(SECOND, wider, {**event(3, 1), "at": 1.5})
    sync(FIRST, deleting, event(2, 6), event(4, 1))
    assert held(lake) == [(FIRST, "1 at 5"), (FIRST, "4 at 1"), (SECOND, "3 at 1")]
