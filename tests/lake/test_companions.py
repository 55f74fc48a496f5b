"""The history and the dead letter stand where their table stands: after a kill, a restore, a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.maintenance import compact, maintain
from elt_assets.lake.read.snapshots import snapshot
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, ConfiguredStream
from tests.lake.crashing import configured, event, expected, killed_at, position, sync, view
from tests.lake.harness import Lake
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, rows, stream

BATCHES = [
    [event(1, 10), event(2, 10), event(None, 1)],
    [event(1, 20), event(None, 2)],
    [event(1, 15), event(3, 30), event(None, 3)],
]

pytestmark = pytest.mark.usefixtures("agreeing_readers")


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path, history=True)


def killed(lake: Lake) -> None:
    """A run that died when its second checkpoint was in the companions, and not in the table."""
    sync(lake, BATCHES[:1])
    killed_at(Failpoint.COMMIT_READY, 3, lambda: sync(lake, BATCHES[:2]))


def restored(lake: Lake, number: int) -> None:
    """The table taken back to its state of so many batches, by another engine."""
    delta = DeltaTable(lake.uri)
    version = next(
        int(entry["version"])
        for entry in delta.history()
        if "elt.state" in entry and position(entry["elt.state"]) == number
    )
    delta.restore(version)


# After a kill


def test_companion_commits_of_a_killed_run_are_rolled_back_and_reported(lake: Lake) -> None:
    killed(lake)
    tables = lake.tables()
    assert tables.dead_letter.records == 2
    assert view(lake) == expected(BATCHES[:1])
    done = tables.roll_back_companions("run-2")
    assert len(done) == 2
    for suffix in ("_history", "_dead_letter"):
        assert any(f"{lake.uri}{suffix} was ahead" in line for line in done)
    assert tables.dead_letter.records == 1
    assert lake.tables().roll_back_companions("run-3") == []
    assert view(lake) == expected(BATCHES[:1])


def test_a_run_beside_one_that_was_killed_keeps_its_rejected_records(lake: Lake) -> None:
    """The run undoes the commit of the killed one in the history, and only that."""
    sync(lake, BATCHES[:1])
    slow = lake.writer(configured(lake))
    slow.write(lake.stage(*BATCHES[1]))
    killed_at(Failpoint.COMPANION_COMMITTED, 1, lambda: sync(lake, [BATCHES[0], [event(9, 90)]]))
    slow.commit(checkpoint(2, final=True))
    slow.close()
    assert view(lake) == expected(BATCHES[:2])


@pytest.mark.parametrize("more", ["undeclared", "partly"])
def test_a_kill_between_wider_types_leaves_tables_that_fit_together(lake: Lake, more: str) -> None:
    """The catalog with the wider types does not come back, and a later one does not declare the field."""

    def wanted(kind: Any) -> ConfiguredStream:
        stream = configured(lake)
        properties = {"o": {"type": "object", "properties": {"n": INTEGER, "m": kind}}, "m": kind}
        stream.stream.json_schema["properties"] |= properties
        return stream

    sync(lake, BATCHES[:1], wanted(INTEGER))
    killed_at(Failpoint.TABLE_WIDENED, 1, lambda: sync(lake, BATCHES[:2], wanted(STRING)))
    last = wanted(INTEGER)
    fields = last.stream.json_schema["properties"]
    del fields["m"], fields["o"]["properties"]["m"]
    if more == "undeclared":
        del fields["o"]
    sync(lake, BATCHES, last)
    assert view(lake) == expected(BATCHES)
    tables = lake.tables()
    assert tables.history is not None
    for table in (tables.main, tables.history):
        assert table.schema["m"].dataType.simpleString() == "string"
        assert "m:string" in table.schema["o"].dataType.simpleString()


@pytest.mark.long
def test_the_tables_are_correct_after_repeated_kills(lake: Lake) -> None:
    killed(lake)
    for number in (1, 2, 3, 4, 5):  # two go back, three go on
        killed_at(Failpoint.COMMIT_READY, number, lambda: sync(lake, BATCHES[:2]))
        assert view(lake) == expected(BATCHES[:1])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


def test_a_companion_that_is_ahead_is_not_compacted(lake: Lake) -> None:
    killed(lake)
    before = {kind: table.version for kind, table in lake.tables().companions.items()}
    maintain(lake.spark, lake.tables())
    assert {kind: table.version for kind, table in lake.tables().companions.items()} == before
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


# After a restore


def test_companions_follow_several_restores(lake: Lake) -> None:
    """A file that one of them took away, and another brought back, is there."""
    sync(lake, BATCHES)
    for number in (1, 2, 3):
        restored(lake, number)
        assert view(lake) == expected(BATCHES[:number])
        lake.tables().roll_back_companions("run-2")
        assert view(lake) == expected(BATCHES[:number])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


@pytest.mark.parametrize("number", [1, 2])
def test_companions_follow_a_restore_to_a_version_before_a_compaction(
    lake: Lake, number: int
) -> None:
    """A restore is of all three tables: later rows of the companions are taken back with the table."""
    sync(lake, BATCHES[:2])
    for table in (lake.tables().main, *lake.tables().companions.values()):
        compact(lake.spark, table)
    assert len(lake.dead_letter.files) == 1
    sync(lake, BATCHES)
    restored(lake, number)
    assert view(lake) == expected(BATCHES[:number])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


def test_companions_follow_a_restore_after_a_vacuum_removed_their_files(lake: Lake) -> None:
    """Companions are read as they were compacted since: the files of the restored commit itself are gone."""
    sync(lake, BATCHES[:2])
    for table in lake.tables().companions.values():
        compact(lake.spark, table)
        DeltaTable(table.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    sync(lake, BATCHES)
    restored(lake, 2)
    assert view(lake) == expected(BATCHES[:2])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


# Deletes


def test_a_delete_of_a_key_without_a_version_is_kept_in_the_history(lake: Lake) -> None:
    """An older record that comes later makes a version that has ended."""
    fields = {"id": INTEGER, "at": INTEGER, DELETED_AT: STRING}
    users = stream(fields, APPEND_DEDUP, key=["id"], cursor=["at"])
    lake.sync(users, {"id": None})
    lake.sync(users, {"id": 1, "at": 9, DELETED_AT: "2026-01-01"})
    lake.sync(users, {"id": 1, "at": 5})
    assert lake.ids() == []
    assert lake.versions("id", "_is_current") == [(1, False)]


# A history that was not kept for a while


ONCE = [event(1, 10), event(2, 10)]
LOST = [event(1, 50, "never committed"), event(6, 50, "never committed")]
CORRECTED = [event(1, 40, "corrected")]
MEANWHILE = [event(3, 20)]


@pytest.mark.parametrize("kept", ["never", "before", "until a kill"])
def test_a_kill_in_the_first_sync_with_a_history_leaves_nothing(lake: Lake, kept: str) -> None:
    """Neither where there was no history, nor where it was not kept for a while."""
    lake.history = kept != "never"
    sync(lake, [ONCE])
    if kept == "until a kill":
        killed_at(Failpoint.COMMIT_READY, 2, lambda: sync(lake, [ONCE, LOST]))
    before = view(lake).history
    lake.history = False
    sync(lake, [ONCE, MEANWHILE])
    lake.history = True
    # In the other cases, the table records its companions first, or one of them is rolled back.
    calls = 2 if kept == "before" else 3
    killed_at(Failpoint.COMMIT_READY, calls, lambda: sync(lake, [ONCE, MEANWHILE, LOST]))
    assert view(lake).history == before
    sync(lake, [ONCE, MEANWHILE, CORRECTED])
    assert view(lake) == expected([ONCE, MEANWHILE, CORRECTED])


def test_a_kill_in_the_first_sync_with_a_rejected_record_leaves_no_dead_letter(lake: Lake) -> None:
    sync(lake, [ONCE])
    killed_at(Failpoint.COMMIT_READY, 2, lambda: sync(lake, [ONCE, [event(None, 50)]]))
    assert view(lake) == expected([ONCE])
    sync(lake, [ONCE, CORRECTED])
    assert view(lake) == expected([ONCE, CORRECTED])


def test_a_history_that_was_on_only_during_a_refresh_in_progress_is_not_up_to_date(
    lake: Lake,
) -> None:
    """The commits of a refresh that is not complete do not change the history."""
    sync(lake, [ONCE])
    lake.history = False
    sync(lake, [ONCE, CORRECTED])
    lake.history = True
    writer = lake.writer(configured(lake, refresh="truncate"))
    writer.write(lake.stage(*LOST))
    writer.commit(checkpoint(1))
    writer.close()
    assert not lake.tables().is_history_current


# A table that was moved away


def test_the_dead_letter_is_kept_if_its_table_is_moved_away(lake: Lake) -> None:
    """Moving a table away and reading the stream again does not delete its rejected records."""
    sync(lake, BATCHES)
    Path(lake.uri).rename(lake.folder / "away")
    sync(lake, BATCHES[:1])
    assert lake.dead_letter.records == 4
    sync(lake, BATCHES)
    assert view(lake).current == expected(BATCHES).current


# As readers get them


def test_an_older_version_can_be_read_and_a_missing_one_is_refused(lake: Lake) -> None:
    sync(lake, BATCHES[:2])
    newest = StreamTables(lake.uri, APP).dead_letter.version
    older = snapshot(
        lake.spark, f"{lake.uri}_dead_letter", f"{APP}_dead_letter", version=newest - 1
    )
    assert older.count() == 1
    with pytest.raises(ConfigError, match="at version 99"):
        snapshot(lake.spark, lake.uri, APP, version=99)
    with pytest.raises(ConfigError, match=r"there is no table .*nothing yet"):
        snapshot(lake.spark, f"{lake.folder}/nothing", APP)
    with pytest.raises(ConfigError, match="has no partitions"):
        snapshot(lake.spark, lake.uri, APP, partitions=["2026-01-01"])


# Other engines


@pytest.mark.parametrize(("rewritten", "current"), [(False, 7), (True, 10)])
def test_a_history_rewritten_by_another_engine_loses_the_refresh_of_a_version(
    lake: Lake, *, rewritten: bool, current: int
) -> None:
    """A refresh brought an older cursor. Without the hidden column `_elt_epoch` the later one is current."""
    lake.sync(configured(lake, APPEND_DEDUP), event(1, 10), event(2, 1))
    lake.sync(configured(lake, APPEND_DEDUP, "truncate"), event(1, 5), event(2, 1))
    if rewritten:
        DeltaTable(f"{lake.uri}_history").delete("id = 2")
    lake.sync(configured(lake, APPEND_DEDUP), event(1, 7))
    versions = lake.versions("id", "at", "_is_current")
    assert [at for number, at, is_current in versions if is_current and number == 1] == [current]
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 7), (2, 1)]
