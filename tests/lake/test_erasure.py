"""Rows that are erased are gone from all that a stream has in the lake, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from elt_assets.connection.read_only_query import check_condition
from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Counts, Erasure, KeyLog, erase
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.storage import TableChange
from elt_assets.lake.read.snapshots import snapshot
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, DELETED_AT, ConfiguredStream
from tests.lake.camera import Camera
from tests.lake.crashing import done_at, killed_at
from tests.lake.harness import Lake
from tests.lake.staging import APP, INTEGER, STRING, TIMESTAMP, checkpoint, rows, stream
from tests.support.failpoints import assert_reached
from tests.support.value_search import find_value

pytestmark = pytest.mark.spark

PEOPLE = {"id": INTEGER, "email": STRING, "at": INTEGER}


def people(policy: str = APPEND_DEDUP) -> ConfiguredStream:
    return stream(PEOPLE, policy, key=["id"] if policy == APPEND_DEDUP else (), cursor=["at"])


def person(number: Any, email: str, time: Any = 1) -> dict[str, Any]:
    return {"id": number, "email": email, "at": time}


def open_erasure(lake: Lake, users: ConfiguredStream) -> Erasure:
    return Erasure(lake.provider, lake.table.storage.location, APP, users, "erasure-1")


def erase_rows(erasure: Erasure, selection: Selection, *, suppresses: bool = False) -> Counts:
    return erase(erasure, selection, KeyLog(b"salt", "fingerprint", suppresses))


def select(erasure: Erasure, text: str) -> Selection:
    return Selection(erasure.key, check_condition(text))


def test_a_person_is_erased_from_the_table_its_history_and_the_rejected_records(lake: Lake) -> None:
    lake.history = True
    users = people()
    lake.sync(users, person(1, "a@x"), person(2, "b@x"), person("no", "b@x"), value=1)
    lake.sync(users, person(2, "b2@x", 2), person(3, "c@x", 2), person(None, "c@x"), value=2)
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, "email = 'b@x'"))
    assert (counts.rows, counts.history, counts.rejected) == (1, 2, 1)
    assert rows(lake.spark, lake.table, "id", "email") == [(1, "a@x"), (3, "c@x")]
    assert lake.versions("id", "email") == [(1, "a@x"), (3, "c@x")]
    tables = lake.tables()
    assert tables.is_history_current
    assert not tables.is_ahead("history")
    assert tables.metadata.state is not None
    assert [row.record for row in lake.dead_letter.dataframe(lake.spark).collect()] == [
        '{"id": null, "email": "c@x", "at": 1}'
    ]
    lake.sync(users, person(4, "d@x", 3), person(1, "a2@x", 3), value=3)
    assert rows(lake.spark, lake.table, "id", "email") == [(1, "a2@x"), (3, "c@x"), (4, "d@x")]
    assert len(lake.versions("id")) == 4


def test_a_stream_without_a_key_is_erased_by_condition(lake: Lake) -> None:
    users = people(APPEND)
    lake.sync(users, person(1, "a@x"), person(1, "b@x"), person(None, "b@x"))
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, "email = 'b@x'"))
    assert counts.rows == 2
    assert rows(lake.spark, lake.table, "id", "email") == [(1, "a@x")]


def test_keys_are_erased(lake: Lake) -> None:
    users = people()
    lake.sync(users, *(person(n, f"{n}@x") for n in range(10)), value=1)
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, Selection(erasure.key, keys=pa.table({"id": [3, 4, 99]})))
    assert counts.rows == 2
    assert lake.ids() == [0, 1, 2, 5, 6, 7, 8, 9]


SECRET = "zz.erased+1@example.test"


def places(lake: Lake) -> set[str]:
    """Return the kinds of files below the lake that have the value."""
    return {_kind(place.path.relative_to(lake.folder)) for place in find_value(SECRET, lake.folder)}


def _kind(path: PurePath) -> str:
    table, folder = path.parts[:2]
    return f"{table}/{folder}" + ("" if folder != "_delta_log" else path.suffix)


def test_an_erased_value_is_found_nowhere(lake: Lake) -> None:
    lake.history = True
    users = people()
    for number in range(12):
        email = SECRET if number == 3 else f"{number}@x"
        lake.sync(users, person(7, email, number), person(number + 100, "z", number), value=number)
        if number == 3:
            lake.sync(users, person("no", SECRET), person(5, SECRET), value=3)
    lake.table._delta.delta_table.create_checkpoint()  # type: ignore[union-attr]
    tables = lake.tables()
    tables.history._delta.delta_table.create_checkpoint()  # type: ignore[union-attr]
    before = places(lake)
    assert before >= {
        "users/data",
        "users/_delta_log.json",
        "users/_delta_log.parquet",
        "users_history/data",
        "users_history/_delta_log.json",
        "users_history/_delta_log.parquet",
        "users_dead_letter/data",
    }, before
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert counts.found
    assert not {place for place in places(lake) if not place.startswith("staging")}
    assert 7 not in lake.ids()


@pytest.mark.parametrize("closely", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_erasure_survives_a_kill_at_any_point(
    lake: Lake, request: pytest.FixtureRequest, closely: bool
) -> None:
    """The same command finishes it, and a sync goes on from the state."""
    lake.history = True
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), person("no", SECRET), value=1)
    lake.sync(users, person(1, SECRET, 2), person(2, "c@x", 2), value=2)

    def erase_person(lake: Lake) -> None:
        erasure = open_erasure(lake, users)
        erase_rows(erasure, select(erasure, f"email = '{SECRET}'"), suppresses=True)

    camera = Camera(lake, lake.folder.parent / "album", closely)
    with armed(camera.click):
        erase_person(lake)
    assert_reached(request.node.nodeid, camera.points)
    end = view_of(lake)
    by_point = dict(camera.shots.values())  # one of each failpoint
    shots = camera.shots.values() if closely else by_point.items()
    for where, folder in shots:
        copy = replace(lake, folder=folder)
        erase_person(copy)
        assert view_of(copy) == end, where
        assert not find_value(SECRET, folder), where
    again = (person(3, "d@x", 3), person(1, "back@x", 3))
    done = lake.sync(users, *again, value=3, key_salt=lambda: (b"salt", "fingerprint"))
    assert (lake.ids(), done.suppressed) == ([2, 3], 1)


def view_of(lake: Lake) -> tuple[Any, ...]:
    tables = lake.tables()
    history = lake.versions("id", "email")
    current = rows(lake.spark, lake.table, "id", "email")
    return (
        current,
        history,
        tables.dead_letter.records,
        tables.metadata.state,
        tables.is_ahead("history"),
    )


def test_a_sync_that_began_before_is_refused_and_starts_again(lake: Lake) -> None:
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    running = lake.writer(users)
    running.write(lake.stage(person(3, "c@x", 2)))
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    with pytest.raises(ConcurrentSync):
        running.commit(checkpoint(2, final=True))
    running.close()
    assert lake.ids() == [2]
    lake.sync(users, person(3, "c@x", 2), value=2)
    assert lake.ids() == [2, 3]


def test_an_erasure_is_built_again_if_a_sync_commits_first(lake: Lake) -> None:
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    syncs = iter([person(4, SECRET, 4)])

    def sync_once(point: Failpoint) -> None:
        if point is Failpoint.ROWS_TAKEN_OUT:
            for record in syncs:
                lake.sync(users, record, value=4)

    erasure = open_erasure(lake, users)
    with armed(sync_once):
        counts = erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert counts.rows == 2
    assert lake.ids() == [2]
    assert lake.table.metadata.state is not None


@pytest.mark.parametrize("partition", ["a", "b"])
def test_an_erasure_that_a_sync_of_one_partition_overtakes_keeps_what_it_has_committed(
    lake: Lake, partition: str
) -> None:
    users = people(APPEND)
    lake.sync(users, person(1, SECRET), person(2, "a@x"), value=1, partition="a")
    lake.sync(users, person(3, SECRET), person(4, "b@x"), value=1, partition="b")
    erasure = open_erasure(lake, users)
    sync = partial(lake.sync, users, person(5, "c@x"), value=2, partition=partition)
    with done_at(Failpoint.COMMIT_READY, sync):
        erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert lake.ids() == [2, 4, 5]
    assert not find_value(SECRET, lake.folder / "users")


def test_rows_with_a_key_and_rows_without_one_are_erased_together(lake: Lake) -> None:
    """In two rounds; what is about to go is looked at once, before the first."""
    lake.sync(people(APPEND), person(1, SECRET), person(None, SECRET), person(2, "a@x"), value=1)
    erasure = open_erasure(lake, people())
    checks: list[Counts] = []
    selection = select(erasure, f"email = '{SECRET}'")
    counts = erase(erasure, selection, KeyLog(b"salt", "fingerprint"), checks.append)
    assert [(count.rows, count.of) for count in (*checks, counts)] == [(2, 3), (2, 3)]
    assert lake.ids() == [2]
    assert not find_value(SECRET, lake.folder / "users")


def test_the_first_sync_of_a_partition_that_began_before_is_refused(lake: Lake) -> None:
    """No commit of it has a sequence yet, so only the erasure's own mark refuses it."""
    users = people(APPEND)
    lake.sync(users, person(1, SECRET), partition="a")
    running = lake.writer(users, partition="b")
    running.write(lake.stage(person(3, "c@x", 2)))
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    with pytest.raises(ConcurrentSync, match="were erased"):
        running.commit(checkpoint(None, final=True))
    running.close()


