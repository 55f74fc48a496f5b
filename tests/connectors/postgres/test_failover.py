"""The log of a standby of PostgreSQL 17 that was promoted, and had synchronized the slot."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import Database
from tests.connectors.postgres.test_versions import VERSIONS
from tests.e2e.daemons import wait
from tests.support.postgres import Postgres, copy_standby, run_postgres
from tests.support.project import REPOSITORY

pytestmark = [pytest.mark.external, pytest.mark.long]

SETTINGS = ("wal_level=logical", "hot_standby_feedback=on", "max_wal_senders=10")
TABLES = (
    "CREATE SCHEMA s; CREATE TABLE s.a (id int PRIMARY KEY, v text); CREATE TABLE s.other (v text); "
    "CREATE TABLE s.b (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE s.a, s.b; "
    "INSERT INTO s.a VALUES (1, 'x'), (2, 'y'); INSERT INTO s.b VALUES (1, 'x')"
)
SYNCED = (
    "SELECT confirmed_flush_lsn FROM pg_replication_slots "
    "WHERE slot_name = 'p' AND synced AND NOT temporary"
)


@pytest.fixture(scope="module", params=[17, 18])
def version(request: pytest.FixtureRequest) -> Iterator[int]:
    """The version of the servers, whose programs are fetched."""
    with tempfile.TemporaryDirectory(prefix="elt-pg-programs-") as folder:
        Path(folder).chmod(0o755)
        script = [
            str(REPOSITORY / "scripts" / "fetch-postgres.sh"),
            VERSIONS[request.param],
            folder,
        ]
        fetched = subprocess.run(script, capture_output=True, text=True, check=False)
        assert fetched.returncode == 0, fetched.stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("POSTGRES_BIN", fetched.stdout.strip())
            yield request.param


@dataclass
class Pair:
    """A primary with its standby, and a lake that reads the primary's log."""

    primary: Postgres
    standby: Postgres
    lake: Lake

    def begin(self) -> None:
        """Sync until the standby has taken on the slot: that must have moved past the standby's own start."""
        for number in range(1000, 1020):
            self.primary.execute(
                f"INSERT INTO s.a VALUES ({number}); SELECT pg_log_standby_snapshot()"
            )
            self.lake.sync()
            time.sleep(0.5)
            if self.standby.execute(SYNCED):
                break
        self.wait_for_slot()

    def wait_for_slot(self) -> None:
        """Wait until the standby has the slot at the place where it is."""
        place = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'p'"
        wait(
            lambda: self.standby.execute(SYNCED) == self.primary.execute(place),
            "the slot is synchronized",
        )

    def fail_over(self) -> None:
        self.primary.stop(signal.SIGQUIT)
        assert self.standby.execute("SELECT pg_promote()").strip() == "t"
        self.lake.config = {**self.lake.config, "port": self.standby.port}
        self.lake.database = Database(self.standby, "s")


@pytest.fixture
def pair(version: int) -> Iterator[Pair]:
    with run_pair("failover_slot") as pair:
        yield pair


@contextmanager
def run_pair(*options: str) -> Iterator[Pair]:
    with run_postgres(*SETTINGS) as primary:
        primary.execute(f"{TABLES}; SELECT pg_create_physical_replication_slot('standby', true)")
        with copy_standby(
            primary, "primary_slot_name=standby", "sync_replication_slots=on"
        ) as standby:
            database = Database(primary, "s")
            more: dict[str, Any] = dict.fromkeys(options, True)
            config = database.config(incremental="log", slot="p", publication="p", **more)
            yield Pair(primary, standby, Lake(database, config, ["a", "b"]))


def write(server: Postgres, first: int) -> None:
    for number in range(first, first + 3):
        server.execute(
            f"INSERT INTO s.a VALUES ({number}, 'n'); DELETE FROM s.b WHERE id = {number - 5}"
        )
        server.execute(
            f"INSERT INTO s.b VALUES ({number}, 'n'); UPDATE s.a SET v = '{number}' WHERE id = 1"
        )


