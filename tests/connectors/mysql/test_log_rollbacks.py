"""Transactions of which a part is rolled back, beside tables without transactions, whose changes stay."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import chain

import pymysql
import pytest

from elt_assets.errors import ConfigError
from tests.connectors.logged import Lake
from tests.connectors.mysql.logs import assert_equal, make_lake
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

NAMES = ("safe", "other", "isam", "aria")


@pytest.fixture
def lake(logged: MariaDb) -> Lake:
    for name, engine in zip(NAMES, ("InnoDB", "InnoDB", "MyISAM", "Aria"), strict=True):
        logged.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int) ENGINE = {engine}")
    lake = make_lake(logged, *NAMES)
    lake.sync()
    return lake


class Transactions:
    """Makes transactions with savepoints, on tables with transactions and without, and on temporary ones."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._savepoints: list[str] = []

    def make(self) -> list[str]:
        self._savepoints = []
        statements = [self._statement() for _ in range(self._random.randrange(1, 14))]
        return ["BEGIN", *statements, self._random.choice(["COMMIT", "COMMIT", "ROLLBACK"])]

    def _statement(self) -> str:
        choice = self._random.random()
        if choice < 0.2:
            self._savepoints.append(self._random.choice(["a", "b", "`S p`", "A"]))
            return f"SAVEPOINT {self._savepoints[-1]}"
        if choice < 0.35 and self._savepoints:
            place = self._random.randrange(len(self._savepoints))
            name = self._savepoints[place].swapcase()
            del self._savepoints[place + 1 :]
            return f"ROLLBACK TO {name}"
        if choice < 0.4:
            return "CREATE TEMPORARY TABLE IF NOT EXISTS temporary (id int)"
        name, key = self._random.choice(NAMES), self._random.randrange(30)
        return self._random.choice(
            [
                f"REPLACE INTO {name} VALUES ({key}, {self._random.randrange(99)})",
                f"UPDATE {name} SET v = COALESCE(v, 0) + 1 WHERE id BETWEEN {key} AND {key + 5}",
                f"DELETE FROM {name} WHERE id = {key}",
                f"UPDATE IGNORE {name} SET id = id + 1 WHERE id = {key}",
                f"UPDATE safe, isam SET safe.v = {key}, isam.v = {key} WHERE safe.id = isam.id",
            ]
        )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_rolled_back_is_left_out_and_the_rest_is_kept(
    lake: Lake, logged: MariaDb, seed: int
) -> None:
    transactions = Transactions(seed)
    for _ in range(4):
        with pymysql.connect(
            unix_socket=str(logged.socket), user="root", database="shop"
        ) as client:
            cursor = client.cursor()
            for statement in chain.from_iterable(transactions.make() for _ in range(30)):
                with suppress(pymysql.Error):  # Aria has no savepoints
                    cursor.execute(statement)
        lake.sync()
        assert_equal(lake)


def test_many_rows_that_are_rolled_back_leave_no_trace(lake: Lake, logged: MariaDb) -> None:
    """The rows are in files already when the log says that they were rolled back."""
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    lake.names = ("safe",)
    logged.execute(
        "BEGIN; INSERT INTO safe VALUES (1, 1); SAVEPOINT s; INSERT INTO isam VALUES (1, 1); "
        "INSERT INTO safe SELECT seq, seq FROM seq_1000_to_130000; ROLLBACK TO s; "
        "INSERT INTO safe VALUES (2, 2); COMMIT; "
        "BEGIN; INSERT INTO safe SELECT seq, seq FROM seq_1000_to_70000; INSERT INTO isam VALUES (2, 2); "
        "CREATE TEMPORARY TABLE temporary (id int); ROLLBACK"
    )
    slices, events = len(lake.slices), lake.tables["safe"].events
    events.clear()
    lake.sync()
    assert [(row["id"], row["v"]) for row in events] == [(1, 1), (2, 2)]
    assert [part.rows for part in lake.slices[slices:]] == [2]
    lake.sync()
    assert len(events) == 2


def test_a_prepared_transaction_that_is_rolled_back_is_an_error(
    lake: Lake, logged: MariaDb
) -> None:
    logged.execute(
        "XA START 'x'; INSERT INTO safe VALUES (1, 1); XA END 'x'; XA PREPARE 'x'; XA ROLLBACK 'x'"
    )
    with pytest.raises(ConfigError, match="that were rolled back") as error:
        lake.sync()
    assert "reset the streams of the connection (`elt reset`)" in (error.value.guidance or "")
    for name in NAMES:
        lake.reset(name)
    lake.sync()
    assert_equal(lake)
