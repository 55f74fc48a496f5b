"""Removal of a stream's tables: all is gone or all can be finished, and nothing else is touched."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin import removal
from elt_assets.lake.admin.moving import list_files, move_tables
from elt_assets.lake.admin.removal import is_being_removed, list_parts, remove_tables
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import MovingTable
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.storage.location import Location
from tests.lake.harness import USERS
from tests.lake.staging import APP, checkpoint, stream
from tests.lake.test_moving import (
    MOVE,
    SUFFIXES,
    Killed,
    Place,
    convert,
    fresh,
    killer,
    synced,
)
from tests.support.failpoints import assert_reached
from tests.support.object_store import new_bucket, s3_server

__all__ = ["fresh", "synced"]  # fixtures
COMMAND = "elt remove shop users --data --yes"
Fresh = Callable[[], Place]


def files_of(place: Location) -> list[str]:
    return [name for suffix in SUFFIXES for name, _ in list_files(place.add_suffix(suffix))]


def check_readers(place: Location) -> None:
    """A reader finds a table with all its files, or none."""
    for suffix in SUFFIXES:
        root = place.add_suffix(suffix)
        try:
            table = Table(root, APP)
        except ConfigError:
            continue
        assert all(table.storage.exists(file.path) for file in table.files)


def test_a_removal_survives_a_kill_at_any_point(
    fresh: Fresh, request: pytest.FixtureRequest
) -> None:
    points: set[Failpoint] = set()
    for number in itertools.count(1):
        root = fresh().root
        place = root.child("users")
        with contextlib.suppress(Killed), armed(killer(number, points)):
            assert remove_tables(place, APP, COMMAND) == []
            break
        check_readers(place)
        if is_table(place):
            with pytest.raises(MovingTable, match="being removed") as caught:
                Table(place, APP).refuse_unwritable()
            assert COMMAND in str(caught.value)
        assert remove_tables(place, APP, COMMAND) == []
        assert files_of(place) == []
    assert_reached(request.node.nodeid, points)


def cut_anywhere(place: Callable[[], Location], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a removal before each deletion in turn, and finish it."""
    real = removal._delete
    budget = iter(range(0))

    def delete_some(root: Location, names: list[str], _: int) -> None:
        for name in names:
            if next(budget, None) is None:
                raise Killed
            real(root, [name], 1)

    monkeypatch.setattr(removal, "_delete", delete_some)
    for allowed in itertools.count(0, step):
        table, budget = place(), iter(range(allowed))
        try:
            remove_tables(table, APP, COMMAND)
            break
        except Killed:
            check_readers(table)
            left = files_of(table)
            assert is_being_removed(table, APP) or not any(
                name.startswith("_delta_log/") for name, _ in list_files(table)
            )
        budget = iter(range(10_000))
        assert left or allowed
        assert remove_tables(table, APP, COMMAND) == [] and files_of(table) == []


def test_a_removal_can_be_cut_anywhere(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_anywhere(lambda: fresh().root.child("users"), 5, monkeypatch)


@pytest.mark.long
def test_a_removal_in_a_store_can_be_cut_anywhere(
    synced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        numbers = itertools.count()

        def copy() -> Location:
            root = Location.parse(f"{store.uri}/{next(numbers)}")
            system, base = root.file_system()
            for file in filter(Path.is_file, synced.rglob("*")):
                with system.open_output_stream(f"{base}/{file.relative_to(synced)}") as sink:
                    sink.write(file.read_bytes())
            return root.child("users")

        cut_anywhere(copy, 7, monkeypatch)


def test_a_run_that_opened_the_table_before_commits_nothing_to_it(fresh: Fresh) -> None:
    place = fresh().root.child("users")
    tables = StreamTables(place, APP, history=True)
    writer = StateOnlyWriter(tables, WriteSpec(stream(USERS), "run"))
    with contextlib.suppress(Killed), armed(killer(1, set(), [Failpoint.REMOVAL_BEGUN])):
        remove_tables(place, APP, COMMAND)
    with pytest.raises(MovingTable, match="being removed"):
        writer.commit(checkpoint(99))


def test_what_is_there_is_listed_and_other_files_stay(fresh: Fresh) -> None:
    root = fresh().root
    place = root.child("users")
    files = {"users/_files/ab/1-a.pdf": b"document", "users/notes.txt": b"mine", "other/x": b""}
    for name, content in files.items():
        path = Path(root.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    parts = {part.kind: part for part in list_parts(place)}
    assert set(parts) == {"table", "history", "dead_letter", "documents"}
    assert (parts["documents"].files, parts["documents"].size) == (1, 8)
    own = [path for path in Path(root.uri, "users").rglob("*") if path.is_file()]
    sizes = sum(path.stat().st_size for path in own) - len(b"documentmine")
    assert parts["table"].size == sizes
    assert remove_tables(place, APP, COMMAND) == [f"{place.uri}/notes.txt"]
    left = {name for name, _ in list_files(root) if not name.startswith("staging/")}
    assert left == {"users/notes.txt", "other/x"}
    assert list_parts(place) == []


def test_a_table_that_is_being_moved_is_not_removed(fresh: Fresh) -> None:
    place = fresh()
    with contextlib.suppress(Killed), armed(killer(1, set())):
        move_tables(place.root, MOVE, convert)
    with pytest.raises(ConfigError, match="is being moved from users to crm/people") as caught:
        remove_tables(place.root.child("users"), APP, COMMAND)
    assert MOVE.command in str(caught.value)
    move_tables(place.root, MOVE, convert)


def test_a_damaged_table_is_removed(fresh: Fresh) -> None:
    root = fresh().root
    Path(root.uri, "users", "_delta_log", f"{0:020}.json").write_text("{")
    assert remove_tables(root.child("users"), APP, COMMAND) == []
    assert files_of(root.child("users")) == []
