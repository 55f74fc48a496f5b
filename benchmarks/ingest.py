"""Ingest, append, beside its peers: the same messages, each contender a process of its own.

What is measured is the whole process with all its children. `less start` takes from it the cost of the same
process over one record (the best of a few), measured in the same run: interpreter, imports, JVM, catalog,
commit. Only ratios within one run mean anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import contenders
from benchmarks.contenders import (
    DESTINATION,
    LIMIT,
    OURS,
    PYAIRBYTE,
    TARGET,
    Contender,
    Result,
    contest,
)
from benchmarks.measure import Cost
from benchmarks.messages import MIXED
from benchmarks.report import MISSING, Bar, Report

Results = Mapping[str, Result]


def run(work: Path, records: int, peers_folder: Path | None) -> Report:
    """Each contender once, over records of nine fields.

    Args:
        work: messages are made, and logs left, there.
        peers_folder: where the peers' environments are, or are made; None: none of them runs.

    Raises:
        CommandFailed: a contender failed, or left another number of rows.
    """
    entrants = [contenders.ours(), contenders.destination(), contenders.target()]
    if peers_folder is not None:
        entrants += [contenders.pyairbyte(peers_folder), contenders.limit(peers_folder)]
    results = _contests(entrants, records, work)
    return _report(results, "one stream, append", _bars(results))


def run_mixed(work: Path, records: int, peers_folder: Path | None) -> Report:
    """Run like `run`, over records that also have a decimal and an object without declared fields."""
    entrants = [contenders.ours(MIXED)]
    if peers_folder is not None:
        entrants += [
            contenders.pyairbyte(peers_folder, MIXED),
            contenders.limit(peers_folder, MIXED),
        ]
    results = _contests(entrants, records, work)
    speed = _speed(results)
    bar = Bar(
        "with a decimal and JSON text, less start, of PyAirbyte's speed", speed, 8, least=True
    )
    return _report(results, "one stream with a decimal and a JSON-text column, append", [bar])


def _contests(entrants: Sequence[Contender], records: int, work: Path) -> Results:
    return {each.name: contest(each, records, work) for each in entrants}


def _report(results: Results, title: str, bars: Sequence[Bar]) -> Report:
    return Report(
        title=f"{results[OURS].records:,} records of {title}",
        headings=[
            *("who", "seconds", "less start", "core-s", "less start", "records/s"),
            *("× PyAirbyte's speed", "× the limit's time", "Python MB", "JVM MB"),
        ],
        rows=[_row(result, results) for result in results.values()],
        note="less start: T(all) − T(1 record), whole processes, this run; × of seconds less start (of "
        f"core-s); core-s: of all processes; of ours about {_by_process(results[OURS])}",
        bars=bars,
        figures=[_figures(result) for result in results.values()],
    )


def _row(result: Result, results: Results) -> list[str]:
    run, less, rate = result.run, result.less_start, result.rate
    return [
        result.label,
        f"{run.cost.seconds:.1f}",
        MISSING if less is None else f"{less.seconds:.1f}",
        f"{run.cost.core:.1f}",
        MISSING if less is None else f"{less.core:.1f}",
        MISSING if rate is None else f"{rate:,.0f}",
        _both(_less(results, PYAIRBYTE), less),
        _both(less, _less(results, LIMIT)),
        f"{run.python_mb:,.0f}",
        f"{run.jvm_mb:,.0f}" if run.jvm_mb else MISSING,
    ]


def _both(longer: Cost | None, shorter: Cost | None) -> str:
    """The ratio of seconds and, in brackets, of core-seconds."""
    if longer is None or shorter is None:
        return MISSING
    return f"{longer.seconds / shorter.seconds:.2f} ({longer.core / shorter.core:.2f})"


def _by_process(result: Result) -> str:
    shares = sorted(result.run.core_by_process.items(), key=lambda item: -item[1])
    return ", ".join(f"{role} {core:.0f}" for role, core in shares)


def _figures(result: Result) -> dict[str, object]:
    less = result.less_start
    return asdict(result) | {
        "less_start": None if less is None else asdict(less),
        "records_per_second": result.rate,
    }


def _bars(results: Results) -> list[Bar]:
    own = results[OURS]
    peak = own.run.python_mb
    beside = [
        Bar(f"{name}, of the asset's time, less start", _times(results, name, OURS), 1.3)
        for name in (DESTINATION, TARGET)
    ]
    return [
        Bar("ingest less start, of PyAirbyte's speed", _speed(results), 9, least=True),
        Bar("ingest less start, of the limit's time", _times(results, OURS, LIMIT), 3),
        *beside,
        Bar("peak memory of the Python process", peak, 300, " MB"),
    ]


def _speed(results: Results) -> float | None:
    return _times(results, PYAIRBYTE, OURS)


def _times(results: Results, longer: str, shorter: str) -> float | None:
    more, less = _less(results, longer), _less(results, shorter)
    return None if more is None or less is None else more.seconds / less.seconds


def _less(results: Results, name: str) -> Cost | None:
    return results[name].less_start if name in results else None
