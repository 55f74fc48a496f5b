"""A replica of MariaDB that is promoted, after which its log is read by the same state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from elt_assets.errors import ConfigError
from tests.connectors.logged import Killed, Lake
from tests.connectors.mysql.logs import (
    FOLLOW,
    PROMOTE,
    assert_equal,
    begin_pair,
    catch_up,
    make_lake,
    run_pair,
)
from tests.connectors.mysql.test_log_servers import purge
from tests.e2e.daemons import wait
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

TABLES = (
    "CREATE TABLE a (id int PRIMARY KEY, v varchar(20)); INSERT INTO a VALUES (1, 'x'), (2, 'y'); "
    "CREATE TABLE b (id int PRIMARY KEY, v varchar(20)); INSERT INTO b VALUES (1, 'x'), (2, 'y')"
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[MariaDb, MariaDb]]:
    with run_pair() as pair:
        yield pair


@pytest.fixture
def servers(pair: tuple[MariaDb, MariaDb]) -> tuple[MariaDb, MariaDb]:
    """A primary with two tables, whose log begins now, and its replica."""
    begin_pair(*pair, TABLES)
    return pair


def fail_over(lake: Lake, server: MariaDb) -> None:
    """Make a replica the primary of a lake."""
    server.execute(PROMOTE, "mysql")
    lake.config = {**lake.config, "port": server.port}


def test_the_log_of_a_promoted_replica_is_read_on_and_that_of_the_former_primary_again(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    """debezium/debezium, pull requests 113, 647, 691: no change of the new primary is left out, the first
    neither, and its own transactions do not matter."""
    primary, replica = servers
    lake = make_lake(primary, "a", "b")
    lake.sync()
    replica.execute(
        "SET GLOBAL read_only = 0; CREATE TABLE own (id int); INSERT INTO own VALUES (1)"
    )
    primary.execute("INSERT INTO a VALUES (3, 'z'); DELETE FROM b WHERE id = 1")
    lake.sync()
    primary.execute("UPDATE a SET v = 'unread' WHERE id = 1; INSERT INTO b VALUES (4, 'unread')")
    wait(lambda: ["4", "unread"] in replica.texts("SELECT * FROM b"), "the replica has caught up")
    fail_over(lake, replica)
    replica.execute("INSERT INTO a VALUES (5, 'new'); DELETE FROM a WHERE id = 2")
    lake.sync()
    assert_equal(lake)
    assert lake.rows("a") == [
        {"id": 1, "v": "unread"},
        {"id": 3, "v": "z"},
        {"id": 5, "v": "new"},
    ]
    primary.execute(FOLLOW.format(port=replica.port, use="current_pos"), "mysql")
    wait(lambda: ["5", "new"] in primary.texts("SELECT * FROM a"), "the primary has caught up")
    fail_over(lake, primary)
    primary.execute("INSERT INTO b VALUES (6, 'back')")
    lake.sync()
    assert_equal(lake)
    assert not lake.told


def test_a_first_read_that_was_interrupted_is_a_loud_error_or_goes_on(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    primary, replica = servers
    primary.execute("INSERT INTO a SELECT seq, 'many' FROM seq_10_to_1000")
    lake = make_lake(primary, "a", "b")
    left = [3]

    def kill(item: object) -> None:
        del item
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    with suppress(Killed):
        lake.sync(kill)
    catch_up(replica, primary)
    fail_over(lake, replica)
    with suppress(ConfigError):
        lake.sync()
    for name in lake.failures:
        assert "elt reset" in str(lake.failures[name]) or "reset the stream" in str(
            lake.failures[name]
        )
        lake.reset(name)
    lake.sync()
    assert_equal(lake)


def test_a_replica_that_lacks_transactions_is_an_error_of_the_tables_that_have_them(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    """The new primary gives the numbers of what it lacks to others: a table that is before others would
    leave these out."""
    primary, replica = servers
    lake = make_lake(primary, "a", "b")
    lake.sync()
    replica.execute("STOP SLAVE", "mysql")
    primary.execute("INSERT INTO b VALUES (10, 'lost'); INSERT INTO b VALUES (11, 'lost')")
    lake.names = ["b"]
    lake.sync()
    lake.names = ["a", "b"]
    fail_over(lake, replica)
    for number in range(20, 26):
        replica.execute(
            f"INSERT INTO a VALUES ({number}, 'n'); INSERT INTO b VALUES ({number}, 'n')"
        )
    with pytest.raises(ConfigError, match="the server does not have the transaction 0-7-") as error:
        lake.sync()
    assert "(`elt reset`)" in (error.value.guidance or "")
    assert list(lake.failures) == ["b"]
    assert len(lake.rows("a")) == 8
    lake.reset("b")
    lake.sync()
    assert_equal(lake)


def test_a_replica_that_lacks_transactions_of_all_tables_is_an_error(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    primary, replica = servers
    lake = make_lake(primary, "a", "b")
    lake.sync()
    replica.execute("STOP SLAVE", "mysql")
    primary.execute("INSERT INTO b VALUES (10, 'lost'); INSERT INTO a VALUES (11, 'lost')")
    lake.sync()
    fail_over(lake, replica)
    with pytest.raises(ConfigError, match=r"does not have all transactions that shop\.[ab] has"):
        lake.sync()
    replica.execute("INSERT INTO b VALUES (20, 'n'); INSERT INTO b VALUES (21, 'n')")
    replica.execute("INSERT INTO b VALUES (22, 'n')")
    with pytest.raises(ConfigError, match="is not in the master's binlog"):
        lake.sync()
    lake.reset("a")
    lake.reset("b")
    lake.sync()
    assert_equal(lake)


def test_a_replica_that_has_purged_what_was_not_read_is_an_error(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    """PeerDB-io/peerdb, pull request 4601."""
    primary, replica = servers
    lake = make_lake(primary, "a", "b")
    lake.sync()
    primary.execute("INSERT INTO b VALUES (10, 'unread')")
    catch_up(replica, primary)
    replica.execute("FLUSH BINARY LOGS")
    purge(replica)
    fail_over(lake, replica)
    with pytest.raises(ConfigError, match="the log cannot be read") as error:
        lake.sync()
    assert "(`elt reset`)" in (error.value.guidance or "")
    lake.reset("a")
    lake.reset("b")
    lake.sync()
    assert_equal(lake)
