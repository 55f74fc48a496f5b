"""Kill −9 at any failpoint: the contents for readers belong together, and the next run ends as one that was
never killed does.

In the short form most scripts run without Spark, and of the copies that differ in nothing but files which no
log names only the last is tried; in the long form all, and all with Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec import Raw

from elt_assets.failpoints import VARIABLE, Failpoint, armed
from elt_assets.lake.admin import maintenance
from elt_assets.lake.admin.maintenance import cluster, maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.delta import attachments, opening
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.write import states
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.lake.write.sync_columns import WriteSpec, make_declared_schema
from elt_assets.protocol.catalog import APPEND, DELETED_AT, OVERWRITE, ConfiguredCatalog
from elt_assets.protocol.messages import Form, RawRecord, RecordLines
from elt_assets.storage.staging import Staging
from elt_assets.sync.events import Acknowledged, Checkpoint
from elt_assets.sync.session import Session, Threshold
from tests.lake.camera import Run, photographed, wrong_ends
from tests.lake.crashing import (
    EVENTS,
    SCRIPT,
    configured,
    event,
    expected,
    killed_at,
    position,
    sync,
    view,
)
from tests.lake.harness import Lake
from tests.lake.modelled import NO_SPARK
from tests.lake.plain import without_spark
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import EMITTED_AT, INTEGER, NUMBER, STRING, checkpoint, stage
from tests.support.failpoints import assert_reached
from tests.support.project import REPOSITORY
from tests.sync.doubles import state

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Engine:
    """`is_plain`: without Spark. `closely`: as `Camera`."""

    is_plain: bool
    closely: bool


LONG = pytest.param(Engine(is_plain=False, closely=True), id="files", marks=pytest.mark.long)
PLAIN = [pytest.param(Engine(is_plain=True, closely=False), id="plain"), LONG]
with_spark = pytest.mark.parametrize(
    "form", [pytest.param(Engine(is_plain=False, closely=False), id="logs"), LONG], indirect=True
)
"""Marks a script whose failpoints are in what is done with Spark."""


@pytest.fixture(params=PLAIN)
def form(request: pytest.FixtureRequest) -> Engine:
    assert isinstance(request.param, Engine)
    return request.param


@pytest.fixture
def lake(request: pytest.FixtureRequest, form: Engine, tmp_path: Path) -> Iterator[Lake]:
    folder = tmp_path / "lake"
    folder.mkdir()
    if form.is_plain:
        with without_spark():
            yield Lake(NO_SPARK, folder, history=True, is_plain=True)
    else:
        yield Lake(request.getfixturevalue("spark_provider"), folder, history=True)


Prove = Callable[..., None]


@pytest.fixture
def prove(request: pytest.FixtureRequest, lake: Lake, form: Engine) -> Prove:
    """Prove that a script survives a kill at each failpoint that it reaches.

    `closely`: as `Camera`. `batches`: what the script syncs, where readers may see more than between two of
    its commits.
    """

    def run_and_check(run: Run, *, closely: bool = False, batches: Sequence[Any] = ()) -> None:
        camera, cuts = photographed(lake, run, closely=closely or form.closely)
        cuts = [*(expected(batches[:count]) for count in range(len(batches))), *cuts]
        assert_reached(request.node.nodeid, camera.points)
        wrong = wrong_ends(camera, run, cuts)
        assert not wrong, "\n".join(wrong)
        if not form.is_plain:
            assert_all_readers_agree(lake.spark, lake.folder)

    return run_and_check


BATCHES = [
    [event(1, 10), event(2, 10), event(3, 10), event(None, 1)],
    [event(1, 20), event(2, 5), event(4, 20), event(None, 2)],
]
"""A version that is new, one that comes late, a new key; each time a record that is rejected."""
REFRESHED = [[event(1, 30), event(None, 3)], [event(5, 30), event(2, 10)]]


def syncing(batches: Sequence[Sequence[object]]) -> Run:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        sync(lake, batches, seen=seen)

    return run


# Syncs


@with_spark
def test_a_first_sync_survives_a_kill_at_any_point(prove: Prove) -> None:
    prove(syncing(BATCHES[:1]))


@with_spark
def test_a_merge_survives_a_kill_at_any_point(
    lake: Lake, prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(lake, BATCHES[:1])
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)  # split files, as large ones are
    prove(syncing(BATCHES))


def test_a_table_with_partition_columns_survives_a_kill_at_any_point(
    lake: Lake, prove: Prove
) -> None:
    lake.partition_by = ["text"]
    prove(syncing(BATCHES))


def test_a_rollback_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    sync(lake, BATCHES[:1])
    killed_at(Failpoint.COMMIT_READY, 3, lambda: sync(lake, BATCHES))
    prove(syncing(BATCHES))


def test_a_session_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def run(lake: Lake, _: Callable[[], None]) -> None:
        stream = configured(lake)
        begin = position(lake.tables().metadata.state) or 0
        with Staging(lake.folder / "work").session() as folder:
            assert len(list((lake.folder / "work").iterdir())) == 1  # those of the dead are removed
            writer = lake.writer(stream)
            catalog = ConfiguredCatalog(streams=[stream])
            session = Session(catalog, {stream.id: writer}, folder, Threshold(rows=1))
            for found in session.run(sent(BATCHES, begin)):
                assert not isinstance(found, Acknowledged) or found.commit.state is not None
            writer.close()

    prove(run, batches=BATCHES)


def sent(batches: Sequence[Sequence[Any]], begin: int) -> Iterator[Any]:
    """Yield the messages of a source: records in runs of lines, and one by one."""
    for number, batch in enumerate(batches[begin:], begin + 1):
        if number % 2:
            lines = b"".join(b"%b\n" % record_line(each) for each in batch)
            yield RecordLines(Form.AIRBYTE, "users", None, "users", lines, len(batch))
        else:
            for each in batch:
                yield RawRecord("users", Raw(json.dumps(each).encode()), EMITTED_AT)
        yield state(number, "users")


def record_line(data: object) -> bytes:
    record = {"stream": "users", "data": data, "emitted_at": EMITTED_AT}
    return json.dumps({"type": "RECORD", "record": record}).encode()


def test_attached_states_survive_a_kill_at_any_point(
    lake: Lake, prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "LIMITS", dict.fromkeys(attachments.LIMITS, 8))
    sync(lake, BATCHES[:1])
    prove(refreshing("truncate"))


def test_states_alone_survive_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """The rows are in another destination."""

    def run(lake: Lake, seen: Callable[[], None]) -> None:
        head = lake.tables().metadata
        begins = head.refresh is None and head.generation < 2
        refresh: RefreshMode = "truncate" if begins else "none"
        stream = configured(lake, APPEND, refresh)
        begin = position(StoredStream(stream, head).find_starting_state(refresh)) or 0
        writer = StateOnlyWriter(lake.tables(), WriteSpec(stream, "run-1"))
        for number in range(begin + 1, 4):
            writer.commit(checkpoint(number))
            seen()
        writer.commit(Checkpoint((), final=True))

    prove(run)


# Refreshes


def refreshing(mode: RefreshMode) -> Run:
    """Return a sync that refreshes the table; a run after a kill goes on with it."""

    def run(lake: Lake, seen: Callable[[], None]) -> None:
        head = lake.tables().metadata
        begins = head.refresh is None and head.generation == 1
        sync(lake, REFRESHED, refresh=mode if begins else "none", seen=seen)

    return run


@pytest.mark.parametrize("mode", ["truncate", "retain"])
def test_a_refresh_survives_a_kill_at_any_point(
    lake: Lake, prove: Prove, mode: RefreshMode
) -> None:
    sync(lake, BATCHES)
    prove(refreshing(mode))


def test_an_overwrite_with_other_types_survives_a_kill_at_any_point(
    lake: Lake, prove: Prove
) -> None:
    def overwrite(lake: Lake, seen: Callable[[], None]) -> None:
        other = configured(lake, OVERWRITE, properties={**EVENTS, "text": INTEGER})
        sync(lake, [[{"id": 1, "at": 1, "text": 7}]], other, seen=seen)

    lake.history = False
    sync(lake, BATCHES[:1], configured(lake, OVERWRITE))
    prove(overwrite)


def test_a_new_column_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def extended(lake: Lake, seen: Callable[[], None]) -> None:
        wider = configured(lake, properties={**EVENTS, "more": STRING})
        sync(lake, [*BATCHES, [event(6, 60)]], wider, seen=seen)

    sync(lake, BATCHES)
    prove(extended)


def test_a_widening_of_types_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """The tables have hidden files, of deleted keys."""
    deletable = {**EVENTS, DELETED_AT: STRING}
    wider = {**deletable, "at": NUMBER}

    def widened(lake: Lake, seen: Callable[[], None]) -> None:
        batches = [*BATCHES, [event(6, 60)]]
        sync(lake, batches, configured(lake, properties=wider), seen=seen)

    deleted = {**event(2, 20), DELETED_AT: "yes"}
    before = [
        [*BATCHES[0], event(8, 8)],
        [*BATCHES[1], deleted, {**event(8, 9), DELETED_AT: "yes"}],
    ]
    sync(lake, before, configured(lake, properties=deletable))
    prove(widened)


# History


def test_a_history_that_begins_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        lake.history = True
        sync(lake, [*BATCHES, [event(1, 50), event(6, 50), event(None, 6)]], seen=seen)

    lake.history = False
    sync(lake, BATCHES)
    prove(run)


def test_a_history_that_pauses_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        for count, is_kept in ((3, False), (4, True)):
            lake.history = is_kept
            if (position(lake.tables().metadata.state) or 0) < count:
                sync(lake, batches[:count], seen=seen)

    batches = [*BATCHES, [event(1, 50), event(2, 50), event(None, 5)], [event(1, 60)]]
    sync(lake, BATCHES)
    prove(run)


# States, and other versions


def test_a_state_set_by_hand_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """A run has died before it, with its companions ahead."""
    prove_state(lake, prove, checkpoint(1).states[0].to_json().decode())


def test_a_reset_of_the_state_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    prove_state(lake, prove, None)


def test_a_removal_of_rows_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """Table, history and rejected records have no rows, or all of them still have theirs."""

    def run(lake: Lake, seen: Callable[[], None]) -> None:
        tables = lake.tables()
        if all(commit.metadata.run_id != "hand" for commit in tables.main.past_commits()):
            tables.roll_back_companions("hand")
            states.remove_rows(tables, "hand")
            seen()
        sync(lake, BATCHES, seen=seen)

    sync(lake, BATCHES)
    prove(run)


def prove_state(lake: Lake, prove: Prove, value: str | None) -> None:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        tables = lake.tables()
        if all(commit.metadata.run_id != "hand" for commit in tables.main.past_commits()):
            tables.roll_back_companions("hand")
            states.set_state(tables, value, "hand", make_declared_schema(configured(lake)), "users")
            seen()
        sync(lake, [*batches, [event(8, 80)]], seen=seen)

    batches = [*BATCHES, [event(7, 70), event(None, 7)]]
    sync(lake, BATCHES)
    killed_at(Failpoint.COMMIT_READY, 2, lambda: sync(lake, batches))
    prove(run)


def test_a_restore_and_a_sync_survive_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        delta = DeltaTable(lake.uri)
        if all(entry["operation"] != "RESTORE" for entry in delta.history()):
            delta.restore(restored)
        seen()
        sync(lake, SCRIPT, seen=seen)

    sync(lake, SCRIPT)
    restored = next(
        commit.version
        for commit in lake.table.past_commits()
        if position(commit.metadata.state) == 2
    )
    prove(run)


# Maintenance


def test_a_compaction_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def maintained(lake: Lake, seen: Callable[[], None]) -> None:
        maintain(lake.spark, lake.tables(), dead_letter_age=None)

    sync(lake, BATCHES, configured(lake, APPEND))
    prove(maintained)
    assert len(lake.table.files) == len(lake.dead_letter.files) == 1


@with_spark
def test_a_clustering_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def sort_table(lake: Lake, seen: Callable[[], None]) -> None:
        cluster(lake.spark, lake.table, [["text"]])

    sync(lake, BATCHES, configured(lake, APPEND))
    prove(sort_table)
    assert all(file.path.startswith("data/sorted_") for file in lake.table.files)


@with_spark
def test_an_expiry_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """One file of the dead letter has records that are too old, and others."""

    def expired(lake: Lake, seen: Callable[[], None]) -> None:
        age = dt.datetime.now(dt.timezone.utc) - between
        maintenance.expire(lake.spark, lake.dead_letter, age)

    lake.history = False
    sync(lake, BATCHES[:1])
    between = dt.datetime.now(dt.timezone.utc)
    sync(lake, BATCHES)
    maintenance.compact(lake.spark, lake.dead_letter)
    prove(expired)
    assert lake.dead_letter.records == 1


def test_a_vacuum_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """All that the present version does not need is removed, then a sync goes on."""

    def vacuumed(lake: Lake, seen: Callable[[], None]) -> None:
        maintain(lake.spark, lake.tables(), dt.timedelta(0), dead_letter_age=None)
        sync(lake, [*BATCHES, [event(2, 90), event(None, 9)]], seen=seen)

    sync(lake, BATCHES)
    killed_at(Failpoint.COMMIT_BUILT, 1, lambda: sync(lake, [*BATCHES, [event(2, 90)]]))
    prove(vacuumed, closely=True)


def test_a_replay_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    def replayed(lake: Lake, seen: Callable[[], None]) -> None:
        tables = lake.tables()
        tables.roll_back_companions("run-2")
        by_text = configured(lake)
        by_text.primary_key = [["text"]]
        replay(
            lake.provider, tables, WriteSpec(by_text, "run-2", history=lake.history), lake.scratch
        )

    lake.history = not lake.is_plain  # without Spark, a history is never merged by another key
    sync(lake, [[*BATCHES[0], b"[5]"], BATCHES[1]])
    prove(replayed)
    assert (lake.dead_letter.records, lake.table.records) == (1, 6)


def test_a_correction_survives_a_kill_at_any_point(lake: Lake, prove: Prove) -> None:
    """What is corrected is not found again, so the command that was killed corrects the rest."""
    row = event(1, 15, "corrected")

    def correct(lake: Lake, seen: Callable[[], None]) -> None:
        lake.tables().roll_back_companions("run-2")
        if tuple(row.values()) not in view(lake).current:
            writer = lake.writer(configured(lake), keeps_state=True, corrects=True)
            ends = [{"id": number, DELETED_AT: "now"} for number in (1, 4)]
            writer.write(stage(lake.folder / "staging", [*ends, row]))
            writer.commit(checkpoint(final=True))
            writer.close()
            seen()

    sync(lake, BATCHES)
    before = view(lake)
    prove(correct)
    after = view(lake)
    assert after.position == before.position
    assert after.current == [(1, 15, "corrected"), (2, 10, "2 at 10"), (3, 10, "3 at 10")]


# The log


@pytest.mark.parametrize("lost", ["pointer", "its contents", "checkpoint"])
def test_a_log_without_its_last_checkpoint_loses_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A kill comes between a commit and the checkpoint of the log, or between it and the pointer to it."""
    monkeypatch.setitem(opening.CONFIGURATION, "delta.checkpointInterval", "2")
    pointers: dict[Path, list[bytes]] = {}

    def note(_: Failpoint) -> None:
        for pointer in lake.folder.rglob("_last_checkpoint"):
            versions = pointers.setdefault(pointer, [])
            if pointer.read_bytes() not in versions:
                versions.append(pointer.read_bytes())

    with armed(note):
        sync(lake, SCRIPT[:4])
    assert pointers
    for pointer, versions in pointers.items():
        newest = json.loads(pointer.read_bytes())["version"]
        older = [text for text in versions if json.loads(text)["version"] < newest]
        pointer.write_bytes(older[-1]) if older else pointer.unlink()
        if lost == "its contents":
            pointer.write_bytes(b"")
        if lost == "checkpoint":
            for path in pointer.parent.glob(f"{newest:020}.checkpoint*"):
                path.unlink()
    assert view(lake) == expected(SCRIPT[:4])
    maintain(lake.spark, lake.tables(), dt.timedelta(0), dead_letter_age=None)
    assert view(lake) == expected(SCRIPT[:4])
    sync(lake, SCRIPT)
    assert view(lake) == expected(SCRIPT)