def test_an_unfinished_refresh_is_erased_and_resumed(lake: Lake) -> None:
    users = people()
    users.stream.is_resumable = True
    lake.sync(users, person(1, SECRET), person(2, "b@x"), person(None, SECRET), value=1)
    users.generation_id = users.minimum_generation_id = 2
    writer = lake.writer(users)
    writer.write(lake.stage(person(1, SECRET, 5), person(5, "e@x", 5), person("no", SECRET)))
    writer.commit(checkpoint(2))
    writer.close()
    assert lake.table.metadata.refresh is not None
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert (counts.rows, counts.hidden, counts.rejected) == (1, 1, 2)
    assert not find_value(SECRET, lake.folder / "users")
    lake.sync(users, person(6, "f@x", 6), value=3)
    assert lake.ids() == [5, 6]
    assert lake.dead_letter.records == 0


def test_a_refresh_knows_its_rejected_records_after_an_erasure_that_was_interrupted(
    lake: Lake,
) -> None:
    """So those from before the refresh go with its end."""
    users = people()
    users.stream.is_resumable = True
    lake.sync(users, person(1, SECRET), person(None, "a@x"), value=1)
    users.generation_id = users.minimum_generation_id = 2
    writer = lake.writer(users)
    writer.write(lake.stage(person(2, "b@x"), person("no", SECRET), person("no", "b@x")))
    writer.commit(checkpoint(2))
    writer.close()
    for interrupted in (True, False):
        erasure = open_erasure(lake, users)
        selection = select(erasure, f"email = '{SECRET}'")
        erasing = partial(erase_rows, erasure, selection)
        killed_at(Failpoint.ROWS_ERASED, 1, erasing) if interrupted else erasing()
    lake.sync(users, person(3, "c@x"), value=3)
    assert lake.ids() == [2, 3]
    assert "b@x" in str(rows(lake.spark, lake.dead_letter, "record"))
    assert lake.dead_letter.records == 1


