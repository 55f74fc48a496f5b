"""Statements that change whole tables on a real server: the lake is the server's, or a sync says why not."""

from __future__ import annotations

import pymysql
import pytest

from connectors.mysql.source import MySql
from elt_assets.errors import ConfigError
from tests.connectors.logged import Lake
from tests.connectors.mysql.logs import assert_equal, make_lake, run_logged
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, v varchar(20)); CREATE TABLE other LIKE t; CREATE TABLE `a#b` LIKE t;
CREATE TABLE `x -- y"z` LIKE t; CREATE TABLE é LIKE t;
CREATE TABLE p (id int PRIMARY KEY, v varchar(20)) PARTITION BY RANGE (id)
    (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20));
INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO `a#b` SELECT * FROM t; INSERT INTO é SELECT * FROM t;
INSERT INTO `x -- y"z` SELECT * FROM t; INSERT INTO p VALUES (1, 'a'), (11, 'b');
INSERT INTO other VALUES (1, 'other'), (22, 'other');
"""
COPIES = {
    "{gho}": "CREATE TABLE _t_gho LIKE t; INSERT INTO _t_gho SELECT * FROM t;",
    "{new}": "CREATE TABLE _t_new LIKE t; INSERT INTO _t_new SELECT * FROM t;",
}
"""How tools for changes of schemas make a copy of a table."""
NAMES = ("t", "a#b", 'x -- y"z', "é", "p")


@pytest.fixture
def lake(logged: MariaDb) -> Lake:
    logged.execute(f"DROP DATABASE IF EXISTS elsewhere; CREATE DATABASE elsewhere; {TABLES}")
    lake = make_lake(logged, *NAMES)
    lake.sync()
    return lake


def run(server: MariaDb, sql: str) -> None:
    for short, long in COPIES.items():
        sql = sql.replace(short, long)
    server.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE `a#b`; INSERT INTO `a#b` VALUES (3, 'c')",
        "TRUNCATE `x -- y\"z`; INSERT INTO `x -- y\"z` VALUES (3, 'c')",
        "SET sql_mode = 'ANSI_QUOTES'; DROP TABLE \"t\"; CREATE TABLE t (id int PRIMARY KEY, v text)",
        "SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE TABLE t; INSERT INTO t VALUES (3, 'c')",
        "TRUNCATE TABLE t NOWAIT; INSERT INTO t VALUES (3, 'c')",
        "USE elsewhere; TRUNCATE shop.t",
        "CREATE OR REPLACE TABLE t (id int PRIMARY KEY, v text) SELECT 7 id, 'x' v",
        # a table of logs that is put aside
        "RENAME TABLE t TO t_2024; CREATE TABLE t LIKE t_2024; INSERT INTO t VALUES (3, 'c')",
        "RENAME TABLE t TO t_2024; CREATE TABLE IF NOT EXISTS t LIKE t_2024",
        "CREATE TABLE IF NOT EXISTS t LIKE other; INSERT INTO t VALUES (3, 'c')",
        "RENAME TABLE t TO x, x TO t; UPDATE t SET v = 'y'",
        # gh-ost, also in two steps, and pt-online-schema-change
        "{gho} RENAME TABLE t TO _t_del, _t_gho TO t",
        "{gho} RENAME TABLE t TO _t_del; RENAME TABLE _t_gho TO t",
        "{new} RENAME TABLE t TO _t_old, _t_new TO t",
        "ALTER TABLE p REORGANIZE PARTITION p1 INTO (PARTITION p2 VALUES LESS THAN (30))",
        "SET STATEMENT binlog_format = 'STATEMENT' FOR DELETE FROM mysql.help_topic WHERE help_topic_id < 0",
    ],
)  # fmt: skip
def test_what_is_understood_is_applied(lake: Lake, logged: MariaDb, sql: str) -> None:
    run(logged, sql)
    lake.sync()
    assert_equal(lake)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ALTER TABLE p DROP PARTITION p1", "p: its rows were removed or replaced: ALTER TABLE p DROP"),
        ("ALTER TABLE p CONVERT PARTITION p1 TO TABLE x", "p: its rows were removed or replaced"),
        (
            (
                "DELETE FROM other WHERE id = 1; "
                "ALTER TABLE p CONVERT TABLE other TO PARTITION p9 VALUES LESS THAN (99)"
            ),
            "p: its rows were removed or replaced",
        ),
        (
            (
                "DELETE FROM other WHERE id < 20; INSERT INTO other VALUES (12, 'x'); "
                "DELETE FROM other WHERE id > 20; ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE other"
            ),
            "p: its rows were removed or replaced",
        ),
        ("RENAME TABLE t TO x, other NOWAIT TO t", "t: its rows were removed or replaced"),
        ("RENAME TABLE t TO x; RENAME TABLE x TO t", "t: its rows were removed or replaced"),
        ("RENAME TABLE t TO x, é TO t, x TO é", "its rows were removed or replaced"),
        (
            "{new} DROP TABLE t; RENAME TABLE _t_new TO t",
            "t: its copy was given its name",
        ),
        ("ALTER IGNORE TABLE t MODIFY v char(0), ADD UNIQUE (v)", "t: its rows were removed"),
        (
            (
                "ALTER TABLE t DISCARD TABLESPACE; DROP TABLE t; "
                "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))"
            ),
            "t: its rows were removed or replaced",
        ),
        (
            (
                "SET binlog_format = STATEMENT; USE elsewhere; UPDATE shop.t SET v = 'changed'; "
                "DELETE FROM shop.t WHERE id = 1"
            ),
            "t: its rows were changed by a statement that the log has without these rows: UPDATE shop.t",
        ),
        (
            "SET STATEMENT binlog_format = 'STATEMENT' FOR INSERT INTO t VALUES (3, 'c')",
            "t: its rows were changed by a statement",
        ),
        (
            "SET binlog_format = STATEMENT; CREATE OR REPLACE TABLE t AS SELECT 9 id, 'x' v",
            "t: its rows were changed by a statement",
        ),
    ],
)  # fmt: skip
def test_what_the_log_does_not_show_is_an_error_until_a_reset(
    lake: Lake, logged: MariaDb, sql: str, message: str
) -> None:
    run(logged, sql)
    with pytest.raises(ConfigError, match=message) as error:
        lake.sync()
    assert "reset the stream (`elt reset`)" in (error.value.guidance or "")
    lake.reset("t")
    lake.reset("p")
    lake.reset("é")
    lake.sync()
    assert_equal(lake)


@pytest.mark.parametrize(
    ("made", "sql"),
    [
        (
            "CREATE TRIGGER r AFTER INSERT ON other FOR EACH ROW UPDATE t SET v = 'by the trigger'",
            "INSERT INTO other VALUES (9, '')",
        ),
        (
            "CREATE FUNCTION f() RETURNS int DETERMINISTIC BEGIN UPDATE t SET v = 'f'; RETURN 1; END",
            "SELECT f()",
        ),
        ("CREATE VIEW v AS SELECT * FROM t", "UPDATE v SET v = 'v'"),
    ],
)
def test_what_a_statement_may_have_changed_beside_its_table_is_a_warning(
    lake: Lake, logged: MariaDb, made: str, sql: str
) -> None:
    """A trigger, a function and a view, in a session whose statements are in the log in place of rows."""
    logged.execute(f"DELIMITER ;;\n{made};;")
    lake.sync()
    logged.execute(f"SET binlog_format = STATEMENT; {sql}")
    lake.sync()
    (warning,) = lake.warnings
    assert "(`elt reset`), so that they are read in full. Set binlog_format = ROW in all" in warning
    lake.reset("t")
    lake.sync()
    assert_equal(lake)


def test_a_statement_is_read_in_the_character_set_of_its_session(
    lake: Lake, logged: MariaDb
) -> None:
    with pymysql.connect(unix_socket=str(logged.socket), user="root", charset="latin1") as client:
        client.select_db("shop")
        client.cursor().execute("TRUNCATE TABLE é")
    lake.sync()
    assert_equal(lake)


def test_columns_that_are_computed_or_hidden_are_those_of_a_snapshot(logged: MariaDb) -> None:
    logged.execute(
        "CREATE TABLE g (id int PRIMARY KEY, a int, v int AS (a + 1) VIRTUAL, s int AS (a + 2) STORED, "
        "h int INVISIBLE DEFAULT 7); INSERT INTO g (id, a) VALUES (1, 1)"
    )
    lake = make_lake(logged, "g")
    lake.sync()
    logged.execute("UPDATE g SET a = 5, h = 8; INSERT INTO g (id, a) VALUES (2, NULL), (3, 3)")
    lake.sync()
    assert_equal(lake)


def test_tables_whose_rows_are_elsewhere_are_not_read_from_the_log(logged: MariaDb) -> None:
    logged.execute(
        "CREATE TABLE m (id int PRIMARY KEY) ENGINE = MyISAM; "
        "CREATE TABLE mem (id int PRIMARY KEY) ENGINE = MEMORY; CREATE TABLE merged (id int PRIMARY KEY) "
        "ENGINE = MERGE UNION = (m) INSERT_METHOD = LAST"
    )
    lake = make_lake(logged, "merged", "mem", "m")
    logged_names = {name for name in lake.names if lake.catalog(name).get("source_defined_cursor")}
    assert logged_names == {"m", "mem"}


def test_a_table_in_memory_is_empty_after_a_start(logged: MariaDb) -> None:
    logged.execute(
        "CREATE TABLE mem (id int PRIMARY KEY) ENGINE = MEMORY; INSERT INTO mem VALUES (1), (2)"
    )
    lake = make_lake(logged, "mem")
    lake.sync()
    logged.stop()
    logged.start()
    logged.execute("INSERT INTO mem VALUES (3)")
    lake.sync()
    assert lake.rows("mem") == [{"id": 3}]


def test_a_column_is_the_same_in_another_case(lake: Lake, logged: MariaDb) -> None:
    """apache/flink-cdc#2144: rows of the log had the column under its former name only."""
    logged.execute("UPDATE t SET v = 'before' WHERE id = 1; ALTER TABLE t CHANGE v V varchar(20)")
    logged.execute("UPDATE t SET v = 'after' WHERE id = 2")
    lake.sync()
    assert sorted((row["id"], row["V"]) for row in lake.rows("t")) == [(1, "before"), (2, "after")]


