"""One server for the tests of the source, and one with a log; each test has tables of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connectors.mysql.logs import run_logged
from tests.support.mariadb import MariaDb, run_mariadb


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    with run_mariadb() as server:
        yield server


@pytest.fixture
def shop(mariadb: MariaDb) -> MariaDb:
    """The server with an empty database `shop`."""
    mariadb.execute("DROP DATABASE shop; CREATE DATABASE shop", "mysql")
    return mariadb


@pytest.fixture(scope="session")
def server() -> Iterator[MariaDb]:
    with run_logged() as server:
        yield server


@pytest.fixture
def logged(server: MariaDb) -> MariaDb:
    """A server with a log, and an empty database `shop`."""
    server.execute("DROP DATABASE shop; CREATE DATABASE shop", "mysql")
    return server
