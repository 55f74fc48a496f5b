"""A refresh is built beside what is there, goes on when interrupted, and takes its place in one commit."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.write.stored_stream import Generations, RefreshMode, StoredStream
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    OVERWRITE_DEDUP,
    ConfiguredStream,
)
from tests.lake.crashing import (
    EVENTS,
    configured,
    event,
    expected,
    killed_at,
    position,
    read,
    sync,
    view,
)
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, NUMBER, STRING, checkpoint, rows, take_generations

OLD = [[event(1, 10), event(2, 10)], [event(3, 20)]]
NEW = [[event(1, 30), event(2, 10)], [event(4, 30)], [event(1, 40), event(5, 40)]]
WHOLE = [(1, 40), (2, 10), (4, 30), (5, 40)]

pytestmark = pytest.mark.usefixtures("agreeing_readers")


def interrupted(
    lake: Lake, wanted: ConfiguredStream, batches: list[list[dict[str, Any]]], **landing: Any
) -> None:
    """A run that committed these batches, then ended."""
    writer = lake.writer(wanted, **landing)
    for number, batch in enumerate(batches, 1):
        writer.write(lake.stage(*batch))
        writer.commit(checkpoint(number))
    writer.close()


def by_another_reader(lake: Lake) -> list[tuple[int, int]]:
    found = DeltaTable(lake.uri).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["at"]) for row in found)


def generation(lake: Lake) -> list[tuple[int, int]]:
    return rows(lake.spark, lake.table, "id", "_airbyte_generation_id")


def resumable(
    lake: Lake, policy: str = OVERWRITE, properties: dict[str, Any] | None = None
) -> ConfiguredStream:
    wanted = configured(lake, policy, "none", properties)
    wanted.stream.is_resumable = True
    refresh: RefreshMode = "none" if wanted.overwrites else "truncate"
    take_generations(wanted, lake.tables().metadata, refresh)
    return wanted


# Beside the old


def test_readers_see_the_old_table_until_the_refresh_is_complete(lake: Lake) -> None:
    sync(lake, OLD)
    former = (by_another_reader(lake), lake.table.metadata.state, lake.table.metadata.generation)
    writer = lake.writer(configured(lake, refresh="truncate"))
    for number, batch in enumerate(NEW, 1):
        assert (
            by_another_reader(lake),
            lake.table.metadata.state,
            lake.table.metadata.generation,
        ) == former
        writer.write(lake.stage(*batch))
        done = writer.commit(checkpoint(number, final=number == len(NEW)))
        assert position(done.state) == number
    assert by_another_reader(lake) == WHOLE
    assert generation(lake) == [(number, 2) for number, _ in WHOLE]
    assert (position(lake.table.metadata.state), lake.table.metadata.refresh) == (3, None)


@pytest.mark.spec("protocol.85")
def test_a_refresh_replaces_the_table_in_one_commit(lake: Lake) -> None:
    sync(lake, OLD)
    interrupted(lake, configured(lake, refresh="truncate"), NEW[:2])
    before = lake.table.version
    sync(lake, NEW)
    assert lake.table.version == before + 1


# After an interruption


@pytest.mark.parametrize("kind", ["incremental", "resumable"])
def test_a_resumable_refresh_is_resumed(lake: Lake, kind: str) -> None:
    sync(lake, OLD[:1], None if kind == "incremental" else configured(lake, OVERWRITE))
    started = configured(lake, refresh="truncate") if kind == "incremental" else resumable(lake)
    interrupted(lake, started, NEW[:2])
    again = configured(lake) if kind == "incremental" else resumable(lake)
    assert (again.generation_id, again.minimum_generation_id) == (2, 2)
    assert position(StoredStream(again, lake.tables().metadata).find_starting_state()) == 2
    done = sync(lake, NEW, again)
    assert [each.records for each in done] == [2]
    found = rows(lake.spark, lake.table, "id", "at")
    assert found == (WHOLE if kind == "incremental" else sorted([*WHOLE, (1, 30)]))
    assert {number for _, number in generation(lake)} == {2}


def test_a_refresh_that_cannot_be_resumed_restarts(lake: Lake) -> None:
    sync(lake, OLD[:1], configured(lake, OVERWRITE))
    interrupted(lake, configured(lake, OVERWRITE), NEW[:2])
    again = configured(lake, OVERWRITE)
    assert StoredStream(again, lake.tables().metadata).find_starting_state() is None
    sync(lake, NEW[2:], again)
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 40), (5, 40)]
    assert {number for _, number in generation(lake)} == {again.generation_id}


def test_a_refresh_that_is_requested_again_restarts(lake: Lake) -> None:
    sync(lake, OLD)
    interrupted(lake, configured(lake, refresh="truncate"), NEW[:1])
    again = configured(lake, refresh="truncate")
    assert again.generation_id == 3
    sync(lake, NEW[1:], again, refresh="truncate")
    assert rows(lake.spark, lake.table, "id", "at") == [(1, 40), (4, 30), (5, 40)]


def test_an_unfinished_refresh_restarts_if_the_schema_changed(lake: Lake) -> None:
    """The rows that it has are of another shape: the source must be asked for all of them again."""
    sync(lake, OLD)
    interrupted(lake, configured(lake, refresh="truncate"), NEW[:2])
    other = configured(lake, properties={**EVENTS, "more": STRING})
    sync(lake, NEW, other)
    assert rows(lake.spark, lake.table, "id", "at") == WHOLE


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "in two attempts"])
@pytest.mark.parametrize("policy", [APPEND_DEDUP, OVERWRITE_DEDUP])
def test_a_resumed_refresh_keeps_its_rows_when_the_table_gets_wider_types(
    lake: Lake, policy: str, dies: bool
) -> None:
    lake.history = True
    sync(lake, OLD)
    wide = resumable(lake, policy, {**EVENTS, "at": NUMBER})
    interrupted(lake, wide, NEW[:1], on_schema_change="freeze")
    wide.sync_id = lake.table.metadata.sync_id + 1
    if dies:  # once history and table have the types: neither has the rows yet
        killed_at(Failpoint.COMMIT_READY, 3, lambda: lake.sync(wide, *NEW[1], *NEW[2]))
        assert [row[0] for row in read(lake, "", "typeof(at)")] == ["double"] * 3
    assert position(StoredStream(wide, lake.table.metadata).find_starting_state()) == 1
    lake.sync(wide, *NEW[1], *NEW[2])
    assert read(lake, "", "id", "cast(at as int)", "typeof(at)") == [
        (*row, "double") for row in WHOLE
    ]
    current = [row for row in read(lake, "_history", "id", "at", "_is_current") if row[2]]
    assert [row[:2] for row in current] == WHOLE


def test_an_appending_refresh_is_resumed(lake: Lake) -> None:
    def wanted() -> ConfiguredStream:
        found = configured(lake, APPEND)
        found.sync_mode, found.stream.is_resumable = "full_refresh", True
        return found

    interrupted(lake, wanted(), NEW[:2])
    assert position(StoredStream(wanted(), lake.tables().metadata).find_starting_state()) == 2
    sync(lake, NEW, wanted())
    assert rows(lake.spark, lake.table, "id", "at") == sorted([*WHOLE, (1, 30)])
    assert StoredStream(wanted(), lake.tables().metadata).find_starting_state() is None


# What is kept


def test_retain_keeps_both_generations(lake: Lake) -> None:
    sync(lake, OLD, configured(lake, APPEND))
    both = configured(lake, APPEND, refresh="retain")
    assert (both.generation_id, both.minimum_generation_id) == (2, 0)
    sync(lake, NEW, both, refresh="retain")
    assert generation(lake) == [
        *[(1, 1), (1, 2), (1, 2), (2, 1), (2, 2), (3, 1), (4, 2), (5, 2)],
    ]
    assert (
        position(
            StoredStream(configured(lake, APPEND), lake.tables().metadata).find_starting_state()
        )
        == 3
    )


@pytest.mark.spec("protocol.75")
@pytest.mark.parametrize(("number", "least"), [(2, 1), (2, 3), (0, -1), (None, 0), (1, None)])
def test_invalid_generations_are_refused(lake: Lake, number: int | None, least: int | None) -> None:
    wanted = configured(lake)
    wanted.generation_id, wanted.minimum_generation_id = number, least
    with pytest.raises(ConfigError, match=f"generation {number}, minimum generation {least}"):
        WriteSpec(wanted, "run-1")


def test_a_new_refresh_has_a_higher_generation_than_an_unfinished_one(lake: Lake) -> None:
    sync(lake, OLD)
    interrupted(lake, configured(lake, refresh="truncate"), NEW[:1])
    head = lake.tables().metadata
    assert StoredStream(configured(lake), head).generations("truncate") == Generations(3, 3)
    assert StoredStream(configured(lake), head).generations() == Generations(2, 2)


def test_versions_of_rows_missing_from_a_refresh_are_ended_once(lake: Lake) -> None:
    lake.history = True
    sync(lake, OLD)
    sync(lake, NEW, refresh="truncate", wanted=configured(lake, refresh="truncate"))
    expected_view = expected([*OLD, NEW[0][:1], *NEW[1:]])  # what was there unchanged is no version
    ended = [
        (*version[:3], False, False) if version[0] == 3 else version
        for version in expected_view.history
    ]
    assert view(lake).history == ended
    closed = read(lake, "_history", "id", "_valid_to")
    sync(lake, NEW, refresh="truncate", wanted=configured(lake, refresh="truncate"))
    assert view(lake).history == ended
    assert read(lake, "_history", "id", "_valid_to") == closed


# Other columns


@pytest.mark.parametrize("policy", [OVERWRITE, APPEND_DEDUP])
def test_a_refresh_changes_types_and_rows_in_one_commit(lake: Lake, policy: str) -> None:
    sync(lake, OLD[:1], configured(lake, policy))
    before = lake.table.version
    other = configured(
        lake, policy, "truncate", {"id": INTEGER, "at": NUMBER, "text": INTEGER, "new": STRING}
    )
    sync(lake, [[{"id": 1, "at": 1.5, "text": 7, "new": "x"}]], other, refresh="truncate")
    assert rows(lake.spark, lake.table, "id", "at", "text", "new") == [(1, 1.5, 7, "x")]
    assert lake.table.version == before + 1
    old = DeltaTable(lake.uri, version=before).to_pyarrow_table()
    assert sorted(old["text"].to_pylist()) == ["1 at 10", "2 at 10"]


# Where its files lie


def test_a_vacuum_of_another_engine_keeps_an_unfinished_refresh(lake: Lake) -> None:
    lake.sync(configured(lake, OVERWRITE), *OLD[0])
    interrupted(lake, resumable(lake), NEW[:2])
    DeltaTable(lake.uri).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )
    writer = lake.writer(resumable(lake))
    writer.write(lake.stage(*NEW[2]))
    writer.commit(checkpoint(3, final=True))
    assert by_another_reader(lake) == sorted((each["id"], each["at"]) for b in NEW for each in b)
    maintain(lake.spark, lake.tables(), dt.timedelta(0))
    assert len(by_another_reader(lake)) == sum(map(len, NEW))


def test_the_files_of_a_resumed_refresh_have_statistics(lake: Lake) -> None:
    interrupted(lake, resumable(lake), NEW[:2])
    writer = lake.writer(resumable(lake))
    writer.write(lake.stage(*NEW[2]))
    writer.commit(checkpoint(3, final=True))
    table = lake.table
    assert table.bounds(["id"]).keys() == {file.path for file in table.files}
