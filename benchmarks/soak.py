"""One long sync whose messages are made while it reads: whether memory, open files and staging stay flat.

It is not one of the parts that run by default: `make bench ARGS='--only soak'`.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks import measure
from benchmarks.contenders import ASSET, ROOT, project
from benchmarks.measure import (
    DRIVER,
    JVM,
    MEGABYTE,
    WORKERS,
    CommandFailed,
    Run,
    by_role,
    resident_bytes,
)
from benchmarks.report import Bar, Report

EVERY_SECONDS = 2.0
FILES, STAGING = "open files", "staging, MB"
SERIES = {DRIVER: "driver, MB", JVM: "JVM, MB", WORKERS: "Python workers, MB"}
TOLERATED = 0.1
"""Growth over the second half of the sync, as a part of the median there, up to which a series is flat."""
FLOORS = {FILES: 20.0}
"""Growth that is always tolerated; 30 MB for a series of memory or of staging."""
FLOOR_MB = 30.0


@dataclass
class Samples:
    """The series of a run, sampled from outside."""

    staging: Path
    times: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    _next: float = 0

    def take(self, root: psutil.Process) -> None:
        """Take a sample of all series, at most every few seconds."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        found: Counter[str] = Counter()
        for role, process in by_role(root):
            if role in SERIES:
                found[SERIES[role]] += resident_bytes(process)
            with contextlib.suppress(psutil.Error):
                found[FILES] += process.num_fds()
        found[STAGING] = _size(self.staging)
        self.times.append(now)
        for name in (*SERIES.values(), FILES, STAGING):
            unit = 1 if name == FILES else MEGABYTE
            self.series.setdefault(name, []).append(found[name] / unit)


@dataclass(frozen=True)
class Trend:
    """A series over the second half of a run: `growth` is that of a straight line through it."""

    name: str
    median: float
    highest: float
    growth: float

    @property
    def tolerated(self) -> float:
        return max(self.median * TOLERATED, FLOORS.get(self.name, FLOOR_MB))


def run(work: Path, records: int) -> Report:
    """One sync of so many records, by a connector that makes them as it goes.

    Raises:
        CommandFailed: the sync failed, was too short, or left files in the staging folder.
    """
    with tempfile.TemporaryDirectory(prefix="soak-", dir=work) as made:
        folder = Path(made)
        own = project(folder, command=(str(_source(folder, records)),))
        samples = Samples(folder / "staging")
        env = {**measure.environment(), **own}
        done = measure.run(ASSET, env, ROOT, work / "soak.log", sample=samples.take)
        left = _size(folder / "staging")
    if left or len(samples.times) < 8:
        raise CommandFailed(f"{left} bytes were left in staging, or the run was too short")
    trends = [make_trend(name, samples.times, values) for name, values in samples.series.items()]
    return _report(records, done, trends, samples.series)


def _source(folder: Path, records: int) -> Path:
    """A connector that makes its messages, as the stub replays them."""
    path = folder / "source"
    stub = Path(__file__).with_name("source_stub")
    path.write_text(
        f'#!/bin/sh\n[ "$1" = read ] || exec "{stub}" "$@"\n'
        f'cd "{ROOT}" && exec "{sys.executable}" -m benchmarks.messages {records}\n'
    )
    path.chmod(0o755)
    return path


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it may have been removed meanwhile
                total += Path(place, name).stat().st_size
    return total


def make_trend(name: str, times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the trend of a series over the second half of its time."""
    half = len(times) // 2
    later, seen = times[half:-1], values[half:-1]  # the last sample may be of the end
    slope = statistics.linear_regression(later, seen).slope
    growth = slope * (later[-1] - later[0])
    return Trend(name, statistics.median(seen), max(values), growth)


def _report(
    records: int, done: Run, trends: Sequence[Trend], series: Mapping[str, Sequence[float]]
) -> Report:
    return Report(
        title=f"One sync of {records:,} records in {done.cost.seconds:,.0f} s, "
        f"{done.cost.core:,.0f} core-s",
        headings=["what", "median of the second half", "highest", "growth in the second half", ""],
        rows=[
            [
                trend.name,
                f"{trend.median:,.1f}",
                f"{trend.highest:,.1f}",
                f"{trend.growth:+,.1f}",
                "flat" if trend.growth <= trend.tolerated else "NOT FLAT",
            ]
            for trend in trends
        ],
        note=f"sampled every {EVERY_SECONDS:g} s; growth: of a straight line through the samples; flat: at "
        f"most {TOLERATED:.0%} of the median, or {FLOOR_MB:g} MB or {FLOORS[FILES]:g} files",
        bars=[
            Bar(f"growth of {trend.name}", trend.growth, round(trend.tolerated, 1), "")
            for trend in trends
        ],
        figures=[asdict(trend) | {"samples": list(series[trend.name])} for trend in trends],
    )