def test_labels_and_columns_that_are_made_again_are_a_warning(lake: Lake, logged: MariaDb) -> None:
    """Rows of the log have the labels of their time; those that were read before need a reset."""
    logged.execute("CREATE TABLE e (id int PRIMARY KEY, k enum('a','b'), c int)")
    logged.execute("INSERT INTO e VALUES (1, 'a', 1), (2, 'b', 2)")
    lake = make_lake(logged, "e")
    lake.sync()
    logged.execute(
        "INSERT INTO e VALUES (3, 'a', 3); ALTER TABLE e MODIFY k enum('x','b','a'); "
        "INSERT INTO e VALUES (4, 'x', 4); ALTER TABLE e DROP c; ALTER TABLE e ADD c int DEFAULT 7"
    )
    lake.sync()
    assert [row["k"] for row in lake.rows("e")] == ["a", "b", "a", "x"]
    assert len(lake.warnings) == 3 and all("reset the stream" in text for text in lake.warnings)
    assert lake.warnings[1].endswith(": ALTER TABLE e DROP c")
    lake.reset("e")
    lake.sync()
    assert_equal(lake)


def test_names_are_compared_without_case_if_the_server_does_so() -> None:
    with run_logged("lower-case-table-names=1") as server:
        server.execute(TABLES)
        lake = make_lake(server, *NAMES)
        lake.sync()
        server.execute("TRUNCATE TABLE T; INSERT INTO T VALUES (3, 'z'); TRUNCATE SHOP.É")
        lake.sync()
        assert_equal(lake)
        server.execute("ALTER TABLE P TRUNCATE PARTITION p0")
        with pytest.raises(ConfigError, match=r"shop\.p: its rows were removed"):
            lake.sync()
        lake.reset("p")
        server.execute("SET binlog_format = STATEMENT; UPDATE T SET v = 'changed'")
        with pytest.raises(ConfigError, match=r"shop\.t: its rows were changed by a statement"):
            lake.sync()
        lake.reset("t")
        lake.sync()
        assert_equal(lake)


