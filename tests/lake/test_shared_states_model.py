"""Several streams that one process reads, beside a model: STREAM and GLOBAL states and both at once, failures
of each kind, kills around commits, refreshes, and runs of some of the streams.

Whatever happens: no state is ahead of the rows of its table; a run that succeeds leaves each table complete;
deduplicated and overwritten tables are exact; rows of a stream with its own states are never repeated, and
other appended rows at most once for each run that read them; a failed stream stops no other; the last state
before a failure is kept, or an earlier one if rows after it were written with those before it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from elt_assets.errors import EltError, TransientError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.pipeline.shared_start import choose_starting_states
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, State
from elt_assets.sync.events import SharedAcknowledged, Sink
from elt_assets.sync.session import OVERFLOW_FACTOR, Session, Threshold
from elt_assets.sync.streams import StreamRules
from tests.lake.crashing import Death, Killed
from tests.lake.modelled import NO_SPARK
from tests.lake.plain import rows_of, without_spark
from tests.lake.staging import INTEGER, stream, take_generations
from tests.support.failpoints import assert_reached
from tests.sync.doubles import error, message, record, state, status

pytestmark = pytest.mark.spark

NAMES = ("a", "b", "c")
LONGEST = 40
"""The number of the last failpoint of a run at which it may be killed."""
EVERY = 3
"""The source sends its states after so many records, at most."""
MINUTES = float(os.environ.get("ELT_MODEL_MINUTES", "30"))
SEED = int(os.environ.get("ELT_MODEL_SEED", "1000"))
"""The first seed of the long form."""


@dataclass
class Failure:
    """The failure of a run, after `after` records: `stream` fails, or the source if that is None; `how`:
    trace, incomplete or exit. `kill_at`: the number of the failpoint at which the process is killed."""

    after: int = 1_000
    stream: str | None = None
    how: str = "exit"
    kill_at: int | None = None


@dataclass
class Source:
    """One read of a log of changes, in which stream and number of each are known by the position.

    `own`: streams with states of their own; the others share a GLOBAL one. A stream that has no state is read
    from the beginning before the log is read on, as a snapshot.
    """

    log: Sequence[str]
    own: frozenset[str]
    names: Sequence[str]
    full: frozenset[str]
    states: Sequence[State]
    failure: Failure
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    positions: dict[str, int] = field(default_factory=dict)
    last_shared: int | None = None
    all_shared: list[int | None] = field(default_factory=lambda: [None])
    failed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.positions = dict.fromkeys(self.names, 0)
        for given in self.states:
            if given.global_ is not None:
                named = [one.stream_descriptor.name for one in given.global_.stream_states]
                shared = int(bytes(given.global_.shared_state or b"0"))
                self.positions |= {name: shared for name in named if name in self.shared}
            elif given.stream is not None and given.stream.stream_descriptor.name in self.own:
                blob = int(bytes(given.stream.stream_state or b"0"))
                self.positions[given.stream.stream_descriptor.name] = blob

    @property
    def shared(self) -> list[str]:
        return [name for name in self.names if name not in self.own and name not in self.full]

    def messages(self) -> Iterator[Any]:
        base = max((self.positions[name] for name in self.names), default=0)
        at = dict(self.positions)
        for name in self.names:  # those behind the others catch up first
            yield from self._changes([name], at[name], base, at)
        yield from self._states(at, base)
        since = 0
        for position in range(base + 1, len(self.log) + 1):
            yield from self._changes(self.names, position - 1, position, at)
            since += 1
            if since == EVERY:
                yield from self._states(at, position)
                since = 0
        yield from self._states(at, len(self.log))
        for name in self.names:
            if name not in self.failed:
                yield status(COMPLETE, name)
        if self.failed and self.failure.how != "incomplete":
            raise TransientError("exit code 1")

    def _changes(
        self, names: Sequence[str], first: int, last: int, at: dict[str, int]
    ) -> Iterator[Any]:
        for position in range(first + 1, last + 1):
            name = self.log[position - 1]
            if name not in names or name in self.failed:
                continue
            yield from self._fail()
            if name in self.failed:
                continue
            yield record(position, name, id=position)
            self.sent[name, position] += 1
            at[name] = position

    def _fail(self) -> Iterator[Any]:
        failure = self.failure
        if self.sent.total() != failure.after or self.failed:
            return
        if failure.how == "exit":
            raise TransientError("exit code 1")
        if failure.stream is None:
            yield error("gone", kind="transient_error")
            raise TransientError("exit code 1")
        if failure.stream in self.names:
            self.failed.add(failure.stream)
            is_trace = failure.how == "trace"
            yield error("gone", failure.stream) if is_trace else status(INCOMPLETE, failure.stream)

    def _states(self, at: Mapping[str, int], position: int) -> Iterator[Any]:
        for name in self.names:
            if name in self.own and name not in self.failed:
                yield state(position, name)
        if self.shared:
            entries = [{"stream_descriptor": {"name": name}} for name in self.shared]
            body = {"shared_state": position, "stream_states": entries}
            yield message("STATE", {"type": "GLOBAL", "global": body})
            if not self.failed & set(self.shared):
                self.last_shared = position
                self.all_shared.append(position)


class World:
    """The tables of one connection, its source, and the model."""

    def __init__(self, folder: Path, chance: random.Random, own: frozenset[str] | None = None):
        self._folder = folder
        self._chance = chance
        self.log: list[str] = []
        self.policies = {name: chance.choice([APPEND, APPEND, APPEND_DEDUP]) for name in NAMES}
        if chance.random() < 0.3:
            self.policies["c"] = OVERWRITE
        kinds: list[frozenset[str]] = [
            frozenset(),
            frozenset("b"),
            frozenset("ab"),
            frozenset("abc"),
        ]
        self.own = (chance.choice(kinds) if own is None else own) - self.full
        self.copies: dict[str, Counter[int]] = {name: Counter() for name in NAMES}
        self.building: dict[tuple[str, int], Counter[int]] = {}
        self._runs = 0
        self._limit = 0
        self.killed_at: Failpoint | None = None

    @property
    def full(self) -> frozenset[str]:
        return frozenset(name for name, policy in self.policies.items() if policy == OVERWRITE)

    def tables(self, name: str) -> StreamTables:
        return StreamTables(str(self._folder / name), f"elt:shop/{name}", history=False)

    def ids(self, name: str) -> list[int]:
        table = self.tables(name).main
        return [row["id"] for file in table.files for row in rows_of(table.storage.root, file)]

    def changes(self, name: str) -> list[int]:
        return [number for number, stream in enumerate(self.log, 1) if stream == name]

    def step(self) -> None:
        chance = self._chance
        self.log += chance.choices(NAMES, k=chance.randint(0, 8))
        names = [name for name in NAMES if chance.random() < 0.8] or ["a"]
        refresh: RefreshMode = "truncate" if chance.random() < 0.3 else "none"
        names = [chance.choice(names)] if refresh == "truncate" else names
        failure = Failure()
        if chance.random() < 0.6:
            failure = Failure(
                after=chance.randint(0, 10),
                stream=chance.choice([None, *NAMES]),
                how=chance.choice(["trace", "incomplete", "exit"]),
                kill_at=chance.choice([None, None, chance.randint(1, LONGEST)]),
            )
            if failure.how == "incomplete" and failure.stream is None:
                failure.stream = "a"
        self.run(names, refresh, failure)

    def run(self, names: Sequence[str], refresh: RefreshMode, failure: Failure) -> None:
        self._runs += 1
        reads = [self._plan(name, refresh) for name in names]
        states = choose_starting_states(reads, lambda _: None)
        source = Source(self.log, self.own, names, self.full, states, failure)
        self._check_start(source, reads)
        before = {name: self.ids(name) for name in names}
        succeeded, is_killed, acknowledged = self._sync(source, reads)
        for read in reads:
            name = read.id.name
            self._count_copies(read, source)
            self._check_rows(name, before[name], is_complete=succeeded)
            is_other = bool(source.failed) and name not in source.failed
            if is_other and not is_killed:
                assert set(self.ids(name)) >= set(self.changes(name)), "stopped by another stream"
        # A stream that fails, and has not had a state of its own yet, may be one of those that share a state:
        # then the shared one waits for it.
        has_shared = any(state.global_ is not None for state in states)
        had = {state.stream.stream_descriptor.name for state in states if state.stream is not None}
        waits = (source.failed & self.own) - (had if has_shared else set())
        # Rows that were written before a state came cannot be cut from those after the last state.
        is_cut = succeeded or not self._has_overflowed(source)
        if not is_killed and source.last_shared is not None and source.shared and not waits:
            assert (
                acknowledged == source.last_shared if is_cut else acknowledged in source.all_shared
            )

    def _has_overflowed(self, source: Source) -> bool:
        """Return whether a stream that shares states may have filled a segment between two of them."""
        rows: Counter[str] = Counter()
        for (name, _), count in source.sent.items():
            rows[name] += count
        return any(rows[name] >= int(self._limit * OVERFLOW_FACTOR) for name in source.shared)

    def _count_copies(self, read: StreamPlan, source: Source) -> None:
        """Count how often each record was read into the rows of a table, or into those of a refresh."""
        name, generation = read.id.name, read.stream.generation_id or 0
        copies = self.copies[name]
        if read.stream.minimum_generation_id:
            copies = self.building.setdefault((name, generation), Counter())
            if self.tables(name).metadata.generation == generation:
                self.copies[name] = copies
        for (sender, number), count in source.sent.items():
            copies[number] += count * (sender == name)

    def _plan(self, name: str, refresh: RefreshMode) -> StreamPlan:
        tables = self.tables(name)
        policy = self.policies[name]
        key = ["id"] if policy == APPEND_DEDUP else []
        cursor = [] if policy == OVERWRITE else ["n"]
        configured = stream({"id": INTEGER, "n": INTEGER}, policy, key=key, cursor=cursor)
        configured.stream.name = name
        take_generations(configured, tables.metadata, refresh)
        configured.sync_id = tables.metadata.sync_id + 1
        start = StoredStream(configured, tables.metadata).find_starting_state(refresh)
        return StreamPlan(cast(Any, None), configured, tables, start)

    def _check_start(self, source: Source, reads: Sequence[StreamPlan]) -> None:
        """No state is ahead of the rows."""
        for read in reads:
            name = read.id.name
            if read.tables.metadata.refresh is None and not read.stream.minimum_generation_id:
                covered = {
                    number for number in self.changes(name) if number <= source.positions[name]
                }
                assert covered <= set(self.ids(name)), f"the state of {name} is ahead"

    def _sync(self, source: Source, reads: Sequence[StreamPlan]) -> tuple[bool, bool, int | None]:
        """Return whether it succeeded, whether it was killed, and the last shared position acknowledged."""
        sinks: dict[StreamId, Sink] = {}
        writers = []
        for read in reads:
            writer = TableWriter(NO_SPARK, read.tables, WriteSpec(read.stream, f"run {self._runs}"))
            writers.append(writer)
            sinks[read.id] = writer
        own = {one.stream.stream_descriptor.id for one in source.states if one.stream is not None}
        has_shared = any(one.global_ is not None for one in source.states)
        streams: list[ConfiguredStream] = [read.stream for read in reads]
        self._limit = self._chance.choice([4, 8, 100])
        with tempfile.TemporaryDirectory() as staging:
            session = Session(
                ConfiguredCatalog(streams=streams), sinks, Path(staging),
                Threshold(rows=self._limit),
                StreamRules(shares_state=True, own_states=own if has_shared else ()),
            )  # fmt: skip
            acknowledged: int | None = None
            death, succeeded = Death(number=source.failure.kill_at or sys.maxsize), False
            with contextlib.suppress(EltError, Killed), armed(death):
                for event in session.run(source.messages()):
                    if isinstance(event, SharedAcknowledged):
                        blob = event.states[-1].state.global_
                        assert blob is not None
                        acknowledged = int(bytes(blob.shared_state or b""))
                succeeded = True
            if death.point is None:
                for writer in writers:
                    writer.close()
        self.killed_at = death.point
        return succeeded, death.point is not None, acknowledged

    def _check_rows(self, name: str, before: list[int], *, is_complete: bool) -> None:
        rows, policy = Counter(self.ids(name)), self.policies[name]
        if policy == OVERWRITE:
            assert sorted(rows.elements()) in (sorted(before), self.changes(name))
        if policy in (APPEND_DEDUP, OVERWRITE) or name in self.own:
            assert all(count == 1 for count in rows.values()), f"{name} has rows twice"
        assert all(count <= self.copies[name][number] for number, count in rows.items())
        if is_complete:
            assert set(rows) == set(self.changes(name)), f"{name} is not complete"


def play(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder, without_spark():
        world = World(Path(folder), random.Random(seed))
        for _ in range(steps):
            world.step()
        world.run(NAMES, "none", Failure())
        world.run(NAMES, "none", Failure())


@pytest.mark.spec("protocol.114")
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 7, 13])
def test_streams_that_are_read_together_equal_their_model(seed: int) -> None:
    play(seed, 6)


def test_shared_states_survive_a_kill_at_each_failpoint(request: pytest.FixtureRequest) -> None:
    """One run after another is killed at its first failpoint, its second, and so on up to its end."""
    points: set[Failpoint | None] = set()
    with without_spark():
        for number in itertools.count(1):
            with tempfile.TemporaryDirectory() as folder:
                world = World(Path(folder), random.Random(1), own=frozenset())
                world.log += "abcabcaab"
                world.run(NAMES, "none", Failure(kill_at=number))
                points.add(world.killed_at)
                is_killed = world.killed_at is not None
                world.log += "cba"
                world.run(NAMES, "none", Failure())
                world.run(NAMES, "none", Failure())
            if not is_killed:
                break
    assert_reached(request.node.nodeid, points)


@pytest.mark.long
def test_streams_that_are_read_together_equal_their_model_for_long() -> None:
    end, seed = time.monotonic() + 60 * MINUTES, SEED
    while time.monotonic() < end:
        try:
            play(seed, 8)
        except BaseException:
            print(f"seed {seed}")
            raise
        seed += 1
    print(f"{seed - SEED} seeds")
