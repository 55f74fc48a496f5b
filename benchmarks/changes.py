"""Changes from the log of PostgreSQL, through Dagster into Delta tables: client and server beside
`pg_recvlogical`, which receives the same changes and throws them away.

The server's processor time is that of its processes, which are no children of the client. What a sync costs
that finds one change of each table is its start, which is left out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import measure
from benchmarks.contenders import places
from benchmarks.measure import Cost
from benchmarks.report import MISSING, Bar, Report
from benchmarks.source_tables import LARGE_VALUES, create_table, insert_rows
from benchmarks.sources import ROOT, connect, list_command
from connectors.postgres import Postgres
from tests.support.postgres import Postgres as PostgresServer
from tests.support.postgres import run_postgres

TABLE, LARGE = "rows", "large"
SETTINGS = (
    *("wal_level=logical", "shared_buffers=512MB", "max_wal_size=8GB", "autovacuum=off"),
    *("checkpoint_timeout=1h", "bgwriter_lru_maxpages=0"),
)
SHARE = 4
"""The rows with large values are this part of the inserts. Each is updated as many times."""
_STARTS = 3
TRANSACTION = 1_000
"""Rows of a transaction of the rate's changes."""


@dataclass(frozen=True)
class Workload:
    """Changes of one kind. `limit`: the bar of the cost beside `pg_recvlogical`."""

    name: str
    count: int
    sql: str
    limit: float


@dataclass(frozen=True)
class Result:
    """What the changes of a workload have cost. `start`: that of the client and the server."""

    name: str
    count: int
    client: Cost
    server: float
    start: float
    peer_client: float
    peer_server: float

    @property
    def ratio(self) -> float:
        return (self.client.core + self.server) / (self.peer_client + self.peer_server)


def run(work: Path, rows: int, base: int) -> Report:
    """Measure changes.

    Args:
        rows: the number of inserts.
        base: the rows of the table into which the changes of the rate are merged.

    Raises:
        CommandFailed: a program fails, or changes are missing.
    """
    with tempfile.TemporaryDirectory(prefix="changes-", dir=work) as made:
        with run_postgres(*SETTINGS) as server:
            costs = Changes(server, Path(made) / "costs", work).measure_costs(rows)
        with run_postgres(*SETTINGS) as server:
            rate = Changes(server, Path(made) / "rate", work).measure_rate(base, rows)
    return _report(costs, rate)