def test_a_stream_that_fails_does_not_stop_the_others(lake: Lake, logged: MariaDb) -> None:
    run(logged, "INSERT INTO é VALUES (4, 'd'); RENAME TABLE t TO x, other TO t")
    for number in (5, 6):
        run(
            logged,
            f"INSERT INTO é VALUES ({number}, 'e'); INSERT INTO `a#b` VALUES ({number}, 'e')",
        )
        with pytest.raises(ConfigError, match="t: its rows were removed or replaced"):
            lake.sync()
        assert list(lake.failures) == ["t"]
        assert {row["id"] for row in lake.rows("é")} >= {4, number}
        assert number in {row["id"] for row in lake.rows("a#b")}
        assert {row["id"] for row in lake.rows("t")} == {1, 2}
    lake.reset("t")
    lake.sync()
    assert_equal(lake)


def test_columns_with_names_of_the_logs_fields_are_refused_for_the_log(logged: MariaDb) -> None:
    logged.execute(
        "CREATE TABLE t (id int PRIMARY KEY, _ab_cdc_cursor int); INSERT INTO t VALUES (1, 2)"
    )
    source = MySql()
    (stream,) = source.open(make_lake(logged).config)
    assert stream.group is None and set(stream.json_schema["properties"]) == {
        "id",
        "_ab_cdc_cursor",
    }
    (warning,) = source.warnings
    assert "shop.t is not read from the log" in warning and "(_ab_cdc_cursor)" in warning
