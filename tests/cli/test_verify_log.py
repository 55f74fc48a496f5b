"""`elt verify` of tables that are read from the log of their database, while that changes.

A failure names its seed. `ELT_VERIFY_LOG_SEEDS=40-99` are those that are left.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.test_verify import damage
from tests.connectors.mysql.logs import run_logged
from tests.support.elt import Elt
from tests.support.postgres import Postgres, run_postgres
from tests.support.project import Project
from tests.support.runs import materialize
from tests.support.seeds import read_range

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]

STREAM = {
    "name": "orders",
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
}
TABLE = """
CREATE TABLE orders (id int PRIMARY KEY, code text, amount numeric(10, 2), u bigint);
INSERT INTO orders SELECT g, 'c' || g, g, g FROM generate_series(1, 3000) g;
CREATE PUBLICATION shop FOR TABLE orders;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with run_postgres("wal_level=logical") as postgres:
        yield postgres


@pytest.fixture
def shop(own: Project, server: Postgres) -> Iterator[Project]:
    server.execute(TABLE)
    config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
    config |= {"incremental": "log", "slot": "shop", "publication": "shop"}
    source = {"connector": "postgres", "config": config}
    streams = [{**STREAM, "namespace": "public", "history": True}]
    own.connection("shop", source=source, streams=streams, read_together=True)
    own.discover("shop")
    yield own
    server.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots;"
        "DROP PUBLICATION shop; DROP TABLE orders"
    )


@contextmanager
def change_rows(
    execute: Callable[[str], object], random_: random.Random, *, is_mariadb: bool = False
) -> Iterator[None]:
    """Change rows of the table as long as the context is open."""
    ignore, otherwise = ("IGNORE", "") if is_mariadb else ("", "ON CONFLICT DO NOTHING")
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.02):
            number = random_.randrange(1, 3_200)
            statements = [
                f"UPDATE orders SET amount = amount + 1 WHERE id = {number}",
                f"DELETE FROM orders WHERE id = {number}",
                f"INSERT {ignore} INTO orders VALUES ({number}, 'new', 0, 0) {otherwise}",
                f"DELETE FROM orders WHERE id = -{number}; UPDATE orders SET id = -id WHERE id = {number}",
            ]
            execute("; ".join(random_.sample(statements, random_.randrange(1, 4))))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def rows_of(server: Postgres) -> list[Any]:
    lines = server.execute("SELECT id, code, amount, u FROM orders ORDER BY id").splitlines()
    return [line.split("|") for line in lines]


def list_stored(project: Project, *table: str) -> list[Any]:
    rows = [row for row in project.rows("shop", *table) if row.get("_is_current", True)]
    rows.sort(key=lambda row: row["id"])
    return [[str(row["id"]), row["code"], f"{row['amount']:.2f}", str(row["u"])] for row in rows]


