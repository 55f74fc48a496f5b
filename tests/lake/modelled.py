"""One table with its companions under syncs, kills, restores and maintenance, beside an oracle.

`Machine` is hypothesis's: each rule does one thing to the tables and the same to the oracle, and after each
what readers see must be what the oracle says. A `Theme` says which rules there are. `begin` is the one place
that knows how a run opens its tables.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.table import Table
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import (
    HISTORY,
    NOT_KEPT,
    SUFFIXES,
    StreamTables,
    find_named_commit,
    is_named,
)
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    FULL_REFRESH,
    INCREMENTAL,
    OVERWRITE,
    OVERWRITE_DEDUP,
    ConfiguredStream,
)
from elt_assets.storage.staging import Staging
from tests.lake.crashing import Death, Killed, done_at
from tests.lake.oracle import Event, Part, Run, Stream, landed
from tests.lake.plain import NoSpark, rows_of
from tests.lake.staging import (
    APP,
    INTEGER,
    NUMBER,
    STRING,
    checkpoint,
    stage,
    stream,
    take_generations,
)

BASE = {"id": INTEGER, "at": INTEGER, "text": STRING, "_ab_cdc_deleted_at": STRING}
CATALOGS = (
    BASE,
    {**BASE, "at": NUMBER},
    {**BASE, "more": STRING},
    {**BASE, "more": INTEGER},
)
"""The catalogs of the same source at different times: a wider type; a new column, and another of its name."""
DAYS = 10
"""The time that passes at once: more than the retention."""
STEPS: Counter[str] = Counter()
"""The number of runs of each rule, for the report."""


# How a run opens its tables


class Opened(NamedTuple):
    writer: TableWriter
    start: str | None
    sequence: int


def app_id(part: str | None) -> str:
    return APP if part is None else f"{APP}|{part}"


def begin(world: World, uri: str, part: str | None, run: Run, run_id: str) -> Opened:
    """Sync as an asset's run does: companions settled, generation and state taken from the table."""
    tables = StreamTables(uri, app_id(part), history=world.history)
    tables.roll_back_companions(run_id)
    wanted = configured(run.stream)
    mode: RefreshMode = run.refresh  # type: ignore[assignment]
    intent = None if run.intent is None else str(run.intent)
    if StoredStream(wanted, tables.metadata).continues(intent):
        mode = "none"
    start = StoredStream(wanted, tables.metadata).find_starting_state(mode)
    take_generations(wanted, tables.metadata, mode)
    wanted.sync_id = tables.metadata.sync_id + 1
    spec = WriteSpec(wanted, run_id, world.history, partition=part, intent=intent)
    return Opened(world.writer(world.provider, tables, spec), start, tables.metadata.sequence)


def configured(how: Stream) -> ConfiguredStream:
    key = [how.key] if how.key is not None else []
    found = stream(CATALOGS[how.catalog], how.policy, key=key, cursor=["at"])
    found.sync_mode = INCREMENTAL if how.incremental else FULL_REFRESH
    found.stream.is_resumable = True
    return found


# Themes

NO_SPARK = cast(SparkProvider, NoSpark())


@dataclass(frozen=True)
class World:
    """The settings of a stream, for one example."""

    policy: str
    incremental: bool = True
    history: bool = False
    parts: tuple[str | None, ...] = (None,)
    provider: SparkProvider = NO_SPARK
    writer: type[TableWriter] = TableWriter

    @property
    def stream(self) -> Stream:
        key = None if self.policy in (APPEND, OVERWRITE) else "id"
        return Stream(self.policy, self.incremental, key)


TWO = ("p1", "p2")
APPENDS = World(APPEND)
RELOADS = World(APPEND, incremental=False)
DEDUPS = World(APPEND_DEDUP)
VERSIONS = World(APPEND_DEDUP, history=True)
OVERWRITES = World(OVERWRITE, incremental=False)
OVERWRITES_DEDUP = World(OVERWRITE_DEDUP, incremental=False)
OVERWRITES_VERSIONS = World(OVERWRITE_DEDUP, incremental=False, history=True)
IN_PARTS = tuple(replace(world, parts=TWO) for world in (APPENDS, DEDUPS, OVERWRITES))