def test_the_log_of_a_promoted_standby_is_read_on(pair: Pair) -> None:
    pair.begin()
    write(pair.primary, 10)
    pair.lake.sync()
    write(pair.primary, 20)
    pair.wait_for_slot()
    lsn = pair.primary.execute("SELECT pg_current_wal_flush_lsn()").strip()
    wait(
        lambda: pair.standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'").strip() == "t",
        "the standby has all",
    )
    pair.fail_over()
    write(pair.standby, 30)
    for first in (40, 50):
        pair.lake.sync()
        pair.lake.assert_equal()
        write(pair.standby, first)
    pair.lake.sync()
    pair.lake.assert_equal()
    assert not pair.lake.told


def test_a_state_whose_log_the_new_primary_lacks_is_an_error_of_the_table(pair: Pair) -> None:
    """patroni/patroni, issue 1749; EnterpriseDB/pg_failover_slots, pull request 50."""
    pair.begin()
    write(pair.primary, 10)
    pair.lake.sync()
    pair.wait_for_slot()
    pair.standby.stop()
    pair.primary.execute("INSERT INTO s.a VALUES (90, 'lost')")
    pair.lake.names = ["a"]
    pair.lake.sync()
    pair.lake.names = ["a", "b"]
    pair.primary.stop(signal.SIGQUIT)
    pair.standby.start()
    pair.fail_over()
    write(pair.standby, 30)
    with pytest.raises(ConfigError, match=r"s\.a has the transaction at .* does not have") as error:
        pair.lake.sync()
    assert "(`elt reset`)" in (error.value.guidance or "")
    assert list(pair.lake.failures) == ["a"]
    pair.lake.reset("a")
    pair.lake.sync()
    pair.lake.assert_equal()


def test_changes_at_places_of_the_log_that_were_read_before_are_not_left_out(pair: Pair) -> None:
    """The former primary wrote on, but nothing of the tables: their position is after the fork, and so are
    the numbers of rows that were read anew."""
    pair.begin()
    write(pair.primary, 10)
    pair.lake.sync()
    pair.wait_for_slot()
    pair.standby.stop()
    fill = "INSERT INTO s.other SELECT repeat(md5(n::text), 30) FROM generate_series(1, 30000) n"
    pair.primary.execute(fill)
    pair.lake.sync()
    pair.lake.reset("a")
    pair.lake.sync()
    pair.primary.execute(fill)
    pair.lake.sync()
    pair.primary.stop(signal.SIGQUIT)
    pair.standby.start()
    pair.fail_over()
    write(pair.standby, 30)
    pair.lake.sync()
    pair.lake.assert_equal()
    write(pair.standby, 40)
    pair.lake.sync()
    pair.lake.assert_equal()


def test_a_slot_that_was_made_again_after_the_failover_is_an_error(pair: Pair) -> None:
    pair.begin()
    write(pair.primary, 10)
    pair.lake.sync()
    pair.wait_for_slot()
    pair.fail_over()
    pair.standby.execute("SELECT pg_drop_replication_slot('p')")
    write(pair.standby, 30)
    pair.standby.execute("SELECT pg_create_logical_replication_slot('p', 'pgoutput')")
    with pytest.raises(ConfigError, match="had not synchronized the slot") as error:
        pair.lake.sync()
    assert "(`elt reset`)" in (error.value.guidance or "")
    pair.lake.reset_all()
    pair.lake.sync()
    pair.lake.assert_equal()


def test_a_slot_that_was_not_synchronized_is_an_error(version: int) -> None:
    """EnterpriseDB/pg_failover_slots, issue 25."""
    with run_pair() as pair:
        pair.lake.sync()
        pair.fail_over()
        with pytest.raises(ConfigError, match="is gone: the changes since the last sync are lost"):
            pair.lake.sync()
        pair.lake.reset_all()
        pair.lake.sync()
        pair.lake.assert_equal()


def test_a_slot_that_was_made_for_no_failover_is_refused_by_the_check(version: int) -> None:
    with run_pair() as pair:
        pair.lake.sync()
        pair.lake.config = {**pair.lake.config, "failover_slot": True}
        source = pair.lake.open_source()
        with pytest.raises(ConfigError, match="was not made for a failover") as error:
            source.check(source.parse(pair.lake.config))
        assert "ALTER_REPLICATION_SLOT p (FAILOVER)" in (error.value.guidance or "")
        command = [*pair.primary._client("psql"), "replication=database dbname=postgres"]
        done = subprocess.run(
            [*command, "-c", "ALTER_REPLICATION_SLOT p (FAILOVER)"],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        source.check(source.parse(pair.lake.config))
        pair.begin()
