"""Snapshots of databases by this project's sources, through Dagster, beside peers.

The processor time is that of the clients: the server is no child of them. What a program costs with a table
of one row is its start, which is left out.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import yaml
from deltalake import DeltaTable

from connectors.mysql.source import MySql
from connectors.postgres import Postgres
from connectors.sdk import Source
from tests.benchmarks import measure, peers
from tests.benchmarks.contenders import places
from tests.benchmarks.measure import Cost
from tests.benchmarks.peers import Peer
from tests.benchmarks.report import Bar, Report
from tests.benchmarks.source_tables import MYSQL_TABLE, POSTGRES_TABLE, create_wide_table
from tests.mariadb import MariaDb, run_mariadb
from tests.postgres import Postgres as PostgresServer
from tests.postgres import run_postgres

ROOT = Path(__file__).parents[2]
SMALL, WHOLE = "one", "many"
WIDE_SMALL, WIDE = "wide_one", "wide"
WIDE_SHARE = 4
"""The wide table has this part of the rows of the other one."""


@dataclass(frozen=True)
class Copy:
    """A copy of a table. `cost`: without the start; `peak_mb`: of the Python processes."""

    name: str
    rows: int
    cost: Cost
    start: Cost
    peak_mb: float

    @property
    def core(self) -> float:
        """Core-seconds a million rows."""
        return self.cost.core / self.rows * 1e6


Run = Callable[[str, Path], tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]]
"""Returns how a table is copied into a folder: the command, its environment, and what counts the rows."""


def run(work: Path, rows: int, peer_folder: Path | None) -> Report:
    """Copy tables of PostgreSQL and MariaDB, as this project does and as peers do.

    Args:
        rows: of each table.
        peer_folder: the folder of the peers' environments; None leaves them out.

    Raises:
        CommandFailed: a program fails, or rows are missing.
    """
    copies: dict[str, Copy] = {}
    with tempfile.TemporaryDirectory(prefix="sources-", dir=work) as made:
        folder = Path(made)
        with run_postgres("shared_buffers=512MB", "max_wal_size=4GB") as postgres:
            for name, count in ((SMALL, 1), (WHOLE, rows)):
                postgres.execute(POSTGRES_TABLE.format(name=name, rows=count))
            for name, count in ((WIDE_SMALL, 1), (WIDE, rows // WIDE_SHARE)):
                postgres.execute(create_wide_table(name, count))
            copies["postgres, 60 columns → Delta"] = _measure(
                "postgres, 60 columns → Delta",
                _copy_postgres(postgres),
                rows // WIDE_SHARE,
                folder,
                work,
                tables=(WIDE_SMALL, WIDE),
            )
            contenders = {"postgres → Delta": _copy_postgres(postgres)}
            if peer_folder is not None:
                contenders |= _list_postgres_peers(postgres, peer_folder)
            for name, contender in contenders.items():
                copies[name] = _measure(name, contender, rows, folder, work)
        with run_mariadb("innodb-buffer-pool-size=512M") as mariadb:
            for name, count in ((SMALL, 1), (WHOLE, rows)):
                mariadb.execute(MYSQL_TABLE.format(name=name, rows=count))
            contenders = {"mysql → Delta": _copy_mysql(mariadb)}
            if peer_folder is not None:
                contenders["connectorx, MySQL → Parquet"] = _copy_by_peer(
                    peers.CONNECTORX,
                    "connectorx",
                    f"mysql://bench:bench@127.0.0.1:{mariadb.port}/shop",
                    peer_folder,
                )
                mariadb.execute(
                    "CREATE USER bench@'127.0.0.1' IDENTIFIED BY 'bench'; GRANT SELECT ON shop.* TO "
                    "bench@'127.0.0.1'"
                )
            for name, contender in contenders.items():
                copies[name] = _measure(name, contender, rows, folder, work)
    return _report(copies)


def _copy_postgres(server: PostgresServer) -> Run:
    config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
    return _copy_by_asset("postgres", Postgres, config, "public")


def _copy_mysql(server: MariaDb) -> Run:
    return _copy_by_asset("mysql", MySql, server.config(), "shop")


def _copy_by_asset(
    connector: str, source: type[Source], config: Mapping[str, Any], namespace: str
) -> Run:
    """Return how an asset of this project copies a table into the lake."""

    def prepare(
        table: str, folder: Path
    ) -> tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]:
        connection = folder / "defs" / "bench"
        connection.mkdir(parents=True)
        stream = {"name": table, "namespace": namespace, "destination_sync_mode": "overwrite"}
        attributes = {
            "name": "bench",
            "source": {"connector": connector, "config": dict(config)},
            "streams": [stream],
        }
        definitions = {"type": "elt_assets.ConnectionComponent", "attributes": attributes}
        (connection / "defs.yaml").write_text(yaml.safe_dump(definitions, sort_keys=False))
        streams = [msgspec.json.decode(s.describe().to_json()) for s in source().open(dict(config))]
        (connection / "catalog.json").write_text(json.dumps({"streams": streams}))
        command = (
            *(sys.executable, "-m", "dagster", "asset", "materialize"),
            *("-m", "elt_assets.definitions", "--select", f'key:"bench/{namespace}/{table}"'),
        )
        path = folder / "lake" / "bench" / namespace / table
        return (
            command,
            places(folder),
            lambda: int(DeltaTable(str(path)).to_pyarrow_dataset().count_rows()),
        )

    return prepare


def _list_postgres_peers(server: PostgresServer, peer_folder: Path) -> dict[str, Run]:
    has_sling = (sys.platform, platform.machine()) == ("linux", "x86_64")
    sling = {"sling → Parquet": peers.SLING} if has_sling else {}
    return {
        "DuckDB's scanner → Parquet": _copy_by_peer(
            peers.DUCKDB_SCANNER, "duckdb", server.url, peer_folder
        ),
        "connectorx → Parquet": _copy_by_peer(
            peers.CONNECTORX, "connectorx", server.url, peer_folder
        ),
        "dlt, connectorx → Delta": _copy_by_peer(peers.DLT, "dlt", server.url, peer_folder),
        **{
            name: _copy_by_peer(peer, "sling", server.url, peer_folder)
            for name, peer in sling.items()
        },
    }


def _copy_by_peer(peer: Peer, method: str, address: str, peer_folder: Path) -> Run:
    """Return how a peer copies a table."""
    peers.ensure(peer, peer_folder)
    python = peers.interpreter(peer, peer_folder)
    schema = "public." if address.startswith("postgresql") else ""

    def prepare(
        table: str, folder: Path
    ) -> tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]:
        script = Path(__file__).with_name(peer.script)
        command = (python, script, method, address, f"{schema}{table}", folder)
        return command, {}, lambda: _count_rows(folder, table)

    return prepare


def _count_rows(folder: Path, table: str) -> int:
    """Return how many rows a peer has left, in a Delta table or in files of Parquet."""
    delta = folder / "lake" / "bench" / table
    if delta.exists():
        return int(DeltaTable(str(delta)).to_pyarrow_dataset().count_rows())
    query = "SELECT sum(num_rows) FROM parquet_file_metadata(?)"
    files = [str(path) for path in folder.glob("*.parquet")]
    (count,) = duckdb.execute(query, [files]).fetchone() or (0,)
    return int(count)


def _measure(
    name: str,
    contender: Run,
    rows: int,
    folder: Path,
    work: Path,
    *,
    tables: tuple[str, str] = (SMALL, WHOLE),
) -> Copy:
    """Copy the table of one row twice, and then the whole one. `tables`: their names."""
    small, whole_table = tables
    starts = [_copy(name, contender, small, 1, folder, work) for _ in range(2)]
    whole = _copy(name, contender, whole_table, rows, folder, work)
    start = measure.least([start.cost for start in starts])
    return Copy(name, rows, whole.cost - start, start, whole.python_all_mb)


def _copy(
    name: str, contender: Run, table: str, rows: int, folder: Path, work: Path
) -> measure.Run:
    print(f"sources: {name}, {rows:,} rows", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="copy-", dir=folder) as made:
        command, environment, count = contender(table, Path(made))
        log = work / f"sources-{name.split(' ')[0].strip(',')}-{table}.log"
        done = measure.run(command, {**measure.environment(), **environment}, ROOT, log)
        copied = count()
    if copied != rows:
        raise measure.CommandFailed(f"{name} left {copied:,} rows of {rows:,}: {log}")
    return done


def _report(copies: Mapping[str, Copy]) -> Report:
    cells = [
        (
            copy.name,
            f"{copy.rows:,}",
            f"{copy.cost.seconds:.1f}",
            f"{copy.core:.2f}",
            f"{copy.start.core:.1f}",
            f"{copy.peak_mb:.0f}",
        )
        for copy in copies.values()
    ]
    ours, mysql = copies["postgres → Delta"], copies["mysql → Delta"]

    def compare(copy: Copy | None, other: Copy | None, *, by_time: bool = False) -> float | None:
        if copy is None or other is None:
            return None
        return copy.cost.seconds / other.cost.seconds if by_time else copy.core / other.core

    duck, dlt = copies.get("DuckDB's scanner → Parquet"), copies.get("dlt, connectorx → Delta")
    bars = [
        Bar("postgres beside DuckDB's scanner, core-seconds", compare(ours, duck), 2.5),
        Bar("postgres beside DuckDB's scanner, time", compare(ours, duck, by_time=True), 2),
        Bar(
            "dlt with connectorx beside postgres, core-seconds", compare(dlt, ours), 1.8, least=True
        ),
        Bar(
            "sling beside postgres, core-seconds",
            compare(copies.get("sling → Parquet"), ours),
            4,
            least=True,
        ),
        Bar("postgres, core-seconds a million rows of 10 columns", ours.core, 2, unit=""),
        Bar(
            "postgres, core-seconds a million rows of 60 columns",
            copies["postgres, 60 columns → Delta"].core,
            9,
            unit="",
        ),
        Bar(
            "mysql beside connectorx, core-seconds",
            compare(mysql, copies.get("connectorx, MySQL → Parquet")),
            1.5,
        ),
    ]
    return Report(
        title="snapshots of tables",
        headings=("program", "rows", "seconds", "core-s / million", "start, core-s", "Python, MB"),
        rows=cells,
        note="costs are those of the client, without its start: a copy of one row",
        bars=bars,
        figures=[asdict(copy) for copy in copies.values()],
    )