class Changes:
    """A server with published tables, a connection that reads its log, and a slot for the peer."""

    def __init__(self, server: PostgresServer, folder: Path, work: Path):
        folder.mkdir()
        self._server, self._folder, self._work = server, folder, work

    def measure_costs(self, rows: int) -> list[Result]:
        """Measure inserts, updates, updates of rows with large values, and deletes."""
        few = max(rows // SHARE, 1)
        self._begin(rows, "append")
        large = f"UPDATE {LARGE} SET n = n + 1 WHERE id <= {few}"
        workloads = [
            Workload("inserts", rows, insert_rows(TABLE, rows + 1, 2 * rows), 1),
            Workload("updates", rows, f"UPDATE {TABLE} SET i = i + 1 WHERE id <= {rows}", 1.2),
            Workload("updates beside large values", few * SHARE, "; ".join([large] * SHARE), 1.2),
            Workload("deletes", rows, f"DELETE FROM {TABLE} WHERE id <= {rows}", 2),
        ]
        return [self._measure(workload) for workload in workloads]

    def measure_rate(self, base: int, count: int) -> float:
        """Return the changes that are merged in a second into a table of `base` rows: as many inserts as
        updates and deletes, in transactions of `TRANSACTION` rows."""
        self._begin(base, "append_dedup", large=False)
        part = TRANSACTION // 4
        transactions = [
            f"BEGIN; {insert_rows(TABLE, base + n * 2 * part + 1, base + (n + 1) * 2 * part)};"
            f"UPDATE {TABLE} SET i = i + 1 WHERE id BETWEEN {n * part * 7 % base} AND "
            f"{n * part * 7 % base + part - 1};"
            f"DELETE FROM {TABLE} WHERE id BETWEEN {base // 2 + n * part} AND "
            f"{base // 2 + (n + 1) * part - 1}; COMMIT;"
            for n in range(count // TRANSACTION)
        ]
        change = f"UPDATE {TABLE} SET i = i - 1 WHERE id = 1"
        start = measure.least([self._sync("start", change)[0] for _ in range(_STARTS)])
        cost = self._sync("rate", "\n".join(transactions))[0] - start
        rows = int(self._server.execute(f"SELECT count(*) FROM {TABLE}"))
        if self._count(TABLE) != rows:
            raise measure.CommandFailed(f"the table has {self._count(TABLE):,} rows of {rows:,}")
        return count / cost.seconds

    def _begin(self, rows: int, policy: str, *, large: bool = True) -> None:
        """Make the tables and the slots, and read the tables."""
        execute = self._server.execute
        execute(create_table(TABLE, rows))
        names = [TABLE]
        if large:
            names.append(LARGE)
            execute(LARGE_VALUES.format(name=LARGE, rows=max(rows // SHARE, 1)))
        execute(f"CREATE PUBLICATION bench FOR TABLE {', '.join(names)}")
        config = {"host": "127.0.0.1", "port": self._server.port, "database": "postgres"}
        config |= {"user": "elt", "incremental": "log", "slot": "bench", "publication": "bench"}
        modes = {"sync_mode": "incremental", "destination_sync_mode": policy}
        streams = [{"name": name, "namespace": "public", **modes} for name in names]
        connect(self._folder, "postgres", Postgres, config, streams, read_together=True)
        self._materialize("first")
        execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")

    def _measure(self, workload: Workload) -> Result:
        print(f"changes: {workload.count:,} {workload.name}", file=sys.stderr)
        # Without a checkpoint, the server decodes what was before once more.
        self._server.execute("CHECKPOINT")
        last = f"SELECT max(id) FROM {TABLE}"
        change = (
            f"UPDATE {TABLE} SET i = 1 WHERE id = ({last}); UPDATE {LARGE} SET n = 1 WHERE id = 1"
        )
        starts = [self._sync("start", change) for _ in range(_STARTS)]
        start = measure.least([cost for cost, _ in starts])
        server_start = min(server for _, server in starts)
        self._receive("start")
        before = self._count_appended()
        cost, server = self._sync(workload.name, workload.sql)
        appended = self._count_appended() - before
        if appended != workload.count:
            raise measure.CommandFailed(f"{appended:,} changes of {workload.count:,} were read")
        peer, peer_server = self._receive(workload.name)
        return Result(
            workload.name,
            workload.count,
            cost - start,
            server - server_start,
            start.core + server_start,
            peer.core,
            peer_server,
        )

    def _sync(self, name: str, sql: str) -> tuple[Cost, float]:
        """Run SQL, and read its changes; return what that costs the client, and the server."""
        self._server.execute(sql)
        before = self._server_core()
        cost = self._materialize(name)
        return cost, self._server_core() - before

    def _receive(self, name: str) -> tuple[Cost, float]:
        """Let the peer receive what there is."""
        end = self._server.execute("SELECT pg_current_wal_flush_lsn()").strip()
        server = self._server
        command = [str(server.programs / "pg_recvlogical"), "-h", "127.0.0.1", "-U", "elt"]
        command += ["-p", str(server.port), "-d", "postgres", "--slot", "peer", "--start"]
        command += ["-f", os.devnull, "--endpos", end, "-o", "proto_version=1"]
        command += ["-o", "publication_names=bench"]
        before = self._server_core()
        log = self._work / f"changes-peer-{name.split(' ')[0]}.log"
        done = measure.run(command, measure.environment(), ROOT, log)
        return done.cost, self._server_core() - before

    def _materialize(self, name: str) -> Cost:
        log = self._work / f"changes-{name.split(' ')[0]}.log"
        environment = {**measure.environment(), **places(self._folder)}
        return measure.run(list_command("group:bench"), environment, ROOT, log).cost

    def _server_core(self) -> float:
        assert self._server.process is not None
        return measure.server_core(self._server.process.pid)

    def _count_appended(self) -> int:
        return self._count(TABLE) + self._count(LARGE)

    def _count(self, table: str) -> int:
        path = self._folder / "lake" / "bench" / "public" / table
        return int(DeltaTable(str(path)).to_pyarrow_dataset().count_rows())


def _report(results: list[Result], rate: float) -> Report:
    def per_million(core: float, result: Result) -> str:
        return f"{core / result.count * 1e6:.2f}"

    cells: list[Sequence[str]] = [
        (
            result.name,
            f"{result.count:,}",
            f"{result.count / result.client.seconds:,.0f}",
            per_million(result.client.core, result),
            per_million(result.server, result),
            per_million(result.peer_client, result),
            per_million(result.peer_server, result),
            f"{result.ratio:.2f}",
        )
        for result in results
    ]
    cells.append(("a mix, merged", MISSING, f"{rate:,.0f}", *[MISSING] * 5))
    limits: Mapping[str, float] = {
        "inserts": 1,
        "updates": 1.2,
        "updates beside large values": 1.2,
        "deletes": 2,
    }
    bars = [
        Bar(f"{result.name} beside pg_recvlogical, core-seconds", result.ratio, limits[result.name])
        for result in results
    ]
    bars.append(Bar("changes a second that are merged", rate, 30_000, unit="", least=True))
    return Report(
        title="changes from the log of PostgreSQL",
        headings=(
            *("changes", "number", "a second", "client, core-s / million", "server"),
            *("pg_recvlogical, client", "its server", "ratio"),
        ),
        rows=cells,
        note="costs are without the start: a sync with one change of each table; ratio: client and server",
        bars=bars,
        figures=[asdict(result) for result in results] + [{"rate": rate}],
    )
