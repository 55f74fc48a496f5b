"""The comparison of a table with its source, beside its snapshot: `elt verify` of a table of PostgreSQL.

The table is read once, and compared: when it has what the source has, by its keys alone (a sweep), and with
one row that differs, which is found and corrected. Costs are those of the client, without the start of a
program: the same with a table of two rows. Those of the server are printed beside.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import measure
from benchmarks.contenders import ROOT, places
from benchmarks.measure import Cost
from benchmarks.report import Bar, Report, ratio
from benchmarks.source_tables import create_table
from benchmarks.sources import connect, list_command
from connectors.postgres import Postgres
from tests.support.postgres import Postgres as PostgresServer
from tests.support.postgres import run_postgres

SMALL, WHOLE = "small", "whole"
SETTINGS = ("shared_buffers=512MB", "max_wal_size=4GB")
STARTS = 2


@dataclass
class Result:
    """What was done with the whole table."""

    name: str
    client: Cost  # without the start
    whole: Cost  # with it
    server: float  # core-seconds


def run(work: Path, rows: int) -> Report:
    """Read a table of PostgreSQL of `rows` rows, and compare it.

    Raises:
        CommandFailed: a command fails, or says another thing of the table than it has.
    """
    with (
        tempfile.TemporaryDirectory(prefix="verify-", dir=work) as made,
        run_postgres(*SETTINGS) as server,
    ):
        for name, count in ((SMALL, 2), (WHOLE, rows)):
            server.execute(create_table(name, count))
        contest = Contest(server, Path(made), work)
        results = [
            contest.measure("snapshot", "sync"),
            contest.measure("verify", "verify"),
            contest.measure("sweep", "verify", "--sweep"),
            contest.measure("verify and repair one row", "verify", "--repair", changes=True),
        ]
    return _report(rows, results)


class Contest:
    """Runs commands of `elt` on two tables of a server."""

    def __init__(self, server: PostgresServer, folder: Path, work: Path):
        self._server, self._folder, self._work = server, folder, work
        config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
        modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
        streams = [
            {"name": name, "namespace": "public", "cursor_field": ["id"], **modes}
            for name in (SMALL, WHOLE)
        ]
        connect(folder, "postgres", Postgres, config, streams)

    def measure(self, name: str, *words: str, changes: bool = False) -> Result:
        """Run a command on the small table, and on the whole one.

        Args:
            changes: a row of each table is changed before.
        """
        print(f"verify: {name}", file=sys.stderr)
        starts = [
            self._run(f"{name}-{number}", SMALL, words, changes=changes and not number)
            for number in range(STARTS)
        ]
        before = self._server_core()
        whole = self._run(name, WHOLE, words, changes=changes)
        server = self._server_core() - before
        return Result(name, whole - measure.least(starts), whole, server)

    def _run(self, name: str, table: str, words: Sequence[str], *, changes: bool) -> Cost:
        if changes:
            self._server.execute(f"UPDATE {table} SET customer = 'changed' WHERE id = 1")
        command: Sequence[str] = list_command(f'key:"bench/public/{table}"')
        if words[0] != "sync":
            command = [sys.executable, "-m", "elt_assets.cli", *words, f"bench/public/{table}"]
        log = self._work / f"verify-{name.replace(' ', '-')}-{table}.log"
        environment = {**measure.environment(), **places(self._folder)}
        cost = measure.run(command, environment, ROOT, log).cost
        if changes and "1 keys corrected" not in log.read_text():
            raise measure.CommandFailed(f"no row was corrected: {log}")
        return cost

    def _server_core(self) -> float:
        assert self._server.process is not None
        return measure.server_core(self._server.process.pid)


def _report(rows: int, results: Sequence[Result]) -> Report:
    snapshot, verify, sweep, repair = results
    cells = [
        (
            result.name,
            f"{result.client.seconds:.1f}",
            f"{result.client.core:.2f}",
            f"{result.server:.2f}",
            ratio(result.client.core, snapshot.client.core),
        )
        for result in results
    ]
    return Report(
        title=f"a table of PostgreSQL with {rows:,} rows of 10 columns, compared with its source",
        headings=("what", "seconds", "client, core-s", "server, core-s", "× the snapshot"),
        rows=cells,
        note="seconds and core-seconds of the client are without the start of the program",
        bars=[
            Bar("verify, of the snapshot", verify.client.core / snapshot.client.core, 0.5),
            Bar("sweep, of the snapshot", sweep.client.core / snapshot.client.core, 0.3),
            Bar(
                "one row corrected, of verify's time",
                repair.whole.seconds / verify.whole.seconds,
                1.2,
            ),
        ],
        figures=[asdict(result) for result in results],
    )
