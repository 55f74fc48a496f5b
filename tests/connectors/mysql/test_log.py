"""Changes from the log of a real server: after any interruption the tables are those of the server."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pytest

from connectors.mysql.source import MySql
from connectors.sdk.groups import GroupCheckpoint, StreamPart
from connectors.sdk.items import Slice
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.logged import Killed, Lake, run_workload
from tests.connectors.mysql.logs import assert_equal, make_lake, run_logged
from tests.connectors.mysql.workload import NAMES, TABLES, Workload, large_transaction
from tests.e2e.daemons import wait
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external


@pytest.fixture
def lake(logged: MariaDb) -> Lake:
    """A lake without any rows of the tables of a workload."""
    logged.execute(TABLES)
    return make_lake(logged, *NAMES)


def run_seed(lake: Lake, server: MariaDb, seed: int) -> None:
    work = Workload(random.Random(seed))
    run_workload(lake, server, work, seed, lambda *rows: server.execute(large_transaction(*rows)))
    assert_equal(lake)


@pytest.mark.parametrize("seed", range(2))
def test_tables_equal_the_servers_after_kills_and_a_workload(
    lake: Lake, logged: MariaDb, seed: int
) -> None:
    run_seed(lake, logged, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_tables_equal_the_servers_for_many_seeds(lake: Lake, logged: MariaDb, seed: int) -> None:
    run_seed(lake, logged, seed)


def test_rows_that_a_range_shows_and_the_log_repeats_end_as_the_servers(
    lake: Lake, logged: MariaDb
) -> None:
    """Rows are changed, deleted and inserted while the ranges of a first snapshot are read."""
    logged.execute("INSERT INTO plain (id, name) SELECT seq, 'a' FROM seq_1_to_900")
    changes = iter(
        [
            "UPDATE plain SET name = 'b' WHERE id % 2",
            "DELETE FROM plain WHERE id % 3 = 0",
            "UPDATE plain SET id = id + 5000 WHERE id % 5 = 0",
            "UPDATE plain SET id = 3 WHERE id = 5005; REPLACE INTO plain (id, name) VALUES (900, 'c')",
        ]
    )

    def change(item: Any) -> None:
        if isinstance(item, StreamPart) and isinstance(item.item, Slice):
            logged.execute(next(changes, "DO 0"))

    lake.sync(change)
    lake.sync()
    assert_equal(lake)


def test_each_change_is_appended_once(lake: Lake, logged: MariaDb) -> None:
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    lake.names = ("plain",)
    lake.sync()
    for number in range(6):
        logged.execute(f"INSERT INTO plain (id, amount) VALUES ({number}, 1)")
        logged.execute(
            f"UPDATE plain SET amount = 2 WHERE id = {number}; DELETE FROM plain WHERE id < 2"
        )

        def fail(item: Any, number: int = number) -> None:
            if isinstance(item, GroupCheckpoint) and number % 2:
                raise Killed

        try:
            lake.sync(fail)
        except Killed:
            continue
    lake.sync()
    events = [(row["id"], row["amount"]) for row in lake.tables["plain"].events]
    expected = []
    for number in range(6):
        expected += [(number, "1.00"), (number, "2.00")]
        if number < 2:
            expected.append((number, "2.00"))
    assert events == expected
    numbers = [row["_ab_cdc_cursor"] for row in lake.tables["plain"].events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_sync_without_changes_commits_nothing(lake: Lake, logged: MariaDb) -> None:
    logged.execute("CREATE TABLE other (a int)")
    lake.sync()
    logged.execute("INSERT INTO other VALUES (1)")
    items: list[Any] = []
    lake.sync(items.append)
    assert items == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "RENAME TABLE plain TO other; {table}; RENAME TABLE plain TO third, other TO plain",
            "shop.plain: its rows were removed or replaced",
        ),
        (
            "SET binlog_format = STATEMENT; UPDATE plain SET name = 'x'",
            "shop.plain: its rows were changed by a statement",
        ),
        (
            "SET binlog_row_image = MINIMAL; UPDATE plain SET name = 'x'",
            "only some columns of rows of `shop`.`plain`",
        ),
        (
            (
                "ALTER TABLE plain DROP COLUMN id, ADD k int AUTO_INCREMENT PRIMARY KEY; "
                "INSERT INTO plain (k) VALUES (7); ALTER TABLE plain CHANGE k id int"
            ),
            "without the columns id of the key",
        ),
        (
            (
                "ALTER TABLE plain MODIFY at datetime(6) NOT NULL; INSERT INTO plain (id, at) "
                "VALUES (9, NOW()); ALTER TABLE plain MODIFY at timestamp(6) NOT NULL"
            ),
            "between DATETIME and TIMESTAMP",
        ),
    ],
)
def test_changes_that_the_log_does_not_have_are_an_error_until_a_reset(
    lake: Lake, logged: MariaDb, sql: str, message: str
) -> None:
    logged.execute("INSERT INTO plain (id) VALUES (1), (2)")
    lake.sync()
    logged.execute("INSERT INTO wide (id) VALUES (1)")
    logged.execute(sql.format(table=TABLES.split(";")[0]))
    for _ in range(2):
        with pytest.raises(ConfigError, match=message) as error:
            lake.sync()
        assert "elt reset" in (error.value.guidance or "")
    lake.tables.pop("plain")
    lake.reset("plain")
    lake.sync()
    assert_equal(lake)


def test_columns_that_come_and_go(lake: Lake, logged: MariaDb) -> None:
    logged.execute("INSERT INTO plain (id, name) VALUES (1, 'a')")
    lake.sync()
    logged.execute(
        "UPDATE plain SET name = 'b'; ALTER TABLE plain ADD more int DEFAULT 5; "
        "INSERT INTO plain (id, more) VALUES (2, 7); ALTER TABLE plain DROP amount; "
        "INSERT INTO plain (id, name) VALUES (3, 'c')"
    )
    lake.sync()
    rows = {row["id"]: row.get("more") for row in lake.rows("plain")}
    assert rows == {1: None, 2: 7, 3: 5}
    assert any("the table was altered" in text for text in lake.warnings)
    assert any("without the columns more" in text for text in lake.warnings)


def test_values_of_columns_that_are_gone_are_counted(lake: Lake, logged: MariaDb) -> None:
    lake.sync()
    logged.execute(
        "INSERT INTO plain (id, amount) VALUES (1, 5), (2, NULL); ALTER TABLE plain DROP amount"
    )
    lake.sync()
    assert any("amount (1). To have them, run `elt discover`" in text for text in lake.warnings)


def test_values_of_columns_that_the_user_may_not_read_are_no_warning(logged: MariaDb) -> None:
    logged.execute(
        "CREATE TABLE t (id int PRIMARY KEY, open int, secret int); CREATE USER few@'127.0.0.1' IDENTIFIED "
        "BY 'f'; GRANT SELECT (id, open) ON shop.t TO few@'127.0.0.1'; "
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR ON *.* TO few@'127.0.0.1'"
    )
    lake = make_lake(logged, "t", user="few", password="f")
    try:
        lake.sync()
        logged.execute("INSERT INTO t VALUES (1, 2, 3)")
        lake.sync()
        assert (lake.rows("t"), lake.warnings) == ([{"id": 1, "open": 2}], [])
    finally:
        logged.execute("DROP USER few@'127.0.0.1'")


def test_a_stream_that_is_not_read_keeps_its_place(lake: Lake, logged: MariaDb) -> None:
    logged.execute("INSERT INTO plain (id) VALUES (1); INSERT INTO wide (id) VALUES (1)")
    lake.sync()
    logged.execute("UPDATE plain SET name = 'x'; INSERT INTO wide (id) VALUES (2)")
    lake.names = ("plain",)
    lake.sync()
    assert_equal(lake)
    lake.names = NAMES
    lake.sync()
    assert_equal(lake)


def test_a_log_that_begins_anew_is_an_error(lake: Lake, logged: MariaDb) -> None:
    """airbytehq/airbyte#85783: after RESET MASTER each sync is complete, with no record."""
    logged.execute("INSERT INTO plain (id) VALUES (1)")
    lake.sync()
    logged.execute("RESET MASTER; INSERT INTO plain (id) VALUES (2)")
    with pytest.raises(ConfigError, match="does not have all transactions"):
        lake.sync()


