"""How the peers of the sources copy tables of databases."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from benchmarks import peers, spark_peer
from benchmarks.peers import Peer
from tests.support.postgres import Postgres

JDBC = "Spark's JDBC → Parquet"
Run = Callable[[str, Path], tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]]
"""Returns how a table is copied into a folder: the command, its environment, and what counts the rows."""


def list_postgres_peers(server: Postgres, peer_folder: Path) -> dict[str, Run]:
    has_sling = (sys.platform, platform.machine()) == ("linux", "x86_64")
    sling = {"sling → Parquet": peers.SLING} if has_sling else {}
    spark = spark_peer.install_driver(peer_folder)
    jdbc = (
        {} if spark is None else {JDBC: _copy_by_script(sys.executable, "spark", server.url, spark)}
    )
    return {
        "DuckDB's scanner → Parquet": copy_by_peer(
            peers.DUCKDB_SCANNER, "duckdb", server.url, peer_folder
        ),
        "connectorx → Parquet": copy_by_peer(
            peers.CONNECTORX, "connectorx", server.url, peer_folder
        ),
        "dlt, connectorx → Delta": copy_by_peer(peers.DLT, "dlt", server.url, peer_folder),
        **{
            name: copy_by_peer(peer, "sling", server.url, peer_folder)
            for name, peer in sling.items()
        },
        **jdbc,
    }


def copy_by_peer(peer: Peer, method: str, address: str, peer_folder: Path) -> Run:
    """Return how a peer copies a table."""
    peers.ensure(peer, peer_folder)
    return _copy_by_script(peers.interpreter(peer, peer_folder), method, address, {})


def _copy_by_script(
    python: str | Path, method: str, address: str, environment: Mapping[str, str]
) -> Run:
    """Return how a method of the script of peers copies a table."""
    schema = "public." if address.startswith("postgresql") else ""

    def prepare(
        table: str, folder: Path
    ) -> tuple[Sequence[str | Path], Mapping[str, str], Callable[[], int]]:
        script = Path(__file__).with_name("peer_tables.py")
        command = (python, script, method, address, f"{schema}{table}", folder)
        return command, environment, lambda: count_rows(folder, table)

    return prepare


def count_rows(folder: Path, table: str) -> int:
    """Return how many rows a peer has left, in a Delta table or in files of Parquet."""
    delta = folder / "lake" / "bench" / table
    if delta.exists():
        return int(DeltaTable(str(delta)).to_pyarrow_dataset().count_rows())
    query = "SELECT sum(num_rows) FROM parquet_file_metadata(?)"
    files = [str(path) for path in folder.rglob("*.parquet")]
    (count,) = duckdb.execute(query, [files]).fetchone() or (0,)
    return int(count)