@dataclass(frozen=True)
class Theme:
    """The worlds of a run, and its rules besides syncs: of kill, beside, restore, maintain, refresh,
    catalog, replay, add_key, switch; and erase (`tests/lake/erasing.py`)."""

    worlds: tuple[World, ...]
    rules: frozenset[str]


def theme(worlds: Sequence[World], *rules: str) -> Theme:
    return Theme(tuple(worlds), frozenset(rules))


UNPARTED = (APPENDS, RELOADS, DEDUPS, VERSIONS, OVERWRITES, OVERWRITES_DEDUP, OVERWRITES_VERSIONS)
THEMES = {
    "syncs": theme([*UNPARTED, *IN_PARTS, *IN_PARTS], "kill", "beside", "erase"),
    "maintenance": theme([*UNPARTED, *IN_PARTS], "kill", "beside", "maintain", "erase"),
    "companions": theme([VERSIONS, *IN_PARTS, OVERWRITES_VERSIONS], "kill", "maintain", "erase"),
    "histories": theme(
        [VERSIONS, OVERWRITES_VERSIONS], "kill", "maintain", "restore", "switch", "erase"
    ),
    "restores": theme([*UNPARTED, *IN_PARTS], "kill", "beside", "restore", "erase"),
    "refreshes": theme([*UNPARTED, *IN_PARTS], "kill", "refresh", "erase"),
    "schemas": theme([DEDUPS, VERSIONS, OVERWRITES_DEDUP, *IN_PARTS], "kill", "catalog", "erase"),
    "replays": theme([APPENDS, DEDUPS, *IN_PARTS[:2]], "kill", "replay", "erase"),
    "keys": theme([APPENDS], "add_key"),
    "all": theme(
        [*UNPARTED, *IN_PARTS],
        *("kill", "beside", "maintain", "restore", "refresh", "catalog", "replay", "erase"),
    ),
}


# What a step is made of

KINDS = ["plain"] * 4 + ["deleted", "bad", "bad"]
EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from(KINDS)), max_size=4
)
PAUSES = st.sampled_from(["nothing", "other", "maintain", "days"])
SLOTS, PARTS, CATALOG = st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)
MODES = st.sampled_from(["none", "none", "truncate", "retain"])
LONGEST = 16
"""The number of the last failpoint of a step at which it may be killed; few steps pass more."""
KILLS = st.one_of(st.none(), st.integers(1, LONGEST), st.integers(1, LONGEST))
BESIDES = st.none() | st.tuples(
    st.sampled_from(["commit", "maintain", "restore", "erase"]), st.integers(1, 3)
)


@dataclass
class Live:
    """A run that is under way: `pending` is written and not committed; `epoch`, what its table's was when
    the run last knew it; `is_restored`: the table was, since; `records`: the number that it has sent."""

    part: str | None
    run: Run
    opened: Opened
    epoch: int
    schemas: int
    pending: list[Event]
    token: str = ""
    is_restored: bool = False
    records: int = 0


