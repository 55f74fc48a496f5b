"""Random scripts that are killed again and again, at any failpoint, end as ones that were never killed do.

A seed makes a script: syncs with late, deleted and rejected records, refreshes, wider types, a history that
is turned on and off, maintenance, replays, restores, and states set by hand. In the long form (`-m long`)
`ELT_CRASH_SEEDS` (50) seeds, from `ELT_CRASH_SEED` on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.failpoints import armed
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.write import state_commit
from elt_assets.lake.write.stored_stream import RefreshMode
from elt_assets.lake.write.write_spec import WriteSpec, make_declared_schema
from elt_assets.protocol.airbyte.catalog import DELETED_AT, ConfiguredStream
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP
from tests.lake.camera import Run
from tests.lake.crashing import EVENTS, Death, Killed, View, configured, event, position, sync, view
from tests.lake.harness import Lake
from tests.lake.modelled import NO_SPARK
from tests.lake.plain import without_spark
from tests.lake.staging import NUMBER, STRING, checkpoint

pytestmark = pytest.mark.spark

FIRST = int(os.environ.get("ELT_CRASH_SEED", "100"))
SEEDS = int(os.environ.get("ELT_CRASH_SEEDS", "50"))
STEPS = 8
KILLS = 3
"""The highest number of kills in one step."""
LONGEST = 16
"""The number of the last failpoint at which a step may be killed."""


@dataclass
class Script:
    """The steps that a seed makes. Each is a run that goes on where a killed one has stopped.

    `prepare`: what is done before the next step, and not killed. `restorable`: positions of which the table
    has a version.
    """

    chance: random.Random
    policy: str
    properties: dict[str, Any] = field(default_factory=lambda: {**EVENTS, DELETED_AT: STRING})
    history: bool = False
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    restorable: list[int] = field(default_factory=list)
    records: int = 0
    prepare: Callable[[Lake], object] = lambda _: None
    log: list[str] = field(default_factory=list)

    def next_step(self) -> Run:
        steps: list[Callable[[], Run]] = [self.sync, self.sync, self.sync, self.refresh]
        steps += [self.widen, self.maintain, self.restore, self.set_state]
        steps.append(self.switch_history if self.policy == APPEND_DEDUP else self.sync)
        if not self.history:  # without Spark, a history is never merged by another key
            steps.append(self.replay)
        self.prepare = lambda _: None
        step = self.chance.choice(steps) if self.batches else self.sync
        self.log.append(step.__name__)
        return step()

    def sync(self) -> Run:
        self._add_batches()
        return self._syncing()

    def refresh(self) -> Run:
        mode: RefreshMode = self.chance.choice(["truncate", "retain"])
        generations: list[int] = []
        self.prepare = lambda lake: generations.append(lake.tables().metadata.generation)
        self.batches = []
        self._add_batches()
        self.restorable = [len(self.batches)]  # readers see a refresh when it is complete
        batches = list(self.batches)

        def run(lake: Lake, seen: Callable[[], None]) -> None:
            head = lake.tables().metadata
            begins = head.refresh is None and head.generation == generations[-1]
            refresh: RefreshMode = mode if begins else "none"
            sync(lake, batches, self._configured(lake, refresh), refresh, seen)

        return run

    def widen(self) -> Run:
        self.properties = {**self.properties, "at": NUMBER}
        return self.sync()

    def maintain(self) -> Run:
        retention = self.chance.choice([dt.timedelta(0), dt.timedelta(days=7)])
        self.restorable = []
        return lambda lake, _: maintain(lake.spark, lake.tables(), retention, dead_letter_age=None)

    def restore(self) -> Run:
        older = [number for number in self.restorable if number < len(self.batches)]
        if older:
            restored = self.chance.choice(older)
            self.prepare = lambda lake: DeltaTable(lake.uri).restore(version_at(lake, restored))
        return self._syncing()

    def set_state(self) -> Run:
        number, name = self.chance.randint(1, len(self.batches)), f"hand-{len(self.log)}"
        go_on, value = self._syncing(), checkpoint(number).states[0].to_json().decode()

        def run(lake: Lake, seen: Callable[[], None]) -> None:
            tables = lake.tables()
            if all(commit.metadata.run_id != name for commit in tables.main.past_commits()):
                tables.roll_back_companions(name)
                schema = make_declared_schema(self._configured(lake))
                state_commit.set_state(tables, value, name, schema, "users")
            seen()
            go_on(lake, seen)

        return run

    def switch_history(self) -> Run:
        self.history = not self.history
        return self.sync()

    def replay(self) -> Run:
        name = f"replay-{len(self.log)}"

        def run(lake: Lake, _: Callable[[], None]) -> None:
            tables = lake.tables()
            tables.roll_back_companions(name)
            by_text = self._configured(lake)
            by_text.primary_key = [["text"]]
            replay(lake.provider, tables, WriteSpec(by_text, name), lake.scratch)

        return run

    def _add_batches(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.batches.append([self._event() for _ in range(self.chance.randint(1, 5))])
            self.restorable.append(len(self.batches))

    def _event(self) -> dict[str, Any]:
        self.records += 1
        at = self.chance.randint(0, 50) * 10_000 + self.records
        made = event(self.chance.choice([1, 2, 3, 4, None]), at)
        return {**made, DELETED_AT: "yes"} if self.chance.random() < 0.2 else made

    def _syncing(self) -> Run:
        batches = list(self.batches)
        return lambda lake, seen: sync(lake, batches, self._configured(lake), seen=seen)

    def _configured(self, lake: Lake, refresh: RefreshMode = "none") -> ConfiguredStream:
        return configured(lake, self.policy, refresh, self.properties)


def version_at(lake: Lake, restored: int) -> int:
    """Return the newest version with a position."""
    past = list(lake.table.past_commits())
    return next(each.version for each in past if position(each.metadata.state) == restored)


def play(folder: Path, seed: int) -> int:
    """Play a script on two lakes, one of which is killed; return the number of kills."""
    script = Script(random.Random(seed), random.Random(seed).choice([APPEND, APPEND_DEDUP]))
    whole, killed = (Lake(NO_SPARK, folder / name, is_plain=True) for name in ("a", "b"))
    kills = 0
    for _ in range(STEPS):
        run = script.next_step()
        for lake in (whole, killed):
            lake.history = script.history
            script.prepare(lake)
        cuts = list(views_of(whole, run))
        for _ in range(script.chance.randint(1, KILLS)):
            kills += is_killed(killed, run, script.chance.randint(1, LONGEST))
            assert view(killed) in cuts, f"seed {seed}: readers see what never was: {script.log}"
        run(killed, lambda: None)
        assert view(killed) == cuts[-1], f"seed {seed}: {script.log}"
    return kills


def views_of(lake: Lake, run: Run) -> Iterator[View]:
    """Run; yield all that readers may see."""
    yield view(lake)
    seen: list[View] = []
    run(lake, lambda: seen.append(view(lake)))
    yield from seen
    yield view(lake)


def is_killed(lake: Lake, run: Run, number: int) -> bool:
    death = Death(number=number)
    with contextlib.suppress(Killed), armed(death):
        run(lake, lambda: None)
    return death.point is not None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_script_that_is_killed_ends_as_one_that_is_not(tmp_path: Path, seed: int) -> None:
    with without_spark():
        assert play(tmp_path, seed)


@pytest.mark.long
def test_scripts_of_many_seeds_that_are_killed_end_as_ones_that_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = 0
    with without_spark():
        for seed in range(FIRST, FIRST + SEEDS):
            kills += play(tmp_path / str(seed), seed)
    with capsys.disabled():
        print(f"\n{SEEDS} seeds from {FIRST} on, {kills} kills")
