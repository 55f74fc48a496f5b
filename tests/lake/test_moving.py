"""Moves of a stream's tables: nothing is lost, nobody writes meanwhile, and a killed move is finished."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.errors import ConfigError, EltError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin.moving import move_tables
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import Move, MovingTable
from elt_assets.lake.delta.table import Table
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.storage.location import Location
from tests.lake.crashing import SCRIPT, event, sync
from tests.lake.harness import USERS, Lake
from tests.lake.modelled import NO_SPARK
from tests.lake.plain import without_spark
from tests.lake.staging import APP, checkpoint, stream
from tests.support.failpoints import assert_reached
from tests.support.object_store import ObjectStore, new_bucket, s3_server

NEW = "elt:shop/people"
COMMAND = "elt rename shop users people"
MOVE = Move("users", "crm/people", APP, NEW, COMMAND)
BATCHES = [[event(1, 10), event(2, 10), event(None, 1)], [event(1, 20), event(None, 2)]]
SUFFIXES = ("", "_history", "_dead_letter")


class Killed(BaseException):
    """The end of the process."""


def convert(state: str) -> str:
    return json.dumps({**json.loads(state), "converted": True})


class Place:
    """A lake with the tables of one stream; `options`: of its store."""

    def __init__(self, root: Location, options: dict[str, str] | None = None):
        self.root, self.options = root, options

    def read_all(self, levels: str, writer: str) -> dict[str, Any]:
        """Return the rows of the stream's tables, and what its next sync starts from."""
        place = self.root.child(*levels.split("/"))
        rows = {}
        for suffix in SUFFIXES:
            table = DeltaTable(f"{place.uri}{suffix}", storage_options=self.options)
            rows[suffix] = sorted(map(repr, table.to_pyarrow_table().to_pylist()))
        tables = StreamTables(place, writer, history=True)
        metadata, dead = tables.metadata, tables.dead_letter.metadata
        assert tables.is_history_current and not tables.is_ahead("dead_letter")
        assert metadata.companions is not None
        assert metadata.companions["dead_letter"] == dead.stands_for
        past = [commit.metadata.sequence for commit in tables.main.past_commits()]
        return {
            "rows": rows,
            "state": metadata.state,
            "generation": metadata.generation,
            "past": past,
        }

    def is_moved(self, move: Move) -> bool:
        """Return whether the move has ended: its last effect may come before the kill."""
        target = self.root.child(*move.target.split("/"))
        is_left = move.source == move.target or not is_table(self.root.child(move.source))
        return is_left and is_table(target) and Table(target, move.writer).move is None

    def refuse_writers(self, move: Move = MOVE) -> None:
        """Assert that no table of the stream can be written to."""
        places, writers = (move.source, move.target), (move.former, move.writer)
        for levels, writer in itertools.product(places, writers):
            place = self.root.child(*levels.split("/"))
            if not is_table(place):
                continue
            with pytest.raises(EltError) as caught:  # a part of a copy cannot be opened
                Table(place, writer).refuse_unwritable()
            assert not isinstance(caught.value, MovingTable) or COMMAND in str(caught.value)


OF_MOVES = {
    Failpoint.MOVE_BEGUN,
    Failpoint.WRITER_CHANGED,
    Failpoint.TABLE_COPIED,
    Failpoint.TABLE_MOVED,
}


def killer(
    number: int, points: set[Failpoint], among: Collection[Failpoint] = tuple(Failpoint)
) -> Callable[[Failpoint], None]:
    """Return a hook that ends the process at one of some failpoints, by its number."""
    count = itertools.count(1)

    def kill(point: Failpoint) -> None:
        if point in among and next(count) == number:
            points.add(point)
            raise Killed

    return kill


def kill_and_finish(
    fresh: Callable[[], Place],
    move: Move,
    points: set[Failpoint],
    among: Collection[Failpoint] = tuple(Failpoint),
) -> None:
    """Kill a move at each of its failpoints in turn, and finish it."""
    for number in itertools.count(1):
        place = fresh()
        before = place.read_all(move.source, move.former)
        with contextlib.suppress(Killed), armed(killer(number, points, among)):
            move_tables(place.root, move, convert)
            break
        if not place.is_moved(move):
            place.refuse_writers(move)
            assert move_tables(place.root, move, convert) == [move.writer]
        after = place.read_all(move.target, move.writer)
        assert after["rows"] == before["rows"]
        assert after["generation"] == before["generation"]
        if move.writer == move.former:
            assert after["state"] == before["state"]
        else:
            assert after["state"] == convert(before["state"])
            assert after["past"][1:] == before["past"]
        Table(place.root.child(*move.target.split("/")), move.writer).refuse_unwritable()


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synced") / "lake"
    folder.mkdir()
    with without_spark():
        sync(Lake(NO_SPARK, folder, history=True, is_plain=True), SCRIPT)
    return folder


@pytest.fixture
def fresh(synced: Path, tmp_path: Path) -> Callable[[], Place]:
    numbers = itertools.count()

    def copy() -> Place:
        folder = tmp_path / str(next(numbers))
        shutil.copytree(synced, folder)
        return Place(Location.parse(str(folder)))

    return copy


