"""Kill −9 at any point: the contents for readers belong together, and the next run ends as one that was never
killed does.

A process that is killed leaves on disk what it had written, and nothing else. So each script runs once, and
around every call that writes the folder is copied: each copy is what a kill there leaves. In the short form
one copy is kept of those that differ in nothing but files which no log names, the one with the most time to
leave some; in the long form, all that differ.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.protocol.airbyte.sync_modes import APPEND, OVERWRITE
from tests.lake.crashing import (
    EVENTS,
    POINTS,
    SCRIPT,
    View,
    around,
    configured,
    event,
    expected,
    killed_before,
    sync,
    view,
)
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import INTEGER, NUMBER
from tests.project import REPOSITORY

Run = Callable[[Lake, Callable[[], None]], None]
"""Sync from the present tables to the end; call a function whenever readers may see the tables."""


@dataclass
class Camera:
    """Copies a lake's folder at the points where a kill would leave something else than before."""

    lake: Lake
    album: Path
    closely: bool
    shots: dict[object, tuple[str, Path]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # a history is merged beside

    def click(self, where: str) -> None:
        with self.lock:
            self._click(where)

    def _click(self, where: str) -> None:
        state = tuple(sorted(self._counted_states()))
        if state in self.shots:
            if self.closely:
                return
            shutil.rmtree(self.shots[state][1])
        shot = self.album / str(len(self.shots)) / where.replace(" ", "_")
        shot.mkdir(parents=True)
        for path in files(self.lake.folder):
            copy = shot / path.relative_to(self.lake.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a Spark job is at work
                shutil.copy2(path, copy)
        self.shots[state] = (where, shot)

    def _counted_states(self) -> Iterator[str]:
        for path in files(self.lake.folder):
            if self.closely or path.parent.name == "_delta_log":
                yield str(path)


def files(lake: Path) -> Iterator[Path]:
    """Yield the paths of the files of tables."""
    for folder, _, names in os.walk(lake):
        if Path(folder).name != "staging":
            yield from (Path(folder, name) for name in names)


def taken(lake: Lake, run: Run, album: Path, *, closely: bool) -> tuple[Camera, list[View]]:
    """Run once; what a kill leaves at each point, and all that readers may see."""
    camera, cuts = Camera(lake, album, closely), [view(lake)]
    undo = [
        around(
            call,
            lambda call=call: camera.click(f"before {call}"),  # type: ignore[misc]
            lambda call=call: camera.click(f"after {call}"),  # type: ignore[misc]
        )
        for call in POINTS
    ]
    try:
        run(lake, lambda: cuts.append(view(lake)))
    finally:
        for each in undo:
            each()
    cuts.append(view(lake))
    return camera, cuts


def prove(lake: Lake, run: Run, *, closely: bool, least: int) -> None:
    """Check each point: readers see one of the cuts; a run from there ends as the uninterrupted one.

    Args:
        least: how many different points there must be, lest this prove nothing.
    """
    camera, cuts = taken(lake, run, lake.folder.parent / "album", closely=closely)
    assert len(camera.shots) >= least
    wrong = []
    for where, shot in camera.shots.values():
        left = replace(lake, folder=shot)
        seen = view(left)
        if seen not in cuts:
            wrong.append(f"{where}: readers see what never was: {seen}")
        run(left, lambda: None)
        ended = view(left)
        wrong += [
            f"{where}: a run after it ends with {name} {found}, not {wanted}"
            for name, found, wanted in zip(View._fields, ended, cuts[-1], strict=True)
            if found != wanted
        ]
    assert not wrong, "\n".join(wrong)
    assert_all_readers_agree(lake.spark, shot)


FORMS = [False, pytest.param(True, marks=pytest.mark.long)]


@pytest.fixture(params=FORMS, ids=["logs", "files"])
def closely(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return Lake(spark_provider, tmp_path / "lake", history=True)


BATCHES = [
    [event(1, 10), event(2, 10), event(3, 10), event(None, 1)],
    [event(1, 20), event(2, 5), event(4, 20), event(None, 2)],
]
"""A version that is new, one that comes late, a new key; each time a record that is rejected."""


def syncing(batches: Sequence[Sequence[object]]) -> Run:
    def run(lake: Lake, seen: Callable[[], None]) -> None:
        sync(lake, batches, seen=seen)

    return run


def test_a_first_sync_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    prove(lake, syncing(BATCHES[:1]), closely=closely, least=7)


def test_a_merge_survives_a_kill_at_any_point(
    lake: Lake, closely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(lake, BATCHES[:1])
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)  # split files, as large ones are
    prove(lake, syncing(BATCHES), closely=closely, least=4)


def test_a_rollback_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    sync(lake, BATCHES[:1])
    killed_before("Table.commit", 3, lambda: sync(lake, BATCHES))
    prove(lake, syncing(BATCHES), closely=closely, least=6)


REFRESHED = [[event(1, 30), event(None, 3)], [event(5, 30), event(2, 10)]]


def test_a_refresh_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    def refresh(lake: Lake, seen: Callable[[], None]) -> None:
        head = lake.tables().metadata
        begins = head.refresh is None and head.generation == 1
        sync(lake, REFRESHED, refresh="truncate" if begins else "none", seen=seen)

    sync(lake, BATCHES)
    prove(lake, refresh, closely=closely, least=5)


def test_an_overwrite_with_other_types_survives_a_kill_at_any_point(
    lake: Lake, closely: bool
) -> None:
    def overwrite(lake: Lake, seen: Callable[[], None]) -> None:
        other = configured(lake, OVERWRITE, properties={**EVENTS, "text": INTEGER})
        sync(lake, [[{"id": 1, "at": 1, "text": 7}]], other, seen=seen)

    lake.history = False
    sync(lake, BATCHES[:1], configured(lake, OVERWRITE))
    prove(lake, overwrite, closely=closely, least=2)


@pytest.mark.long
def test_a_widening_of_types_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    def widened(lake: Lake, seen: Callable[[], None]) -> None:
        wider = configured(lake, properties={**EVENTS, "at": NUMBER})
        sync(lake, [*BATCHES, [event(6, 60)]], wider, seen=seen)

    sync(lake, BATCHES)
    prove(lake, widened, closely=closely, least=5)


def test_a_compaction_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    def maintained(lake: Lake, seen: Callable[[], None]) -> None:
        maintain(lake.spark, lake.tables())

    appended = configured(lake, APPEND)
    sync(lake, BATCHES, appended)
    prove(lake, maintained, closely=closely, least=3)
    assert len(lake.table.files) == len(lake.dead_letter.files) == 1


@pytest.mark.long
def test_a_replay_survives_a_kill_at_any_point(lake: Lake, closely: bool) -> None:
    def replayed(lake: Lake, seen: Callable[[], None]) -> None:
        tables = lake.tables()
        tables.roll_back_companions("run-2")
        wanted = configured(lake)
        wanted.primary_key = [["text"]]
        replay(lake.provider, tables, WriteSpec(wanted, "run-2", history=True))

    sync(lake, [[*BATCHES[0], b"[5]"], BATCHES[1]])
    prove(lake, replayed, closely=closely, least=4)
    assert (lake.dead_letter.records, lake.table.records) == (1, 6)


# A process that is killed

MID_JOB = 0.1
ENDED = -1.0
KILLS = [
    ("merge.run_tasks", 3, MID_JOB),
    ("Table.write_files", 1, MID_JOB),
    ("Table.write_files", 4, MID_JOB * 2),
    ("merge.run_tasks", 8, 0.0),
    ("merge.run_tasks", 6, ENDED),
    ("DeltaTable.create", 2, 0.0),
    ("commits._write", 5, 0.0),
    ("commits._write", 8, ENDED),
    ("Table.commit", 9, ENDED),
    ("Files.discard", 4, 0.0),
    ("maintenance.in_tasks", 1, MID_JOB),
]


@pytest.mark.long
@pytest.mark.parametrize(("call", "number", "delay"), KILLS)
def test_the_tables_are_correct_after_a_process_was_killed(
    lake: Lake, call: str, number: int, delay: float
) -> None:
    command = [sys.executable, "-m", "tests.lake.crashing", lake.folder, call, number, delay]
    child = subprocess.run(
        list(map(str, command)),
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
