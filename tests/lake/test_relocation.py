"""A lake that is moved: nothing is lost, nobody writes to two lakes, and a killed move is finished."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin import relocation
from elt_assets.lake.admin.moving import list_files
from elt_assets.lake.admin.relocation import list_contents, relocate, remove_former, reopen
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import MovingTable
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.storage.location import Location
from tests.lake.harness import USERS
from tests.lake.staging import APP, checkpoint, stream
from tests.lake.test_moving import SUFFIXES, Killed, Place, fresh, killer, store, synced
from tests.support.failpoints import assert_reached
from tests.support.object_store import ObjectStore

__all__ = ["fresh", "store", "synced"]  # fixtures
COMMAND = "elt move --to NEW"
Fresh = Callable[[], Place]
OF_LAKES = {Failpoint.MOVE_BEGUN, Failpoint.TABLE_COPIED, Failpoint.TABLE_RELOCATED}


def move(old: Location, new: Location, **how: Any) -> None:
    relocate(old, new, COMMAND, report=lambda _: None, **how)


def is_open(place: Location) -> bool:
    """Return whether a run can write to the tables of the stream."""
    try:
        for suffix in SUFFIXES:
            if is_table(place.add_suffix(suffix)):
                Table(place.add_suffix(suffix), APP).refuse_unwritable()
    except (EltError, Exception):  # noqa: BLE001 - a part of a copy cannot be opened
        return False
    return is_table(place)


def kill_and_finish(
    lakes: Callable[[], tuple[Place, Location]],
    options: dict[str, str] | None,
    points: set[Failpoint],
) -> None:
    """Kill a move at each of its failpoints in turn, and finish it; then the removal of the former lake."""
    for number in itertools.count(1):
        place, new = lakes()
        before = place.read_all("users", APP)
        killed = False
        try:
            with armed(killer(number, points, OF_LAKES)):
                move(place.root, new, checksums=number % 2 == 0)
        except Killed:
            killed = True
            assert not (is_open(place.root.child("users")) and is_open(new.child("users")))
            move(place.root, new)
        assert Place(new, options).read_all("users", APP) == before
        assert is_open(new.child("users")) and not is_open(place.root.child("users"))
        move(place.root, new)  # once more: nothing to do
        with (
            contextlib.suppress(Killed),
            armed(killer(1 + number % 3, set(), [Failpoint.TABLE_REMOVED])),
        ):
            remove_former(place.root, new, report=lambda _: None)
        remove_former(place.root, new, report=lambda _: None)
        assert not list_contents(place.root).tables
        assert Place(new, options).read_all("users", APP) == before
        if not killed:
            break


def test_a_relocation_survives_a_kill_at_any_point(
    fresh: Fresh, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    numbers, points = itertools.count(), set[Failpoint]()

    def lakes() -> tuple[Place, Location]:
        return fresh(), Location.parse(str(tmp_path / f"new{next(numbers)}" / "lake"))

    kill_and_finish(lakes, None, points)
    assert_reached(request.node.nodeid, points)


@pytest.mark.long
def test_a_lake_is_moved_from_a_disk_to_a_store_and_back(
    fresh: Fresh, store: ObjectStore, tmp_path: Path
) -> None:
    numbers = itertools.count()

    def to_store() -> tuple[Place, Location]:
        return fresh(), Location.parse(f"{store.uri}/{next(numbers)}")

    kill_and_finish(to_store, store.options, set())

    def from_store() -> tuple[Place, Location]:
        place, uri = fresh(), Location.parse(f"{store.uri}/{next(numbers)}")
        move(place.root, uri)
        return Place(uri, store.options), Location.parse(str(tmp_path / f"back{next(numbers)}"))

    kill_and_finish(from_store, None, set())


def cut(monkeypatch: pytest.MonkeyPatch, allowed: Iterator[int]) -> None:
    """Let the process end before some copy of a file."""
    real = relocation.copy_file

    def copy_some(*arguments: Any) -> None:
        if next(allowed, None) is None:
            raise Killed
        real(*arguments)

    monkeypatch.setattr(relocation, "_COPIES", 1)
    monkeypatch.setattr(relocation, "copy_file", copy_some)


def test_a_copy_can_be_cut_anywhere(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, new = fresh(), Location.parse(str(tmp_path / "new"))
    before = place.read_all("users", APP)
    for number in itertools.count(1, 4):
        with monkeypatch.context() as patch:
            cut(patch, iter(range(number)))
            try:
                move(place.root, new)
                break
            except Killed:
                assert not is_open(new.child("users"))
    assert Place(new).read_all("users", APP) == before


def test_syncs_go_on_until_the_tables_are_closed(fresh: Fresh, tmp_path: Path) -> None:
    """What a sync commits while files are copied is moved too; one that comes later commits nothing."""
    place, new = fresh(), Location.parse(str(tmp_path / "new"))
    table = place.root.child("users")

    def commit(value: int) -> None:
        tables = StreamTables(table, APP, history=True)
        StateOnlyWriter(tables, WriteSpec(stream(USERS), "run")).commit(checkpoint(value))

    late = StateOnlyWriter(StreamTables(table, APP, history=True), WriteSpec(stream(USERS), "late"))
    reports: list[str] = []

    def report(text: str) -> None:
        if not reports:
            commit(77)
        reports.append(text)

    late_commit = pytest.raises(EltError)
    relocate(place.root, new, COMMAND, report=report)
    with late_commit:
        late.commit(checkpoint(99))
    assert StreamTables(new.child("users"), APP).metadata.state is not None
    assert "77" in str(StreamTables(new.child("users"), APP).metadata.state)
    with pytest.raises(MovingTable, match=r"being moved from .*/users to .*/new/users") as caught:
        commit(78)
    assert COMMAND in str(caught.value)


def test_a_move_can_be_cancelled_until_the_copy_is_used(fresh: Fresh, tmp_path: Path) -> None:
    place, new = fresh(), Location.parse(str(tmp_path / "new"))
    before = place.read_all("users", APP)
    move(place.root, new)
    assert reopen(place.root, report=lambda _: None) == 3
    assert place.read_all("users", APP) == before and is_open(place.root.child("users"))
    with pytest.raises(ConfigError, match=r"there is a table at .*/new/users"):
        move(place.root, new)
    shutil.rmtree(new.uri)
    move(place.root, new)
    tables = StreamTables(new.child("users"), APP, history=True)
    StateOnlyWriter(tables, WriteSpec(stream(USERS), "run")).commit(checkpoint(99))
    with pytest.raises(ConfigError, match=r"has commits that .* does not have"):
        reopen(place.root, report=lambda _: None)


def test_a_copy_that_differs_is_found(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its size, or by its contents if that is asked; and a file that the table has lost."""
    place, new = fresh(), Location.parse(str(tmp_path / "new"))
    real = relocation.copy_file

    def copy_wrong(source: Location, target: Location, name: str) -> None:
        real(source, target, name)
        if name.endswith(".parquet"):
            file = Path(target.uri, name)
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(relocation, "copy_file", copy_wrong)
        with pytest.raises(SystemFailure, match=r"files of the copy .* differ") as caught:
            move(place.root, new, checksums=True)
    assert "remove the copies" in str(caught.value)
    assert not is_open(place.root.child("users")) and not is_open(new.child("users"))
    for file in Path(new.uri).rglob("*.parquet"):
        file.unlink()
    move(place.root, new, checksums=True)
    other = fresh()
    lost = Table(other.root.child("users"), APP).files[0].path
    Path(other.root.uri, "users", lost).unlink()
    with pytest.raises(SystemFailure, match="names 1 files that are not there"):
        move(other.root, Location.parse(str(tmp_path / "other")))
    assert reopen(other.root, report=lambda _: None) == 3


def test_the_former_lake_is_removed_only_if_the_copy_is_whole(fresh: Fresh, tmp_path: Path) -> None:
    place, new = fresh(), Location.parse(str(tmp_path / "new"))
    with pytest.raises(ConfigError, match="has not been moved to"):
        remove_former(place.root, new, report=lambda _: None)
    move(place.root, new)
    victim = Path(new.uri, "users", Table(new.child("users"), APP).files[0].path)
    content = victim.read_bytes()
    victim.unlink()
    with pytest.raises(ConfigError, match="lacks files that it names"):
        remove_former(place.root, new, report=lambda _: None)
    victim.write_bytes(content)
    others = remove_former(place.root, new, report=lambda _: None)
    assert others and all("/staging/" in other for other in others)
    assert {name for name, _ in list_files(place.root)} == {
        name for name, _ in list_files(place.root) if name.startswith("staging/")
    }
    assert DeltaTable(f"{new.uri}/users").to_pyarrow_table().num_rows
