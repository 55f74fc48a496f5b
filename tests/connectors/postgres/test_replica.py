"""Tables that are read at a standby, and whose log is read at the primary."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Slice
from connectors.sdk.groups import StreamPart
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import (
    FULL,
    Database,
    end_transaction,
    start_transaction,
    use_cursor,
)
from tests.connectors.postgres.test_comparison import ask
from tests.connectors.postgres.workload import NAMES, TABLES, Workload
from tests.connectors.row_hashes import list_ranges
from tests.e2e.daemons import wait
from tests.support.postgres import Postgres, run_postgres, run_standby

pytestmark = pytest.mark.external

SETTINGS = (
    "wal_level=logical",
    "max_standby_streaming_delay=500ms",
    "wal_receiver_status_interval=1s",
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    with (
        run_postgres(*SETTINGS) as primary,
        run_standby(primary) as standby,
    ):
        yield primary, standby


@pytest.fixture
def standby(pair: tuple[Postgres, Postgres]) -> Postgres:
    return pair[1]


@pytest.fixture
def database(pair: tuple[Postgres, Postgres], request: pytest.FixtureRequest) -> Iterator[Database]:
    schema = f"r{abs(hash(request.node.name)) % 10**9}"
    pair[0].execute(f"CREATE SCHEMA {schema}")
    yield Database(pair[0], schema)
    pair[0].execute(
        f"DROP SCHEMA {schema} CASCADE; SELECT pg_drop_replication_slot(slot_name) "
        "FROM pg_replication_slots WHERE slot_type = 'logical'"
    )
    pair[1].execute("SELECT pg_wal_replay_resume()")


def use_replica(standby: Postgres, **more: Any) -> dict[str, Any]:
    return {"replica": {"host": "127.0.0.1", "port": standby.port, **more}}


def count_reads(server: Postgres, schema: str) -> int:
    """How many rows of tables of a schema the server has read by scans."""
    query = f"SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE schemaname = '{schema}'"
    return int(server.execute(query))


def test_slices_and_comparisons_read_the_replica_alone(
    database: Database, standby: Postgres, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT n, 'a' FROM generate_series(1, 1000) n")
    before = count_reads(database.server, database.schema)
    for mode in (FULL, use_cursor("id"), use_cursor(None)):
        more = use_replica(standby)
        more |= {} if "cursor_field" in mode or mode is FULL else {"incremental": "xmin"}
        reader = database.reader("t", mode, **more)
        assert len(reader.read()) == 1000
        database.execute("INSERT INTO t VALUES (1001, 'new')")
        rows = reader.read()
        assert rows[-1]["v"] == "new" and len(rows) == (1001 if mode is FULL else 1)
        database.execute("DELETE FROM t WHERE id = 1001")
    messages = ask(database, tmp_path, config=use_replica(standby))
    assert sum(part[2] for part in list_ranges(messages)) == 1000
    assert count_reads(database.server, database.schema) - before < 1000


def test_a_snapshot_of_the_replica_and_the_log_of_the_primary_are_one(
    database: Database, standby: Postgres
) -> None:
    """A standby does not know which transactions are open: one that commits later is not lost."""
    name = f"p_{database.schema}"
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); "
        "CREATE TABLE b (id int PRIMARY KEY, v text); INSERT INTO b VALUES (1, 'x'), (2, 'y'); "
        f"CREATE PUBLICATION {name} FOR TABLE a, b"
    )
    config = database.config(incremental="log", slot=name, publication=name, **use_replica(standby))
    lake = Lake(database, config, ["a", "b"])
    transactions: list[Any] = []

    def write(item: Any) -> None:
        if not isinstance(item, StreamPart) or not isinstance(item.item, Slice):
            return
        if not transactions:  # the slot is there, and no snapshot of b
            update = "UPDATE b SET v = 'late' WHERE id = 1;"
            transactions.append(start_transaction(database, update))
            database.execute("INSERT INTO b VALUES (3, 'c'); DELETE FROM b WHERE id = 2")
        elif item.stream.name == "b" and len(transactions) == 1:
            end_transaction(transactions[0], "COMMIT")
            transactions.append(None)
            database.execute("UPDATE b SET v = 'later' WHERE id = 3")

    lake.sync(write)
    assert len(transactions) == 2
    lake.assert_equal()
    lake.sync()
    lake.assert_equal()


def test_tables_equal_the_database_after_a_workload(database: Database, standby: Postgres) -> None:
    run_work(database, standby, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 30))
def test_tables_equal_the_database_after_many_workloads(
    database: Database, standby: Postgres, seed: int
) -> None:
    run_work(database, standby, seed)


def run_work(database: Database, standby: Postgres, seed: int) -> None:
    name = f"p_{database.schema}"
    database.execute(TABLES.format(p=name))
    config = database.config(
        incremental="log", slot=name, publication=name, slice_megabytes=1, **use_replica(standby)
    )
    lake = Lake(database, config, NAMES)
    work = Workload(random.Random(seed))
    work.run(database, 30)

    def go_on(item: Any) -> None:
        del item
        if work.random.random() < 0.4:
            work.run(database, 2)

    for _ in range(4):
        if work.random.random() < 0.5:
            lake.reset(work.random.choice(NAMES))
        try:
            lake.sync(go_on)
        except TransientError:  # the standby replays what a slice would have to see
            continue
    lake.sync()
    lake.assert_equal()


def test_a_stream_that_appends_has_its_first_read_at_the_primary(
    database: Database, standby: Postgres
) -> None:
    name = f"p_{database.schema}"
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 500); "
        f"CREATE PUBLICATION {name} FOR TABLE t"
    )
    config = database.config(incremental="log", slot=name, publication=name, **use_replica(standby))
    before = count_reads(database.server, database.schema)
    lake = Lake(database, config, ["t"])
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    lake.sync()
    assert count_reads(database.server, database.schema) - before >= 500
    assert len(lake.tables["t"].events) == 500


def test_a_replica_that_is_behind_is_waited_for_and_then_an_error(
    database: Database, standby: Postgres, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    config = use_replica(standby, wait_seconds=1)
    database.reader("t", FULL, **config).read()
    standby.execute("SELECT pg_wal_replay_pause()")
    database.execute("INSERT INTO t VALUES (1)")
    problem = r"the replica 127\.0\.0\.1:\d+ is \d+ kB of the log"
    with pytest.raises(TransientError, match=problem):
        database.reader("t", FULL, **config).read()
    with pytest.raises(TransientError, match=problem):
        ask(database, tmp_path, config=config)
    standby.execute("SELECT pg_wal_replay_resume()")
    config = use_replica(standby, wait_seconds=60)
    assert database.reader("t", FULL, **config).read() == [{"id": 1}]


def test_a_server_that_is_no_standby_of_the_primary_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(ConfigError, match="it replays no log") as error:
        database.reader("t", FULL, **use_replica(database.server)).read()
    assert "correct `replica`" in (error.value.guidance or "")
    with run_postgres() as other, pytest.raises(ConfigError, match="it is the server"):
        database.reader("t", FULL, **use_replica(other)).read()


def test_a_read_that_the_standby_ends_is_transient_and_says_what_helps(
    database: Database, standby: Postgres
) -> None:
    """airbytehq/airbyte, issue 12644; transferwise/pipelinewise-tap-postgres, issue 113."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); "
        "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 6000) n"
    )
    config = {**use_replica(standby), "limits": {"rows_per_second": 2500}, "slice_megabytes": 1}

    def vacuum(number: int) -> None:
        if number == 1:
            database.execute("UPDATE t SET v = 'y'")
            database.server.execute(f"VACUUM {database.schema}.t")

    with pytest.raises(TransientError) as error:
        database.reader("t", FULL, **config).read(vacuum)
    assert_conflict(error.value)
    standby.execute("ALTER SYSTEM SET hot_standby_feedback = on")
    standby.execute("SELECT pg_reload_conf()")
    held = "SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL"
    wait(lambda: database.execute(held).strip() == "1", "the standby tells what it reads")
    assert len(database.reader("t", FULL, **config).read(vacuum)) == 6000
    standby.execute("ALTER SYSTEM RESET hot_standby_feedback")
    standby.execute("SELECT pg_reload_conf()")


def test_a_read_that_the_standby_ends_in_the_middle_of_a_result_is_transient(
    database: Database, standby: Postgres
) -> None:
    """The driver gives no state of such an error."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); "
        "INSERT INTO t SELECT n, repeat('x', 2000) FROM generate_series(1, 40000) n"
    )
    vacuum = f"UPDATE {database.schema}.t SET v = 'y'; VACUUM {database.schema}.t"
    limits = {"rows_per_second": 8000}
    with ThreadPoolExecutor(1) as pool:

        def vacuum_while_it_is_read() -> None:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'"
            wait(lambda: int(standby.execute(waits)) > 0, "a result is read")
            for statement in vacuum.split("; "):
                database.server.execute(statement)

        done = pool.submit(vacuum_while_it_is_read)
        with pytest.raises(TransientError, match=r"^[^[]*conflict with recovery") as error:
            database.reader("t", FULL, **use_replica(standby), limits=limits).read()
        done.result()
    assert_conflict(error.value)


def assert_conflict(error: TransientError) -> None:
    assert "hot_standby_feedback = on" in (error.guidance or "")
