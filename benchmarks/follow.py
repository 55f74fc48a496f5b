"""The time from a commit in PostgreSQL to its rows in the Delta table, while a run follows the log.

A server gets changes at a steady rate: inserts, updates and deletes. A reader beside the run looks at the
table's log, and notes when each transaction is there: its inserts have the greatest keys so far, and the log
of the table has the greatest key of each file. Memory is sampled from outside.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks import measure
from benchmarks.contenders import ROOT, places
from benchmarks.report import Bar, Report
from benchmarks.soak import Samples, Trend, make_trend
from benchmarks.source_tables import create_table, insert_rows
from benchmarks.sources import connect, list_command
from connectors.postgres import Postgres
from tests.support.postgres import Postgres as PostgresServer
from tests.support.postgres import run_postgres

TABLE = "rows"
BASE = 200_000
"""Rows of the table before the changes."""
RATE = 1_000
TRANSACTION = 100
"""Changes of a transaction: half of them are inserts."""
EVERY = "5s"
WARM_UP = 25.0
"""Seconds until the run follows the log; then the changes begin."""
LOOK_SECONDS = 0.1
SETTINGS = ("wal_level=logical", "shared_buffers=256MB", "max_wal_size=2GB")


@dataclass
class Writer:
    """Changes a table at a rate; `commits` has the greatest key of each transaction and its time."""

    server: PostgresServer
    commits: deque[tuple[int, float]] = field(default_factory=deque)
    count: int = 0

    def run(self, seconds: float) -> None:
        """Change rows for some time, each second in one call of the client."""
        begin = time.monotonic()
        batches = RATE // TRANSACTION
        while (late := time.monotonic() - begin) < seconds:
            due = self.count / RATE
            if due > late:
                time.sleep(due - late)
            self.server.execute("\n".join(self._make_transaction() for _ in range(batches)))
            self.commits.append((self._last_key, time.time()))

    @property
    def _last_key(self) -> int:
        return BASE + self.count // 2

    def _make_transaction(self) -> str:
        first, number = self._last_key + 1, self.count // TRANSACTION
        self.count += TRANSACTION
        updated = number * 7919 % BASE
        return (
            f"BEGIN; {insert_rows(TABLE, first, first + TRANSACTION // 2 - 1)};"
            f"UPDATE {TABLE} SET i = i + 1 WHERE id IN (SELECT {updated} + 37 * n "
            f"FROM generate_series(0, {TRANSACTION * 3 // 10 - 1}) n);"
            f"DELETE FROM {TABLE} WHERE id BETWEEN {first - 5_000} AND {first - 4_981}; COMMIT;"
        )


@dataclass
class Reader:
    """Notes how long the transactions of a writer took until the table had them, in seconds."""

    table: Path
    writer: Writer
    latencies: list[float] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        table, version = DeltaTable(str(self.table)), -1
        while not self.ends.wait(LOOK_SECONDS):
            table.update_incremental()
            if table.version() == version:
                continue
            version, seen = table.version(), time.time()
            files = pa.table(table.get_add_actions(flatten=True))
            newest = pc.max(files.column("max.id")).as_py()
            while self.writer.commits and self.writer.commits[0][0] <= newest:
                self.latencies.append(seen - self.writer.commits.popleft()[1])


@dataclass(frozen=True)
class Result:
    """What a run that followed the log did."""

    seconds: float
    changes: int
    p50: float
    p99: float
    highest: float
    core: float
    server: float
    commits: int
    files: int
    trends: Sequence[Trend]


def run(work: Path, seconds: int) -> Report:
    """Follow the log for some time.

    Raises:
        CommandFailed: the run fails, or rows are missing.
    """
    with (
        tempfile.TemporaryDirectory(prefix="follow-", dir=work) as made,
        run_postgres(*SETTINGS) as server,
    ):
        server.execute(create_table(TABLE, BASE))
        server.execute(f"CREATE PUBLICATION bench FOR TABLE {TABLE}")
        config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
        config |= {"incremental": "log", "slot": "bench", "publication": "bench"}
        modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
        streams = [{"name": TABLE, "namespace": "public", **modes}]
        folder = Path(made)
        connect(folder, "postgres", Postgres, config, streams, read_together=True)
        environment = {**measure.environment(), **places(folder)}
        measure.run(list_command("group:bench"), environment, ROOT, work / "follow-first.log")
        result = _follow(server, folder, work, seconds)
    return _report(result)


def _follow(server: PostgresServer, folder: Path, work: Path, seconds: int) -> Result:
    print(f"follow: {RATE:,} changes a second for {seconds} s", file=sys.stderr)
    path = folder / "lake" / "bench" / "public" / TABLE
    before = DeltaTable(str(path)).version()
    writer = Writer(server)
    reader = Reader(path, writer)
    samples = Samples(folder / "staging")
    length = seconds + WARM_UP + 15
    command = [sys.executable, "-m", "elt_assets.cli", "sync", "bench", "--follow"]
    command += ["--for", f"{length:.0f}s", "--every", EVERY]
    assert server.process is not None
    server_before = measure.server_core(server.process.pid)

    def write() -> None:
        time.sleep(WARM_UP)
        writer.run(seconds)

    threads = [threading.Thread(target=write), threading.Thread(target=reader.run)]
    for thread in threads:
        thread.start()
    environment = {**measure.environment(), **places(folder)}
    done = measure.run(command, environment, ROOT, work / "follow.log", sample=samples.take)
    reader.ends.set()
    for thread in threads:
        thread.join()
    table = DeltaTable(str(path))
    rows = int(server.execute(f"SELECT count(*) FROM {TABLE}"))
    stored = int(table.to_pyarrow_dataset().count_rows())
    if stored != rows or writer.commits:
        raise measure.CommandFailed(f"the table has {stored:,} rows of {rows:,}")
    quantiles = statistics.quantiles(reader.latencies, n=100)
    return Result(
        seconds,
        writer.count,
        quantiles[49],
        quantiles[98],
        max(reader.latencies),
        done.cost.core,
        measure.server_core(server.process.pid) - server_before,
        table.version() - before,
        len(table.file_uris()),
        [make_trend(name, samples.times, values) for name, values in samples.series.items()],
    )


def _report(result: Result) -> Report:
    cells = [
        ("changes a second", f"{result.changes / result.seconds:,.0f}"),
        ("from commit to table, median", f"{result.p50:.1f} s"),
        ("from commit to table, 99 of 100", f"{result.p99:.1f} s"),
        ("from commit to table, longest", f"{result.highest:.1f} s"),
        ("cores of the client", f"{result.core / result.seconds:.2f}"),
        ("cores of the server", f"{result.server / result.seconds:.2f}"),
        ("commits", f"{result.commits:,}"),
        ("files of the table at the end", f"{result.files:,}"),
    ]
    cells += [
        (
            trend.name,
            f"{trend.median:,.0f} ({trend.growth:+,.0f} in the second half)",
        )
        for trend in result.trends
    ]
    bars = [
        Bar("half of the changes are in the table", result.p50, 10, " s"),
        Bar("99 of 100 changes are in the table", result.p99, 30, " s"),
        Bar("files of the table", result.files, 100, ""),
    ]
    bars += [
        Bar(f"growth of {trend.name}", trend.growth, round(trend.tolerated, 1), "")
        for trend in result.trends
    ]
    return Report(
        title=f"a log of PostgreSQL that is followed for {result.seconds:,.0f} s, `every: {EVERY}`",
        headings=("what", "figure"),
        rows=cells,
        note=f"a table of {BASE:,} rows; {TRANSACTION} changes a transaction: inserts, updates, deletes; "
        "cores: processor time of all processes, the start included, by the time of the changes",
        bars=bars,
        figures=[asdict(result)],
    )
