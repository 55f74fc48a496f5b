"""Memory of the processes that read tables of PostgreSQL in a sync through Dagster.

It must not grow with the number of rows, and not much with the size of their values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.measure import MEGABYTE, WORKERS, by_role
from benchmarks.report import Bar, Report
from benchmarks.source_peers import Run
from benchmarks.source_tables import HUGE_VALUES, create_table
from benchmarks.sources import copy_postgres, copy_table
from tests.support.postgres import run_postgres

FEW, MANY, HUGE = "few", "many", "huge"
SHARE = 4
"""The table `FEW` has this part of the rows of `MANY`."""
HUGE_ROWS = 60


@dataclass(frozen=True)
class Reading:
    """A sync of a table. `peak_mb`: memory of the largest Python process that it started, at its highest."""

    name: str
    rows: int
    peak_mb: float


@dataclass
class _Peak:
    """The greatest peak of the Python processes that a command starts, in bytes."""

    size: int = field(default=0)

    def sample(self, root: psutil.Process) -> None:
        for role, process in by_role(root):
            if role == WORKERS:
                self.size = max(self.size, _read_peak(process.pid))


def run(work: Path, rows: int) -> Report:
    """Copy a table of many rows, one of fewer, and one with values of 10 MB.

    Raises:
        CommandFailed: a sync fails, or rows are missing.
    """
    with (
        tempfile.TemporaryDirectory(prefix="memory-", dir=work) as temporary,
        run_postgres("shared_buffers=512MB", "max_wal_size=4GB") as server,
    ):
        sizes = {FEW: rows // SHARE, MANY: rows, HUGE: HUGE_ROWS}
        for name in (FEW, MANY):
            server.execute(create_table(name, sizes[name]))
        server.execute(HUGE_VALUES.format(name=HUGE, rows=HUGE_ROWS))
        contender = copy_postgres(server)
        readings = [
            _read(contender, name, count, Path(temporary), work) for name, count in sizes.items()
        ]
    return _report(readings)


def _read(contender: Run, table: str, rows: int, folder: Path, work: Path) -> Reading:
    peak = _Peak()
    copy_table("postgres → Delta", contender, table, rows, folder, work, sample=peak.sample)
    return Reading(table, rows, peak.size / MEGABYTE)


def _read_peak(process_id: int) -> int:
    """Return the most resident memory that a process has had, in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return 0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0


def _report(readings: Sequence[Reading]) -> Report:
    few, many, huge = readings
    labels = ("10 columns", "10 columns", "values of 10 MB")
    return Report(
        title="memory of the readers of tables of PostgreSQL",
        headings=("rows", "number", "largest process, MB"),
        rows=[
            (label, f"{reading.rows:,}", f"{reading.peak_mb:.0f}")
            for label, reading in zip(labels, readings, strict=True)
        ],
        note="the largest Python process that a sync starts, at its highest; all of its memory counts, also "
        "what it shares with others",
        bars=[
            Bar("memory of a reader, values of 10 MB", huge.peak_mb, 400, " MB"),
            Bar("memory of a reader, rows of 10 columns", many.peak_mb, 400, " MB"),
            Bar(f"the same beside {SHARE} times fewer rows", many.peak_mb / few.peak_mb, 1.2),
        ],
        figures=[asdict(reading) for reading in readings],
    )
