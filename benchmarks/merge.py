"""Merging batches into a table by key: beside delta-rs, with a history, and into tables of several sizes.

Random keys: every file of the table holds some, so what a merge costs is the table's size. Recent keys:
half of them new, the others the newest rows, so what it costs should be the batch's.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import CommandFailed, Cost
from benchmarks.merging import Peer, Took, Users, left_by
from benchmarks.report import MISSING, Bar, Report, ratio
from benchmarks.session import session

RECENT, RANDOM = "recent", "random"
TURNS = {RECENT: 5, RANDOM: 3}
SIZES = (0.1, 1, 3)
"""The shares of the tables that recent keys are merged into, relative to the table of random keys."""
SEED = 7


@dataclass(frozen=True)
class Result:
    """Batches of `batch` rows, of one kind of keys, into a table of `rows` rows. `peer`: the cost
    of each, none where the peer has no copy of the table."""

    keys: str
    rows: int
    batch: int
    turns: list[Took] = field(default_factory=list)
    peer: list[Cost] = field(default_factory=list)

    @property
    def cost(self) -> Cost:
        return _median([took.merge for took in self.turns])

    @property
    def history_cost(self) -> Cost | None:
        """The cost of the history in addition to that of the table."""
        found = [took.history for took in self.turns if took.history is not None]
        return _median(found) if found else None

    @property
    def peer_cost(self) -> Cost | None:
        return _median(self.peer) if self.peer else None


def run(work: Path, rows: int, batch: int, *, peer: bool) -> Report:
    """Batches of `batch` rows into tables of `rows` rows, and of a tenth and three times as many.

    Raises:
        CommandFailed: a merge left other rows than it should, or than the others did.
    """
    with tempfile.TemporaryDirectory(prefix="merge-", dir=work) as made:
        folder = Path(made)
        with session(folder / "home") as provider:
            spark = provider.get()
            print("merge: warming up", file=sys.stderr)
            warm = Users(spark, folder / "warm", int(rows * SIZES[0]), has_history=True)
            _contests([warm], batch, peer=peer)
            print("merge: making tables", file=sys.stderr)
            tables = [
                Users(spark, folder, int(rows * part), has_history=part == 1) for part in SIZES
            ]
            return _report(_contests(tables, batch, peer=peer))


def _contests(tables: Sequence[Users], batch: int, *, peer: bool) -> list[Result]:
    """Recent keys into all tables; random ones into the one that has a history, and that the peer has
    a copy of."""
    (main,) = (table for table in tables if table.history is not None)
    copy = Peer(main.table) if peer else None
    entrants = [(table, copy if table is main else None) for table in tables]
    results = [*_contest(entrants, RECENT, batch), *_contest([(main, copy)], RANDOM, batch)]
    for table, theirs in entrants:
        _check(table, theirs, table.rows + TURNS[RECENT] * (batch // 2))
    return results


def _contest(entrants: Sequence[tuple[Users, Peer | None]], kind: str, batch: int) -> list[Result]:
    """Each turn one batch into each table, so that none has a better time of the day than another."""
    results = [Result(kind, table.rows, batch) for table, _ in entrants]
    keys = [_keys(kind, table.rows, batch) for table, _ in entrants]
    for turn in range(TURNS[kind]):
        print(f"merge: {kind} keys, turn {turn + 1} of {TURNS[kind]}", file=sys.stderr)
        for (table, peer), result, ids in zip(entrants, results, keys, strict=True):
            staged = table.batch(next(ids))
            if peer is not None:
                result.peer.append(peer.merge(staged))
            result.turns.append(table.merge(staged))
    return results


def _keys(kind: str, rows: int, batch: int) -> Iterator[Sequence[int]]:
    """The ids of each batch. Of recent ones half are new each time: they go on from batch to batch."""
    draw, half = random.Random(SEED), batch // 2
    for turn in range(TURNS[kind]):
        first = rows + (turn - 1) * half
        yield range(first, first + 2 * half) if kind == RECENT else draw.sample(range(rows), batch)


def _check(table: Users, peer: Peer | None, rows: int) -> None:
    """Check that all merges have the same result, and that nothing was lost."""
    ours = left_by(table.table.uri)
    if sum(ours.column("id_count").to_pylist()) != rows:
        raise CommandFailed(f"merges left other than {rows:,} rows:\n{ours}")
    if peer is not None and not ours.equals(left_by(peer.uri)):
        raise CommandFailed(f"delta-rs merged otherwise:\n{ours}\n{left_by(peer.uri)}")
    if table.history is not None:
        versions = left_by(table.history.uri, current=True)
        if not ours.equals(versions):
            raise CommandFailed(f"the history has other current versions:\n{ours}\n{versions}")


def _median(costs: Sequence[Cost]) -> Cost:
    seconds, core = ([getattr(cost, name) for cost in costs] for name in ("seconds", "core"))
    return Cost(statistics.median(seconds), statistics.median(core))


# --- the report ---------------------------------------------------------------------------------


def _report(results: Sequence[Result]) -> Report:
    return Report(
        title=f"{results[0].batch:,} rows merged into a table by key, and published",
        headings=[
            *("keys", "rows in the table", "files written again", "seconds", "core-s"),
            *("delta-rs", "core-s", "× delta-rs's time"),
            *("history besides", "core-s", "× the merge's core-s"),
        ],
        rows=[_row(each) for each in results],
        note=f"medians of {TURNS[RECENT]} recent and {TURNS[RANDOM]} random batches, all in turn; "
        f"delta-rs: deltalake {version('deltalake')}, a copy of the same files",
        bars=_bars(results),
        figures=[
            asdict(each)
            | {
                name: cost and asdict(cost)
                for name, cost in (
                    ("cost", each.cost),
                    ("history_cost", each.history_cost),
                    ("peer_cost", each.peer_cost),
                )
            }
            for each in results
        ],
    )


def _row(result: Result) -> list[str]:
    history = result.history_cost
    return [
        result.keys,
        f"{result.rows:,}",
        " ".join(str(took.rewritten) for took in result.turns),
        *_shown(result.cost),
        *_shown(result.peer_cost),
        _ratio(result.cost, result.peer_cost),
        *_shown(history),
        MISSING if history is None else ratio(history.core, result.cost.core),
    ]


def _shown(cost: Cost | None) -> tuple[str, str]:
    return (MISSING, MISSING) if cost is None else (f"{cost.seconds:.2f}", f"{cost.core:.2f}")


def _ratio(longer: Cost | None, shorter: Cost | None) -> str:
    return (
        MISSING if longer is None else ratio(longer.seconds, shorter.seconds if shorter else None)
    )


def _bars(results: Sequence[Result]) -> list[Bar]:
    (main,) = (each for each in results if each.keys == RANDOM)
    recent = [each for each in results if each.keys == RECENT]
    (beside,) = (each for each in recent if each.rows == main.rows)
    seconds = [each.cost.seconds for each in recent]
    history = main.history_cost
    return [
        Bar("random keys, of delta-rs's time", _times(main.cost, main.peer_cost), 2),
        Bar("recent keys, of delta-rs's time", _times(beside.cost, beside.peer_cost), 1),
        Bar("recent keys, longest of shortest time by size", max(seconds) / min(seconds), 1.5),
        Bar(
            "history besides, of the merge's core-seconds",
            None if history is None else history.core / main.cost.core,
            1.15,
        ),
    ]


def _times(longer: Cost, shorter: Cost | None) -> float | None:
    return None if shorter is None else longer.seconds / shorter.seconds
