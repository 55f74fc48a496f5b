"""The cost of a commit and of an opening, by the number of files and commits that a table has.

Each table is the result of a backfill: one commit with one file for each partition. Its log is written as
text, since only its size matters; its newest checkpoint is delta-rs's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction

from benchmarks.measure import Cost, least
from benchmarks.report import Bar, Report
from elt_assets.lake.columns import from_json_schema, metadata_columns
from elt_assets.lake.delta.commit_metadata import CommitMetadata, version_app_id
from elt_assets.lake.delta.log import path_of
from elt_assets.lake.delta.snapshot import commit_text
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from tests.lake.staging import INTEGER, STRING

T = TypeVar("T")

SMALL = 1_000
REPEATS = 9
"""The number of times that each step is timed; the shortest counts, since other programs only add to it.
So the first opening does not count, in which the process reads the checkpoint: 20 ms for 100,000 files."""
LOG_BYTES = 4096
APP = "elt:shop/users"
SCHEMA = metadata_columns.table_schema(
    from_json_schema.columns({"properties": {"id": INTEGER, "name": STRING}}), partitioned=True
)


@dataclass(frozen=True)
class Point:
    """The costs for a table with so many files: to open it for a new partition, to commit a file, to commit
    a state, and to find the files of a partition after the table was opened; and the bytes of a commit."""

    files: int
    opening: Cost
    append: Cost
    state: Cost
    selection: Cost
    log_bytes: float


def run(work: Path, files: int) -> Report:
    points = [_measure_table(work / f"files-{number}", number) for number in (SMALL, files)]
    return Report(
        title=f"The log of tables with {SMALL:,} and {files:,} files, each from a commit of its own",
        headings=["files", "open", "append", "state", "first list of files", "bytes a commit"],
        rows=[_row(point) for point in points],
        note="ms of wall time (core time in parentheses), the least of several; only merges and replaced "
        "partitions need the list of files, which delta-rs reads",
        bars=_bars(*points),
        figures=[asdict(point) for point in points],
    )


def _measure_table(folder: Path, files: int) -> Point:
    uri = str(folder / "users")
    build_table(uri, files)
    before, openings, appends, states = _log_bytes(uri), [], [], []
    for number in range(REPEATS):
        app_id, file = f"{APP}|new{number}", make_file(f"new{number}")
        table, cost = time_here(partial(Table, uri, app_id))
        openings.append(cost)
        appends.append(time_here(partial(append_file, table, file))[1])
        states.append(time_here(partial(_commit, table, TableChange(), '{"c":2}'))[1])
    log_bytes = (_log_bytes(uri) - before) / (2 * REPEATS)
    selections = []
    for _ in range(3):
        table = Table(uri, f"{APP}|other")
        selections.append(time_here(partial(partition_files.files_of, table, ["new1"]))[1])
    return Point(
        files, least(openings), least(appends), least(states), least(selections), log_bytes
    )


def time_here(work: Callable[[], T]) -> tuple[T, Cost]:
    """Return what a call returns, and its cost in this process: it takes milliseconds."""
    core, start = time.process_time(), time.perf_counter()
    result = work()
    return result, Cost(time.perf_counter() - start, time.process_time() - core)


def build_table(uri: str, files: int) -> None:
    """Make a table of so many files, which exist in its log only, each of its own commit and partition."""
    table = Table(uri, APP)
    table.prepare(SCHEMA, "users")
    for number in range(files):
        version, app_id = number + 1, f"{APP}|p{number:07d}"
        own = {**CommitMetadata(1, 1, '{"c":1}', "run", uuid4().hex).to_dict(), "elt.app": app_id}
        transactions = [Transaction(app_id, 1), Transaction(version_app_id(app_id), version)]
        text = commit_text(
            [make_file(f"p{number:07d}").add()],
            CommitProperties({**own, "elt.restored_at": "-1"}, app_transactions=transactions),
        )
        Path(uri, path_of(version)).write_text(text)
    DeltaTable(uri).create_checkpoint()


def make_file(partition: str) -> DataFile:
    """A file of a partition, as a sync logs it, with its statistics."""
    least_values = {"id": 1, "name": "a", "_elt_partition": partition}
    most_values = {"id": 9, "name": "z", "_elt_partition": partition}
    bounds = {"minValues": least_values, "maxValues": most_values}
    stats = json.dumps({"numRecords": 9, **bounds, "nullCount": dict.fromkeys(least_values, 0)})
    return DataFile(f"data/{uuid4().hex}/{uuid4().hex}.parquet", 1000, 9, stats)


def append_file(table: Table, file: DataFile) -> None:
    """Commit a file as an append of a sync does."""
    table.prepare(SCHEMA, "users")
    _commit(table, TableChange([file]), '{"c":1}')


def _commit(table: Table, change: TableChange, state: str) -> None:
    table.commit(change, CommitMetadata(table.metadata.sequence + 1, 1, state, "run"), 1)


def _log_bytes(uri: str) -> int:
    return sum(path.stat().st_size for path in Path(uri, "_delta_log").glob("*.json"))


def _row(point: Point) -> list[str]:
    costs = (point.opening, point.append, point.state, point.selection)
    times = [f"{cost.seconds * 1000:.1f} ({cost.core * 1000:.1f})" for cost in costs]
    return [f"{point.files:,}", *times, f"{point.log_bytes:,.0f}"]


def _bars(small: Point, large: Point) -> Sequence[Bar]:
    sizes = f"{large.files:,} files to {small.files:,}"
    return [
        Bar(f"an append, {sizes}", large.append.seconds / small.append.seconds, 2.0),
        Bar(f"a commit of a state, {sizes}", large.state.seconds / small.state.seconds, 2.0),
        Bar(f"opening, {sizes}", large.opening.seconds / small.opening.seconds, 5.0),
        Bar("log bytes a commit", large.log_bytes, LOG_BYTES, unit=" bytes"),
    ]


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2])).show()
