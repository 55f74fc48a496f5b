"""A table that was restored to a version of which vacuum has removed files."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT
from tests.lake.crashing import EVENTS, Batch, configured, event, expected, sync, view
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import APP, STRING


def test_hidden_files_are_needed_after_a_restore_but_not_by_a_refresh(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "users"), APP)
    table.prepare(t.StructType([t.StructField("id", t.LongType())]))
    ends = (DataFile("_elt/lost.parquet", 1, 1),)
    table.commit(TableChange(), CommitMetadata(1, 1, "1", tombstones=ends), 0)
    version = table.version
    table.commit(TableChange(), CommitMetadata(2, 1, "2"), 0)
    table.refuse_lost(replaces=False)
    DeltaTable(table.uri).restore(version)
    restored = Table(table.uri, APP)
    assert restored.metadata.tombstones == ends
    restored.refuse_lost(replaces=True)
    with pytest.raises(SystemFailure, match=r"1 files no longer exist, such as .*lost\.parquet"):
        restored.refuse_lost(replaces=False)


def test_a_rollback_to_files_that_vacuum_has_removed_is_refused(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "users"), APP)
    table.prepare(t.StructType([t.StructField("id", t.LongType())]))
    ends = (DataFile("_elt/lost.parquet", 1, 1),)
    table.commit(TableChange(), CommitMetadata(1, 1, "1", tombstones=ends), 0)
    first = table.metadata.commit
    table.commit(TableChange(), CommitMetadata(2, 1, "2"), 0)
    version = table.version
    with pytest.raises(SystemFailure, match=r"such as .*lost\.parquet"):
        table.roll_back(first, "run-2")
    assert Table(table.uri, APP).version == version


# Whole syncs

BATCHES: Sequence[Batch] = [
    [event(1, 10), event(2, 10), event(None, 1)],
    [event(1, 20), event(None, 2)],
    [event(2, 30), event(3, 30)],
    [event(3, 40), event(None, 4)],
]
GONE = {**event(9, 10), DELETED_AT: "now"}
"""A delete of a key without a row: a hidden file."""


def sync_to(lake: Lake, number: int, **how: Any) -> None:
    """Sync the first batches, with the delete in the first one."""
    batches = [[*BATCHES[0], GONE], *BATCHES[1:number]]
    sync(lake, batches, configured(lake, APPEND_DEDUP, properties=FIELDS, **how), **how)


FIELDS = {**EVENTS, DELETED_AT: STRING}


LOST = pytest.mark.parametrize("restored", ["hidden files", "all files"], indirect=True)


@pytest.fixture
def restored(lake: Lake, request: pytest.FixtureRequest) -> Lake:
    """A table restored to a version of which the hidden files, or all files, were removed."""
    lake.history = True
    for number in (1, 2, 3):
        sync_to(lake, number)
    version, table = lake.table.version, lake.table
    sync_to(lake, 4)
    if request.param == "hidden files":
        for file in table.metadata.hidden:
            Path(table.uri, file.path).unlink()
        DeltaTable(lake.uri).restore(version)
    else:
        maintain(lake.spark, lake.tables(), dt.timedelta(0))
        DeltaTable(lake.uri).restore(version, ignore_missing_files=True)
    return lake


@LOST
def test_a_sync_of_a_restored_table_says_which_files_are_lost_and_what_to_do(
    restored: Lake,
) -> None:
    newer = restored.table.version - 1
    files = sorted(path.name for path in restored.folder.rglob("*.parquet"))
    for _ in range(2):
        with pytest.raises(SystemFailure) as raised:
            sync_to(restored, 4)
        found = re.search(
            r"the table (\S+) was restored .*such as (\S+): they", raised.value.message
        )
        assert found and found[1].startswith(restored.uri)
        assert found[2].startswith(found[1]) and not Path(found[2]).exists()
        assert "restore the stream's table to a newer version" in str(raised.value.guidance)
        assert sorted(path.name for path in restored.folder.rglob("*.parquet")) == files

    DeltaTable(restored.uri).restore(newer)
    sync_to(restored, 4)
    assert view(restored) == expected(BATCHES)
    assert_all_readers_agree(restored.spark, restored.folder)


@LOST
def test_a_refresh_after_the_companions_are_moved_away_replaces_lost_files(
    restored: Lake, tmp_path: Path
) -> None:
    with pytest.raises(SystemFailure, match="no longer exist") as raised:
        sync_to(restored, 4)
    assert "moved its history and its dead letter away" in str(raised.value.guidance)
    for companion in ("_history", "_dead_letter"):
        Path(restored.uri + companion).rename(tmp_path / f"away{companion}")
    sync_to(restored, 4, refresh="truncate")
    whole, found = expected(BATCHES), view(restored)
    assert (found.current, found.dead) == (whole.current, whole.dead)
    assert [version for version in found.history if version[3]] == [
        version for version in whole.history if version[3]
    ]
    sync_to(restored, 4)
    assert view(restored) == found
    assert_all_readers_agree(restored.spark, restored.folder)
