"""Random changes of tables and of their forms, with syncs and kills between: every table is equal in the
end, or a sync has told of it and of the reset."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from elt_assets.errors import ConfigError, TransientError
from tests.connectors.logged import Json, Killed
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import FULL, Database, end_transaction, start_transaction

TABLES = """
CREATE TYPE mood AS ENUM ('m0', 'm1');
CREATE TABLE a (id int PRIMARY KEY, c0 int, c1 text, mood mood, moods mood[]);
CREATE TABLE b (id int PRIMARY KEY, c0 int, c1 text);
CREATE TABLE m (id int, day int, c0 int, c1 text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE m_0 PARTITION OF m FOR VALUES FROM (0) TO (10);
"""
RIGHTS = """
CREATE ROLE {role} LOGIN REPLICATION; GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON a, b, m, m_0 TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role};
CREATE POLICY few ON a USING (id > 3); CREATE POLICY few ON b USING (id > 5);
"""
NAMES = ("a", "b", "m")
_ATTEMPT = "DO $do$ BEGIN {}; EXCEPTION WHEN others THEN NULL; END $do$;"
_NUMBERS = itertools.count()
_KEYS = {"a": ["id"], "b": ["id"], "m": ["id", "day"]}


class Model:
    """The server, its lake, and what a person would do with both.

    Attributes:
        parts: the numbers of the partitions that are attached.
        others: sessions with open transactions, of this database and of another one.
        reset: the streams that were reset and not read since.
        trace: what was done, for the message of a failure.
    """

    def __init__(self, database: Database, seed: int):
        self.database, self.random = database, random.Random(seed)
        self.name = f"model{next(_NUMBERS)}"
        self.others: list[subprocess.Popen[str]] = []
        self.parts, self._next = [0], itertools.count(1)
        self.reset: set[str] = set()
        self.trace: list[str] = []
        database.execute(TABLES + RIGHTS.format(role=self.name, schema=database.schema))
        database.execute(f"CREATE DATABASE {self.name}")
        self.publish()
        config = database.config(
            incremental="log", slot=self.name, publication=self.name, user=self.name, wait_seconds=1
        )
        self.lake = Lake(database, config, NAMES)
        self.discover()

    def publish(self) -> None:
        self.run(
            f"CREATE PUBLICATION {self.name} FOR TABLE a, b, m WITH (publish_via_partition_root = true)"
        )

    def run(self, sql: str) -> None:
        """Run statements; those that the present form of the tables refuses, or for which an open transaction
        has no room, change nothing."""
        self.trace.append(sql)
        self.database.execute(f"SET lock_timeout = 50; {_ATTEMPT.format(sql)}")

    def discover(self) -> None:
        self.trace.append("discover")
        self.lake.schemas = {name: self.lake.catalog(name)["json_schema"] for name in NAMES}

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table beside its key."""
        lines = self.database.lines(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum"
        )
        return [name for name in lines if name not in _KEYS[table]]

    def change_rows(self) -> None:
        self.run(self.make_change())

    def make_change(self) -> str:
        """Return a statement that changes rows."""
        table = self.random.choice(NAMES)
        place = {"id": self.random.randrange(9)}
        if table == "m":
            place["day"] = self.random.choice(self.parts) * 10 + self.random.randrange(3)
        where = " AND ".join(f"{name} = {value}" for name, value in place.items())
        columns = self.random.sample(names := self.columns(table), min(2, len(names)))
        literals = ["NULL", "'1'", f"'{self.random.randrange(100)}'", "'{1}'", "'m1'", "'{m0}'"]
        values = [self.random.choice(literals) for _ in columns]
        change = ", ".join(f"{c} = {v}" for c, v in zip(columns, values, strict=True)) or "id = 1"
        return self.random.choice(
            [
                (
                    f"INSERT INTO {table} ({', '.join([*place, *columns])}) VALUES "
                    f"({', '.join([*map(str, place.values()), *values])})"
                ),
                (
                    f"INSERT INTO {table} ({', '.join(place)}) VALUES "
                    f"({', '.join(map(str, place.values()))})"
                ),
                f"UPDATE {table} SET {change} WHERE {where}",
                f"UPDATE {table} SET id = {self.random.randrange(9)} WHERE {where}",
                f"DELETE FROM {table} WHERE {where}",
            ]
        )

    def change_columns(self) -> None:
        table = self.random.choice(NAMES)
        names = self.columns(table) or ["c0"]
        old, new = self.random.choice(names), f"c{self.random.randrange(4)}"
        alter = f"ALTER TABLE {table}"
        self.run(
            self.random.choice(
                [
                    f"{alter} ADD {new} {self.random.choice(['int', 'text', 'int[]', 'mood'])}",
                    f"{alter} ADD {new} int DEFAULT 7",
                    f"{alter} DROP {old}",
                    f"{alter} DROP {old}; {alter} ADD {old} text",
                    f"{alter} RENAME {old} TO {new}",
                    (
                        f"{alter} RENAME {old} TO x; INSERT INTO {table} (id, x) VALUES (8, NULL); "
                        f"{alter} RENAME x TO {old}"
                    ),
                    f"{alter} ALTER {old} TYPE text USING 'u'",
                    f"{alter} ALTER {old} TYPE text",
                    f"ALTER TYPE mood RENAME VALUE 'm{self.random.randrange(3)}' TO 'm2'",
                    f"TRUNCATE {table}",
                    f"{alter} REPLICA IDENTITY {self.random.choice(['FULL', 'DEFAULT'])}",
                ]
            )
        )

    def change_partitions(self) -> None:
        kind = self.random.choice(["create", "attach", "detach", "truncate"])
        if kind in ("create", "attach"):
            number = next(self._next)
            bounds = f"FOR VALUES FROM ({number * 10}) TO ({number * 10 + 10})"
            if kind == "create":
                sql = f"CREATE TABLE m_{number} PARTITION OF m {bounds}"
            else:
                sql = (
                    f"CREATE TABLE m_{number} (LIKE m INCLUDING ALL); INSERT INTO m_{number} (id, day) "
                    f"SELECT n, {number * 10} FROM generate_series(0, 4) n; "
                    f"ALTER TABLE m ATTACH PARTITION m_{number} {bounds}"
                )
            self.run(sql)
            self.parts.append(number)
            return
        number = self.random.choice(self.parts)
        self.run(
            f"ALTER TABLE m DETACH PARTITION m_{number}; DROP TABLE m_{number}"
            if kind == "detach"
            else f"TRUNCATE m_{number}"
        )

    def change_names(self) -> None:
        swap = "ALTER TABLE a RENAME TO x; ALTER TABLE b RENAME TO a; ALTER TABLE x RENAME TO b"
        insert = f"INSERT INTO a (id) VALUES ({self.random.randrange(9)})"
        self.run(self.random.choice([f"{swap}; {insert}; {swap}", swap]))

    def change_publication(self) -> None:
        alter = f"ALTER PUBLICATION {self.name}"
        kind = self.random.randrange(3)
        if kind == 0:
            self.run(f"DROP PUBLICATION {self.name}")
            self.change_rows()
            self.publish()
        elif kind == 1:
            table = self.random.choice(NAMES)
            self.run(f"{alter} DROP TABLE {table}")
            self.change_rows()
            self.run(f"{alter} ADD TABLE {table}")
        else:
            self.run(f"{alter} SET (publish = 'insert')")
            self.change_rows()
            self.run(f"{alter} SET (publish = 'insert, update, delete, truncate')")

    def change_rights(self) -> None:
        """Hide rows from the role that reads, or not; what an error then asks for is done by `sync`."""
        table, how = self.random.choice(("a", "b")), self.random.choice(["ENABLE", "DISABLE"])
        row_security = f"ALTER TABLE {table} {how} ROW LEVEL SECURITY"
        self.run(self.random.choice([row_security, f"ALTER ROLE {self.name} NOBYPASSRLS"]))

    def open_transaction(self) -> None:
        """Begin a transaction that changes rows here or elsewhere, and stays open for some steps."""
        sql, name = self.make_change(), self.random.choice(["postgres", "postgres", self.name])
        if name != "postgres":
            sql = "CREATE TABLE IF NOT EXISTS public.t (id int); INSERT INTO public.t VALUES (1)"
        self.trace.append(f"open in {name}: {sql}")
        text = f"SET LOCAL lock_timeout = 50; {_ATTEMPT.format(sql)}"
        self.others.append(start_transaction(self.database, text, name))

    def end_transaction(self) -> None:
        if self.others:
            other = self.others.pop(self.random.randrange(len(self.others)))
            end = self.random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
            self.trace.append(end)
            end_transaction(other, end)

    def end_all(self) -> None:
        while self.others:
            self.end_transaction()

    def step(self) -> None:
        changes: list[Callable[[], None]] = [self.change_rows]
        changes += [
            self.change_columns,
            self.change_partitions,
            self.change_names,
            self.change_publication,
            self.change_rights,
            self.open_transaction,
            self.end_transaction,
        ]
        (change,) = self.random.choices(changes, [60, 18, 10, 4, 3, 4, 3, 5])
        change()

    def sync(self, chance: float) -> None:
        """Sync as a person does who heeds what is said, sooner or later; perhaps it is killed."""

        def kill(item: Any) -> None:
            del item
            if self.random.random() < chance:
                raise Killed

        self.lake.warnings = []
        try:
            self.lake.sync(kill)
        except Killed:
            self.trace.append("a sync that is killed")
            return
        except TransientError as error:
            if not re.search(r"pid \d+|has ended since", str(error)):
                raise
            self.trace.append(f"a sync that waits: {error}")
            self.end_all()
            return
        except ConfigError as error:
            self.obey(error)
            return
        self.reset = set()
        self.trace += ["synced", *self.lake.warnings]

    def obey(self, error: ConfigError) -> None:
        self.trace.append(f"a sync that fails: {error}")
        if not self.lake.failures:
            if "elt reset" not in str(error):
                raise error
            self.lake.told.update(NAMES)
        elif "BYPASSRLS" in " ".join(map(str, self.lake.failures.values())):
            self.run(f"ALTER ROLE {self.name} BYPASSRLS")
        if self.random.random() < 0.5:
            self.reset_told()

    def reset_told(self) -> None:
        """Discover the tables, and reset the streams of which a sync has told; the group if that is all."""
        self.discover()
        self.trace.append(f"reset {self.lake.told}")
        for name in list(self.lake.told):
            self.reset.add(name)
            self.lake.reset(name)
        if not self.lake.states:
            self.lake.reset_all()

    def rows_of_server(self, name: str) -> list[Json]:
        stored = self.lake.schemas[name]["properties"]
        rows = self.database.reader(name, FULL).read()
        return [{k: row[k] for k in row if k in stored} for row in rows]

    def assert_equal(self) -> None:
        """Check the tables of which no sync has told."""
        for name in set(NAMES) - self.lake.told - self.reset:
            expected = self.rows_of_server(name)
            columns = {*(expected[0] if expected else _KEYS[name])}
            actual = [{k: row.get(k) for k in columns} for row in self.lake.rows(name)]
            assert _sort(actual) == _sort(expected), "\n".join([name, *self.trace])


