"""A random workload of a database: tables of several forms, and transactions of several statements."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.support.mariadb import MariaDb

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, name varchar(40) CHARACTER SET latin1, amount decimal(12,2),
    at timestamp(6) NOT NULL DEFAULT current_timestamp(6));
CREATE TABLE wide (id bigint unsigned PRIMARY KEY, note text, big mediumblob, kind enum('a','bé','c'), n int);
CREATE TABLE `Two Keys` (a varchar(20), b int, tags set('x','y','z'), day date, j json, PRIMARY KEY (a, b));
CREATE TABLE parted (id int, day int, v double, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)
    (PARTITION p1 VALUES LESS THAN (50), PARTITION p2 VALUES LESS THAN MAXVALUE);
"""
NAMES = ("plain", "wide", "Two Keys", "parted")


@dataclass
class Workload:
    """Makes statements; keys are few, so that rows are changed often."""

    random: random.Random
    keys: int = 60

    def transaction(self) -> str:
        """Return a transaction of some statements, perhaps in parts that are rolled back."""
        statements = [self.statement() for _ in range(self.random.choice([1, 1, 2, 5, 20]))]
        if self.random.random() < 0.2:
            place = self.random.randrange(len(statements) + 1)
            statements[place:place] = ["SAVEPOINT s", self.statement(), "ROLLBACK TO s"]
        end = "ROLLBACK" if self.random.random() < 0.1 else "COMMIT"
        return ";\n".join(["BEGIN", *statements, f"{end};"])

    def statement(self) -> str:
        changes = [self._change_plain, self._change_wide, self._change_two, self._change_parted]
        return self.random.choice(changes)()

    def _key(self) -> int:
        return self.random.randrange(self.keys)

    def _change_plain(self) -> str:
        key, other = self._key(), self._key()
        return self.random.choice(
            [
                (
                    f"INSERT INTO plain (id, name, amount) VALUES ({key}, 'né{other}', {other}.25) "
                    f"ON DUPLICATE KEY UPDATE name = 'again', amount = -{key}"
                ),
                f"REPLACE INTO plain (id, name) VALUES ({key}, 'replaced')",
                f"UPDATE plain SET name = 'u{other}', at = now(6) WHERE id = {key}",
                f"DELETE FROM plain WHERE id = {key}",
                # UPDATE IGNORE would let triggers see rows that it does not change.
                (
                    f"UPDATE plain SET id = {other} WHERE id = {key} AND {other} NOT IN "
                    "(SELECT id FROM (SELECT id FROM plain) p)"
                ),
                f"UPDATE plain SET amount = amount + 1 WHERE id BETWEEN {key} AND {key + 9}",
            ]
        )

    def _change_wide(self) -> str:
        key, other = self._key(), self._key()
        big = f"REPEAT(SHA2({other}, 256), 200)"
        return self.random.choice(
            [
                (
                    f"INSERT INTO wide VALUES ({key}, 'n', {big}, 'bé', {other}) "
                    f"ON DUPLICATE KEY UPDATE note = 'x{other}', kind = 'c'"
                ),
                f"UPDATE wide SET n = n + 1 WHERE id BETWEEN {key} AND {key + 5}",
                f"UPDATE wide SET big = {big}, note = NULL WHERE id = {key}",
                f"UPDATE wide SET big = NULL WHERE id = {key}",
                f"DELETE FROM wide WHERE id = {key}",
            ]
        )

    def _change_two(self) -> str:
        key, other = self._key() % 7, self._key()
        where = f"a = 'k{key}' AND b = {other % 7}"
        return self.random.choice(
            [
                (
                    f"INSERT IGNORE INTO `Two Keys` VALUES ('k{key}', {other % 7}, 'z,x', "
                    f"'2024-02-{key + 1:02d}', "
                    f"JSON_OBJECT('n', {other}, 'a', JSON_ARRAY(1.5, 'é')))"
                ),
                f"UPDATE `Two Keys` SET tags = '', j = NULL WHERE {where}",
                f"UPDATE IGNORE `Two Keys` SET b = b + 100, a = UPPER(a) WHERE {where}",
                f"DELETE FROM `Two Keys` WHERE a = 'k{key}'",
            ]
        )

    def _change_parted(self) -> str:
        key, day = self._key() % 20, self._key()
        return self.random.choice(
            [
                f"INSERT INTO parted VALUES ({key}, {day}, 0.1) ON DUPLICATE KEY UPDATE v = v * 3",
                f"UPDATE IGNORE parted SET day = day + 50 WHERE id = {key} AND day = {day}",
                f"DELETE FROM parted WHERE id = {key} AND day < {day}",
            ]
        )

    def run(self, server: MariaDb, count: int, *, truncates: bool = False) -> None:
        """Run some transactions, one after another. `truncates`: also statements that remove all rows, which
        wait for the end of other reads."""
        transactions = [self.transaction() for _ in range(count)]
        if truncates and self.random.random() < 0.7:
            place = self.random.randrange(count + 1)
            transactions.insert(place, self._empty())
        server.execute("\n".join(transactions) or "DO 0")

    def _empty(self) -> str:
        number = self.random.randrange(1, len(NAMES))
        name, made = NAMES[number], TABLES.split(";")[number]
        return self.random.choice([f"TRUNCATE `{name}`;", f"DROP TABLE `{name}`; {made};"])


def large_transaction(first: int, count: int) -> str:
    """Return a transaction with many rows."""
    last = first + count - 1
    return (
        f"BEGIN; INSERT IGNORE INTO plain (id, name, amount) SELECT seq, 'large', seq FROM "
        f"seq_{first}_to_{last}; UPDATE plain SET name = 'larger' WHERE id >= {first} AND id % 3 = 0; "
        f"DELETE FROM plain WHERE id >= {first} AND id % 7 = 0; COMMIT;"
    )
