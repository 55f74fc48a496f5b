"""Syncs through a pool of transactions: what a session keeps, another one would get."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from connectors.sdk.groups import StreamPart
from elt_assets.errors import TransientError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import FULL, Database, Json
from tests.e2e.daemons import free_ports, wait
from tests.support.postgres import Postgres, find_owner
from tests.support.project import find_program

pytestmark = pytest.mark.external

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=elt
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
unix_socket_dir =
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture(scope="module")
def pool(server: Postgres) -> Iterator[int]:
    """The port of a pool of transactions before the server."""
    program = find_program("pgbouncer")
    (port,) = free_ports(1)
    folder = server.folder
    settings = folder / "pool.ini"
    settings.write_text(SETTINGS.format(server=server.port, port=port))
    with (folder / "pool.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(settings)], stdout=log, stderr=log, **find_owner(folder)
        )
    through = Postgres(server.programs, folder, port)
    try:
        wait(through.is_up, f"pgbouncer, see {folder / 'pool.log'}")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_the_log_is_read_through_a_pool_and_by_one_sync_at_a_time(
    database: Database, pool: int
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT n, 'v' FROM "
        "generate_series(1, 100) n; CREATE PUBLICATION pooled FOR TABLE a"
    )
    config: Json = {**database.config(), "port": pool, "wait_seconds": 5}
    lake = Lake(
        database, {**config, "incremental": "log", "slot": "pooled", "publication": "pooled"}, ["a"]
    )
    other = Lake(database, lake.config, ["a"])
    refused: list[TransientError] = []

    def sync_another(item: object) -> None:
        if isinstance(item, StreamPart) and not refused:
            with pytest.raises(TransientError, match="another sync reads the slot") as caught:
                other.sync()
            refused.append(caught.value)

    lake.sync(sync_another)
    assert refused
    for number in range(3):
        database.execute(
            f"UPDATE a SET v = 'w' WHERE id = {number + 1}; DELETE FROM a WHERE id = 50"
        )
        lake.sync()
    lake.assert_equal()
    assert database.lines("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == ["0"]
    lake.reset_all()


def test_a_snapshot_is_read_through_a_pool(database: Database, pool: int) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT n, md5(n::text) FROM "
        "generate_series(1, 30000) n; ANALYZE a"
    )
    reader = database.reader("a", FULL, port=pool, slice_megabytes=1)
    rows = reader.read(lambda _: database.execute("UPDATE a SET v = '' WHERE id % 1000 = 0"))
    assert len(reader.slices) > 1
    assert len(rows) == 30000
    assert all(len(row["v"]) == 32 for row in rows)