def _sort(rows: list[Json]) -> list[str]:
    return sorted(msgspec.json.encode(row, order="sorted").decode() for row in rows)


@pytest.fixture
def make(database: Database) -> Iterator[Callable[[int], Model]]:
    models: list[Model] = []

    def build(seed: int) -> Model:
        models.append(Model(database, seed))
        return models[-1]

    yield build
    for model in models:
        model.end_all()
        database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = "
            f"'{model.name}'; DROP PUBLICATION IF EXISTS {model.name}; DROP DATABASE {model.name}; "
            f"DROP OWNED BY {model.name}; DROP ROLE {model.name}"
        )


def run_seed(model: Model, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(model.random.randrange(6)):
            model.step()
        model.sync(chance=0.04)
        if model.random.random() < 0.2:
            model.discover()
    model.end_all()
    model.sync(chance=0)
    model.assert_equal()
    model.reset_told()
    for _ in range(2):  # The first may fail for rights, and gets them.
        model.sync(chance=0)
    assert not model.lake.failures
    model.assert_equal()


def test_forms_change_between_syncs(make: Callable[[int], Model]) -> None:
    run_seed(make(1), rounds=8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 52))
def test_forms_change_between_many_syncs(make: Callable[[int], Model], seed: int) -> None:
    run_seed(make(seed), rounds=15)
