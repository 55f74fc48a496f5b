"""`elt verify` of tables of MariaDB: of its log, whose changes the state numbers, and by a cursor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.test_verify import damage
from tests.connectors.mysql.logs import run_logged
from tests.support.elt import Elt
from tests.support.mariadb import MariaDb
from tests.support.project import Project

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]

TABLE = """
CREATE TABLE orders (id bigint unsigned, code varchar(9), amount decimal(10, 2), u bigint,
  at datetime(6), PRIMARY KEY (code, id));
INSERT INTO orders SELECT seq, CONCAT('c', seq % 7), seq, seq, '2024-02-29 23:59:59.5' FROM seq_1_to_3000;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with run_logged() as mariadb:
        yield mariadb


@pytest.fixture
def shop(own: Project, server: MariaDb) -> Project:
    server.execute("DROP DATABASE shop; CREATE DATABASE shop", "mysql")
    server.execute(TABLE)
    return own


def connect(project: Project, server: MariaDb, **stream: Any) -> None:
    """Configure the connection; `stream`: its settings, with a cursor, or none for the log."""
    config = server.config(**({} if "cursor_field" in stream else {"incremental": "log"}))
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    streams = [{"name": "orders", "namespace": "shop", **modes, **stream}]
    source = {"connector": "mysql", "config": config}
    project.connection("shop", source=source, streams=streams, read_together=not stream)
    project.discover("shop")


def read_rows(server: MariaDb) -> list[list[str]]:
    return server.texts("SELECT id, code, amount, u FROM orders ORDER BY id")


def list_stored(project: Project) -> list[list[str]]:
    rows = sorted(project.rows("shop", "shop", "orders"), key=lambda row: row["id"])
    return [[str(row["id"]), row["code"], f"{row['amount']:.2f}", str(row["u"])] for row in rows]


@pytest.mark.parametrize("stream", [{}, {"cursor_field": ["u"]}], ids=["log", "cursor"])
def test_a_damaged_table_is_found_out_and_corrected(
    shop: Project, server: MariaDb, elt: Elt, stream: dict[str, Any]
) -> None:
    connect(shop, server, **stream)
    elt("sync", "shop")
    assert elt.json("verify", "shop")["streams"][0]["passed"]
    for kind in ("gone", "doubled", "changed"):
        damage(shop, "shop/orders", kind, random.Random(kind))
    server.execute("UPDATE orders SET amount = 0, u = 5000 WHERE id = 9")
    (answer,) = elt.json("verify", "shop", "--repair")["streams"]
    # The sync of a stream with a log, which comes first, may have mended one.
    assert 2 <= answer["corrected"] <= 3
    assert answer["passed"]
    server.execute("UPDATE orders SET amount = 1, u = 5001 WHERE id < 9")
    elt("sync", "shop")
    assert elt.json("verify", "shop")["streams"][0]["passed"]
    assert list_stored(shop) == read_rows(server)
