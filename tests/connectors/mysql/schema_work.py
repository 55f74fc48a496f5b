"""A random workload of statements on rows, columns and whole tables, each written in a random way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import pymysql

from tests.support.mariadb import MariaDb

NAMES = ("t0", "t1", "t2", "isam", "parted")
_TYPES = (
    "int", "bigint DEFAULT 7", "varchar(30)", "varchar(9) CHARACTER SET utf16 NOT NULL DEFAULT 'new'",
    "decimal(12,3) DEFAULT 1.5", "datetime(3) DEFAULT '2024-01-01 10:00:00'", "enum('a','b','ü')",
    "enum('ü','x','a') CHARACTER SET latin1", "set('a','b','ü') CHARACTER SET ucs2", "date", "text",
)  # fmt: skip
_VALUES = ("1", "'a'", "'b'", "NULL", "'2024-02-03'", "'0'", "'ü'", "12")
_PARTED = """CREATE TABLE parted (id int PRIMARY KEY, c0 varchar(30), c1 int) PARTITION BY RANGE (id)
(PARTITION p0 VALUES LESS THAN (15), PARTITION p1 VALUES LESS THAN (30),
PARTITION p2 VALUES LESS THAN MAXVALUE)"""
_COMMENTS = (" ", "\n", " /* t0 */ ", " -- t1\n", " # `t2\n", "  /*! */ ")


class SchemaWork:
    """Makes statements, and runs them. What the server refuses has not happened.

    Attributes:
        random: decides all.
    """

    def __init__(self, server: MariaDb, seed: int):
        self.random = random.Random(seed)
        self._client = pymysql.connect(
            unix_socket=str(server.socket), user="root", database="shop", autocommit=True
        )
        self._copies = 0

    def create(self) -> None:
        for name in NAMES[:3]:
            self._run(f"CREATE TABLE {name} (id int PRIMARY KEY, c0 varchar(30), c1 int)")
        self._run("CREATE TABLE isam (id int PRIMARY KEY, c0 varchar(30), c1 int) ENGINE = MyISAM")
        self._run(_PARTED)
        self.change_rows(60)

    def close(self) -> None:
        self._client.close()

    def change_rows(self, count: int) -> None:
        """Run statements on rows, some of them in transactions that are rolled back as a whole or in part."""
        for _ in range(count):
            self._run(self._choose([self._row, self._row, self._row, self._transaction])())

    def change_tables(self, count: int) -> None:
        """Run statements on columns and on whole tables."""
        kinds = [self._columns, self._columns, self._whole, self._names, self._parts, self._session]
        for _ in range(count):
            self._run(self._choose(kinds)())

    def _choose(self, choices: Sequence[Callable[[], str]]) -> Callable[[], str]:
        return self.random.choice(choices)

    def _run(self, sql: str) -> None:
        with self._client.cursor() as cursor:
            for statement in sql.split(";;"):
                with suppress(pymysql.Error):
                    cursor.execute(self._spell(statement))

    def _spell(self, statement: str) -> str:
        """Return a statement with other spaces, and comments between its words."""
        if self.random.random() < 0.5:
            return statement
        words = statement.strip().split(" ")
        gaps = [self.random.choice(_COMMENTS) for _ in words]
        return "".join(f"{gap}{word}" for gap, word in zip(gaps, words, strict=True))

    def _name(self) -> str:
        name = self.random.choice(NAMES)
        return self.random.choice([name, f"`{name}`", f"shop.{name}", f"`shop` . `{name}`"])

    def _key(self) -> int:
        return self.random.randrange(40)

    def _list_columns(self, name: str) -> list[str]:
        with self._client.cursor() as cursor:
            cursor.execute(
                "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop' AND "
                "TABLE_NAME = %s AND COLUMN_NAME <> 'id' ORDER BY 1",
                (name,),
            )
            return [str(row[0]) for row in cursor.fetchall()]

    def _row(self) -> str:
        name, key = self.random.choice(NAMES), self._key()
        columns = self._list_columns(name)
        if not columns:
            return f"REPLACE INTO {name} (id) VALUES ({key})"
        column, value = self.random.choice(columns), self.random.choice(_VALUES)
        return self.random.choice(
            [
                f"REPLACE INTO {name} (id, `{column}`) VALUES ({key}, {value})",
                f"UPDATE {name} SET `{column}` = {value} WHERE id BETWEEN {key} AND {key + 9}",
                f"DELETE FROM {name} WHERE id = {key}",
                f"UPDATE {name} SET id = id + 40 WHERE id = {key}",
                f"USE elsewhere;;DELETE FROM shop.{name} WHERE id = {key};;USE shop",
            ]
        )

    def _transaction(self) -> str:
        rows = [self._row() for _ in range(4)]
        end = self.random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        return ";;".join(
            ["BEGIN", rows[0], "SAVEPOINT a", *rows[1:3], "ROLLBACK TO A", rows[3], end]
        )

    def _columns(self) -> str:
        name = self.random.choice(NAMES)
        columns = self._list_columns(name)
        kind = self.random.choice(_TYPES)
        if not columns or self.random.random() < 0.35:
            place = self.random.choice(["", "FIRST", "AFTER id"])
            column = f"c{self.random.randrange(6)}"
            return f"ALTER TABLE {self._spell_name(name)} ADD COLUMN {column} {kind} {place}"
        column = self.random.choice(columns)
        table = self._spell_name(name)
        return self.random.choice(
            [
                f"ALTER TABLE {table} DROP COLUMN {column}",
                f"ALTER TABLE {table} DROP {column} ;;ALTER TABLE {table} ADD {column} {kind}",
                f"ALTER TABLE {table} DROP {column} , ADD {column} {kind}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO c{self.random.randrange(6)}",
                f"ALTER TABLE {table} CHANGE {column} {column.upper()} {kind}",
                f"ALTER TABLE {table} MODIFY {column} {kind}",
                f"ALTER TABLE {table} CONVERT TO CHARACTER SET latin1",
                f"ALTER TABLE {table} ENGINE = {self.random.choice(['InnoDB', 'MyISAM', 'Aria'])}",
                f"OPTIMIZE TABLE {table};;REPAIR TABLE {table};;ANALYZE TABLE {table}",
            ]
        )

    def _spell_name(self, name: str) -> str:
        return self.random.choice([name, f"`{name}`", f".{name}", f"shop.{name}"])

    def _whole(self) -> str:
        name = self._name()
        like = f"CREATE TABLE {name} (id int PRIMARY KEY, c0 varchar(30), c1 int)"
        return self.random.choice(
            [
                f"TRUNCATE {name}",
                f"SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE TABLE {name} NOWAIT",
                f"USE elsewhere;;TRUNCATE shop.{self.random.choice(NAMES)};;USE shop",
                f"DROP TABLE IF EXISTS {name};;{like}",
                f"CREATE OR REPLACE {like.removeprefix('CREATE ')}",
                f"CREATE OR REPLACE TABLE {name} (id int PRIMARY KEY) SELECT id, 'made' c0 FROM t0",
                f"{like.replace('TABLE', 'TABLE IF NOT EXISTS')}",
                f"CREATE TEMPORARY TABLE {name} (id int);;DROP TABLE {name}",
            ]
        )

    def _names(self) -> str:
        first, second = self.random.sample(NAMES[:4], 2)
        self._copies += 1
        aside, copy = f"aside{self._copies}", f"_{first}_gho"
        like = f"CREATE TABLE {copy} LIKE {first}"
        return self.random.choice(
            [
                f"RENAME TABLE {first} TO {aside} , {second} TO {first} , {aside} TO {second}",
                (
                    f"RENAME TABLE {first} TO {aside};;RENAME TABLE {second} TO {first}"
                    f";;RENAME TABLE {aside} TO {second}"
                ),
                f"RENAME TABLE {first} WAIT 5 TO {aside};;CREATE TABLE {first} LIKE {aside}",
                f"RENAME TABLE {first} TO {aside} , {aside} TO {first}",
                f"ALTER TABLE {first} RENAME TO {aside};;ALTER TABLE {aside} RENAME {first} , ADD c5 int",
                (
                    f"{like};;INSERT INTO {copy} SELECT * FROM {first};;"
                    f"RENAME TABLE {first} TO {aside} , {copy} TO {first}"
                ),
                f"{like};;RENAME TABLE IF EXISTS nothing TO {aside} , {copy} NOWAIT TO x{aside}",
            ]
        )

    def _parts(self) -> str:
        self._copies += 1
        other = f"other{self._copies}"
        return self.random.choice(
            [
                "ALTER TABLE parted TRUNCATE PARTITION p0",
                "ALTER TABLE parted DROP PARTITION p1",
                f"ALTER TABLE parted CONVERT PARTITION p0 TO TABLE {other}",
                "ALTER TABLE parted REORGANIZE PARTITION p0 , p1 INTO (PARTITION p0 VALUES LESS THAN (30))",
                (
                    f"CREATE TABLE {other} LIKE parted;;ALTER TABLE {other} REMOVE PARTITIONING;;"
                    f"INSERT INTO {other} (id) VALUES (3);;"
                    f"ALTER TABLE parted EXCHANGE PARTITION p0 WITH TABLE {other}"
                ),
                f"DROP TABLE parted;;{_PARTED}",
                f"DROP TABLE parted;;{_PARTED}",
            ]
        )

    def _session(self) -> str:
        name = self.random.choice(NAMES)
        return self.random.choice(
            [
                (
                    "SET SESSION binlog_format = STATEMENT;;USE elsewhere;;"
                    f"DELETE FROM shop.{name} WHERE id < 9;;USE shop;;SET SESSION binlog_format = ROW"
                ),
                f"SET STATEMENT binlog_format = 'STATEMENT' FOR REPLACE INTO {name} (id) VALUES (5)",
                f"CREATE OR REPLACE VIEW v AS SELECT * FROM {name};;DROP VIEW v",
                "FLUSH BINARY LOGS",
                "FLUSH TABLES",
            ]
        )
