"""Snapshots of databases by this project's sources, through Dagster, beside peers.

The processor time is that of the clients: the server is no child of them. What a program costs with a table
of one row is its start, which is left out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml
from deltalake import DeltaTable

from benchmarks import measure, peers
from benchmarks.contenders import places
from benchmarks.measure import Cost
from benchmarks.report import Bar, Report
from benchmarks.source_peers import JDBC, Run, copy_by_peer, list_postgres_peers
from benchmarks.source_tables import MYSQL_TABLE, create_table, create_wide_table
from connectors.mysql.source import MySql
from connectors.postgres import Postgres
from connectors.sdk import Source
from tests.support.mariadb import MariaDb, run_mariadb
from tests.support.postgres import Postgres as PostgresServer
from tests.support.postgres import run_postgres

ROOT = Path(__file__).parents[1]
SMALL, WHOLE = "one", "many"
WIDE_SMALL, WIDE = "wide_one", "wide"
WIDE_SHARE = 4
"""The wide table has this part of the rows of the other one."""
HEADINGS = ("program", "rows", "seconds", "core-s / million", "start, core-s", "Python, MB")


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

    @property
    def cells(self) -> Sequence[str]:
        """What a report shows; its headings are `HEADINGS`."""
        return (
            self.name,
            f"{self.rows:,}",
            f"{self.cost.seconds:.1f}",
            f"{self.core:.2f}",
            f"{self.start.core:.1f}",
            f"{self.peak_mb:.0f}",
        )


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
                postgres.execute(create_table(name, count))
            for name, count in ((WIDE_SMALL, 1), (WIDE, rows // WIDE_SHARE)):
                postgres.execute(create_wide_table(name, count))
            copies["postgres, 60 columns → Delta"] = measure_copy(
                "postgres, 60 columns → Delta",
                copy_postgres(postgres),
                rows // WIDE_SHARE,
                folder,
                work,
                tables=(WIDE_SMALL, WIDE),
            )
            contenders = {"postgres → Delta": copy_postgres(postgres)}
            if peer_folder is not None:
                contenders |= list_postgres_peers(postgres, peer_folder)
            for name, contender in contenders.items():
                copies[name] = measure_copy(name, contender, rows, folder, work)
        with run_mariadb("innodb-buffer-pool-size=512M") as mariadb:
            for name, count in ((SMALL, 1), (WHOLE, rows)):
                mariadb.execute(MYSQL_TABLE.format(name=name, rows=count))
            contenders = {"mysql → Delta": _copy_mysql(mariadb)}
            if peer_folder is not None:
                contenders["connectorx, MySQL → Parquet"] = copy_by_peer(
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
                copies[name] = measure_copy(name, contender, rows, folder, work)
    return _report(copies)


def copy_postgres(server: PostgresServer) -> Run:
    """Return how an asset of this project copies a table of PostgreSQL."""
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
        stream = {"name": table, "namespace": namespace, "destination_sync_mode": "overwrite"}
        connect(folder, connector, source, config, [stream])
        command = list_command(f'key:"bench/{namespace}/{table}"')
        path = folder / "lake" / "bench" / namespace / table
        return (
            command,
            places(folder),
            lambda: int(DeltaTable(str(path)).to_pyarrow_dataset().count_rows()),
        )

    return prepare


def connect(
    folder: Path,
    connector: str,
    source: type[Source],
    config: Mapping[str, Any],
    streams: Sequence[Mapping[str, Any]],
    **attributes: Any,
) -> None:
    """Configure the connection `bench` to a source, with the catalog that it has."""
    connection = folder / "defs" / "bench"
    connection.mkdir(parents=True)
    attributes |= {
        "name": "bench",
        "source": {"connector": connector, "config": dict(config)},
        "streams": [dict(stream) for stream in streams],
    }
    definitions = {"type": "elt_assets.ConnectionComponent", "attributes": attributes}
    (connection / "defs.yaml").write_text(yaml.safe_dump(definitions, sort_keys=False))
    described = [msgspec.json.decode(s.describe().to_json()) for s in source().open(dict(config))]
    (connection / "catalog.json").write_text(json.dumps({"streams": described}))


def list_command(selection: str) -> Sequence[str]:
    """Return the command that materialises assets."""
    return (
        *(sys.executable, "-m", "dagster", "asset", "materialize"),
        *("-m", "elt_assets.definitions", "--select", selection),
    )


def measure_copy(
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
    starts = [copy_table(name, contender, small, 1, folder, work) for _ in range(2)]
    whole = copy_table(name, contender, whole_table, rows, folder, work)
    start = measure.least([start.cost for start in starts])
    return Copy(name, rows, whole.cost - start, start, whole.python_all_mb)


def copy_table(
    name: str,
    contender: Run,
    table: str,
    rows: int,
    folder: Path,
    work: Path,
    *,
    sample: measure.Sample | None = None,
) -> measure.Run:
    """Copy a table once, in a folder that is removed.

    Raises:
        CommandFailed: the program fails, or rows are missing.
    """
    print(f"sources: {name}, {rows:,} rows", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="copy-", dir=folder) as made:
        command, environment, count = contender(table, Path(made))
        log = work / f"sources-{name.split(' ')[0].strip(',')}-{table}.log"
        done = measure.run(
            command, {**measure.environment(), **environment}, ROOT, log, sample=sample
        )
        copied = count()
    if copied != rows:
        raise measure.CommandFailed(f"{name} left {copied:,} rows of {rows:,}: {log}")
    return done


def _report(copies: Mapping[str, Copy]) -> Report:
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
        Bar(
            "Spark's JDBC beside postgres, core-seconds",
            compare(copies.get(JDBC), ours),
            1.4,
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
        headings=HEADINGS,
        rows=[copy.cells for copy in copies.values()],
        note="costs are those of the client, without its start: a copy of one row",
        bars=bars,
        figures=[asdict(copy) for copy in copies.values()],
    )
