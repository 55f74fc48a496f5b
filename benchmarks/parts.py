"""The parts of an ingest, one after the other: read, route, stage, parse and write, commit; and the start.

In a sync they overlap. Here each has the machine to itself, in one process: the messages come through a pipe
of the connector, a session routes and stages them, a `TableWriter` writes the staged segments, and commits.
Nothing in the product is instrumented.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import SMALL, ours
from benchmarks.contenders import run as ingest
from benchmarks.measure import FREE, CommandFailed, Cost, least, timed
from benchmarks.messages import PLAIN, MessageSet, cached_messages, state_message, time_of
from benchmarks.report import Report, ratio
from benchmarks.session import session
from benchmarks.staging import STUB, stage
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.messages import State
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment

APP = "elt:bench/users"
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Part:
    """`estimated`: part of the row above it, measured by similar work; not in the sum."""

    name: str
    cost: Cost
    estimated: bool = False


def run(work: Path, records: int) -> Report:
    """Each part of an ingest of nine fields, once.

    Raises:
        CommandFailed: records are missing.
    """
    starts = [ingest(ours(), SMALL, work, f"start-{turn}").cost for turn in range(2)]
    start = least(starts)
    whole = ingest(ours(), records, work, "whole-parts").cost
    messages = cached_messages(work, records)
    with tempfile.TemporaryDirectory(prefix="parts-", dir=work) as made:
        folder = Path(made)
        parts = [Part("start (a run of one record)", start), *_parts(folder, messages, records)]
    return _report(parts, whole, records)


def open_writer(
    provider: SparkProvider, uri: Path, kind: MessageSet = PLAIN, *, app: str = APP
) -> TableWriter:
    """A writer of the stream's table, as a run opens one."""
    return TableWriter(provider, StreamTables(str(uri), app), WriteSpec(kind.stream, "bench"))


def write_all(writer: TableWriter, segments: Sequence[Segment]) -> None:
    for segment in segments:
        writer.write(segment)


def commit(writer: TableWriter, records: int) -> Committed:
    """Commit what was written, with a state; returns the counts.

    Raises:
        CommandFailed: not all records have become rows.
    """
    state = json.loads(state_message(time_of(records)))["state"]
    done = writer.commit(Checkpoint((State.from_json(json.dumps(state)),), final=False))
    if done.records != records:
        raise CommandFailed(f"{done.records:,} rows were committed of {records:,} records")
    return done


def _parts(folder: Path, messages: Path, records: int) -> list[Part]:
    print("parts: read, route and stage", file=sys.stderr)
    _, read = timed(lambda: _drained(messages))
    segments, staged = timed(lambda: stage(messages, PLAIN, folder, records))
    _, copied = timed(lambda: _copied(segments, folder / "copy"))
    print("parts: parse, write and commit", file=sys.stderr)
    with session(folder / "home") as provider:
        first = cached_messages(folder, SMALL)
        warm = open_writer(provider, folder / "warm", app=f"{APP}_warm")
        write_all(warm, stage(first, PLAIN, folder / "first", SMALL))
        commit(warm, SMALL)
        writer = open_writer(provider, folder / "table")
        _, written = timed(lambda: write_all(writer, segments))
        _, committed = timed(lambda: commit(writer, records))
    encoded = _encoding(folder / "table", folder / "again.parquet")
    return [
        Part("read", read),
        Part("route and stage", staged - read),
        Part("  stage alone: the same bytes copied", copied, estimated=True),
        Part("parse and write", written),
        Part("  write alone: the same rows written by pyarrow", encoded, estimated=True),
        Part("commit", committed),
    ]


def _drained(messages: Path) -> None:
    """Take the messages from the connector's pipe, and drop them."""
    environment = {"PATH": os.defpath, "BENCH_MESSAGES": str(messages)}
    with subprocess.Popen(
        [STUB, "read"], env=environment, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert isinstance(process.stdout, FileIO)
        deque(_blocks(process.stdout), maxlen=0)


def _copied(segments: Sequence[Segment], path: Path) -> None:
    with path.open("wb") as out:
        for segment in segments:
            with segment.path.open("rb", buffering=0) as source:
                for block in _blocks(source):
                    out.write(block)


def _blocks(source: FileIO) -> Iterator[memoryview]:
    """The bytes of a file or pipe, in one buffer that is used again and again."""
    buffer = memoryview(bytearray(BLOCK_BYTES))
    while size := source.readinto(buffer):
        yield buffer[:size]


def _encoding(table: Path, path: Path) -> Cost:
    """The cost of writing a table's rows as Parquet, without that of reading them."""
    total = FREE
    for file in table.rglob("*.parquet"):
        rows = pq.read_table(file)
        total += _encoded(rows, path)
    return total


def _encoded(rows: pa.Table, path: Path) -> Cost:
    return timed(lambda: pq.write_table(rows, path, compression="zstd"))[1]


def _report(parts: Sequence[Part], whole: Cost, records: int) -> Report:
    total = sum((part.cost for part in parts if not part.estimated), FREE)
    rows = [*parts, Part("sum", total), Part("one run of all, beside it", whole)]
    return Report(
        title=f"The parts of an ingest of {records:,} records",
        headings=["part", "seconds", "core-s", "core-s a million", "of the sum's core-s"],
        rows=[_row(part, total, records) for part in rows],
        note="one after the other, each alone; core-s: of all processes; a run overlaps them, and its JVM is "
        "as cold as here",
        bars=[],
        figures=[asdict(part) for part in rows],
    )


def _row(part: Part, total: Cost, records: int) -> list[str]:
    return [
        part.name,
        f"{part.cost.seconds:.2f}",
        f"{part.cost.core:.2f}",
        f"{part.cost.core / records * 1e6:.2f}",
        ratio(part.cost.core, total.core),
    ]
