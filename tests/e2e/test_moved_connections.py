"""Connections that are renamed, removed and moved, with histories, catalogs and a log.

Each command is killed in a process of its own, at a failpoint or at a random time, and run again. Then all
is as after a run that was not disturbed: rows, states, entries of catalogs, slots, folders, files and what
Dagster knows; and the next sync goes on from there.

The long form (`-m long`) kills at all failpoints. Each command is a test of its own
(`-k relocating-0` runs one), which reports each kill by its number; `ELT_KILLS=40-` goes on from the 40th.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from elt_assets.failpoints import Failpoint
from tests.e2e import moved_connections as moved
from tests.e2e.moved_connections import Kill, Scene, Step
from tests.lake.publishing.catalogs import TOKEN, UNITY_CATALOG, unity_store
from tests.programs.unity_server import Store
from tests.support.postgres import run_postgres
from tests.support.project import Project
from tests.support.seeds import read_range

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark_provider")]
MakeSteps = Callable[[Scene], list[Step]]


def list_entries(store: Store) -> dict[str, str]:
    return {".".join(name): entry["storage_location"] for name, entry in store.tables.items()}


def save_entries(store: Store) -> Callable[[], None]:
    tables, schemas = copy.deepcopy(store.tables), copy.deepcopy(store.schemas)

    def restore() -> None:
        store.tables, store.schemas = copy.deepcopy(tables), copy.deepcopy(schemas)

    return restore


@pytest.fixture
def scene(own: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A lake on a disk, with a log, an Iceberg catalog in a database, and a Unity Catalog."""
    with ExitStack() as opened:
        server = opened.enter_context(run_postgres("wal_level=logical"))
        place, store = opened.enter_context(unity_store())
        settings: dict[str, Any] = {"type": "unity", "url": place, "catalog": UNITY_CATALOG}
        monkeypatch.setenv("TOKEN", TOKEN)
        monkeypatch.setenv("ELT_CATALOG", json.dumps({**settings, "token": {"env": "TOKEN"}}))
        iceberg = {"type": "sql", "uri": f"sqlite:///{own.root}/catalog.db", "warehouse": "/none"}
        monkeypatch.setenv("ELT_ICEBERG", json.dumps({"catalog": iceberg}))
        lake = str(own.root / "lake")
        monkeypatch.setenv("ELT_LAKE", lake)
        runner = opened.enter_context(moved.open_runner())
        made = Scene(
            own,
            server,
            partial(list_entries, store),
            partial(save_entries, store),
            iceberg,
            monkeypatch,
            runner,
            [lake],
        )
        moved.add_foreign_table(made.catalog, str(own.root / "foreign"))
        moved.configure(made)
        moved.sync(made)
        server.execute("SELECT pg_copy_logical_replication_slot('s', 'base')")
        yield made


def check_kills(
    scene: Scene, steps: Sequence[Step], number: int, choose: Callable[[list[Kill]], Iterable[Kill]]
) -> int:
    """Kill a command of an operation, and run it again; return how many times it was killed.

    Args:
        number: of the command. Those before it have run.
        choose: returns the kills that are tried, of those that are possible.
    """
    step, count = steps[number], 0
    restore = scene.save()
    began = time.monotonic()
    passed = scene.run(step)
    seconds = time.monotonic() - began
    expected = scene.observe()
    clocks = [Kill(seconds=random.Random(n).uniform(0, seconds)) for n in range(CLOCKS)]
    for kill in choose([*(Kill(*place) for place in passed), *clocks]):
        restore()
        count += scene.run_killed(step, kill)
        observed = scene.observe()
        for part, value in expected.items():
            assert observed[part] == value, (step, kill, part)
    for later in steps[number + 1 :]:
        scene.run(later)
    moved.check_continued(scene)
    restore()
    return count


CLOCKS = 6
"""Kills of a command at random times."""
KILLS = 1
"""Kills of each operation in the short form, chosen by chance."""
WRITER_CHANGED = Kill(Failpoint.COMMIT_PUBLISHED, 2)
"""A table has the writer of the new connection, and is in the folder of the former one."""


def rename(scene: Scene) -> list[Step]:
    return moved.rename_in_files(scene)


def remove(scene: Scene) -> list[Step]:
    return moved.list_removals(scene)


def move(scene: Scene) -> list[Step]:
    scene.lakes.append(str(scene.own.root / "new"))
    return moved.list_moves(*scene.lakes)


@dataclass(frozen=True)
class Operation:
    """An operation of several commands.

    Attributes:
        commands: how many commands it has.
        killed: the command that the short form kills.
        always: the kills that the short form tries besides those chosen by chance.
    """

    make_steps: MakeSteps
    commands: int
    killed: int
    always: Sequence[Kill] = ()


OPERATIONS = {
    "renaming": Operation(rename, commands=4, killed=2),
    "renaming_connection": Operation(
        moved.rename_connection, commands=2, killed=1, always=[WRITER_CHANGED]
    ),
    "removing": Operation(remove, commands=3, killed=2),
    "relocating": Operation(move, commands=2, killed=0),
}


def choose_kills(chance: random.Random, always: Sequence[Kill], kills: list[Kill]) -> list[Kill]:
    return [*chance.sample(kills, KILLS), *always]


def test_what_is_renamed_removed_or_moved_survives_kills(scene: Scene) -> None:
    chance = random.Random(3)
    restore = scene.save()
    for operation in OPERATIONS.values():
        steps = operation.make_steps(scene)
        for step in steps[: operation.killed]:
            scene.run(step)
        choose = partial(choose_kills, chance, operation.always)
        kills = check_kills(scene, steps, operation.killed, choose)
        assert kills, steps[operation.killed]
        restore()


def list_commands() -> list[Any]:
    """Return each command of each operation as parameters of a test with the name `OPERATION-NUMBER`."""
    return [
        pytest.param(operation, number, id=f"{name}-{number}")
        for name, operation in OPERATIONS.items()
        for number in range(operation.commands)
    ]


def report_kills(capsys: pytest.CaptureFixture[str], kills: list[Kill]) -> Iterator[Kill]:
    """Yield the kills that `ELT_KILLS` names, and report the number of each before it."""
    for number in read_range("ELT_KILLS", len(kills)):
        with capsys.disabled():
            print(
                f"{time.strftime('%X')} kill {number} of {len(kills)}: {kills[number]}", flush=True
            )
        yield kills[number]


@pytest.mark.long
@pytest.mark.parametrize(("operation", "number"), list_commands())
def test_what_is_renamed_removed_or_moved_survives_a_kill_at_any_point(
    scene: Scene, operation: Operation, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = operation.make_steps(scene)
    assert len(steps) == operation.commands
    for step in steps[:number]:
        scene.run(step)
    assert check_kills(scene, steps, number, partial(report_kills, capsys))
