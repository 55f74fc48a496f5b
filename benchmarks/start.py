"""The cost of a run with nearly no work, beside an empty asset and an asset with one job of Spark.

All are `dagster asset materialize`, each with definitions of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import measure
from benchmarks.contenders import ASSET, ROOT, places, project
from benchmarks.measure import CommandFailed, Cost, Turns
from benchmarks.messages import HERE, cached_messages, state_message, time_of
from benchmarks.report import Bar, Report

EMPTY, BARE = "an empty asset", "an asset with one Spark job"
NOTHING, RECORD = "a stream without new data", "a stream with one record"
MATERIALIZE = (sys.executable, "-m", "dagster", "asset", "materialize", "--select", "*", "-f")


@dataclass(frozen=True)
class Result(Turns):
    """`turns`: the costs of whole processes, taken in turn with those of the others."""

    name: str
    turns: list[Cost] = field(default_factory=list)


def run(work: Path, turns: int) -> Report:
    """Each kind of run in turn, after one of each that is not counted.

    Raises:
        CommandFailed: a run failed, or left another number of rows.
    """
    results = {name: Result(name) for name in (EMPTY, NOTHING, RECORD, BARE)}
    for turn in range(turns + 1):
        with tempfile.TemporaryDirectory(prefix="start-", dir=work) as made:
            for name, cost in _turn(Path(made), work).items():
                print(f"start: {name}, {cost.seconds:.1f} s", file=sys.stderr)
                if turn:
                    results[name].turns.append(cost)
    return _report(results)


def _turn(folder: Path, work: Path) -> Mapping[str, Cost]:
    line, nothing = folder / "line.json", folder / "nothing.jsonl"
    line.write_text('{"id": 1, "name": "user 1"}\n')
    nothing.write_text(state_message(time_of(0)))
    (folder / "bare").mkdir()
    home = places(folder / "bare")
    job = {"BENCH_LINE": str(line), "BENCH_OUT": str(folder / "out"), **home}
    (folder / "ours").mkdir()
    ours = project(folder / "ours")
    one = ours | {"BENCH_MESSAGES": str(cached_messages(work, 1))}
    none = ours | {"BENCH_MESSAGES": str(nothing)}
    found = {
        EMPTY: _materialize(work, home, [*MATERIALIZE, HERE / "locations" / "empty.py"]),
        BARE: _materialize(work, job, [*MATERIALIZE, HERE / "locations" / "bare.py"]),
        RECORD: _materialize(work, one, ASSET),
        NOTHING: _materialize(work, none, ASSET),
    }
    rows = DeltaTable(folder / "ours" / "lake" / "bench" / "users").to_pyarrow_dataset()
    if rows.count_rows() != 1:
        raise CommandFailed(f"the runs of the start left {rows.count_rows()} rows instead of 1")
    return found


def _materialize(work: Path, own: Mapping[str, str], command: Sequence[str | Path]) -> Cost:
    return measure.run(command, {**measure.environment(), **own}, ROOT, work / "start.log").cost


def _report(results: Mapping[str, Result]) -> Report:
    return Report(
        title="The start: `dagster asset materialize`",
        headings=["what", "seconds", "core-s", "share of seconds", "share of core-s"],
        rows=[
            [
                each.name,
                f"{each.seconds:.2f}",
                f"{each.core:.2f}",
                f"{_share(results, each.name, 'seconds'):.2f}",
                f"{_share(results, each.name, 'core'):.2f}",
            ]
            for each in results.values()
        ],
        note=f"medians of {len(results[EMPTY].turns)} turns, taken in turn, whole processes; share: what a "
        "run takes more than the empty asset, of what the asset with one Spark job takes more",
        bars=[
            Bar("start without new data, of a bare Spark job", _share(results, NOTHING), 0.1),
            Bar("start with one record, of a bare Spark job", _share(results, RECORD), 0.5),
        ],
        figures=[
            asdict(each) | {"seconds": each.seconds, "core": each.core} for each in results.values()
        ],
    )


def _share(results: Mapping[str, Result], name: str, figure: str = "seconds") -> float:
    empty, bare, own = (float(getattr(results[each], figure)) for each in (EMPTY, BARE, name))
    return (own - empty) / (bare - empty)
