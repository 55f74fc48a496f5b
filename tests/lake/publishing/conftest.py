from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lake.publishing.catalogs import KINDS, Server, catalog_server
from tests.support.iceberg_catalogs import RestCatalog, rest_catalog
from tests.support.iceberg_readers import DuckDb, duckdb_process

StartServer = Callable[[str], Server]


@pytest.fixture(scope="package")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Returns the server of a kind of catalog, which is started with its first test."""
    servers: dict[str, Server] = {}
    with ExitStack() as opened:

        def start(kind: str) -> Server:
            if kind not in servers:
                folder = tmp_path_factory.mktemp(kind)
                servers[kind] = opened.enter_context(catalog_server(kind, folder))
            servers[kind].new_database()
            servers[kind].proxy.plan(())
            return servers[kind]

        yield start


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, started: StartServer) -> Server:
    """The server of each kind of catalog, with a database of the test's own."""
    return started(request.param)


@pytest.fixture
def glue(started: StartServer) -> Server:
    return started("glue")


@pytest.fixture
def hive(started: StartServer) -> Server:
    return started("hive")


@pytest.fixture
def unity(started: StartServer) -> Server:
    return started("unity")


@pytest.fixture(scope="package")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """A REST catalog of Iceberg tables over S3."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as catalog:
        yield catalog


@pytest.fixture(scope="package")
def duck(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDb]:
    """DuckDB with its extension for Iceberg."""
    with duckdb_process(packages, tmp_path_factory.mktemp("duckdb")) as process:
        yield process
