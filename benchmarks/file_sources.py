"""Copies of files by this project's source, through Dagster, beside the least that such a copy costs.

For CSV and Parquet that is pyarrow, which reads the same files with the same types and writes Parquet. For
JSON lines it is the lake's own work on the same records, once they are staged: parse, write and commit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from benchmarks.contenders import places
from benchmarks.measure import FREE, Cost, timed
from benchmarks.messages import HERE, PLAIN, cached_messages, generate_records
from benchmarks.parts import APP, commit, open_writer, write_all
from benchmarks.peer_files import read_csv, write_parquet
from benchmarks.report import Bar, Report
from benchmarks.session import session
from benchmarks.slices import write_rows
from benchmarks.source_peers import Run, count_rows
from benchmarks.sources import (
    HEADINGS,
    SMALL,
    WHOLE,
    Copy,
    connect,
    list_command,
    measure_copy,
)
from benchmarks.staging import stage
from connectors.files import Files
from elt_assets.sync.events import Committed
from elt_assets.sync.segments import Segment

FILES = 8
CSV, PARQUET, JSON_LINES = "csv", "parquet", "jsonl"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    CSV: {
        "id": "integer",
        "amount": "integer",
        "price": "decimal",
        "ratio": "number",
        "name": "string",
        "customer": "string",
        "at": "timestamp_without_timezone",
        "day": "date",
        "flag": "boolean",
        "body": "string",
    },
    PARQUET: {},
    JSON_LINES: {"updated_at": "timestamp"},
}
"""The types that the config names: those of `peer_files.TYPES`, and those of the staged records."""


def run(work: Path, rows: int) -> Report:
    """Copy files of each format, and parse the records of the files of JSON lines as they are staged.

    Args:
        rows: of the files of each format.

    Raises:
        CommandFailed: a program fails, or rows are missing.
    """
    copies: dict[str, Copy] = {}
    with tempfile.TemporaryDirectory(prefix="files-", dir=work) as temporary:
        folder = Path(temporary)
        data = folder / "data"
        write_files(data / SMALL, 1, 1)
        write_files(data / WHOLE, rows, FILES)
        contenders = {
            "CSV → Delta": _copy_by_asset(data, CSV),
            "CSV → Parquet, pyarrow": _copy_by_pyarrow(data, CSV),
            "Parquet → Delta": _copy_by_asset(data, PARQUET),
            "Parquet → Parquet, pyarrow": _copy_by_pyarrow(data, PARQUET),
            "JSON lines → Delta": _copy_by_asset(data, JSON_LINES),
        }
        for name, contender in contenders.items():
            copies[name] = measure_copy(name, contender, rows, folder, work)
        parse = Copy("staged records → Delta", rows, _parse(work, folder, rows), FREE, 0)
    return _report([*copies.values(), parse])


def write_files(folder: Path, rows: int, files: int) -> None:
    """Write the same number of files of each format, with so many rows of the format together."""
    for kind in (CSV, PARQUET, JSON_LINES):
        (folder / kind).mkdir(parents=True)
    records = generate_records(rows)
    for number in range(files):
        first = number * rows // files
        count = (number + 1) * rows // files - first
        csv = folder / CSV / f"{number}.csv"
        write_rows(csv, first, count)
        write_parquet(folder / PARQUET / f"{number}.parquet", read_csv(csv))
        with (folder / JSON_LINES / f"{number}.jsonl").open("w") as lines:
            lines.writelines(f"{record}\n" for record in islice(records, count))


def _copy_by_asset(data: Path, kind: str) -> Run:
    """Return how an asset of this project copies the files of a format into the lake."""

    def prepare(
        name: str, folder: Path
    ) -> tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]:
        files = {"name": "files", "glob": "*", "format": kind, "columns": dict(COLUMNS[kind])}
        config: dict[str, Any] = {"location": str(data / name / kind), "streams": [files]}
        config["file_columns"] = False
        stream = {"name": "files", "destination_sync_mode": "overwrite"}
        connect(folder, "files", Files, config, [stream])
        table = str(folder / "lake" / "bench" / "files")
        return (
            list_command('key:"bench/files"'),
            places(folder),
            lambda: int(DeltaTable(table).to_pyarrow_dataset().count_rows()),
        )

    return prepare


def _copy_by_pyarrow(data: Path, kind: str) -> Run:
    """Return how pyarrow copies the files of a format."""

    def prepare(
        name: str, folder: Path
    ) -> tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]:
        command = (sys.executable, HERE / "peer_files.py", kind, data / name / kind, folder)
        return command, {}, lambda: count_rows(folder, name)

    return prepare


def _parse(work: Path, folder: Path, rows: int) -> Cost:
    """Return what it costs to parse, write and commit staged records, after a first one."""
    print(f"file_sources: {rows:,} staged records", file=sys.stderr)
    warmup = stage(cached_messages(folder, 1), PLAIN, folder / "first", 1)
    segments = stage(cached_messages(work, rows), PLAIN, folder, rows)
    with session(folder / "home") as provider:

        def write(name: str, staged: Sequence[Segment]) -> Committed:
            writer = open_writer(provider, folder / name, app=f"{APP}_{name}")
            write_all(writer, staged)
            return commit(writer, sum(segment.records for segment in staged))

        write("warm", warmup)
        return timed(lambda: write("table", segments))[1]


def _report(copies: Sequence[Copy]) -> Report:
    csv, csv_limit, parquet, parquet_limit, lines, parse = copies
    return Report(
        title=f"copies of files, {FILES} of each format",
        headings=HEADINGS,
        rows=[copy.cells for copy in copies],
        note="costs are without the start: a copy of one row; staged records: in a session that has started",
        bars=[
            Bar("files of CSV beside pyarrow, core-seconds", csv.core / csv_limit.core, 1.5),
            Bar(
                "files of Parquet beside pyarrow, core-seconds",
                parquet.core / parquet_limit.core,
                1.5,
            ),
            Bar("files of JSON lines beside staged records, core-s", lines.core / parse.core, 1.5),
        ],
        figures=[asdict(copy) for copy in copies],
    )
