"""Compaction and vacuum take nothing from anybody: readers, syncs that run, versions within the retention."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.lake.admin.maintenance import MaintenanceResult, maintain
from elt_assets.protocol.catalog import APPEND
from tests.lake.arrow import make_old
from tests.lake.crashing import EVENTS, configured, event, expected, position, sync, view
from tests.lake.harness import Lake
from tests.lake.staging import (
    APP,
    STRING,
    checkpoint,
    data_files,
    rows,
)

OLD = dt.timedelta(days=10)
DELETED = {**EVENTS, "_ab_cdc_deleted_at": STRING}
BATCHES = [[event(number, number), event(None, number)] for number in range(1, 4)]

pytestmark = pytest.mark.usefixtures("agreeing_readers")


def age(folder: Path) -> None:
    """All files there are ten days old."""
    for path in folder.rglob("*.parquet"):
        make_old(path, OLD.days)


def on_disk(lake: Lake) -> int:
    return len(data_files(lake.uri))


def maintained(lake: Lake, **how: Any) -> dict[str, MaintenanceResult]:
    done = maintain(lake.spark, lake.tables(), **how)
    return {Path(one.table).name: one for one in done}


# Compaction


def test_compaction_merges_small_files_and_changes_nothing_else(lake: Lake) -> None:
    lake.history = True
    sync(lake, BATCHES, configured(lake, APPEND))
    before, head, delta = view(lake), lake.table.metadata, DeltaTable(lake.uri)
    done = maintained(lake)
    assert (done["users"].files_before, done["users"].files_after) == (3, 1)
    assert (done["users_dead_letter"].files_before, done["users_dead_letter"].files_after) == (3, 1)
    assert {one.removed for one in done.values()} == {0}
    assert view(lake) == before == expected(BATCHES)
    assert lake.table.metadata == head
    assert DeltaTable(lake.uri).transaction_version(APP) == delta.transaction_version(APP)
    version = lake.table.version
    maintained(lake)
    assert lake.table.version == version
    sync(lake, [*BATCHES, [event(9, 9)]], configured(lake, APPEND))
    assert view(lake) == expected([*BATCHES, [event(9, 9)]])


def test_a_later_column_is_null_in_older_rows_after_compaction(lake: Lake) -> None:
    for wanted in (EVENTS, {**EVENTS, "more": STRING}):
        lake.sync(configured(lake, APPEND, properties=wanted), {**event(1, 1), "more": "x"})
    before = rows(lake.spark, lake.table, "id", "more")
    maintained(lake)
    assert rows(lake.spark, lake.table, "id", "more") == before == [(1, "x"), (1, None)]


# Vacuum


def write_only(lake: Lake, data: Any) -> None:
    """Write a row and a rejected line to files that no commit names, as a run that is killed before it."""
    lake.writer(configured(lake, APPEND)).write(lake.stage(data, b"1"))


def test_a_vacuum_removes_old_orphaned_files(lake: Lake) -> None:
    lake.history = True
    sync(lake, BATCHES, configured(lake, APPEND))
    write_only(lake, event(8, 8))
    hidden = Path(lake.uri, "_elt", "killed", "part.parquet")
    hidden.parent.mkdir(parents=True)
    hidden.write_bytes(b"half a file")
    age(lake.folder)
    write_only(lake, event(9, 9))
    done = maintained(lake)
    assert (done["users"].removed, done["users_dead_letter"].removed) == (2, 1)
    assert on_disk(lake) == 5  # three that were, what they have become, and one that is young
    assert view(lake) == expected(BATCHES)
    assert not hidden.exists()


def test_a_vacuum_removes_old_replaced_files(lake: Lake) -> None:
    lake.history = True
    sync(lake, BATCHES, configured(lake, APPEND))
    maintained(lake, retention=dt.timedelta(0))
    for table in (lake.table, lake.dead_letter):
        assert data_files(table.uri) == [Path(file.path).name for file in table.files]
    assert view(lake) == expected(BATCHES)


FOLDERS = st.lists(
    st.sampled_from(["events", "day=1", "data", "metadata", "x=y=z", "a b"]), max_size=3
)
NAMES = st.sampled_from(["part-0.parquet", "v1.metadata.json", "notes.csv", "a=b.parquet"])


def test_a_vacuum_leaves_what_is_not_of_the_table(lake: Lake) -> None:
    sync(lake, BATCHES, configured(lake, APPEND))
    table, root, before = lake.table, Path(lake.uri), view(lake)

    @settings(max_examples=25, deadline=None)
    @given(st.builds(lambda folders, name: "/".join([*folders, name]), FOLDERS, NAMES))
    def check(path: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"a file")
        *folders, name = path.split("/")
        is_of_delta = all("=" in folder for folder in folders) and name.endswith(".parquet")
        removed = table.find_unreferenced(dt.timedelta(0))
        assert (path in removed) == (is_of_delta or folders[:1] == ["data"])

    check()
    write_deltalake(str(root / "theirs"), pa.table({"id": [1]}))
    theirs = sorted(path for path in (root / "theirs").rglob("*") if path.is_file())
    maintained(lake, retention=dt.timedelta(0))
    assert [path for path in theirs if not path.exists()] == []
    assert view(lake) == before


def test_a_vacuum_removes_a_file_that_the_log_names_wherever_it_is(lake: Lake) -> None:
    """Some engines begin the paths of files with letters of chance (`delta.randomizeFilePrefixes`)."""
    sync(lake, BATCHES, configured(lake, APPEND))
    delta, name = DeltaTable(lake.uri), "a1/part-7.parquet"
    file = lake.table.files[0]
    source = Path(lake.uri, file.path)
    (Path(lake.uri) / name).parent.mkdir()
    (Path(lake.uri) / name).write_bytes(source.read_bytes())
    added = AddAction(
        name, source.stat().st_size, {}, 0, True, f'{{"numRecords": {lake.table.files[0].records}}}'
    )
    delta.create_write_transaction([added], "append", delta.schema())
    maintained(lake, retention=dt.timedelta(0))  # the compaction removes it from the log
    assert not (Path(lake.uri) / name).exists()


def test_versions_within_the_retention_can_be_read_and_restored(lake: Lake) -> None:
    lake.history = True
    sync(lake, BATCHES)
    version = lake.table.version - 1
    age(lake.folder)
    maintained(lake)
    assert DeltaTable(lake.uri, version=version).to_pyarrow_table().num_rows == 2
    DeltaTable(lake.uri).restore(version)
    assert view(lake) == expected(BATCHES[:2])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


def deleted(number: int, at: int) -> dict[str, Any]:
    return {**event(number, at), "_ab_cdc_deleted_at": "yes"}


def cdc(lake: Lake, *data: Any, value: int) -> None:
    lake.sync(configured(lake, properties=DELETED), *data, value=value)


def test_a_vacuum_keeps_tombstones(lake: Lake) -> None:
    cdc(lake, event(1, 10), deleted(2, 10), value=1)
    age(lake.folder)
    maintained(lake)
    cdc(lake, event(1, 20), event(2, 5), value=2)
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 20)]


def test_a_vacuum_keeps_the_tombstones_of_versions_within_the_retention(lake: Lake) -> None:
    """One that is ten days old was the table until a moment ago: it can be restored."""
    cdc(lake, event(1, 10), deleted(2, 10), value=1)
    version = lake.table.version
    log = Path(lake.uri, "_delta_log", f"{version:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] -= int(OLD.total_seconds() * 1000)
    log.write_text("\n".join(map(json.dumps, actions)))
    age(lake.folder)
    cdc(lake, deleted(3, 10), deleted(2, 11), value=2)
    maintained(lake)
    DeltaTable(lake.uri).restore(version)
    cdc(lake, event(2, 5), value=2)
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 10)]


def test_a_vacuum_keeps_the_files_of_an_unfinished_refresh(lake: Lake) -> None:
    sync(lake, BATCHES[:1])
    writer = lake.writer(configured(lake, refresh="truncate"))
    writer.write(lake.stage(event(7, 7)))
    writer.commit(checkpoint(1))
    age(lake.folder)
    maintained(lake)
    assert position(lake.tables().metadata.state) == 1
    sync(lake, [[], [event(8, 8)]])
    assert rows(lake.spark, lake.table, "id", "at") == [(7, 7), (8, 8)]


@pytest.mark.parametrize("retention", [dt.timedelta(days=7), dt.timedelta(minutes=30)])
def test_a_vacuum_keeps_the_files_of_a_running_sync(lake: Lake, retention: dt.timedelta) -> None:
    lake.history = True
    sync(lake, BATCHES[:2], configured(lake, APPEND))
    writer = lake.writer(configured(lake, APPEND))
    writer.write(lake.stage(*BATCHES[2]))
    maintained(lake, retention=retention)
    writer.commit(checkpoint(3, final=True))
    assert view(lake) == expected(BATCHES)


# Dead letters and checkpoints


def test_rejected_records_expire_after_their_age_alone(lake: Lake) -> None:
    sync(lake, BATCHES[:2])
    between = dt.datetime.now(dt.timezone.utc)
    time.sleep(3)  # longer than it takes until maintenance looks at the clock
    sync(lake, BATCHES)
    assert lake.dead_letter.records == 3
    assert maintained(lake)["users_dead_letter"].expired == 0
    before = view(lake)
    age = dt.datetime.now(dt.timezone.utc) - between
    assert maintained(lake, dead_letter_age=age)["users_dead_letter"].expired == 2
    after = view(lake)
    assert (after.current, after.history) == (before.current, before.history)
    assert lake.dead_letter.records == 1
    assert maintained(lake, dead_letter_age=dt.timedelta(0))["users_dead_letter"].expired == 1
    sync(lake, [*BATCHES, [event(4, 4), event(None, 4)]])
    assert lake.dead_letter.records == 1


def test_rejected_records_are_kept_if_no_age_is_set(lake: Lake) -> None:
    sync(lake, BATCHES)
    assert maintained(lake, dead_letter_age=None)["users_dead_letter"].expired == 0
    assert lake.dead_letter.records == 3


def test_old_checkpoints_are_removed_and_every_version_can_still_be_read(lake: Lake) -> None:
    sync(lake, BATCHES[:1], configured(lake, APPEND))
    state, rows_before = lake.table.metadata.state, view(lake).current
    first = lake.table.version
    log = Path(lake.uri, "_delta_log")
    for number in (2, 3):
        DeltaTable(lake.uri).create_checkpoint()
        sync(lake, BATCHES[:number], configured(lake, APPEND))
    DeltaTable(lake.uri).create_checkpoint()
    newest = DeltaTable(lake.uri).version()
    age(log)
    maintain(lake.spark, lake.tables())
    assert [path.name for path in log.glob("*.parquet")] == [f"{newest:020}.checkpoint.parquet"]
    past = lake.tables().main
    assert len(DeltaTable(lake.uri, version=first).to_pyarrow_table()) == len(rows_before)
    assert past.metadata.state != state
    sync(lake, [*BATCHES, [event(4, 4)]], configured(lake, APPEND))
    assert len(view(lake).current) == 7


def test_checkpoints_stay_if_the_log_does_not_begin_with_the_first_commit(lake: Lake) -> None:
    sync(lake, BATCHES[:1], configured(lake, APPEND))
    DeltaTable(lake.uri).create_checkpoint()
    sync(lake, BATCHES[:2], configured(lake, APPEND))
    DeltaTable(lake.uri).create_checkpoint()
    log = Path(lake.uri, "_delta_log")
    (log / f"{0:020}.json").unlink()
    age(log)
    maintain(lake.spark, lake.tables())
    assert len(list(log.glob("*.parquet"))) == 2


def test_checkpoints_between_the_oldest_and_the_newest_go(lake: Lake) -> None:
    """The log begins with a checkpoint after an erasure, and the versions since need it."""
    for number in (1, 2, 3):
        sync(lake, BATCHES[:number], configured(lake, APPEND))
        DeltaTable(lake.uri).create_checkpoint()
    log = Path(lake.uri, "_delta_log")
    present = sorted(log.glob("*.parquet"))
    (log / f"{0:020}.json").unlink()
    age(log)
    maintain(lake.spark, lake.tables())
    assert sorted(log.glob("*.parquet")) == [present[0], present[-1]]