def test_partition_values_go_too(lake: Lake) -> None:
    lake.partition_by = ["email"]
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    lake.sync(users, person(3, SECRET, 2), person(4, "b@x", 2), value=2)
    assert find_value(SECRET, lake.folder / "users" / "_delta_log")
    erasure = open_erasure(lake, users)
    assert erase_rows(erasure, select(erasure, f"email = '{SECRET}'")).rows == 2
    assert not find_value(SECRET, lake.folder / "users")
    lake.sync(users, person(5, "b@x", 3), value=3)
    assert lake.ids() == [2, 4, 5]


def test_deletes_of_a_key_go_too(lake: Lake) -> None:
    """A tombstone has the key only, so the condition alone would not find it."""
    properties = {**PEOPLE, DELETED_AT: TIMESTAMP}
    users = stream(properties, APPEND_DEDUP, key=["email"], cursor=["at"])
    lake.history = True
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    gone = {"email": SECRET, "at": 2, DELETED_AT: "2026-01-01T00:00:00Z"}
    lake.sync(users, gone, value=2)
    assert lake.table.metadata.tombstones
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, "id = 1"))
    assert counts.history == 1 and counts.hidden
    assert not find_value(SECRET, lake.folder / "users", lake.folder / "users_history")


def test_each_version_that_is_left_can_be_opened(lake: Lake) -> None:
    """Other engines' clean-ups of logs leave versions without a checkpoint (delta-io/delta#606, #6718)."""
    users = people(APPEND)
    for number, partition in enumerate(("a", "b", "c", "a")):
        lake.sync(users, person(number, SECRET if number == 1 else "b@x"), partition=partition)
    erasure = open_erasure(lake, users)
    assert erase_rows(erasure, select(erasure, f"email = '{SECRET}'")).rows == 1
    log = lake.folder / "users" / "_delta_log"
    versions = sorted(int(path.stem) for path in log.glob("*.json"))
    assert len(versions) == 3  # one for each partition
    for version in versions:
        assert DeltaTable(lake.uri, version=version).to_pyarrow_table().num_rows == 3
    lake.sync(users, person(9, "d@x"), partition="b")
    assert DeltaTable(lake.uri).to_pyarrow_table().num_rows == 4
    states = [lake.tables(f"{APP}|{key}").metadata.sequence for key in ("a", "b", "c")]
    assert states == [3, 3, 2]


