"""Typing staged lines and writing them as Parquet: clean ones, and with values that do not fit."""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Raw
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.parse.conform import Stamp, conform
from elt_assets.lake.schema import from_json_schema, metadata_columns
from elt_assets.protocol.airbyte.codec import decode
from elt_assets.protocol.airbyte.messages import RawRecord
from elt_assets.sync.segments import Segment, SegmentWriter
from tests.benchmarks.measure import CommandFailed
from tests.benchmarks.messages import CATALOG, cached_messages
from tests.benchmarks.report import Bar, Report, ratio
from tests.benchmarks.session import session, timed

TURNS = 3
BAD_EVERY = 100
STAMP = Stamp("0195a1b2-c3d4-7abc-8def-", generation_id=1, sync_id=1)
KEY = (("id",),)

_AGE = re.compile(rb'"age": \d+')


@dataclass(frozen=True)
class Result:
    """`bad`: lines of all `lines` with a value that does not fit; `turns`: seconds of each."""

    name: str
    lines: int
    bad: int
    turns: Sequence[float]

    @property
    def seconds(self) -> float:
        return statistics.median(self.turns)


def run(work: Path, lines: int) -> Report:
    """Each kind of segment in turn, after one of each to warm up.

    Args:
        work: messages are made there once; all else is temporary.
    """
    with tempfile.TemporaryDirectory(prefix="conform-", dir=work) as made:
        folder = Path(made)
        messages = cached_messages(work, lines)
        staged = {
            "clean": _stage(messages, folder / "clean.jsonl", bad_every=0),
            "1 % bad": _stage(messages, folder / "bad.jsonl", bad_every=BAD_EVERY),
        }
        bad = {"clean": 0, "1 % bad": lines // BAD_EVERY}
        with session(folder / "home") as spark:
            turns = _turns(spark, Table(str(folder / "table"), "elt:bench/users"), staged, bad)
    return _report([Result(name, lines, bad[name], turns[name]) for name in staged])


def _stage(messages: Path, path: Path, *, bad_every: int) -> Segment:
    """The records of a message file as a sync stages them; of every so many, the last has no age."""
    print(f"conform: staging {path.stem} lines", file=sys.stderr)
    writer = SegmentWriter(path, 0)
    with messages.open("rb") as source:
        for line in source:
            message = decode(line.rstrip(b"\n"))
            if not isinstance(message, RawRecord):
                continue
            if bad_every and (writer.records + 1) % bad_every == 0:
                data = _AGE.sub(b'"age": "unknown"', bytes(message.data), count=1)
                message = replace(message, data=Raw(data))
            writer.append(message)
    return writer.close()


def _turns(
    spark: SparkSession, table: Table, staged: dict[str, Segment], bad: dict[str, int]
) -> dict[str, list[float]]:
    """Seconds by the segment's name; what is written is counted, and removed."""
    seconds: dict[str, list[float]] = {name: [] for name in staged}
    for turn in range(TURNS + 1):
        for name, segment in staged.items():
            files, took = _conform(spark, table, segment)
            changed = _count_changed(spark, table, files)
            rows = sum(file.records for file in files)
            if (rows, changed) != (segment.records, bad[name]):
                raise CommandFailed(f"conform left {rows:,} rows of {name}, {changed:,} changed")
            table.discard_files(files)
            if turn:
                seconds[name].append(took)
                print(f"conform: {name}, {took:.1f} s", file=sys.stderr)
    return seconds


def _conform(spark: SparkSession, table: Table, segment: Segment) -> tuple[list[DataFile], float]:
    schema = json.loads(CATALOG.read_text())["streams"][0]["json_schema"]
    columns = from_json_schema.columns(schema)
    paths = [str(segment.path)]
    return timed(lambda: table.write_files(conform(spark, paths, columns, STAMP, KEY)))


def _count_changed(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> int:
    """Rows with a value that did not fit."""
    rows = spark.read.parquet(*(table.storage.locate(file) for file in files))
    return rows.where(f.size(f.col(f"{metadata_columns.META}.changes")) > 0).count()


def _report(results: Sequence[Result]) -> Report:
    clean, bad = results
    rows = [
        [
            each.name,
            f"{each.lines:,}",
            f"{each.seconds:.1f}",
            f"{each.lines / each.seconds:,.0f}",
            ratio(each.seconds, clean.seconds),
        ]
        for each in results
    ]
    return Report(
        title=f"{clean.lines:,} staged lines → typed → Parquet",
        headings=["lines", "number", "seconds", "lines/s", "× clean"],
        rows=rows,
        note=f"medians of {TURNS} turns, taken in turn, session warm; bad: a text for an integer",
        bars=[Bar("1 % of bad lines, of the time without", bad.seconds / clean.seconds, 1.3)],
        figures=[asdict(each) | {"seconds": each.seconds} for each in results],
    )