def test_a_move_survives_a_kill_at_any_point(
    fresh: Callable[[], Place], request: pytest.FixtureRequest
) -> None:
    points: set[Failpoint] = set()
    kill_and_finish(fresh, MOVE, points)
    kill_and_finish(fresh, Move("users", "people", APP, APP, COMMAND), points)
    kill_and_finish(fresh, Move("users", "users", APP, NEW, COMMAND), points)
    assert_reached(request.node.nodeid, points)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.mark.long
def test_a_move_in_a_store_survives_a_kill_at_any_point(
    spark_provider: SparkProvider,
    store: ObjectStore,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    sync(Lake(spark_provider, tmp_path, history=True, root=store.uri), BATCHES)
    objects = {name: name.removeprefix(f"{store.bucket}/") for name in store.objects()}

    def copy() -> Place:
        for name in store.objects():
            if not name.startswith(f"{store.bucket}/lake/"):
                store.system.delete_file(name)
        for name, path in objects.items():
            store.system.copy_file(name, f"{store.bucket}/copy/{path}")
        return Place(Location.parse(f"s3://{store.bucket}/copy/lake"), store.options)

    points: set[Failpoint] = set()
    kill_and_finish(copy, MOVE, points, OF_MOVES)
    left = [name for name in store.objects() if "/copy/lake/users" in name]
    assert not left
    assert_reached(request.node.nodeid, points)


@pytest.mark.long
def test_a_copy_in_a_store_can_be_cut_anywhere(
    spark_provider: SparkProvider,
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ends before some request to the store, whichever it is."""
    from elt_assets.lake.admin import moving

    sync(Lake(spark_provider, tmp_path, history=True, root=store.uri), BATCHES)
    place = Place(Location.parse(store.uri), store.options)
    before = place.read_all("users", APP)
    copy, limit = moving._copy, iter(range(0, 10_000, 3))

    def copy_some(*arguments: Any) -> None:
        if next(budget, None) is None:
            raise Killed
        copy(*arguments)

    monkeypatch.setattr(moving, "_COPIES", 1)
    monkeypatch.setattr(moving, "_copy", copy_some)
    for allowed in limit:
        budget = iter(range(allowed))
        try:
            move_tables(place.root, MOVE, convert)
            break
        except Killed:
            place.refuse_writers()
    after = place.read_all("crm/people", NEW)
    assert (after["rows"], after["state"]) == (before["rows"], convert(before["state"]))


def test_a_run_that_opened_the_table_before_commits_nothing_to_it(
    fresh: Callable[[], Place],
) -> None:
    place = fresh()
    tables = StreamTables(place.root.child("users"), APP, history=True)
    writer = StateOnlyWriter(tables, WriteSpec(stream(USERS), "run"))
    with contextlib.suppress(Killed), armed(killer(1, set())):
        move_tables(place.root, MOVE, convert)
    with pytest.raises(MovingTable, match="being moved from users to crm/people"):
        writer.commit(checkpoint(99))
    assert move_tables(place.root, MOVE, convert) == [NEW]


def test_partitions_are_moved_with_their_states(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    lake = Lake(NO_SPARK, folder, is_plain=True)
    with without_spark():
        for number, partition in enumerate(("a", "b|c")):
            lake.sync(stream(USERS), {"id": number}, value=number, partition=partition)
    moved = move_tables(Location.parse(str(folder)), MOVE, lambda state: state)
    assert sorted(moved) == [f"{NEW}|a", f"{NEW}|b|c"]
    for number, partition in enumerate(("a", "b|c")):
        table = Table(str(folder / "crm" / "people"), f"{NEW}|{partition}")
        assert table.metadata.state is not None and f'"{number}"' not in table.metadata.state
        assert table.records == 2


@pytest.mark.parametrize("occupied", ["crm/people", "crm/people_history"])
def test_a_place_that_is_taken_is_refused(fresh: Callable[[], Place], occupied: str) -> None:
    place = fresh()
    file = Path(place.root.uri, occupied, "file")
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(ConfigError, match=f"something at .*/{occupied} already"):
        move_tables(place.root, MOVE, convert)
    Table(place.root.child("users"), APP).refuse_unwritable()


def test_another_move_is_refused_until_the_first_one_has_ended(
    fresh: Callable[[], Place],
) -> None:
    place = fresh()
    with contextlib.suppress(Killed), armed(killer(1, set())):
        move_tables(place.root, MOVE, convert)
    other = Move("users", "others", APP, APP, "elt rename shop users others")
    with pytest.raises(ConfigError, match="is being moved from users to crm/people") as caught:
        move_tables(place.root, other, convert)
    assert COMMAND in str(caught.value)
    move_tables(place.root, MOVE, convert)
    with pytest.raises(ConfigError, match="there is no table"):
        move_tables(place.root, MOVE, convert)


def test_a_writer_can_get_its_former_id_again(fresh: Callable[[], Place]) -> None:
    place = fresh()
    before = place.read_all("users", APP)
    move_tables(place.root, MOVE, lambda state: state)
    back = Move("crm/people", "users", NEW, APP, COMMAND)
    move_tables(place.root, back, lambda state: state)
    after = place.read_all("users", APP)
    assert (after["rows"], after["state"]) == (before["rows"], before["state"])
    assert after["past"][2:] == before["past"]