class Machine(RuleBasedStateMachine):
    """Steps over one table; see the module."""

    theme: Theme

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="model-"))
        self.uri = str(self.folder / "users")
        self.count = itertools.count(1)
        self.slots: dict[int, Live] = {}
        self.versions: dict[int, dict[str | None, Part]] = {}
        self.schemas = 0
        self.checked: frozenset[Path] = frozenset()
        self.is_vacuumed = False
        self.widened: set[str | None] = set()
        self.histories: dict[str | None, Counter[Any]] = {}

    def teardown(self) -> None:
        STEPS["examples"] += 1
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(choice=st.integers(0, 59))
    def choose(self, choice: int) -> None:
        self.world = self.theme.worlds[choice % len(self.theme.worlds)]
        self.stream = self.world.stream
        self.parts: dict[str | None, Part] = {part: Part() for part in self.world.parts}
        self.epochs: dict[str | None, int] = dict.fromkeys(self.parts, 0)
        self.intents: dict[str | None, tuple[str, int]] = {}
        if self.has("add_key"):
            self._add_key()

    def has(self, feature: str) -> bool:
        return feature in self.theme.rules

    # Syncs

    @rule(slot=SLOTS, part=PARTS, catalog=CATALOG, mode=MODES, retries=st.booleans(), kill=KILLS)
    def begin(
        self, slot: int, part: int, catalog: int, mode: str, retries: bool, kill: Any
    ) -> None:
        """A run begins; the one in its slot is gone without a word."""
        STEPS["begin"] += 1
        self.slots.pop(slot, None)
        name = self.world.parts[part % len(self.world.parts)]
        how = replace(self.stream, catalog=catalog if self.has("catalog") else 0)
        mode, intent = self._refresh(name, mode, retries=retries)
        self._adopt_dropped(name)
        run = Run(how, self.parts[name], mode, intent)
        found: list[Opened] = []
        with self._killed(kill), self._refused_keys(name):
            run_id = f"run-{intent or next(self.count)}"
            found.append(begin(self.world, self.uri, name, run, run_id))
        if not found:
            return
        opened = found[0]
        assert token_of(opened.start) == run.start, (
            f"the run of {mode} ({intent}) starts from {token_of(opened.start)}, not from {run.start}"
        )
        self.slots[slot] = Live(name, run, opened, self.epochs[name], self.schemas, [])

    def _refresh(self, part: str | None, mode: str, *, retries: bool) -> tuple[str, int | None]:
        """A refresh that is asked for, or asked for again by the run's next attempt."""
        if not self.has("refresh") or mode == "none":
            return "none", None
        if self.world.policy != APPEND and self.world.policy != APPEND_DEDUP:
            mode = "truncate"
        if not (retries and part in self.intents):
            self.intents[part] = (mode, next(self.count))
        return self.intents[part]

    def _adopt_dropped(self, part: str | None) -> None:
        """Drop the unfinished refresh in the oracle, too, if a commit of wider types dropped it.

        A run that reads the refresh again commits these before its rows, and may die between the two.
        """
        building = self.parts[part].building
        if part not in self.widened or building is None or not building.truncates:
            return
        if Table(self.uri, app_id(part)).metadata.refresh is None:
            self.parts[part] = replace(self.parts[part], building=None)

    @precondition(lambda self: self.slots)
    @rule(slot=SLOTS, events=EVENTS)
    def write(self, slot: int, events: list[tuple[int, int, str]]) -> None:
        live = self.slots.get(slot)
        if live is not None:
            STEPS["write"] += 1
            self._write(live, events)

    def _write(self, live: Live, raw: Sequence[tuple[int, int, str]]) -> None:
        events = [self._event(live, *each) for each in raw]
        if not events:
            return
        with self._refusals(live):
            lines = list(map(line_of, events))
            live.opened.writer.write(stage(self.folder / "staging", lines, first=live.records))
            live.pending += events
            live.records += len(events)

    def _event(self, live: Live, number: int, order: int, kind: str) -> Event:
        count = next(self.count)
        # So long that nothing else has it by chance. A bound that is cut may be the text after another one.
        text = f"s{count * 7919:08}"
        if kind == "bad":
            return Event(text)
        ident = number or None
        if self.has("add_key") and not live.run.stream.deduplicates:
            ident = 100 + count if number else None  # keys that are there are whole and unique
        more = {2: f"m{count}", 3: str(count)}.get(live.run.stream.catalog)
        is_delete = kind == "deleted" and live.run.stream.deduplicates
        return Event(text, ident, order * 10_000 + count, more, is_delete)

    @precondition(lambda self: self.slots)
    @rule(slot=SLOTS, final=st.booleans(), kill=KILLS, beside=BESIDES, choice=st.integers(0, 9))
    def commit(self, slot: int, final: bool, kill: Any, beside: Any, choice: int) -> None:
        live = self.slots.get(slot)
        if live is None:
            return
        STEPS["commit"] += 1
        other = None
        if beside is not None and self.has("beside"):
            other = (beside[1], lambda: self._beside(beside[0], slot, choice))
        self._commit(slot, live, final=final, kill=None if other else kill, beside=other)

    @rule(slot=SLOTS, part=PARTS, catalog=CATALOG, events=EVENTS, final=st.booleans(), kill=KILLS)
    def sync(self, slot: int, part: int, catalog: int, events: Any, final: bool, kill: Any) -> None:
        """A run of one checkpoint."""
        STEPS["sync"] += 1
        self.begin(slot, part, catalog, "none", False, None)
        if slot in self.slots:
            self._write(self.slots[slot], events)
        if slot in self.slots:
            self._commit(slot, self.slots[slot], final=final, kill=kill)

    @rule(
        parts=st.tuples(PARTS, PARTS),
        catalogs=st.tuples(CATALOG, CATALOG),
        events=st.tuples(EVENTS, EVENTS),
        finals=st.tuples(st.booleans(), st.booleans()),
    )
    def overlap(self, parts: Any, catalogs: Any, events: Any, finals: Any) -> None:
        """A run begins and writes; another of the stream comes and goes; then the first one commits."""
        STEPS["overlap"] += 1
        self.begin(0, parts[0], catalogs[0], "none", False, None)
        if 0 in self.slots:
            self._write(self.slots[0], events[0])
        self.sync(1, parts[1], catalogs[1], events[1], finals[1], None)
        if 0 in self.slots:
            self._commit(0, self.slots[0], final=finals[0])

    @precondition(lambda self: self.has("kill"))
    @rule(
        part=PARTS, events=EVENTS, final=st.booleans(), number=st.integers(1, 3), meanwhile=PAUSES
    )
    def die_between(self, part: int, events: Any, final: bool, number: int, meanwhile: str) -> None:
        """A run dies once one of its tables is committed, the others perhaps not; it is tried again."""
        STEPS["die between"] += 1
        self.begin(0, part, 0, "none", False, None)
        if 0 in self.slots:
            self._write(self.slots[0], [*events, (1, 1, "plain"), (2, 2, "bad")])
        if 0 in self.slots:
            kill = Death(Failpoint.COMMIT_PUBLISHED, number)
            self._commit(0, self.slots[0], final=final, kill=kill)
        if meanwhile == "other":
            self.sync(1, 1 - part, 0, [(1, 1, "plain"), (2, 2, "bad")], True, None)
        elif meanwhile != "nothing" and self.has("maintain"):
            self.maintain(meanwhile == "days", None)
        self.sync(0, part, 0, events, True, None)

    def _commit(
        self,
        slot: int,
        live: Live,
        *,
        final: bool,
        kill: Any = None,
        beside: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """One checkpoint. Whoever moves the table first wins; the other changes nothing."""
        live.token = f"t{next(self.count)}"
        before = self.parts[live.part]
        after = replace_run(live.run)
        wanted = after.after(before, live.pending, live.token, final=final)
        is_published = False
        if (
            live.run.stream.catalog
        ):  # the table gets its columns first, also if the run is then refused
            self.widened |= set(self.parts)

        def published() -> bool:
            nonlocal is_published
            if not is_published and self._token(live.part) == live.token:
                assert not self._is_overtaken(live), "a run that was overtaken has committed"
                self._acknowledge(live, wanted)
                live.run = after
                is_published = True
            return is_published

        def interrupt() -> None:
            assert beside is not None
            published()
            beside[1]()

        error: BaseException | None = None
        others = (
            done_at(Failpoint.COMMIT_READY, interrupt, beside[0])
            if beside
            else contextlib.nullcontext()
        )
        try:
            with others, self._killed(kill) as is_killed:
                live.opened.writer.commit(checkpoint(live.token, final=final))
        except (ConcurrentSync, ConfigError) as raised:
            error = raised
        is_done = published()
        if error is None and not is_killed():
            assert is_done or self._is_overtaken_since(live, before), "committed, and not there"
            live.pending = []
            if not final:
                return
        elif error is not None:
            self._assert_refused(live, error)
            with contextlib.suppress(ConcurrentSync):
                live.opened.writer.close()
        if self.slots.get(slot) is live:
            del self.slots[slot]

    def _is_overtaken_since(self, live: Live, before: Part) -> bool:
        """Return whether the run's commit was taken back, or built on, before the run returned."""
        return self.parts[live.part] != before

    def _acknowledge(self, live: Live, part: Part) -> None:
        STEPS["commits that count"] += 1
        self.parts[live.part] = part
        self.epochs[live.part] += 1
        live.epoch = self.epochs[live.part]
        if live.run.stream.catalog:
            self.schemas += 1
            live.schemas = self.schemas

    def _is_overtaken(self, live: Live) -> bool:
        return self.epochs[live.part] != live.epoch

    def _assert_refused(self, live: Live, error: BaseException) -> None:
        """A refusal must have a reason."""
        sequence = Table(self.uri, app_id(live.part)).metadata.sequence
        moved = self._is_overtaken(live) or sequence != live.opened.sequence or live.is_restored
        may = (
            moved or self.has("catalog") or (self.has("add_key") and self._has_null_keys(live.part))
        )
        assert may, f"a run was refused without a concurrent run: {error!r}"

    @contextlib.contextmanager
    def _refused_keys(self, part: str | None) -> Iterator[None]:
        """A table that has rows without a key may refuse one."""
        try:
            yield
        except ConfigError:
            if not (self.has("add_key") and self._has_null_keys(part)):
                raise

    def _has_null_keys(self, part: str | None) -> bool:
        return any(event.id is None for event in self.parts[part].rows)

    @contextlib.contextmanager
    def _refusals(self, live: Live) -> Iterator[None]:
        """Allow the errors with which a writer may refuse a sync before it commits."""
        try:
            yield
        except ConfigError as error:
            self._assert_refused(live, error)
            self.slots = {slot: one for slot, one in self.slots.items() if one is not live}

    # Kills, and what happens beside a commit

    @contextlib.contextmanager
    def _killed(self, kill: int | Death | None) -> Iterator[Callable[[], bool]]:
        """Die at the failpoint with a number, of all that are reached, or at a named one."""
        if kill is None or not self.has("kill"):
            yield lambda: False
            return
        death = kill if isinstance(kill, Death) else Death(number=kill)
        with contextlib.suppress(Killed), armed(death):
            yield lambda: death.point is not None
        if death.point is not None:
            STEPS[f"kill at {death.point.name}"] += 1

    def _beside(self, what: str, slot: int, choice: int) -> None:
        STEPS[f"beside: {what}"] += 1
        if what == "commit" and 1 - slot in self.slots:
            self._commit(1 - slot, self.slots[1 - slot], final=bool(choice % 2))
        elif what == "maintain" and self.has("maintain"):
            self._maintain(None)
        elif what == "restore" and self.has("restore"):
            self._restore(choice)

    # What users and schedules do

    @precondition(lambda self: self.has("maintain"))
    @rule(passes=st.booleans(), kill=KILLS)
    def maintain(self, passes: bool, kill: Any) -> None:
        """Compaction and vacuum, perhaps after ten days; no run is as long as that."""
        STEPS["maintain"] += 1
        if passes:
            self.slots.clear()
            self.versions.clear()
            pass_days(self.folder)
        self._maintain(kill)

    def _maintain(self, kill: Any) -> None:
        self.is_vacuumed = True
        with self._killed(kill):
            maintain(
                self.world.provider.get(), StreamTables(self.uri, APP, history=self.world.history)
            )

    @precondition(lambda self: self.has("restore") and self.versions)
    @rule(choice=st.integers(0, 9))
    def restore(self, choice: int) -> None:
        STEPS["restore"] += 1
        self._restore(choice)

    def _restore(self, choice: int) -> None:
        """Restore one of the last ten versions between two steps that differ from the present one."""
        candidates = [at for at, parts in sorted(self.versions.items()) if parts != self.parts]
        if not candidates:
            return
        version = candidates[-10:][choice % min(len(candidates), 10)]
        DeltaTable(self.uri).restore(version)
        for live in self.slots.values():
            live.is_restored = True
        for part, found in self.versions[version].items():
            if found != self.parts[part]:
                self.epochs[part] += 1
            self.parts[part] = found

    @precondition(lambda self: self.has("refresh"))
    @rule(part=PARTS, mode=st.sampled_from(["truncate", "retain"]), events=EVENTS, kill=KILLS)
    def refresh_again(self, part: int, mode: str, events: Any, kill: Any) -> None:
        """A refresh ends early, and its run is tried again."""
        STEPS["refresh again"] += 1
        for retries in (False, True):
            self.begin(0, part, 0, mode, retries, None)
            if 0 in self.slots:
                self._write(self.slots[0], [*events, (1, 1, "plain")])
            if 0 in self.slots:
                self._commit(0, self.slots[0], final=retries, kill=None if retries else kill)

    @precondition(lambda self: self.has("restore"))
    @rule(part=PARTS, other=PARTS, events=EVENTS, choice=st.integers(0, 9), final=st.booleans())
    def restore_beside(self, part: int, other: int, events: Any, choice: int, final: bool) -> None:
        """A restore while a run is under way, which then commits."""
        STEPS["restore beside"] += 1
        self.sync(1, other, 0, [*events, (1, 1, "plain")], True, None)
        self.readers_see_what_was_acknowledged()
        self.begin(0, part, 0, "none", False, None)
        if 0 in self.slots:
            self._write(self.slots[0], [*events, (2, 1, "plain")])
        self._restore(choice)
        if 0 in self.slots:
            self._commit(0, self.slots[0], final=final)

    @precondition(lambda self: self.has("replay") and not self.world.history)
    @rule(part=PARTS, kill=KILLS)
    def replay(self, part: int, kill: Any) -> None:
        """Rejected records tried again, by another key, which they have."""
        name = self.world.parts[part % len(self.world.parts)]
        before = self.parts[name]
        if before.building is not None and before.building.truncates:
            return
        STEPS["replay"] += 1
        by = replace(self.stream, key=None if self.stream.key is None else "text")
        tables = StreamTables(self.uri, app_id(name))
        sequence = tables.metadata.sequence
        with self._killed(kill):
            tables.roll_back_companions("replay")
            wanted = configured(by)
            wanted.generation_id, wanted.minimum_generation_id = (
                max(tables.metadata.generation, 1),
                0,
            )
            wanted.sync_id = tables.metadata.sync_id + 1
            spec = WriteSpec(wanted, "replay", partition=name)
            replay(self.world.provider, tables, spec, Staging(self.folder / "staging"))
        # The catalog of a replay is the first one, which lacks the column `more`.
        moved = [replace(event, more=None) for event in before.dead if not by.rejects(event)]
        left = tuple(event for event in before.dead if by.rejects(event))
        rows, buried = landed(by, before.rows, before.buried, moved)
        # Not by the rows: a replayed delete may leave them as they were.
        if Table(self.uri, app_id(name)).metadata.sequence != sequence:
            self.parts[name] = replace(before, rows=rows, buried=buried, dead=left)
            self.epochs[name] += 1

    @precondition(lambda self: self.has("switch"))
    @rule()
    def switch_history(self) -> None:
        """The next runs keep the stream's history, or no longer do."""
        STEPS["switch"] += 1
        self.world = replace(self.world, history=not self.world.history)

    def _add_key(self) -> None:
        """The stream gets a key, and its policy another, when there are rows without one."""
        self.sync(0, 0, 0, [(0, 1, "plain"), (0, 2, "plain"), (1, 3, "plain")], True, None)
        self.stream = replace(self.stream, policy=APPEND_DEDUP, key="id")
        self.sync(0, 0, 0, [(1, 1, "plain")], True, None)

    # What must hold

    @invariant()
    def readers_see_what_was_acknowledged(self) -> None:
        logs = frozenset(self.folder.glob("*/_delta_log/*.json"))
        if logs == self.checked and not self.is_vacuumed:
            return
        self.checked, self.is_vacuumed = logs, False
        mains = {name: Table(self.uri, app_id(name)) for name in self.parts}
        for name, main in mains.items():
            self._adopt_dropped(name)
            part, where = self.parts[name], f"partition {name}" if name else "the table"
            if not main.exists:
                assert part == Part()
                continue
            assert token_at(main) == acknowledged(part), f"another state: {where}"
            rows = Counter(map(sign_of, self._in_part(main, name)))
            assert rows == signs(part.rows), f"other rows: {where}"
            self._check_dead(main, name)
            self._check_history(main, name)
            check_files(main)
            self.versions[main.version] = dict(self.parts)

    def _check_dead(self, main: Table, name: str | None) -> None:
        found = self._companion(main, name, "dead_letter")
        if found is not None:
            found_texts = sorted(re.findall(r"\bs\d+\b", " ".join(row["record"] for row in found)))
            wanted = sorted(event.text for event in self.parts[name].dead)
            assert found_texts == wanted, f"another dead letter: {name}"

    def _check_history(self, main: Table, name: str | None) -> None:
        found = self._companion(main, name, HISTORY)
        if found is None:
            return
        companions = main.metadata.companions or {}
        if companions.get(HISTORY) != NOT_KEPT:
            current = Counter(sign_of(row) for row in found if row["_is_current"])
            assert current == signs(self.parts[name].rows), "other current rows in the history"
        versions = Counter((sign_of(row), row["_is_current"]) for row in found)
        before = self.histories.setdefault(find_named_commit(companions, HISTORY), versions)
        assert versions == before, "the table names the same commit of the history, with other rows"

    def _companion(self, main: Table, name: str | None, kind: str) -> list[dict[str, Any]] | None:
        """A companion's rows as readers are shown them; None where its table does not say which."""
        table = self._companion_table(main, kind)
        return None if table is None else self._in_part(table, name)

    def _companion_table(self, main: Table, kind: str) -> Table | None:
        """A companion at the version that its table names."""
        companions = main.metadata.companions or {kind: NOT_KEPT}
        table = Table(self.uri + SUFFIXES[kind], f"{main.app_id}|{kind}")
        if not is_named(companions, kind) or not table.exists:
            return None
        stands_for = find_named_commit(companions, kind)
        if stands_for != table.metadata.stands_for:
            table = Table(table.uri, table.app_id, table.version_of(stands_for))
        return table

    def _in_part(self, table: Table, name: str | None) -> list[dict[str, Any]]:
        """The rows of a partition. Of an older version, the files of others may have been vacuumed."""
        files = table.files
        if name is not None:
            bounds = table.bounds([metadata_columns.PARTITION])
            files = [f for f in files if is_between(name, bounds.get(f.path))]
        rows = [row for file in files for row in rows_of(table.uri, file)]
        return [row for row in rows if row.get("_elt_partition") == name]

    def _token(self, name: str | None) -> str | None:
        return token_at(Table(self.uri, app_id(name)))


def is_between(name: str, bounds: tuple[Any, Any] | None) -> bool:
    """Return whether a file with these bounds, or without any, may hold rows of a partition."""
    return bounds is None or bool(bounds[0] <= name <= bounds[1])


def check_files(table: Table) -> None:
    """Check that all files that a table's metadata names exist, and that rows have the types of the table."""
    wanted = pa.schema(delta_schema(table.schema).to_arrow())
    for file in (*table.files, *table.metadata.hidden):
        assert Path(table.uri, file.path).exists(), f"a file that is needed is gone: {file.path}"
    for file in table.files:
        for column in pq.read_schema(Path(table.uri, file.path)):
            if column.name in wanted.names:
                found, needed = column.type, wanted.field(column.name).type
                assert kind_of(found) == kind_of(needed), (
                    f"{column.name} is {found} in {file.path}, and {needed} in the table"
                )


def token_at(table: Table) -> str | None:
    """Return the state of a table, or of the refresh that it is in, in a form that can be compared."""
    head = table.metadata
    return token_of(head.refresh.state if head.refresh is not None else head.state)


def acknowledged(part: Part) -> str | None:
    return part.state if part.building is None else part.building.state


def replace_run(run: Run) -> Run:
    """Another that goes its own way from here."""
    other = Run(run.stream, run.begins_at, run.refresh, run.intent)
    other.truncates, other.building = run.truncates, run.building
    return other


def token_of(state: str | None) -> str | None:
    return None if state is None else str(json.loads(state)["stream"]["stream_state"])


def line_of(event: Event) -> Any:
    if not event.is_readable:
        return f'["{event.text}"]'.encode()
    more = int(event.more) if event.more is not None and event.more.isdigit() else event.more
    found = {"id": event.id, "at": event.at, "text": event.text, "more": more}
    return {**found, "_ab_cdc_deleted_at": "yes" if event.deleted else None}


def sign_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that distinguish a row from others, whatever its columns' types are."""
    more = row.get("more")
    at = None if row["at"] is None else float(row["at"])
    return row["id"], at, row["text"], None if more is None else str(more)


def signs(events: Sequence[Event]) -> Counter[Any]:
    return Counter(
        sign_of({"id": e.id, "at": e.at, "text": e.text, "more": e.more}) for e in events
    )


def kind_of(found: pa.DataType) -> str:
    if pa.types.is_integer(found):
        return "integer"
    if pa.types.is_floating(found):
        return "floating"
    if pa.types.is_string(found) or pa.types.is_large_string(found) or str(found) == "string_view":
        return "text"
    return "other"


def pass_days(folder: Path) -> None:
    """All that is on disk, and all that the logs tell, is ten days older."""
    then = time.time() - DAYS * 86_400
    for path in folder.rglob("*.parquet"):
        os.utime(path, (then, then))
    for path in folder.rglob("_delta_log/0*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            for body in action.values():
                for name in ("timestamp", "deletionTimestamp", "modificationTime"):
                    if name in body:
                        body[name] -= DAYS * 86_400_000
        path.write_text("\n".join(map(json.dumps, actions)) + "\n")
