"""A server with a log, and reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.connectors.logged import Lake
from tests.e2e.daemons import wait
from tests.support.mariadb import MariaDb, run_mariadb

SOURCE = "connectors.mysql.source:MySql"
SETTINGS = ("log-bin=bin", "server-id=7", "binlog-format=ROW", "binlog-row-metadata=FULL")
GRANT = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO elt@'127.0.0.1'"


@contextmanager
def run_logged(*settings: str) -> Iterator[MariaDb]:
    """Run a server whose log can be read."""
    with run_mariadb(*SETTINGS, *settings) as server:
        server.execute(GRANT)
        yield server


FOLLOW = (
    "SET GLOBAL read_only = 1; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, "
    "MASTER_USER = 'repl', MASTER_USE_GTID = {use}; START SLAVE"
)
PROMOTE = "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0"


@contextmanager
def run_pair() -> Iterator[tuple[MariaDb, MariaDb]]:
    """Run two servers, which `begin_pair` makes a primary and its replica."""
    with run_logged() as first, run_logged("server-id=8", "log-slave-updates") as second:
        yield first, second


def begin_pair(primary: MariaDb, replica: MariaDb, tables: str) -> None:
    """Let the log of a primary begin now, with some tables, and a replica follow it."""
    for server in (primary, replica):
        server.execute(f"{PROMOTE}; SET sql_log_bin = 0; DROP DATABASE IF EXISTS shop", "mysql")
        server.execute("RESET MASTER; SET GLOBAL gtid_slave_pos = ''", "mysql")
        server.execute(
            f"SET sql_log_bin = 0; {GRANT}; CREATE OR REPLACE USER repl@'127.0.0.1'; "
            "GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'",
            "mysql",
        )
    primary.execute("CREATE DATABASE shop", "mysql")
    primary.execute(tables)
    replica.execute(FOLLOW.format(port=primary.port, use="slave_pos"), "mysql")
    catch_up(replica, primary)


def catch_up(replica: MariaDb, primary: MariaDb) -> None:
    """Wait until a replica has all transactions."""
    wait(lambda: _read_position(replica) == _read_position(primary), "the replica has caught up")


def _read_position(server: MariaDb) -> str:
    return server._run("SELECT @@gtid_binlog_pos", "mysql", "-BN").stdout.strip()


def make_lake(server: MariaDb, *names: str, **config: Any) -> Lake:
    """Return a lake without any rows of some tables."""
    options = {"incremental": "log", "slice_rows": 200, "window_megabytes": 1, **config}
    return Lake(SOURCE, server.config(**options), names)


def rows_of(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(msgspec.json.encode(row, order="sorted").decode() for row in rows)


def assert_equal(lake: Lake) -> None:
    """Check that the lake has the rows that a snapshot shows now."""
    fresh = Lake(SOURCE, lake.config, lake.names)
    fresh.sync()
    for name in lake.names:
        assert rows_of(lake.rows(name)) == rows_of(fresh.rows(name)), name
