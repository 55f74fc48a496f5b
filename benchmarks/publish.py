"""Publication in Iceberg: its cost beside the commits that it follows, its memory, and what it leaves.

The catalog is a database in a file. Most tables are those of `log_scale`: their files exist in the log only,
which is all that a publication reads of them. A merge is a commit that replaces one file; beside it stands
what each merge of such a table needs, the list of its files and the commit, without any work on rows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import contenders, measure
from benchmarks.contenders import Contender, ours, project
from benchmarks.log_scale import APP, SCHEMA, append_file, build_table, make_file, time_here
from benchmarks.measure import CommandFailed, Cost, least
from benchmarks.messages import PLAIN, cached_messages
from benchmarks.parts import commit, open_writer, write_all
from benchmarks.report import Bar, Report
from benchmarks.session import session
from benchmarks.staging import stage
from elt_assets.lake.admin.vacuum_mark import RETENTION
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.publish.leftovers import FOLDER, list_named
from elt_assets.settings import IcebergSettings
from elt_assets.storage.location import Location

SMALL = 1_000
REPEATS = 5
"""The number of times that each step is timed; the shortest counts, since other programs only add to it."""
CHECKPOINTS = 8
TURNS = 3
MEMORY_MB, METADATA_BYTES = 300, 1_000_000


@dataclass(frozen=True)
class Point:
    """The costs for a table with so many files: its first publication, that of a commit of one file, and of
    a merge that replaces one, beside what the merge needs without its rows."""

    files: int
    first: Cost
    append: Cost
    merge: Cost
    merge_alone: Cost


@dataclass(frozen=True)
class Memory:
    """Resident megabytes of a process when it has loaded all that publishes, and at most, while it publishes
    a table for the first time and then a merge."""

    loaded: float
    peak: float


@dataclass(frozen=True)
class Growth:
    """What many publications leave, after maintenance: bytes of the newest metadata, and the metadata files
    that nothing names; and the cost of the last publications, relative to the first ones."""

    publications: int
    metadata_bytes: int
    unnamed: int
    slowdown: float


def run(work: Path, files: int, publications: int, records: int) -> Report:
    """Publish tables of 1,000 and of `files` files, one of them often, and a sync of so many records."""
    points = [_measure_table(work / f"published-{number}", number) for number in (SMALL, files)]
    memory = _measure_memory(work / "published-memory", files)
    growth = _publish_often(work / "published-often", publications)
    sync = _measure_checkpoints(work)
    plain, published = _measure_syncs(work, records)
    rows = [_row(point) for point in points]
    return Report(
        title=f"Publication in Iceberg of tables with {SMALL:,} and {files:,} files",
        headings=["files", "first", "append", "merge", "list of files and commit of it"],
        rows=rows,
        note=f"ms of wall time (core time in parentheses), the least of {REPEATS}; a checkpoint of a sync "
        f"takes {sync * 1000:.0f} ms; memory {memory.peak:.0f} MB, of which {memory.loaded:.0f} are loaded "
        f"libraries; a sync of {records:,} records {published.core:.1f} core-s, without {plain.core:.1f}; "
        f"the last publications of {publications:,} cost {growth.slowdown:.1f} times the first ones",
        bars=[
            *_scale_bars(points[0], points[1], sync),
            Bar("memory above the loaded libraries", memory.peak - memory.loaded, MEMORY_MB, " MB"),
            Bar(
                "core-s of a sync with publication to one without", published.core / plain.core, 1.1
            ),
            Bar(
                f"metadata after {publications:,} publications and maintenance",
                growth.metadata_bytes,
                METADATA_BYTES,
                unit=" bytes",
            ),
            Bar(
                "metadata files that nothing names, after the retention", growth.unnamed, 0, unit=""
            ),
        ],
        figures=[
            *map(asdict, points),
            asdict(memory),
            asdict(growth),
            {"checkpoint": sync, "sync": asdict(plain), "published_sync": asdict(published)},
        ],
    )


# By the number of files


def _measure_table(folder: Path, files: int) -> Point:
    print(f"publish: a table of {files:,} files", file=sys.stderr)
    table, publisher = _build(folder, files), _open(folder)
    uri = table.location.uri
    _, first = time_here(partial(publisher.publish, table))
    appends, merges, alone = [], [], []
    for number in range(REPEATS):
        append_file(Table(uri, f"{APP}|new{number}"), make_file(f"new{number}"))
        appends.append(time_here(partial(publisher.publish, table))[1])
    for number in range(REPEATS):
        alone.append(time_here(partial(_replace_file, uri, files * number // REPEATS))[1])
        merges.append(time_here(partial(publisher.publish, table))[1])
    return Point(files, first, least(appends), least(merges), least(alone))


def _build(folder: Path, files: int) -> LakeTable:
    uri = str(folder / "shop" / "users")
    build_table(uri, files)
    return LakeTable(Location(uri), "shop", ("shop", "users"))


def _open(folder: Path) -> Publisher:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
    return Publisher(IcebergSettings(catalog=catalog))


def _replace_file(uri: str, number: int) -> None:
    """Commit a change that replaces one file, as a merge finds it: in the list of all."""
    table = Table(uri, APP)
    file = sorted(table.files, key=_path)[number]
    head = CommitMetadata(table.metadata.sequence + 1, 1, '{"c":1}', "run")
    table.prepare(SCHEMA, "users")
    table.commit(TableChange([make_file("p0000000")], [file]), head, 1)


def _path(file: DataFile) -> str:
    return file.path


def _scale_bars(small: Point, large: Point, checkpoint: float) -> Sequence[Bar]:
    sizes = f"{large.files:,} files to {small.files:,}"
    own = f"a merge of {large.files:,} files, to its list of files and commit"
    return [
        Bar(
            f"an append to {small.files:,} files, to a checkpoint of a sync",
            small.append.seconds / checkpoint,
            0.3,
        ),
        Bar(f"an append, {sizes}", large.append.seconds / small.append.seconds, 2),
        Bar(own, large.merge.seconds / large.merge_alone.seconds, 2),
    ]


def _row(point: Point) -> list[str]:
    costs = (point.first, point.append, point.merge, point.merge_alone)
    times = [f"{cost.seconds * 1000:,.0f} ({cost.core * 1000:,.0f})" for cost in costs]
    return [f"{point.files:,}", *times]


# Memory


def _measure_memory(folder: Path, files: int) -> Memory:
    print("publish: memory", file=sys.stderr)
    _build(folder, files)
    command = [sys.executable, "-m", "benchmarks.publish", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(done.stderr)
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def _report_memory(folder: Path) -> None:
    """Publish a table and a merge of it, in this process, and print what that took."""
    uri = str(folder / "shop" / "users")
    publisher, table = _open(folder), LakeTable(Location(uri), "shop", ("shop", "users"))
    publisher.look(table)  # which loads all
    loaded = _peak_mb()
    publisher.publish(table)
    _replace_file(uri, 0)
    publisher.publish(table)
    print(json.dumps(asdict(Memory(loaded, _peak_mb()))))


def _peak_mb() -> float:
    """Return the peak of this program's memory. `getrusage` includes that of the program which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024 / measure.MEGABYTE


