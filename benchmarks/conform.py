"""Parsing staged lines and writing them as Parquet: clean ones, and with values that do not fit."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.measure import CommandFailed, Cost, Turns, timed
from benchmarks.messages import PLAIN, cached_messages
from benchmarks.parts import APP, commit, open_writer, write_all
from benchmarks.report import Bar, Report, ratio
from benchmarks.session import session
from benchmarks.staging import stage
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.writer import TableWriter
from elt_assets.sync.events import Committed
from elt_assets.sync.segments import Segment

TURNS = 3
CLEAN, FEW, MANY, ALL = "clean", "0.1 % bad", "1 % bad", "all bad"
BAD_EVERY = {CLEAN: 0, FEW: 1_000, MANY: 100, ALL: 1}

_AGE = re.compile(rb'"age": \d+')
_TABLE = count()


@dataclass(frozen=True)
class Result(Turns):
    """`bad`: lines of all `lines` with a value that does not fit; `turns`: the cost of each."""

    name: str
    lines: int
    bad: int
    turns: Sequence[Cost]


def run(work: Path, lines: int) -> Report:
    """Each kind of segments in turn, after one of each to warm up.

    Args:
        work: messages are made there once; all else is temporary.
    """
    with tempfile.TemporaryDirectory(prefix="conform-", dir=work) as made:
        folder = Path(made)
        messages = cached_messages(work, lines)
        staged = {
            name: _stage(messages, folder / str(every), lines, bad_every=every)
            for name, every in BAD_EVERY.items()
        }
        bad = {name: lines // every if every else 0 for name, every in BAD_EVERY.items()}
        with session(folder / "home") as provider:
            turns = _turns(provider, folder, staged, bad)
    return _report([Result(name, lines, bad[name], turns[name]) for name in staged])


def _stage(messages: Path, folder: Path, lines: int, *, bad_every: int) -> Sequence[Segment]:
    """The records of a message file as a sync stages them; of every so many, the last has no age."""
    print(f"conform: staging lines, one bad of {bad_every}", file=sys.stderr)
    folder.mkdir()
    file = folder / "messages.jsonl"
    records = 0
    with messages.open("rb") as source, file.open("wb") as out:
        for line in source:
            records += line.startswith(b'{"type": "RECORD"')
            is_bad = bad_every and records and records % bad_every == 0
            out.write(_AGE.sub(b'"age": "unknown"', line, count=1) if is_bad else line)
    segments = stage(file, PLAIN, folder, lines)
    file.unlink()
    return segments


def _turns(
    provider: SparkProvider,
    folder: Path,
    staged: Mapping[str, Sequence[Segment]],
    bad: Mapping[str, int],
) -> dict[str, list[Cost]]:
    """The costs by the segments' name. Each turn has a table and a writer of its own."""
    costs: dict[str, list[Cost]] = {name: [] for name in staged}
    for turn in range(TURNS + 1):
        for name, segments in staged.items():
            number = next(_TABLE)
            writer = open_writer(provider, folder / f"table-{number}", app=f"{APP}-{number}")
            done, cost = timed(partial(_committed, writer, segments))
            changed = done.changed
            if changed != bad[name]:
                raise CommandFailed(f"{changed:,} rows of {name} were changed, not {bad[name]:,}")
            if turn:
                costs[name].append(cost)
                print(f"conform: {name}, {cost.seconds:.1f} s", file=sys.stderr)
    return costs


def _committed(writer: TableWriter, segments: Sequence[Segment]) -> Committed:
    """Write and commit segments. The commit is a part of the cost: it parses the lines that do not fit."""
    write_all(writer, segments)
    return commit(writer, sum(segment.records for segment in segments))


def _report(results: Sequence[Result]) -> Report:
    clean, few, many, all_bad = results
    rows = [
        [
            each.name,
            f"{each.lines:,}",
            f"{each.seconds:.1f}",
            f"{each.core:.1f}",
            f"{each.lines / each.seconds:,.0f}",
            ratio(each.seconds, clean.seconds),
            ratio(each.core, clean.core),
        ]
        for each in results
    ]
    return Report(
        title=f"{clean.lines:,} staged lines → typed → Parquet → committed",
        headings=["lines", "number", "seconds", "core-s", "lines/s", "× clean", "× clean's core-s"],
        rows=rows,
        note=f"medians of {TURNS} turns, taken in turn, session warm; bad: a text for an integer",
        bars=[
            Bar("0.1 % of bad lines, of the core-seconds without", few.core / clean.core, 1.5),
            Bar("1 % of bad lines, of the core-seconds without", many.core / clean.core, 1.5),
            Bar("all lines bad, of the core-seconds without", all_bad.core / clean.core, 2.5),
        ],
        figures=[asdict(each) | {"seconds": each.seconds, "core": each.core} for each in results],
    )