def test_rows_of_other_tables_are_not_decoded(logged: MariaDb) -> None:
    """the4thdoctor/pg_chameleon#113: a column of an old form in a table that is not read ends the read."""
    logged.execute(
        "SET GLOBAL mysql56_temporal_format = OFF; CREATE TABLE old (id int PRIMARY KEY, at datetime(3)); "
        "SET GLOBAL mysql56_temporal_format = ON; CREATE TABLE t (id int PRIMARY KEY)"
    )
    lake, other = make_lake(logged, "t"), make_lake(logged, "old")
    lake.sync()
    other.sync()
    logged.execute(
        "INSERT INTO old VALUES (1, '2024-01-01 10:00:00.123'); INSERT INTO t VALUES (1)"
    )
    lake.sync()
    assert lake.rows("t") == [{"id": 1}]
    with pytest.raises(ConfigError, match="'at' has a type of an old form"):
        other.sync()


def test_a_log_that_was_purged_is_an_error(lake: Lake, logged: MariaDb) -> None:
    lake.sync()
    logged.execute(
        "INSERT INTO plain (id) VALUES (1); FLUSH BINARY LOGS; INSERT INTO plain (id) VALUES (2)"
    )
    last = logged.texts("SHOW BINARY LOGS")[-1][0]

    def is_purged() -> bool:  # the server keeps a file for a moment that is in use
        logged.execute(f"PURGE BINARY LOGS TO '{last}'")
        return logged.texts("SHOW BINARY LOGS")[0][0] == last

    wait(is_purged, "the log is purged")
    with pytest.raises(ConfigError, match="the log cannot be read") as error:
        lake.sync()
    assert "let the server keep its log longer" in (error.value.guidance or "")