def test_what_other_engines_leave_in_a_log_goes(lake: Lake) -> None:
    """Checksums stay after the clean-up of other engines (delta-io/delta#7205)."""
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    log = lake.folder / "users" / "_delta_log"
    (log / "_sidecars").mkdir()
    for name in (f"{0:020d}.crc", "_sidecars/3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"):
        (log / name).write_text(SECRET)
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert not find_value(SECRET, lake.folder / "users")
    assert lake.ids() == [2]


def test_nothing_is_left_of_an_erasure_that_is_not_carried_out(lake: Lake) -> None:
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    before = {path for path in lake.folder.rglob("*") if path.is_file()}
    erasure = open_erasure(lake, users)
    counts = erasure.build(select(erasure, "id = 1"))
    counts += erasure.count_past()
    erasure.discard()
    assert (counts.rows, counts.files) == (1, 0)
    assert {path for path in lake.folder.rglob("*") if path.is_file()} == before


def test_only_files_that_may_have_the_key_are_written_again(lake: Lake) -> None:
    users = people(APPEND)
    for number in range(4):
        lake.sync(users, person(number, f"{number}@x"))
    files = {file.path for file in lake.table.files}
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, "id = 2"))
    assert (counts.rows, counts.rewritten) == (1, 1)
    assert len(files & {file.path for file in lake.table.files}) == 3


def test_a_rejected_record_that_cannot_be_compared_is_counted(lake: Lake) -> None:
    users = people()
    lake.sync(users, person(1, SECRET), person("x", "b@x"), person("1", "c@x", "no"), value=1)
    assert lake.dead_letter.records == 2
    erasure = open_erasure(lake, users)
    counts = erase_rows(erasure, select(erasure, "id = 1"))
    assert (counts.rows, counts.rejected, counts.unclear) == (1, 1, 1)
    assert lake.dead_letter.records == 1


@pytest.mark.parametrize("how", ["killed", "overtaken"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_key_that_only_one_of_the_tables_has_is_erased_from_all(
    lake: Lake, how: str, number: int
) -> None:
    """When the row that the condition finds is gone, those of its key that it does not find may be there."""
    lake.history = True
    users = people()
    lake.sync(users, person(1, SECRET), person(2, "b@x"), person("no", "c@x"), value=1)
    lake.sync(users, person(1, "new@x", 2), value=2)

    def erase_person() -> Counts:
        erasure = open_erasure(lake, users)
        return erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))

    if how == "killed":
        killed_at(Failpoint.COMMIT_READY, number, erase_person)
        erasure = open_erasure(lake, users)
        assert erasure.build(select(erasure, f"email = '{SECRET}'")).rows == 1
        erasure.discard()
        erase_person()
    else:
        with done_at(
            Failpoint.COMMIT_READY, lambda: lake.sync(users, person(3, "d@x"), value=3), number
        ):
            erase_person()
    assert lake.ids() == ([2] if how == "killed" else [2, 3])
    assert {number for (number,) in lake.versions("id")} == {*lake.ids()}
    assert not list((lake.folder / "users" / "_erasures" / "unfinished").glob("*"))
    assert not find_value(SECRET, *lake.folder.glob("users*"))


