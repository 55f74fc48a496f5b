"""Runs that follow the log of MariaDB."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.connectors.followed import FOLLOW, Followed
from tests.connectors.mysql.audit import AUDIT, list_audited, list_events
from tests.connectors.mysql.logs import run_logged
from tests.connectors.mysql.test_log_in_the_lake import assert_current, connect, read_table
from tests.connectors.mysql.workload import NAMES, TABLES, Workload
from tests.support.mariadb import MariaDb
from tests.support.project import Project
from tests.support.seeds import read_range

DEDUP = {"destination_sync_mode": "append_dedup"}
pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]


@pytest.fixture
def logged() -> Iterator[MariaDb]:
    with run_logged() as server:
        server.execute(TABLES)
        yield server


def cut(server: MariaDb) -> None:
    """End all connections of the source."""
    for (number,) in server.texts(
        "SELECT id FROM information_schema.processlist WHERE user = 'elt'"
    ):
        with contextlib.suppress(AssertionError):  # it has ended
            server.execute(f"KILL {number}")


def restart(server: MariaDb) -> None:
    server.stop()
    server.start()


def follow(own: Project, server: MariaDb, seed: int) -> Followed:
    """Return runs that follow all tables, of which one is appended to, with what the server does."""
    server.execute(AUDIT)
    work = Workload(random.Random(seed))
    connect(
        own, server, {**dict.fromkeys(NAMES, DEDUP), "plain": {"destination_sync_mode": "append"}}
    )
    own.amend("log", follow=FOLLOW)
    faults = {"cut": lambda: cut(server), "restart": lambda: restart(server)}
    changes = lambda: work.run(server, 5, truncates=True)  # noqa: E731 - it is a value
    return Followed(own, random.Random(seed), changes, faults, "connectors.mysql")


def assert_equal(own: Project, server: MariaDb) -> None:
    assert_current(own, server, NAMES[1:])
    rows = sorted(read_table(own, "plain"), key=lambda row: row["_ab_cdc_cursor"])
    assert list_events(rows) == list_audited(server)


def test_runs_that_fail_anywhere_lose_and_double_nothing(logged: MariaDb, own: Project) -> None:
    runs = follow(own, logged, seed=1)
    runs.start()
    runs.run_rounds(["failpoint", "cut", "restart"])
    runs.finish()
    assert_equal(own, logged)


@pytest.mark.long
@pytest.mark.parametrize("seed", read_range("ELT_FOLLOW_SEEDS", 20))
def test_many_runs_that_are_killed(logged: MariaDb, own: Project, seed: int) -> None:
    runs = follow(own, logged, seed)
    runs.start()
    runs.run_processes(rounds=8)
    runs.finish()
    assert_equal(own, logged)


def test_a_new_column_is_there_from_its_first_row_on(logged: MariaDb, own: Project) -> None:
    logged.execute("CREATE TABLE fresh (id int PRIMARY KEY, name text)")
    connect(own, logged, {"fresh": {**DEDUP, "on_undeclared": "add"}})
    own.amend("log", follow={**FOLLOW, "for": "5m"})
    logged.execute("INSERT INTO fresh VALUES (1, 'a')")
    runs = Followed(own, random.Random(0), lambda: None, {"alter": partial(alter, own, logged)}, "")
    runs.start()
    runs.run_rounds(["alter"])
    rows = {row["id"]: row["due"] for row in read_table(own, "fresh")}
    assert rows[1] is None
    assert str(rows[2]) == "2026-01-31"


def alter(own: Project, server: MariaDb) -> None:
    """Add a column and a row, and stop the run when it has the row."""
    server.execute("ALTER TABLE fresh ADD COLUMN due date")
    server.execute("INSERT INTO fresh VALUES (2, 'b', '2026-01-31')")
    end = time.monotonic() + 90
    while len(read_table(own, "fresh")) < 2 and time.monotonic() < end:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
