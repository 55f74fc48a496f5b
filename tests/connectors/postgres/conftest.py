"""One PostgreSQL server for the tests of this source; each test has a schema of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.connectors.postgres.support import Database
from tests.support.postgres import Postgres, run_postgres

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with run_postgres("wal_level=logical") as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    schema = f"s{next(_NUMBERS)}"
    server.execute(f"CREATE SCHEMA {schema}")
    yield Database(server, schema)
    server.execute(f"DROP SCHEMA {schema} CASCADE")