def test_a_server_that_stops_is_read_on_when_it_is_up(lake: Lake, logged: MariaDb) -> None:
    logged.execute("INSERT INTO plain (id) SELECT seq FROM seq_1_to_500")
    stops = iter([2, 1, 1])

    def stop(item: Any) -> None:
        if isinstance(item, StreamPart) and next(stops, None) is not None:
            assert logged.process is not None
            logged.process.kill()
            logged.process.wait()

    for _ in range(4):
        logged.execute("UPDATE plain SET amount = COALESCE(amount, 0) + 1 WHERE id % 3 = 0")
        try:
            lake.sync(stop)
        except TransientError:
            pass
        finally:
            logged.stop()
            logged.start()
    lake.sync()
    assert_equal(lake)


def test_a_restored_backup_is_an_error() -> None:
    with run_logged() as server:
        server.execute(TABLES)
        lake = make_lake(server, "plain")
        lake.sync()
        server.execute("INSERT INTO plain (id, name) VALUES (1, 'a')")
        lake.sync()
        server.stop()
        backup = server.folder / "backup"
        shutil.copytree(server.folder / "data", backup)
        shutil.copystat(server.folder / "data", backup)
        server.start()
        server.execute("INSERT INTO plain (id, name) VALUES (2, 'b')")
        lake.sync()
        server.stop()
        shutil.rmtree(server.folder / "data")
        _move(backup, server)
        server.start()
        with pytest.raises(ConfigError, match="restored from a backup"):
            lake.sync()
        # The server goes on with the numbers that it has given before.
        server.execute("INSERT INTO plain (id, name) VALUES (3, 'another'), (4, 'more')")
        server.execute("INSERT INTO plain (id) VALUES (5)")
        with pytest.raises(ConfigError, match="restored from a backup"):
            lake.sync()