@pytest.mark.parametrize(
    "seeds",
    [range(1), pytest.param(read_range("ELT_VERIFY_LOG_SEEDS", 100), marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_no_false_alarm_while_the_source_changes(
    shop: Project, server: Postgres, elt: Elt, seeds: range
) -> None:
    elt("sync", "shop")
    for seed in seeds:
        random_ = random.Random(seed)
        with change_rows(server.execute, random.Random(seed)):
            (answer,) = elt.json("verify", "shop")["streams"]
            assert (answer["passed"], answer["undecided"], answer["keys"]) == (True, 0, []), seed
        kinds = random_.sample(["gone", "doubled", "changed", "position_raised"], 2)
        for kind in kinds:
            damage(shop, "public/orders", kind, random_)
        with change_rows(server.execute, random.Random(-seed)):
            (answer,) = elt.json("verify", "shop/public/orders", "--repair")["streams"]
        assert answer["passed"], seed
        assert 1 <= answer["corrected"] <= 2, (seed, kinds)
        elt("sync", "shop")
        (answer,) = elt.json("verify", "shop")["streams"]
        assert (answer["passed"], answer["excused"]) == (True, {}), seed
        for table in ("orders", "orders_history"):
            assert list_stored(shop, "public", table) == rows_of(server), (seed, table)


def test_what_is_behind_the_log_is_not_decided_without_a_sync(
    shop: Project, server: Postgres, elt: Elt
) -> None:
    elt("sync", "shop")
    assert elt.json("verify", "shop", "--no-sync")["streams"][0]["passed"]
    server.execute("UPDATE orders SET amount = 0 WHERE id IN (7, 8)")
    (answer,) = elt.json("verify", "shop", "--no-sync", code=1)["streams"]
    assert (answer["undecided"], answer["keys"]) == (2, [])
    assert elt.json("verify", "shop")["streams"][0]["passed"]


def test_after_a_lost_slot_only_the_ranges_that_differ_are_read(
    shop: Project, server: Postgres, elt: Elt
) -> None:
    """The steps of docs/postgres.md, "After a lost slot"."""
    elt("sync", "shop")
    server.execute("SELECT pg_drop_replication_slot('shop')")
    server.execute(
        "UPDATE orders SET amount = 0 WHERE id = 5; DELETE FROM orders WHERE id = 2500;"
        "INSERT INTO orders VALUES (9000, 'new', 1, 1)"
    )
    assert "the slot 'shop' is gone" in elt("sync", "shop", code=2)
    server.execute("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')")
    place = server.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots").strip()
    server.execute("UPDATE orders SET amount = 1 WHERE id = 7")  # the new slot has it
    key = "shop/public/orders"
    state = elt.json("state", "show", key)["state"]
    for table in state["global"]["stream_states"]:
        table["stream_state"] |= {"lsn": place, "begin": ""}
    result = materialize(shop, op="shop", state=state)
    assert result.success
    assert len(shop.rows("shop", "public", "orders")) == 3_000  # only the change was read
    (answer,) = elt.json("verify", key, "--repair")["streams"]
    assert (answer["missing"], answer["surplus"], answer["different"]) == (1, 1, 1)
    assert (answer["ranges"], answer["ranges_listed"], answer["corrected"]) == (4, 2, 3)
    assert elt.json("verify", key)["streams"][0]["passed"]
    for name in ("orders", "orders_history"):
        assert list_stored(shop, "public", name) == rows_of(server), name


def test_rows_that_stay_after_their_delete_in_a_log(
    shop: Project, server: Postgres, elt: Elt
) -> None:
    shop.amend("shop", streams=[{**STREAM, "namespace": "public", "deletes": "keep"}])
    elt("sync", "shop")
    server.execute("DELETE FROM orders WHERE id <= 3; UPDATE orders SET amount = 0 WHERE id = 4")
    elt("sync", "shop")

    def list_deleted() -> dict[int, Any]:
        rows = shop.rows("shop", "public", "orders")
        assert len(rows) == 3_000
        return {row["id"]: row["amount"] for row in rows if row["_deleted_at"] is not None}

    assert list_deleted() == {1: 1, 2: 2, 3: 3}
    server.execute("INSERT INTO orders VALUES (2, 'again', 7, 7)")
    (answer,) = elt.json("verify", "shop")["streams"]
    assert (answer["passed"], answer["keys"], answer["rows"]) == (True, [], 2_998)
    assert list_deleted() == {1: 1, 3: 3}
    server.execute("TRUNCATE orders")
    before = {row["id"]: row["_deleted_at"] for row in shop.rows("shop", "public", "orders")}
    elt("sync", "shop")
    after = {row["id"]: row["_deleted_at"] for row in shop.rows("shop", "public", "orders")}
    assert None not in after.values()
    assert all(after[number] == before[number] for number in (1, 3))


MARIADB_TABLE = """
CREATE TABLE orders (id INT PRIMARY KEY, code VARCHAR(20), amount DECIMAL(10, 2), u BIGINT);
INSERT INTO orders SELECT seq, CONCAT('c', seq), seq, seq FROM seq_1_to_1500;
"""


def test_a_table_of_mariadb_is_compared_while_it_changes(own: Project, elt: Elt) -> None:
    with run_logged() as server:
        server.execute(MARIADB_TABLE)
        source = {"connector": "mysql", "config": server.config(incremental="log")}
        own.connection(
            "shop", source=source, streams=[{**STREAM, "namespace": "shop"}], read_together=True
        )
        own.discover("shop")
        elt("sync", "shop")
        random_ = random.Random(1)
        with change_rows(server.execute, random_, is_mariadb=True):
            (answer,) = elt.json("verify", "shop")["streams"]
        assert (answer["passed"], answer["keys"]) == (True, [])
        for kind in ("gone", "number_raised"):
            damage(own, "shop/orders", kind, random_)
        with change_rows(server.execute, random_, is_mariadb=True):
            (answer,) = elt.json("verify", "shop", "--repair")["streams"]
        assert (answer["passed"], answer["corrected"]) == (True, 2)
        elt("sync", "shop")
        assert elt.json("verify", "shop")["streams"][0]["passed"]
        rows = server.texts("SELECT id, code, amount, u FROM orders ORDER BY id")
        assert list_stored(own, "shop", "orders") == rows
