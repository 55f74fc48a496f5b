"""Slices on executors: the time of two executors of one core beside that of one, and the memory of a reader.

The slices are files of CSV: what they cost is nearly all processor time. Each number of executors has
processes of its own, on a cluster of Spark in this machine. Their Python processes have so many cores: a
thread of pyarrow would use another one.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from msgspec import Raw

from benchmarks.measure import (
    MEGABYTE,
    WORKERS,
    CommandFailed,
    Cost,
    by_role,
    resident_bytes,
    timed,
)
from benchmarks.report import Bar, Report, ratio
from benchmarks.session import session
from connectors.files import Files
from connectors.sdk import Slice
from connectors.sdk.slices import SlicedStream
from elt_assets.lake.worker.slices import SliceSource
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol import messages
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.sync.pending import SliceGroup
from tests.support.project import REPOSITORY

SLICES = 8
LARGE = 10 * MEGABYTE
"""Bytes of a large value; `LARGE_ROWS` of them are read."""
LARGE_ROWS = 30
SAMPLE_SECONDS = 0.05
ROWS, VALUES = "rows", "large values"


@dataclass(frozen=True)
class Reading:
    """A read by executors of one core; `worker_mb`: memory of the largest of their Python processes."""

    name: str
    executors: int
    rows: int
    cost: Cost
    worker_mb: float


def run(work: Path, rows: int) -> Report:
    """Read the same files by one executor and by two, and one with large values.

    Raises:
        CommandFailed: rows are missing.
    """
    with tempfile.TemporaryDirectory(prefix="slices-", dir=work) as temporary:
        folder = Path(temporary)
        per_file = rows // SLICES
        (folder / "data").mkdir()
        for number in range(SLICES):
            write_rows(folder / "data" / f"{ROWS}-{number}.csv", number * per_file, per_file)
        with (folder / "data" / f"{VALUES}.csv").open("w") as file:
            file.write("id,text\n" + f"1,{'0123456789abcdef' * (LARGE // 16)}\n" * LARGE_ROWS)
        readings = [
            _read_alone(folder, ROWS, 1, per_file * SLICES),
            _read_alone(folder, ROWS, 2, per_file * SLICES),
            _read_alone(folder, VALUES, 1, LARGE_ROWS),
        ]
    return _report(readings)


def write_rows(path: Path, first: int, count: int) -> None:
    """Write a file of CSV with ten columns."""
    with path.open("w") as file:
        file.write("id,amount,price,ratio,name,customer,at,day,flag,body\n")
        for n in range(first, first + count):
            file.write(
                f"{n},{n * 7919 % 1_000_000},{n * 31 % 10_000_000}.25,{n / 7},name of {n},cust-{n % 50_000},"
                f"2026-01-01 00:{n % 60:02d}:00,2026-01-{n % 28 + 1:02d},{n % 2 == 0},"
                f'"{{""a"": {n}, ""tag"": ""x{n % 100}""}}"\n'
            )


def _read_alone(folder: Path, name: str, executors: int, rows: int) -> Reading:
    """Read in a process that nothing else has run in."""
    print(f"slices: {name} by {executors} executors", file=sys.stderr)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_read, folder, name, executors, rows).result()


def _read(folder: Path, name: str, executors: int, rows: int) -> Reading:
    home = folder / f"{name}-{executors}"
    home.mkdir()
    python = home / "python"
    cores = ",".join(map(str, range(executors)))
    python.write_text(f'#!/bin/sh\nexec taskset -c {cores} {sys.executable} "$@"\n')
    python.chmod(0o700)
    (home / "spark-defaults.conf").write_text(
        f"spark.master local-cluster[{executors},1,1024]\n"
        f"spark.pyspark.python {python}\nspark.executorEnv.PYTHONPATH {REPOSITORY}\n"
    )
    group, source, configured = _list_slices(folder / "data", name)
    with session(home) as provider:

        def read(table: str) -> int:
            tables = StreamTables(str(home / table), f"elt:bench/{table}")
            writer = TableWriter(
                provider, tables, WriteSpec(configured, "bench"), slices=lambda: source
            )
            return writer.read(group).rows

        if name == ROWS:
            read("warm")
        with _watch_workers() as sizes:
            count, cost = timed(lambda: read("measured"))
    if count != rows:
        raise CommandFailed(f"{name}: {count:,} of {rows:,} rows were read")
    return Reading(name, executors, count, cost, max(sizes) / MEGABYTE)


def _list_slices(folder: Path, name: str) -> tuple[SliceGroup, SliceSource, ConfiguredStream]:
    """Return the slices of the files of a name, as the connector sends them."""
    stream = {"name": "files", "glob": f"{name}*.csv", "format": "csv", "primary_key": ["id"]}
    config: dict[str, Any] = {"location": str(folder), "streams": [stream], "file_columns": False}
    config["streams"][0]["csv"] = {"max_row_bytes": LARGE + MEGABYTE} if name == VALUES else {}
    connector = Files()
    (opened,) = connector.open(config)
    assert isinstance(opened, SlicedStream)
    described = json.loads(opened.describe().to_json())
    modes: dict[str, Any] = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    modes |= {"generation_id": 1, "minimum_generation_id": 0, "sync_id": 1}
    configured = ConfiguredStream.from_json(json.dumps({"stream": described, **modes}))
    slices = [
        messages.Slice(
            stream_descriptor=configured.id.descriptor,
            key=part.key,
            data=Raw(json.dumps(part.data).encode()),
        )
        for part in opened.slices(configured, None)
        if isinstance(part, Slice)
    ]
    encoded = json.dumps(config).encode()
    source = SliceSource("connectors.files", encoded, configured.to_json(), folder)
    return SliceGroup(slices, 0), source, configured


@contextmanager
def _watch_workers() -> Iterator[list[int]]:
    """Yield the sizes in bytes of Python processes that this one has started, as they are sampled."""
    sizes, is_over = [0], threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_SECONDS):
            for role, process in by_role(psutil.Process()):
                if role == WORKERS:
                    sizes.append(resident_bytes(process))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        thread.join()


def _report(readings: Sequence[Reading]) -> Report:
    single, double, large = readings
    rows = [
        [
            f"{reading.name}, executors of one core: {reading.executors}",
            f"{reading.rows:,}",
            f"{reading.cost.seconds:.1f}",
            f"{reading.cost.core:.1f}",
            ratio(single.cost.seconds, reading.cost.seconds) if reading.name == ROWS else "",
            f"{reading.worker_mb:.0f}",
        ]
        for reading in readings
    ]
    return Report(
        title="slices of CSV files, read by executors into a Delta table",
        headings=["what", "rows", "seconds", "core-s", "times as fast", "worker MB"],
        rows=rows,
        note="rows: after a first read by the same executors; worker MB: the largest Python process of an "
        "executor; the machine must be idle: its cores are those of the executors",
        bars=[
            Bar(
                "two executors beside one",
                single.cost.seconds / double.cost.seconds,
                1.7,
                least=True,
            ),
            Bar("memory of a reader, values of 10 MB", large.worker_mb, 400, " MB"),
        ],
        figures=[asdict(reading) for reading in readings],
    )
