"""The growth of a table's log with each checkpoint, and the time to open a table after many commits.

The writer and the commits are the lake's own; rows are written without Spark: only the log matters here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from benchmarks.report import MISSING, Bar, Report
from elt_assets.lake.delta.storage import HIDDEN
from elt_assets.lake.delta.table import Table
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write import companions
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.catalog import APPEND, OVERWRITE
from elt_assets.protocol.messages import State
from elt_assets.sync.events import Checkpoint
from tests.lake.plain import NoSpark, without_spark
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, stage, stream, take_generations

COLUMNS = {"id": INTEGER, "name": STRING}
STEPS = 4
"""The number of equal parts that the commits of a series are divided into; each is a row of the report."""
SAMPLES = 5
"""The number of times that an opening is timed; the shortest counts, since other programs only add to it."""
TABLES = 20
GLOBAL_BYTES = 1_000_000
GLOBAL_CHECKPOINTS = 5
GROWTH = 2.0
"""The factor by which the last part of a series may cost more than the first."""


@dataclass(frozen=True)
class Point:
    """The log after a number of commits: bytes for each commit since the last point, of it and of its files;
    seconds to open the table for a writer that is new to it, and for the one whose commit is the oldest."""

    series: str
    commits: int
    bytes_each: float
    attached_each: float
    new_seconds: float | None = None
    old_seconds: float | None = None


class Lake:
    """One table of the benchmark's own.

    Args:
        policy: of all its syncs.
    """

    def __init__(self, folder: Path, policy: str = APPEND):
        self._folder, self._policy = folder, policy
        self.uri = str(folder / "table")

    def writer(self, partition: str | None = None) -> TableWriter:
        tables = StreamTables(self.uri, _app_id(partition))
        tables.roll_back_companions("run")
        wanted = stream(COLUMNS, self._policy, cursor=["id"])
        wanted.stream.is_resumable = True
        take_generations(wanted, tables.metadata)
        land = WriteSpec(wanted, "run", partition=partition)
        return TableWriter(cast(SparkProvider, NoSpark()), tables, land)

    def write(self, writer: TableWriter, number: int) -> None:
        segment = stage(self._folder / "staging", [{"id": number, "name": f"user {number}"}])
        writer.write(segment)
        segment.path.unlink()

    def log_bytes(self) -> int:
        """Return the bytes of all commits, without Delta's checkpoints of the log, which list every file."""
        return _bytes(Path(self.uri, "_delta_log").glob("*.json"))

    def attached_bytes(self) -> int:
        """Return the bytes of the files that hold large values of commits."""
        return _bytes(Path(self.uri, HIDDEN, "metadata").glob("*"))

    def opening(self, partition: str | None) -> float:
        """Seconds that a run takes to open the table, and to see whose it is."""

        def once() -> float:
            start = time.perf_counter()
            table = Table(self.uri, _app_id(partition))
            companions.refuse_foreign(table, "the benchmark", "", partitions_of=APP)
            return time.perf_counter() - start

        return min(once() for _ in range(SAMPLES))


def _bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _app_id(partition: str | None) -> str:
    return APP if partition is None else f"{APP}|{partition}"


def run(work: Path, commits: int) -> Report:
    points: list[Point] = []
    with without_spark():
        points += _checkpoints(work / "append", commits, APPEND, "checkpoints of a sync")
        points += _checkpoints(work / "refresh", commits, OVERWRITE, "checkpoints of a refresh")
        points += _partitions(work / "partitions", commits)
        points.append(_shared(work / "shared"))
    return Report(
        title=f"The log: {commits:,} commits",
        headings=["", "commits", "bytes a commit", "beside it", "new (ms)", "oldest (ms)"],
        rows=[_row(point) for point in points],
        note="bytes: since the row before, in the log and in files that it names; ms: to open the table; the "
        f"last row: {TABLES} tables together, for each state of {GLOBAL_BYTES:,} bytes that they share",
        bars=list(_bars(points)),
        figures=[asdict(point) for point in points],
    )