def test_a_refresh_with_other_columns_must_be_complete_first(lake: Lake) -> None:
    users = people("overwrite_dedup")
    users.primary_key = [["id"]]
    users.stream.is_resumable = True
    lake.sync(users, person(1, SECRET), person(2, "b@x"), value=1)
    other = people("overwrite_dedup")
    other.stream.json_schema["properties"]["at"] = STRING
    other.primary_key, other.stream.is_resumable = [["id"]], True
    other.generation_id = other.minimum_generation_id = 2
    writer = lake.writer(other)
    writer.write(lake.stage(person(1, SECRET, "x"), person(3, "c@x", "y")))
    writer.commit(checkpoint(2))
    writer.close()
    erasure = open_erasure(lake, users)
    with pytest.raises(ConfigError, match="gives it other columns: its column at has"):
        erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    lake.sync(other, person(4, "d@x", "z"), value=3)
    erasure = open_erasure(lake, other)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert lake.ids() == [3, 4]


def test_a_companion_without_a_commit_is_read_where_an_erasure_begins_its_log(lake: Lake) -> None:
    """Its version 0 is gone, and a run that died has left a commit to it that the table does not name."""
    users = people()
    lake.sync(users, person(1, SECRET), person("no", "a@x"), value=1, partition="a")
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))

    def sync() -> None:
        lake.sync(users, person(2, "b@x"), person("no", "b@x"), value=2, partition="b")

    killed_at(Failpoint.COMPANION_COMMITTED, 1, sync)
    records = snapshot(lake.spark, f"{lake.uri}_dead_letter", f"{APP}|b_dead_letter")
    assert ["a@x" in row.record for row in records.collect()] == [True]
    sync()
    assert lake.ids() == [2]
    assert lake.dead_letter.records == 2


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_writer_of_which_a_restore_has_undone_every_commit_begins_anew(
    lake: Lake, is_empty: bool
) -> None:
    """Also if the table is empty then: older versions have the rows that are to be erased."""
    users = people()
    if not is_empty:
        lake.sync(users, person(1, "a@x"), value=1, partition="a")
    version = lake.table.version if lake.table.exists else 0
    lake.sync(users, person(2, SECRET), value=2, partition="b")
    DeltaTable(lake.uri).restore(version)
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    assert not find_value(SECRET, lake.folder / "users")
    assert lake.tables(f"{APP}|b").metadata.state is None
    lake.sync(users, person(3, "b@x"), value=3, partition="b")
    assert lake.ids() == ([3] if is_empty else [1, 3])


@pytest.mark.parametrize("commits", [0, 1, 3])
@pytest.mark.parametrize("partition", [None, "b"])
def test_a_run_whose_version_the_log_has_no_more_is_refused(
    lake: Lake, commits: int, partition: str | None
) -> None:
    """The version after its own is free again: a commit there would count for nobody."""
    users = people(APPEND)
    lake.sync(users, person(1, SECRET), value=1)
    running = lake.writer(users, partition=partition)
    running.write(lake.stage(person(3, "c@x", 2)))
    for number in range(commits):
        lake.sync(users, person(4 + number, "d@x"), value=2 + number)
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    lake.sync(users, person(9, "e@x"), value=9)
    log = lake.folder / "users" / "_delta_log"
    first = min(path.name for path in log.glob("*.json"))
    with pytest.raises(ConcurrentSync):
        running.commit(checkpoint(2, final=True))
    running.close()
    assert min(path.name for path in log.glob("*.json")) == first
    assert lake.ids() == [*range(4, 4 + commits), 9]


def test_a_compaction_whose_version_the_log_has_no_more_is_given_up(lake: Lake) -> None:
    users = people(APPEND)
    for number in range(3):
        lake.sync(users, person(number, SECRET if number else "a@x"), value=number)
    table = lake.table
    files = table.files
    for number in range(2):
        lake.sync(users, person(4 + number, "d@x"), value=4 + number)
    erasure = open_erasure(lake, users)
    erase_rows(erasure, select(erasure, f"email = '{SECRET}'"))
    with pytest.raises(Superseded):
        table.reorganise(TableChange(files[:1], files[:1]))
    assert lake.ids() == [0, 4, 5]