def test_a_replica_that_is_promoted_is_read_on() -> None:
    """datazip-inc/olake#1235: after a failover the place in a file is another one."""
    with run_logged() as primary, run_logged("server-id=8", "log-slave-updates=1") as replica:
        replica.execute(
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='copy', "
            "master_password='c', master_use_gtid=slave_pos; "
            "RESET MASTER; SET GLOBAL gtid_slave_pos = ''; DROP DATABASE shop; DROP USER elt@'127.0.0.1'; "
            "RESET MASTER",
            "mysql",
        )
        primary.execute("GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1' IDENTIFIED BY 'c'")
        replica.execute("START SLAVE", "mysql")
        primary.execute(TABLES)
        lake = make_lake(primary, "plain", "wide")
        lake.sync()
        primary.execute(
            "INSERT INTO plain (id) SELECT seq FROM seq_1_to_99; UPDATE plain SET amount = 2"
        )
        lake.sync()
        primary.execute("DELETE FROM plain WHERE id > 50; INSERT INTO wide (id) VALUES (7)")
        last = primary.texts("SELECT @@gtid_binlog_pos")[0][0]
        replica.execute(f"SELECT MASTER_GTID_WAIT('{last}', 20)")
        primary.stop()
        replica.execute(
            "STOP SLAVE; RESET SLAVE ALL; UPDATE plain SET name = 'promoted' WHERE id = 1"
        )
        lake.config = {**lake.config, "port": replica.port}
        lake.sync()
        assert len(lake.rows("plain")) == 50
        assert_equal(lake)


def _move(backup: Any, server: MariaDb) -> None:
    owner = server.folder.stat()
    backup.rename(server.folder / "data")
    for path in [server.folder / "data", *(server.folder / "data").rglob("*")]:
        shutil.chown(path, owner.st_uid, owner.st_gid)


def test_check_prints_the_sql_that_mends_the_log(logged: MariaDb) -> None:
    logged.execute("CREATE TABLE t (a int)")
    source = MySql()
    config = source.parse(logged.config(incremental="log"))
    source.check(config)
    logged.execute("SET GLOBAL binlog_row_metadata = MINIMAL; SET GLOBAL binlog_format = MIXED")
    try:
        with pytest.raises(
            ConfigError, match="binlog_format is MIXED, binlog_row_metadata is MINIMAL"
        ):
            source.check(config)
    finally:
        logged.execute("SET GLOBAL binlog_row_metadata = FULL; SET GLOBAL binlog_format = ROW")
    logged.execute("REVOKE REPLICATION SLAVE ON *.* FROM elt@'127.0.0.1'")
    try:
        with pytest.raises(ConfigError, match="the log cannot be read") as error:
            source.check(config)
    finally:
        logged.execute("GRANT REPLICATION SLAVE ON *.* TO elt@'127.0.0.1'")
    grant = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'elt'@'127.0.0.1'"
    assert grant in (error.value.guidance or "")


def test_a_temporary_table_of_the_same_name_removes_nothing(lake: Lake, logged: MariaDb) -> None:
    logged.execute("INSERT INTO plain (id, name) VALUES (1, 'a')")
    lake.sync()
    made = "CREATE TEMPORARY TABLE plain (id int PRIMARY KEY); INSERT INTO plain VALUES (7); "
    for end in ("DROP TABLE plain", "DROP TEMPORARY TABLE plain", "TRUNCATE plain", "DO 0"):
        logged.execute(f"{made}{end}")
    logged.execute("INSERT INTO plain (id, name) VALUES (2, 'b')")
    lake.sync()
    assert_equal(lake)
    assert len(lake.rows("plain")) == 2
