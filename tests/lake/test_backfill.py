"""The backfill of columns: old rows get their values, and whatever changes meanwhile wins.

`ELT_BACKFILL_SEEDS=20-49` are the seeds of the long form that are left.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from elt_assets.errors import ConfigError
from elt_assets.failpoints import armed
from elt_assets.lake.admin.backfill import ColumnBackfill, ColumnRequest
from elt_assets.lake.admin.maintenance import compact
from elt_assets.lake.delta.commit_metadata import BACKFILL
from elt_assets.lake.read.changes import Position, find_changes, read_commit_name
from elt_assets.lake.worker.slices import SliceSource
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, DELETED_AT
from tests.lake.camera import Camera
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, checkpoint, rows, stream
from tests.support.seeds import read_range

COLUMNS = {"id": INTEGER, "at": INTEGER, "name": STRING, DELETED_AT: STRING}
MORE = {**COLUMNS, "discount": INTEGER, "note": STRING}
BEFORE = stream(COLUMNS, APPEND_DEDUP, key=["id"], cursor=["at"])
AFTER = stream(MORE, APPEND_DEDUP, key=["id"], cursor=["at"])


def row(number: int, moment: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "at": moment, "name": f"user {number}", **more}


def no_slices() -> SliceSource:
    raise AssertionError("the rows come as records")


def begin(lake: Lake, *, all_versions: bool = False) -> ColumnBackfill:
    request = ColumnRequest(["discount", "note"], all_versions)
    spec = WriteSpec(AFTER, "backfill", lake.history)
    return ColumnBackfill(lake.provider, lake.tables(), spec, request, lake.staging, no_slices)


def fill(lake: Lake, *records: Any, backfill: ColumnBackfill | None = None, **more: Any) -> Any:
    backfill = backfill or begin(lake, **more)
    try:
        backfill.write(lake.stage(*records))
        backfill.commit(checkpoint())
        backfill.commit(checkpoint(final=True))
    finally:
        backfill.close()
    return backfill.done


def values(lake: Lake) -> list[tuple[Any, ...]]:
    return rows(lake.spark, lake.table, "id", "at", "name", "discount", "note")


def test_old_rows_get_their_values_and_nothing_else_changes(lake: Lake) -> None:
    lake.sync(BEFORE, row(1, 1), row(2, 1), row(3, 1), value=1)
    lake.sync(AFTER, row(2, 2, discount=20), row(4, 2, note="own"), value=2)
    before = lake.table
    ids = rows(lake.spark, before, "id", "_airbyte_raw_id", "_airbyte_extracted_at")
    done = fill(
        lake,
        {"id": 1, "discount": 10, "note": "a"},
        {"id": 1, "discount": 11, "note": "b"},  # it came twice: the last one counts
        {"id": 2, "discount": 21, "note": "c", "name": "other", "at": 99},
        {"id": 4, "discount": None, "note": "d"},
        {"id": 5, "discount": 50},
        {"discount": 60},
    )
    assert values(lake) == [
        (1, 1, "user 1", 11, "b"),
        (2, 2, "user 2", 20, "c"),
        (3, 1, "user 3", None, None),
        (4, 2, "user 4", None, "own"),
    ]
    assert (done.read, done.rows, dict(done.values)) == (5, 2, {"discount": 3, "note": 3})
    after = lake.table
    assert rows(lake.spark, after, "id", "_airbyte_raw_id", "_airbyte_extracted_at") == ids
    assert after.metadata == before.metadata
    assert after.commits_since(before.version)[0][BACKFILL] == "discount,note"
    since = Position(before.version, read_commit_name(before, before.version))
    assert "elt backfill" in str(find_changes(after, since, None).reload)
    lake.sync(AFTER, row(1, 3), value=3)
    assert values(lake)[0] == (1, 3, "user 1", None, None)


def test_files_without_a_null_in_the_columns_stay(lake: Lake) -> None:
    append = stream(MORE, APPEND)
    lake.sync(append, row(1, 1, discount=1, note="a"))
    lake.sync(append, row(2, 1))
    lake.sync(append, row(3, 1))
    paths = {file.path for file in lake.table.files}
    spec_of = begin(lake)
    fill(lake, {"id": 2, "discount": 2}, {"id": 1, "discount": 9}, backfill=spec_of)
    assert len(paths & {file.path for file in lake.table.files}) == 2
    version = lake.table.version
    fill(lake, {"id": 2, "discount": 3}, {"id": 7, "discount": 3})
    assert lake.table.version == version
    assert [(id_, discount) for id_, _, _, discount, _ in values(lake)] == [
        (1, 1),
        (2, 2),
        (3, None),
    ]


@pytest.mark.parametrize("all_versions", [False, True])
def test_a_history_gets_the_values_of_its_current_versions(
    lake: Lake, *, all_versions: bool
) -> None:
    lake.history = True
    lake.sync(BEFORE, row(1, 1), row(2, 1), value=1)
    lake.sync(BEFORE, {**row(1, 2), "name": "new"}, value=2)
    lake.sync(AFTER, row(3, 3), value=3)
    done = fill(
        lake, {"id": 1, "discount": 10}, {"id": 2, "discount": 20}, all_versions=all_versions
    )
    assert lake.versions("id", "at", "discount", "_is_current") == [
        (1, 1, 10 if all_versions else None, False),
        (1, 2, 10, True),
        (2, 1, 20, True),
        (3, 3, None, True),
    ]
    assert (done.rows, done.versions) == (2, 3 if all_versions else 2)
    lake.sync(AFTER, row(1, 4, discount=5), value=4)
    assert lake.versions("id", "at", "discount", "_is_current")[1:3] == [
        (1, 2, 10, False),
        (1, 4, 5, True),
    ]


def test_columns_that_the_table_does_not_have_yet_are_refused(lake: Lake) -> None:
    lake.sync(BEFORE, row(1, 1))
    with pytest.raises(
        ConfigError, match="does not have the columns of the catalog yet: discount"
    ) as e:
        begin(lake)
    assert "sync the stream once" in str(e.value.guidance)
    lake.sync(AFTER, row(2, 1))
    assert fill(lake, {"id": 1, "discount": 1}).rows == 1


@dataclass
class Source:
    """A source with a log, and a table that is synced from it; `discount` is new."""

    lake: Lake
    random: random.Random
    has_column: bool = False
    clock: int = 0
    present: dict[int, dict[str, Any]] = field(default_factory=dict)

    def change(self) -> None:
        """Change some rows, and sync the log."""
        self.clock += 1
        events = []
        for number in self.random.sample(range(8), self.random.randint(1, 4)):
            if number in self.present and self.random.random() < 0.3:
                del self.present[number]
                events.append({"id": number, "at": self.clock, DELETED_AT: "2026-01-01T00:00:00Z"})
                continue
            discount = self.random.choice([None, self.clock]) if self.has_column else None
            note = f"n{self.clock}" if self.has_column else None
            self.present[number] = row(number, self.clock, discount=discount, note=note)
            events.append(self.present[number])
        if not self.has_column:
            events = [{k: v for k, v in e.items() if k in COLUMNS} for e in events]
        self.lake.sync(AFTER if self.has_column else BEFORE, *events, value=self.clock)

    def add_column(self) -> None:
        """Give the rows values in new columns, without a word in the log."""
        self.has_column = True
        for number, present in self.present.items():
            present |= {"discount": number * 100, "note": self.random.choice([None, "old"])}
        self.change()

    def rows(self) -> list[dict[str, Any]]:
        """Return what a read by slices gives now."""
        return [{k: r[k] for k in ("id", "discount", "note")} for r in self.present.values()]

    def disturb(self) -> None:
        for _ in range(self.random.randint(0, 2)):
            if self.random.random() < 0.3:
                compact(self.lake.spark, self.lake.table)
            else:
                self.change()


def check_backfill_beside_syncs(lake: Lake, seed: int) -> None:
    def write(backfill: ColumnBackfill, records: list[dict[str, Any]]) -> None:
        if records:
            backfill.write(lake.stage(*records))

    source = Source(lake, random.Random(seed))
    lake.history = seed % 3 == 0
    for _ in range(source.random.randint(1, 3)):
        source.change()
    source.add_column()
    source.disturb()
    backfill = begin(lake)
    source.disturb()
    read = source.rows()
    half = source.random.randint(0, len(read))
    write(backfill, read[:half])
    source.disturb()
    later = {r["id"]: r for r in source.rows()}  # a later slice sees later rows
    write(backfill, [later[r["id"]] for r in read[half:] if r["id"] in later])
    source.disturb()
    backfill.commit(checkpoint(final=True))
    backfill.close()
    expected = sorted(
        (
            tuple(r[name] for name in ("id", "at", "name", "discount", "note"))
            for r in source.present.values()
        ),
        key=repr,
    )
    assert values(lake) == expected, seed
    if lake.history:
        current = [
            v[:-1] for v in lake.versions("id", "at", "discount", "note", "_is_current") if v[-1]
        ]
        assert current == [
            (i, cursor, discount, note) for i, cursor, _, discount, note in expected
        ], seed


@pytest.mark.parametrize("seed", [1, 3])
def test_a_backfill_beside_syncs_equals_a_full_read(lake: Lake, seed: int) -> None:
    check_backfill_beside_syncs(lake, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", read_range("ELT_BACKFILL_SEEDS", 50))
def test_backfills_beside_syncs_equal_full_reads(lake: Lake, seed: int) -> None:
    check_backfill_beside_syncs(lake, seed + 100)


def test_a_backfill_survives_a_kill_at_any_point(lake: Lake) -> None:
    """Run again, it ends as one that was not killed, and a sync goes on from the state."""
    lake.history = True
    lake.sync(BEFORE, row(1, 1), row(2, 1), value=1)
    lake.sync(AFTER, row(3, 2, discount=3), value=2)
    records = [{"id": number, "discount": number * 10} for number in (1, 2, 3)]
    camera = Camera(lake, lake.folder.parent / f"{lake.folder.name}-album", closely=False)
    with armed(camera.click):
        fill(lake, *records)
    names = ("id", "discount", "_is_current")
    end = values(lake), lake.versions(*names)
    assert [value[3] for value in end[0]] == [10, 20, 3]
    shots = dict(camera.shots.values())
    assert shots
    for where, folder in shots.items():
        copy = replace(lake, folder=folder)
        fill(copy, *records)
        assert (values(copy), copy.versions(*names)) == end, where
        assert copy.tables().metadata.state == lake.tables().metadata.state
