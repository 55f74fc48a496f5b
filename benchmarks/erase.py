"""Erasing one key from a large table, beside the merge of one key into it.

Each turn merges one key, and erases another one of another file: by its key, and by a condition that names
it. An erasure writes the same amount as the merge, and besides lists the table's files, writes a checkpoint,
and removes older files and entries of the log.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import CommandFailed, Cost, Turns, timed
from benchmarks.merging import APP, Users
from benchmarks.report import Bar, Report, ratio
from benchmarks.session import session
from elt_assets.connection.read_only_query import check_condition
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Counts, Erasure, KeyLog, erase
from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND_DEDUP, FULL_REFRESH, AirbyteStream, ConfiguredStream

TURNS = 3
SEED = 7
LIMIT = 1.5
_PROPERTIES = {"id": {"type": "integer"}, "email": {"type": "string"}}


@dataclass
class Result(Turns):
    """What was done to one key of the table, several times."""

    what: str
    turns: list[Cost] = field(default_factory=list)


def run(work: Path, rows: int) -> Report:
    """Merge and erase single keys of a table of `rows` rows.

    Raises:
        CommandFailed: a row is left, or another one is gone.
    """
    with tempfile.TemporaryDirectory(prefix="erase-", dir=work) as made:
        folder = Path(made)
        with session(folder / "home") as provider:
            print("erase: warming up", file=sys.stderr)
            _contest(provider, folder / "warm", 1_000_000)
            print("erase: making the table", file=sys.stderr)
            return _report(rows, _contest(provider, folder, rows))


def _contest(provider: SparkProvider, folder: Path, rows: int) -> Sequence[Result]:
    users = Users(provider.get(), folder, rows)
    draw = random.Random(SEED)
    results = [Result("merge"), Result("erase by key"), Result("erase by condition")]
    merge, by_key, by_condition = results
    for turn in range(TURNS):
        print(f"erase: turn {turn + 1} of {TURNS}", file=sys.stderr)
        ids = draw.sample(range(rows), 3)
        users.table.reopen()
        merge.turns.append(users.merge(users.batch(ids[:1])).merge)
        keys = Selection([["id"]], keys=pa.table({"id": ids[1:2]}))
        by_key.turns.append(_erase(provider, users, keys))
        condition = Selection([["id"]], check_condition(f"id = {ids[2]}"))
        by_condition.turns.append(_erase(provider, users, condition))
    users.table.reopen()
    if users.table.records != rows - 2 * TURNS:
        raise CommandFailed(f"{users.table.records:,} rows are left of {rows:,}")
    return results


def _erase(provider: SparkProvider, users: Users, selection: Selection) -> Cost:
    stream = ConfiguredStream(
        stream=AirbyteStream(name="users", json_schema={"properties": _PROPERTIES}),
        sync_mode=FULL_REFRESH,
        destination_sync_mode=APPEND_DEDUP,
        primary_key=[["id"]],
    )

    def work() -> Counts:
        erasure = Erasure(provider, users.table.storage.location, APP, stream, "bench")
        return erase(erasure, selection, KeyLog(b"salt", "bench"))

    counts, cost = timed(work)
    if counts.rows != 1:
        raise CommandFailed(f"{counts.rows} rows were erased, and not one")
    return cost


def _report(rows: int, results: Sequence[Result]) -> Report:
    merge = results[0]

    def compare(result: Result, value: Callable[[Result], float]) -> float:
        return value(result) / value(merge)

    return Report(
        title=f"One key of a table of {rows:,} rows, merged or erased",
        headings=["what", "seconds", "core-s", "× the merge's time", "× its core-s"],
        rows=[
            [
                result.what,
                f"{result.seconds:.2f}",
                f"{result.core:.2f}",
                ratio(result.seconds, merge.seconds),
                ratio(result.core, merge.core),
            ]
            for result in results
        ],
        note=f"medians of {TURNS}, all in turn; with the clean-up of older versions and of the log",
        bars=[
            Bar(f"{result.what}, of the merge's time", compare(result, _seconds), LIMIT)
            for result in results[1:]
        ],
        figures=[
            {
                "what": result.what,
                "seconds": [cost.seconds for cost in result.turns],
                "core": [cost.core for cost in result.turns],
                "median": statistics.median(cost.seconds for cost in result.turns),
            }
            for result in results
        ],
    )


def _seconds(result: Result) -> float:
    return result.seconds
