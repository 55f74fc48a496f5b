"""The log of servers that crash, are restored from a backup, or fail over."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import Database, use_cursor
from tests.connectors.postgres.workload import NAMES, TABLES, Workload
from tests.support.postgres import Postgres, find_owner, run_postgres, run_standby

pytestmark = pytest.mark.external


@pytest.fixture
def server() -> Iterator[Postgres]:
    with run_postgres("wal_level=logical") as running:
        running.execute("CREATE SCHEMA s")
        yield running


@pytest.fixture
def lake(server: Postgres) -> Lake:
    database = Database(server, "s")
    database.execute(TABLES.format(p="p"))
    config = database.config(incremental="log", slot="p", publication="p", slice_megabytes=1)
    return Lake(database, config, NAMES)


class Crash:
    """Lets the server crash at one of the next items."""

    def __init__(self, server: Postgres, number: int):
        self._server, self._left = server, number

    def __call__(self, item: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._server.stop(signal.SIGQUIT)
        del item


def run_crashes(lake: Lake, server: Postgres, seed: int) -> None:
    work = Workload(random.Random(seed))
    work.run(lake.database, 20)
    for _ in range(5):
        work.run(lake.database, 10)
        try:
            lake.sync(Crash(server, work.random.randrange(1, 9)))
        except TransientError:
            pass
        finally:
            if server.process is None:
                server.start()
    lake.sync()
    lake.assert_equal()


def test_a_server_that_crashes_is_read_on(lake: Lake, server: Postgres) -> None:
    run_crashes(lake, server, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 10))
def test_servers_that_crash_at_many_moments(lake: Lake, server: Postgres, seed: int) -> None:
    run_crashes(lake, server, seed)


def restore(server: Postgres, backup: Any) -> None:
    server.stop()
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", backup, server.data], check=True, **find_owner(server.folder))
    server.start()


def test_a_restored_backup_is_an_error(lake: Lake, server: Postgres) -> None:
    database = lake.database
    database.execute("INSERT INTO plain (id, name) VALUES (1, 'a')")
    lake.sync()
    server.stop()
    backup = server.folder / "backup"
    subprocess.run(["cp", "-a", server.data, backup], check=True, **find_owner(server.folder))
    server.start()
    database.execute("INSERT INTO plain (id, name) VALUES (2, 'b')")
    lake.sync()
    restore(server, backup)
    with pytest.raises(ConfigError, match="restored from a backup"):
        lake.sync()
    # It goes on, and its log gets longer than it was.
    for number in range(3, 400):
        database.execute(f"INSERT INTO plain (id, name) VALUES ({number}, repeat('c', 100))")
    for _ in range(2):
        with pytest.raises(ConfigError, match="restored from a backup"):
            lake.sync()


def test_a_standby_that_is_promoted_is_an_error(lake: Lake, server: Postgres) -> None:
    database = lake.database
    database.execute("INSERT INTO plain (id, name) VALUES (1, 'a')")
    lake.sync()
    others = [
        database.reader("plain", use_cursor("id"), incremental="cursor"),
        database.reader("plain", use_cursor(None), incremental="xmin"),
    ]
    for reader in others:
        reader.read()
    with run_standby(server) as standby:
        database.execute("INSERT INTO plain (id, name) VALUES (2, 'b')")
        server.stop()
        assert standby.execute("SELECT pg_promote()").strip() == "t"
        lake.config = {**lake.config, "port": standby.port}
        promoted = Database(standby, database.schema)
        for former, mode in zip(others, ("cursor", "xmin"), strict=True):
            cursor = "id" if mode == "cursor" else None
            reader = promoted.reader("plain", use_cursor(cursor), incremental=mode)
            reader.state = former.state
            with pytest.raises(
                ConfigError, match="has the timeline 2, and the state is of 1"
            ) as error:
                reader.read()
            assert "elt reset" in (error.value.guidance or "")
            reader.state = None  # as after `elt reset`
            assert len(reader.read()) == 2
            assert reader.read() == []
        with pytest.raises(ConfigError, match="is gone: the changes since the last sync are lost"):
            lake.sync()
        standby.execute("SELECT pg_create_logical_replication_slot('p', 'pgoutput')")
        with pytest.raises(ConfigError, match="failed over"):
            lake.sync()
