"""A random workload of a database: tables of several forms, and transactions of several sessions at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.connectors.postgres.support import Database

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, name text, amount numeric(12,2), at timestamptz DEFAULT now());
CREATE TABLE wide (id bigint PRIMARY KEY, note text, big text, number int);
ALTER TABLE wide ALTER big SET STORAGE EXTERNAL;
CREATE TABLE "Full" (a text, b int, big text, tags text[], PRIMARY KEY (a, b));
ALTER TABLE "Full" REPLICA IDENTITY FULL;
ALTER TABLE "Full" ALTER big SET STORAGE EXTERNAL;
CREATE TABLE parted (id int, day int, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50) TO (1000);
CREATE PUBLICATION {p} FOR TABLE plain, wide, "Full", parted WITH (publish_via_partition_root = true);
"""
NAMES = ("plain", "wide", "Full", "parted")
_BIG = "repeat(md5({n}::text), 400)"


@dataclass
class Workload:
    """Makes statements; keys are few, so that rows are changed often.

    `truncates`: also TRUNCATE, which waits for the end of a table's snapshot.
    """

    random: random.Random
    keys: int = 60
    columns: list[str] = field(default_factory=list)
    truncates: bool = False

    def transaction(self) -> str:
        """Return a transaction of some statements, perhaps in parts that are rolled back."""
        statements = [self.statement() for _ in range(self.random.choice([1, 1, 2, 5, 20]))]
        if self.random.random() < 0.2:
            place = self.random.randrange(len(statements) + 1)
            undone = ["SAVEPOINT s", self.statement(), "ROLLBACK TO s"]
            statements[place:place] = undone
        if self.truncates and self.random.random() < 0.15:
            tables = self.random.sample(("plain", "wide", '"Full"', "parted"), 2)
            place = self.random.randrange(len(statements) + 1)
            statements.insert(place, f"TRUNCATE {', '.join(tables)}")
        if self.random.random() < 0.2:
            statements.insert(0, "SAVEPOINT kept")
            statements.append("RELEASE kept")
        end = "ROLLBACK" if self.random.random() < 0.1 else "COMMIT"
        return ";\n".join(["BEGIN", *statements, f"{end};"])

    def statement(self) -> str:
        choose = self.random.choice
        return choose(
            [
                self._change_plain,
                self._change_plain,
                self._change_wide,
                self._change_wide,
                self._change_full,
                self._change_parted,
            ]
        )()

    def _key(self) -> int:
        return self.random.randrange(self.keys)

    def _change_plain(self) -> str:
        key, other = self._key(), self._key()
        return self.random.choice(
            [
                (
                    f"INSERT INTO plain VALUES ({key}, 'n{other}', {other}.25) ON CONFLICT (id) DO UPDATE "
                    f"SET name = 'again', amount = {key}"
                ),
                f"UPDATE plain SET name = 'u{other}', at = now() WHERE id = {key}",
                f"DELETE FROM plain WHERE id = {key}",
                (
                    f"UPDATE plain SET id = {other} WHERE id = {key} AND NOT EXISTS "
                    f"(SELECT 1 FROM plain WHERE id = {other})"
                ),
                f"UPDATE plain SET amount = amount + 1 WHERE id BETWEEN {key} AND {key + 9}",
            ]
        )

    def _change_wide(self) -> str:
        key, other = self._key(), self._key()
        return self.random.choice(
            [
                (
                    f"INSERT INTO wide VALUES ({key}, 'n', {_BIG.format(n=other)}, {other}) "
                    f"ON CONFLICT (id) DO UPDATE SET note = 'x{other}'"
                ),
                f"UPDATE wide SET note = 'w{other}' WHERE id = {key}",
                f"UPDATE wide SET number = number + 1 WHERE id BETWEEN {key} AND {key + 5}",
                f"UPDATE wide SET big = {_BIG.format(n=other)} WHERE id = {key}",
                f"UPDATE wide SET big = NULL WHERE id = {key}",
                f"DELETE FROM wide WHERE id = {key}",
            ]
        )

    def _change_full(self) -> str:
        key, other = self._key() % 7, self._key()
        where = f"a = 'k{key}' AND b = {other % 7}"
        return self.random.choice(
            [
                (
                    f"INSERT INTO \"Full\" VALUES ('k{key}', {other % 7}, {_BIG.format(n=other)}, "
                    f"ARRAY['a{other}', NULL, 'it''s']) ON CONFLICT (a, b) DO NOTHING"
                ),
                f"UPDATE \"Full\" SET tags = array_append(tags, 'more') WHERE {where} AND b < 200",
                (
                    f'UPDATE "Full" SET b = b + 100 WHERE {where} AND NOT EXISTS (SELECT 1 FROM "Full" o '
                    f"WHERE o.a = 'k{key}' AND o.b = {other % 7 + 100})"
                ),
                f"DELETE FROM \"Full\" WHERE a = 'k{key}'",
            ]
        )

    def _change_parted(self) -> str:
        key, day = self._key() % 20, self._key()
        return self.random.choice(
            [
                (
                    f"INSERT INTO parted VALUES ({key}, {day}, 'v{day}') ON CONFLICT (id, day) DO UPDATE "
                    f"SET v = 'again'"
                ),
                (
                    f"UPDATE parted SET day = day + 50 WHERE id = {key} AND day = {day} AND NOT EXISTS "
                    f"(SELECT 1 FROM parted o WHERE o.id = {key} AND o.day = {day + 50})"
                ),
                f"DELETE FROM parted WHERE id = {key} AND day < {day}",
            ]
        )

    def run(self, database: Database, count: int, *, truncates: bool = False) -> None:
        """Run some transactions, one after another."""
        self.truncates = truncates
        for _ in range(count):
            database.execute(self.transaction())


def large_transaction(first: int, count: int) -> str:
    """Return a transaction with many rows."""
    return (
        f"BEGIN; INSERT INTO plain SELECT i, 'large', i FROM generate_series({first}, {first + count - 1}) i "
        f"ON CONFLICT DO NOTHING; UPDATE plain SET name = 'larger' WHERE id >= {first} AND id % 3 = 0; "
        f"DELETE FROM plain WHERE id >= {first} AND id % 7 = 0; COMMIT;"
    )