# A process that is killed

KILLS = [
    (Failpoint.TABLE_CREATED, 2),
    (Failpoint.COMPANIONS_RECORDED, 1),
    (Failpoint.KEYS_MERGED, 6),
    (Failpoint.COMMIT_BUILT, 3),
    (Failpoint.COMMIT_READY, 5),
    (Failpoint.COMMIT_PUBLISHED, 8),
    (Failpoint.COMPANION_COMMITTED, 4),
    (Failpoint.TABLE_COMMITTED, 3),
    (Failpoint.FILE_UNNEEDED, 4),
    (Failpoint.FILES_COMBINED, 1),
    (Failpoint.COMPACTION_PUBLISHED, 1),
]


@pytest.mark.spec("protocol.103", "singer.13")
@pytest.mark.long
@pytest.mark.parametrize(("point", "number"), KILLS)
@pytest.mark.parametrize("form", [LONG], indirect=True)
def test_the_tables_are_correct_after_a_process_was_killed(
    lake: Lake, point: Failpoint, number: int
) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.lake.crashing", str(lake.folder)],
        env={**os.environ, VARIABLE: f"{point.name}:{number}"},
        cwd=REPOSITORY,
        start_new_session=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    seen = view(lake)
    assert seen == expected(SCRIPT[: seen.position or 0])
    sync(lake, SCRIPT)
    assert view(lake) == expected(SCRIPT)
    maintain(lake.spark, lake.tables(), dt.timedelta(0))
    assert view(lake) == expected(SCRIPT)
    assert_all_readers_agree(lake.spark, lake.folder)