def _parts(commits: int) -> Iterator[range]:
    size = max(commits // STEPS, 1)
    for first in range(0, size * STEPS, size):
        yield range(first, first + size)


def _grown(
    lake: Lake, before: tuple[int, int], commits: int
) -> tuple[tuple[int, int], tuple[float, float]]:
    """The bytes of the log, and beside it, that there are now; and what each commit since has added."""
    now = lake.log_bytes(), lake.attached_bytes()
    return now, ((now[0] - before[0]) / commits, (now[1] - before[1]) / commits)


def _checkpoints(folder: Path, commits: int, policy: str, series: str) -> Iterator[Point]:
    """One sync that commits many times."""
    lake = Lake(folder, policy)
    writer, before = lake.writer(), (0, 0)
    for part in _parts(commits):
        for number in part:
            lake.write(writer, number)
            writer.commit(checkpoint(number))
        before, each = _grown(lake, before, len(part))
        yield Point(series, part.stop, *each, None, lake.opening(None))


def _partitions(folder: Path, commits: int) -> Iterator[Point]:
    """A backfill: a partition each commit."""
    lake, before = Lake(folder), (0, 0)
    for part in _parts(commits):
        for number in part:
            writer = lake.writer(f"p{number}")
            lake.write(writer, number)
            writer.commit(checkpoint(number, final=True))
        before, each = _grown(lake, before, len(part))
        seconds = lake.opening("new"), lake.opening("p0")
        yield Point("partitions of a backfill", part.stop, *each, *seconds)


def _shared(folder: Path) -> Point:
    """States that streams share: rows first, in every table, and then the state, in every table."""
    lakes = [Lake(folder / str(number)) for number in range(TABLES)]
    writers = [lake.writer() for lake in lakes]
    for number in range(GLOBAL_CHECKPOINTS):
        _share(lakes, writers, number)
    log = sum(lake.log_bytes() for lake in lakes) / GLOBAL_CHECKPOINTS
    attached = sum(lake.attached_bytes() for lake in lakes) / GLOBAL_CHECKPOINTS
    return Point("a state that streams share", GLOBAL_CHECKPOINTS, log, attached)


def _share(lakes: Sequence[Lake], writers: Sequence[TableWriter], number: int) -> None:
    for lake, writer in zip(lakes, writers, strict=True):
        lake.write(writer, number)
        writer.commit(Checkpoint((), final=False))
    body = {"shared_state": {"at": number, "text": "x" * GLOBAL_BYTES}, "stream_states": []}
    state = State.from_json(json.dumps({"type": "GLOBAL", "global": body}))
    for writer in writers:
        writer.commit(Checkpoint((state,), final=False))


def _row(point: Point) -> list[str]:
    def shown(seconds: float | None) -> str:
        return MISSING if seconds is None else f"{seconds * 1000:.1f}"

    sizes = (point.bytes_each, point.attached_each)
    numbers = [f"{point.commits:,}", *(f"{size:,.0f}" for size in sizes)]
    return [point.series, *numbers, shown(point.new_seconds), shown(point.old_seconds)]


def _bars(points: Sequence[Point]) -> Iterator[Bar]:
    series: dict[str, list[Point]] = {}
    for point in points:
        series.setdefault(point.series, []).append(point)
    for name, found in series.items():
        if len(found) > 1:
            first, last = found[0], found[-1]
            growth = last.bytes_each / first.bytes_each
            yield Bar(f"{name}: bytes a commit, last quarter to first", growth, GROWTH)
    backfill = series["partitions of a backfill"]
    for what in ("new_seconds", "old_seconds"):
        growth = getattr(backfill[-1], what) / getattr(backfill[0], what)
        yield Bar(f"opening a partition ({what.split('_')[0]}), last to first", growth, GROWTH)
    yield Bar(
        "a shared state: bytes of the logs a checkpoint to bytes of the state",
        series["a state that streams share"][0].bytes_each / GLOBAL_BYTES,
        GROWTH,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2])).show()
