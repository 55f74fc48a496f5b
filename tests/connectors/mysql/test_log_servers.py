"""Positions that are not those of the server: another one, a restored one, a log that begins anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elt_assets.errors import ConfigError
from tests.connectors.logged import Lake
from tests.connectors.mysql.logs import assert_equal, make_lake, run_logged
from tests.e2e.daemons import wait
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

TABLE = (
    "CREATE TABLE a (id int PRIMARY KEY, v varchar(20)); INSERT INTO a VALUES (1, 'x'), (2, 'y');"
)
WORK = "INSERT INTO other VALUES (1);" * 60
REPLACED = "has another log than the one that shop.a was read from"


@pytest.fixture(scope="module")
def first() -> Iterator[MariaDb]:
    with run_logged() as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Iterator[MariaDb]:
    """A server with the same number, as all have that do not set it."""
    with run_logged() as server:
        yield server


def prepare(server: MariaDb, other: str = "other (a int)") -> None:
    """Let the log begin anew, with a table. `other`: how another one is created."""
    server.execute("DROP DATABASE shop; CREATE DATABASE shop; RESET MASTER", "mysql")
    server.execute(f"CREATE TABLE {other}; {TABLE}")


@pytest.mark.parametrize(
    "changes", ["", "UPDATE a SET v = 'changed' WHERE id = 1", "FLUSH BINARY LOGS"]
)
@pytest.mark.parametrize("flushes", [False, True])
def test_a_dump_that_is_restored_elsewhere_is_an_error_until_a_reset(
    first: MariaDb, second: MariaDb, changes: str, *, flushes: bool
) -> None:
    """The other server has transactions with the same numbers, and more; and fewer files, or more."""
    prepare(first)
    prepare(second, "other (a bigint)")
    lake = make_lake(first, "a")
    if changes == "FLUSH BINARY LOGS":
        first.execute(changes)
    lake.sync()
    first.execute(f"INSERT INTO other VALUES (1); {changes}")
    lake.sync()
    if flushes:
        # The files of both begin with the second in which they were made.
        second.execute("SELECT SLEEP(1.1); FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS")
    second.execute(f"{WORK} INSERT INTO a VALUES (4, 'new'); DELETE FROM a WHERE id = 2")
    lake.config = {**lake.config, "port": second.port}
    with pytest.raises(ConfigError, match=REPLACED) as error:
        lake.sync()
    assert "reset the streams of the connection (`elt reset`)" in (error.value.guidance or "")
    lake.reset("a")
    lake.sync()
    assert_equal(lake)


def test_a_log_that_began_anew_and_has_as_many_transactions_is_an_error(first: MariaDb) -> None:
    prepare(first)
    lake = make_lake(first, "a")
    first.execute("FLUSH BINARY LOGS; INSERT INTO a VALUES (3, 'z')")
    lake.sync()
    first.execute(f"RESET MASTER; DELETE FROM a WHERE id = 3; {WORK}")
    with pytest.raises(ConfigError, match=REPLACED):
        lake.sync()


@pytest.fixture
def quiet(first: MariaDb) -> Lake:
    """A lake that has all changes, on a server whose log goes on in another file."""
    prepare(first)
    lake = make_lake(first, "a")
    lake.sync()
    first.execute("INSERT INTO a VALUES (3, 'z')")
    lake.sync()
    first.execute("FLUSH BINARY LOGS")
    return lake


def purge(server: MariaDb) -> None:
    last = server.texts("SHOW BINARY LOGS")[-1][0]

    def is_purged() -> bool:  # the server keeps a file for a moment that is in use
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return server.texts("SHOW BINARY LOGS")[0][0] == last

    wait(is_purged, "the log is purged")


def test_a_log_whose_read_part_was_purged_goes_on(quiet: Lake, first: MariaDb) -> None:
    purge(first)
    first.execute("INSERT INTO a VALUES (4, 'q')")
    quiet.sync()
    assert_equal(quiet)


def test_a_log_whose_unread_part_was_purged_is_an_error(quiet: Lake, first: MariaDb) -> None:
    first.execute("INSERT INTO a VALUES (4, 'q'); FLUSH BINARY LOGS")
    purge(first)
    first.execute("INSERT INTO a VALUES (5, 'q')")
    with pytest.raises(ConfigError, match="the log cannot be read") as error:
        quiet.sync()
    assert "(`elt reset`)" in (error.value.guidance or "")
    quiet.reset("a")
    quiet.sync()
    assert_equal(quiet)


def test_a_right_that_is_missing_is_not_taken_for_another_log(quiet: Lake, first: MariaDb) -> None:
    first.execute("REVOKE REPLICATION SLAVE ON *.* FROM elt@'127.0.0.1'")
    try:
        with pytest.raises(ConfigError, match="REPLICATION SLAVE") as error:
            quiet.sync()
    finally:
        first.execute("GRANT REPLICATION SLAVE ON *.* TO elt@'127.0.0.1'")
    assert error.value.guidance == "grant the right that the message names"


def test_a_log_under_another_name_is_another_log(quiet: Lake, first: MariaDb) -> None:
    settings = first.settings
    first.stop()
    try:
        first.settings = (*settings, "log-bin=renamed")
        first.start()
        first.execute(f"{WORK} INSERT INTO a VALUES (9, 'q')")
        with pytest.raises(ConfigError, match=f"{REPLACED}|not have all transactions"):
            quiet.sync()
    finally:
        first.stop()
        first.settings = settings
        first.start()


@pytest.mark.parametrize("setting", ["binlog-ignore-db=shop", "binlog-do-db=other"])
def test_a_log_without_the_database_is_an_error(quiet: Lake, first: MariaDb, setting: str) -> None:
    settings = first.settings
    first.stop()
    try:
        first.settings = (*settings, setting)
        first.start()
        with pytest.raises(ConfigError, match="does not write changes of shop into its log"):
            quiet.sync()
    finally:
        first.stop()
        first.settings = settings
        first.start()


def test_a_server_of_another_number_that_lacks_the_transactions_is_an_error(first: MariaDb) -> None:
    """PeerDB-io/peerdb, pull request 4523: a replica that logged only its own transactions is promoted."""
    prepare(first)
    lake = make_lake(first, "a")
    first.execute("INSERT INTO a VALUES (3, 'z')")
    lake.sync()
    first.execute("UPDATE a SET v = 'changed'")
    lake.sync()
    with run_logged("server-id=8") as other:
        prepare(other)
        other.execute(f"{WORK} INSERT INTO a VALUES (4, 'new')")
        lake.config = {**lake.config, "port": other.port}
        with pytest.raises(ConfigError, match="is not in the master's binlog") as error:
            lake.sync()
        assert "(`elt reset`)" in (error.value.guidance or "")
        lake.reset("a")
        lake.sync()
        assert_equal(lake)
