"""A file of SQLite whose changes are in a log, and a random workload of it."""

from __future__ import annotations

import random
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.connectors.logged import Json, Lake
from tests.programs.logged_source import open_file

_LOG = """
PRAGMA journal_mode = WAL;
CREATE TABLE server (id TEXT, is_quiet INTEGER);
CREATE TABLE log (number INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER, name TEXT, operation TEXT,
    before TEXT, after TEXT);
"""
TABLES = """
CREATE TABLE plain (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);
CREATE TABLE wide (id INTEGER PRIMARY KEY, note TEXT, big TEXT);
CREATE TABLE pairs (a TEXT, b INTEGER, v TEXT, PRIMARY KEY (a, b));
"""
NAMES = ("plain", "wide", "pairs")
_OPERATIONS = {"insert": ("NULL", "new"), "update": ("old", "new"), "delete": ("old", "NULL")}


class LoggedFile:
    """A database whose changes are written into its log."""

    def __init__(self, path: Path, tables: str = TABLES):
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.create_function("now_us", 0, lambda: time.time_ns() // 1_000)
        self.connection.executescript(_LOG)
        self.connection.execute("INSERT INTO server VALUES (?, 0)", (str(uuid.uuid4()),))
        self.connection.executescript(tables)
        self.log_tables()

    def log_tables(self) -> None:
        """Let the triggers of all tables write the columns that these have now."""
        for (name,) in self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "AND name NOT IN ('log', 'server')"
        ).fetchall():
            described = self.connection.execute(f"PRAGMA table_info({name})").fetchall()
            for operation, sides in _OPERATIONS.items():
                rows = [
                    "NULL"
                    if side == "NULL"
                    else "json_object("
                    + ", ".join(f"'{c[1]}', {side}.{c[1]}" for c in described)
                    + ")"
                    for side in sides
                ]
                self.connection.executescript(
                    f"DROP TRIGGER IF EXISTS {name}_{operation}; "
                    f"CREATE TRIGGER {name}_{operation} AFTER {operation} ON {name} "
                    "WHEN (SELECT is_quiet = 0 FROM server) BEGIN INSERT INTO log "
                    f"SELECT NULL, now_us(), '{name}', '{operation}', {', '.join(rows)}; END;"
                )

    def execute(self, *statements: str) -> None:
        """Run statements as one transaction, with a `commit` in the log at its end."""
        self.connection.execute("BEGIN")
        for sql in statements:
            self.connection.execute(sql)
        self.connection.execute("INSERT INTO log VALUES (NULL, now_us(), '', 'commit', NULL, NULL)")
        self.connection.execute("COMMIT")

    def rows(self, name: str) -> list[Json]:
        with open_file(str(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]


def truncate(name: str) -> list[str]:
    """Return the statements that remove all rows of a table, which the log does not name."""
    return [
        "UPDATE server SET is_quiet = 1",
        f"DELETE FROM {name}",
        "UPDATE server SET is_quiet = 0",
        f"INSERT INTO log VALUES (NULL, now_us(), '{name}', 'truncate', NULL, NULL)",
    ]


@contextmanager
def make_lake(
    path: Path, tables: str = TABLES, **config: object
) -> Iterator[tuple[LoggedFile, Lake]]:
    """Give a file, and a lake without any rows of its tables."""
    file = LoggedFile(path / "logged.db", tables)
    options = {"path": str(file.path), "slice_rows": 20, "window_rows": 15, "forgets": True}
    names = [part.split()[2] for part in tables.split(";") if part.strip()]
    yield file, Lake("tests.programs.logged_source:LoggedSource", {**options, **config}, names)
    file.connection.close()


@dataclass
class Workload:
    """Makes statements; keys are few, so that rows are changed often."""

    random: random.Random
    keys: int = 60

    def transaction(self) -> list[str]:
        """Return a transaction of some statements, perhaps in parts that are rolled back."""
        statements = [self.statement() for _ in range(self.random.choice([1, 1, 2, 5, 20]))]
        if self.random.random() < 0.2:
            place = self.random.randrange(len(statements) + 1)
            statements[place:place] = ["SAVEPOINT s", self.statement(), "ROLLBACK TO s"]
        return statements

    def statement(self) -> str:
        key, other = self.random.randrange(self.keys), self.random.randrange(self.keys)
        pair = f"a = 'k{key % 7}' AND b = {other % 7}"
        return self.random.choice(
            [
                (
                    f"INSERT INTO plain VALUES ({key}, 'né{other}', {other}) "
                    f"ON CONFLICT (id) DO UPDATE SET name = 'again', amount = -{key}"
                ),
                f"UPDATE plain SET name = NULL, amount = 0 WHERE id = {key}",
                f"DELETE FROM plain WHERE id = {key}",
                f"UPDATE OR IGNORE plain SET id = {other} WHERE id = {key}",
                f"UPDATE plain SET amount = amount + 1 WHERE id BETWEEN {key} AND {key + 9}",
                (
                    f"INSERT INTO wide VALUES ({key}, '', hex(zeroblob({other}))) "
                    f"ON CONFLICT (id) DO UPDATE SET note = 'x{other}'"
                ),
                f"UPDATE wide SET big = NULL WHERE id BETWEEN {key} AND {key + 5}",
                f"DELETE FROM wide WHERE id = {key}",
                f"INSERT OR IGNORE INTO pairs VALUES ('k{key % 7}', {other % 7}, 'v{other}')",
                f"UPDATE OR IGNORE pairs SET b = b + 100, a = upper(a) WHERE {pair}",
                f"DELETE FROM pairs WHERE a = 'k{key % 7}'",
            ]
        )

    def run(self, file: LoggedFile, count: int, *, truncates: bool = False) -> None:
        """Run some transactions, one after another. `truncates`: perhaps one of them truncates a table."""
        for _ in range(count):
            statements = self.transaction()
            if truncates and self.random.random() < 0.15:
                place = self.random.randrange(len(statements) + 1)
                statements[place:place] = truncate(self.random.choice(NAMES))
            file.execute(*statements)


def large_transaction(first: int, count: int) -> list[str]:
    """Return a transaction with many rows."""
    rows = f"WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n LIMIT {count}) "
    return [
        f"INSERT OR IGNORE INTO plain {rows} SELECT i, 'large', i FROM n",
        f"UPDATE plain SET name = 'larger' WHERE id >= {first} AND id % 3 = 0",
        f"DELETE FROM plain WHERE id >= {first} AND id % 7 = 0",
    ]