# Many publications


def _publish_often(folder: Path, publications: int) -> Growth:
    print(f"publish: {publications:,} publications", file=sys.stderr)
    table, publisher = _build(folder, 1), _open(folder)
    uri, costs = table.location.uri, []
    writer = Table(uri, f"{APP}|often")
    for number in range(publications):
        append_file(writer, make_file(f"often{number}"))
        costs.append(time_here(partial(publisher.publish, table))[1].core)
    _pass_retention(Path(uri, FOLDER))
    publisher.expire(table, RETENTION)
    iceberg = publisher.load(table)
    assert iceberg is not None
    newest = Path(iceberg.metadata_location.removeprefix("file://"))
    names = {path.name for path in Path(uri, FOLDER).iterdir()}
    part = max(publications // 10, 1)
    slowdown = statistics.median(costs[-part:]) / statistics.median(costs[:part])
    unnamed = len(names - list_named(iceberg))
    return Growth(publications, newest.stat().st_size, unnamed, slowdown)


def _pass_retention(folder: Path) -> None:
    """Make files as old as those that maintenance removes if nothing names them."""
    then = time.time() - 2 * RETENTION.total_seconds()
    for path in folder.iterdir():
        os.utime(path, (then, then))


# Syncs


def _measure_checkpoints(work: Path) -> float:
    """Return the seconds from one commit of a sync to the next, each of a few records."""
    print("publish: checkpoints of a sync", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="checkpoints-", dir=work) as made:
        folder, times = Path(made), []
        with session(folder / "home") as provider:
            writer = open_writer(provider, folder / "table")
            messages = cached_messages(folder, SMALL)
            for number in range(CHECKPOINTS):
                start = time.perf_counter()
                write_all(writer, stage(messages, PLAIN, folder / str(number), SMALL))
                commit(writer, SMALL)
                times.append(time.perf_counter() - start)
    return min(times)


def _measure_syncs(work: Path, records: int) -> tuple[Cost, Cost]:
    """Return the cost of a sync without publication, and with it; both in turn."""
    plain, published = ours(), replace(ours(), name="published", environment=_make_environment)
    both: dict[str, list[Cost]] = {plain.name: [], published.name: []}
    for turn in range(TURNS):
        for contender in (plain, published):
            both[contender.name].append(_run(contender, records, work, turn))
    return least(both[plain.name]), least(both[published.name])


def _run(contender: Contender, records: int, work: Path, turn: int) -> Cost:
    return contenders.run(contender, records, work, f"publish-{turn}").cost


def _make_environment(folder: Path) -> Mapping[str, str]:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
    return {**project(folder), "ELT_ICEBERG": json.dumps({"catalog": catalog})}


if __name__ == "__main__":
    _report_memory(Path(sys.argv[1]))
