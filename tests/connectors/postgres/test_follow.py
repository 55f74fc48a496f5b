"""Runs that follow the log of PostgreSQL."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.connectors.followed import FOLLOW, Followed
from tests.connectors.postgres.support import Database
from tests.connectors.postgres.test_log_in_the_lake import (
    AUDIT,
    assert_current,
    connect,
    list_audited,
    list_events,
    read_table,
)
from tests.connectors.postgres.workload import NAMES, TABLES, Workload
from tests.support.project import Project
from tests.support.runs import materialize, observations
from tests.support.seeds import read_range

DEDUP = {"destination_sync_mode": "append_dedup"}
pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]


@pytest.fixture
def published(database: Database) -> Iterator[Database]:
    database.execute(TABLES.format(p="lake"))
    yield database
    database.execute("SELECT pg_drop_replication_slot('lake'); DROP PUBLICATION lake")


def cut(database: Database) -> None:
    """End all connections of sources."""
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'elt'"
    )


def restart(database: Database, how: int) -> None:
    database.server.stop(how)
    database.server.start()


def follow(own: Project, database: Database, seed: int) -> Followed:
    """Return runs that follow all tables, of which one is appended to, with what the server does."""
    database.execute(AUDIT.format(s=database.schema))
    work = Workload(random.Random(seed))
    modes = {**dict.fromkeys(NAMES, DEDUP), "plain": {"destination_sync_mode": "append"}}
    connect(own, database, modes, follow=FOLLOW)
    faults = {
        "cut": lambda: cut(database),
        "restart": lambda: restart(database, signal.SIGINT),
        "crash": lambda: restart(database, signal.SIGQUIT),
    }
    return Followed(
        own,
        random.Random(seed),
        lambda: work.run(database, 5, truncates=True),
        faults,
        "connectors.postgres",
    )


def assert_equal(own: Project, database: Database) -> None:
    assert_current(own, database, NAMES[1:])
    assert list_events(own, database) == list_audited(database)


def test_runs_that_fail_anywhere_lose_and_double_nothing(published: Database, own: Project) -> None:
    runs = follow(own, published, seed=1)
    runs.start()
    runs.run_rounds(["failpoint", "connector", "restart"])
    runs.finish()
    assert len(observations(own, "log", published.schema, "plain")) > 1
    assert_equal(own, published)


@pytest.mark.long
@pytest.mark.parametrize("seed", read_range("ELT_FOLLOW_SEEDS", 20))
def test_many_runs_that_are_killed(published: Database, own: Project, seed: int) -> None:
    runs = follow(own, published, seed)
    runs.start()
    runs.run_processes(rounds=8)
    runs.finish()
    assert_equal(own, published)


def test_the_slot_moves_while_only_others_change(published: Database, own: Project) -> None:
    """alias2k/flusso#111, risingwavelabs/risingwave#16697: an idle table keeps the log for ever."""
    connect(own, published, {"plain": DEDUP}, follow={**FOLLOW, "for": "4s"})
    assert materialize(own).success
    published.execute(
        "CREATE TABLE other (n int, t text); "
        "INSERT INTO other SELECT n, repeat(md5(n::text), 60) FROM generate_series(1, 12000) n"
    )
    assert materialize(own).success
    (kept,) = published.lines(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) FROM pg_replication_slots "
        "WHERE slot_name = 'lake'"
    )
    assert float(kept) < 16 << 20


def test_a_run_keeps_no_snapshot_of_the_server(published: Database, own: Project) -> None:
    """A transaction that lasts as long as the run would keep all rows that are deleted meanwhile."""
    connect(own, published, {"plain": DEDUP}, follow=FOLLOW)
    runs = Followed(own, random.Random(0), partial(insert_next, published), {}, "")
    runs.start()
    snapshots: list[str] = []
    runs.faults = {"look": lambda: snapshots.extend(list_snapshots(published))}
    runs.run_rounds(["look"])
    assert snapshots == ["none"]


def insert_next(database: Database) -> None:
    database.execute("INSERT INTO plain (id) SELECT coalesce(max(id), 0) + 1 FROM plain")


def list_snapshots(database: Database) -> list[str]:
    """Return the oldest transactions that sessions of sources see which are open for some time."""
    query = (
        "SELECT coalesce(backend_xmin::text, 'none') FROM pg_stat_activity WHERE application_name = 'elt' "
        "AND state LIKE 'idle%' AND xact_start < now() - interval '2 seconds'"
    )
    end = time.monotonic() + 30
    while not (lines := database.lines(query)) and time.monotonic() < end:
        time.sleep(0.2)
    return lines


def test_events_of_a_table_name_the_rows_that_came(published: Database, own: Project) -> None:
    connect(own, published, {"plain": DEDUP, "wide": DEDUP}, follow=FOLLOW)
    runs = Followed(own, random.Random(0), partial(insert_next, published), {}, "")
    runs.start()
    names = ("plain", "wide")
    before = {name: len(observations(own, "log", published.schema, name)) for name in names}
    runs.run_rounds(["nothing"])
    assert len(read_table(own, published, "plain")) > 3
    plain, wide = (observations(own, "log", published.schema, n)[before[n] :] for n in names)
    assert plain
    assert all(event["elt/records_committed"] for event in plain)
    assert all(0 <= event["elt/source_lag_seconds"] < 30 for event in plain)
    assert wide == []
