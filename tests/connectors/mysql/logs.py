"""A server with a log, and reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.connectors.logged import Lake
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
