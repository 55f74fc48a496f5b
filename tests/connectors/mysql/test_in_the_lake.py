"""Incremental syncs of a table by Spark's tasks, and the conformance kit."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from connectors.testing import Kit, KitOptions
from tests.connectors.mysql.reads import configure, open_stream
from tests.connectors.sql.limits import INSIDE, OUTSIDE, write_hours
from tests.support.mariadb import MariaDb
from tests.support.project import Project
from tests.support.runs import materialize

pytestmark = pytest.mark.external

TABLE = """
CREATE TABLE orders (id bigint unsigned PRIMARY KEY, price decimal(9, 2), t varchar(20),
    updated_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), INDEX (updated_at));
INSERT INTO orders SELECT seq, seq * 1.25, CONCAT('é', seq), '2026-01-01' + INTERVAL seq MINUTE
    FROM seq_1_to_50;
"""


@pytest.mark.usefixtures("spark")
def test_a_table_equals_that_of_the_server_after_each_sync(shop: MariaDb, own: Project) -> None:
    shop.execute(TABLE)
    stream: dict[str, Any] = {
        "name": "orders",
        "namespace": "shop",
        "destination_sync_mode": "append_dedup",
    }
    stream |= {"sync_mode": "incremental", "cursor_field": ["updated_at"]}
    limits = {"connections": 1, "rows_per_second": 1000, "statement_seconds": 60}
    catalog = {"streams": [configure(open_stream(shop, "orders"))["stream"]]}
    for hours in (OUTSIDE, INSIDE):
        config = shop.config(slice_rows=20, limits={**limits, "hours": write_hours(*hours)})
        source = {"connector": "mysql", "config": config}
        folder = own.connection("my", source=source, streams=[stream])
        (folder / "catalog.json").write_text(json.dumps(catalog))
        if hours == OUTSIDE:
            assert not materialize(own).success
    changes = [
        "DO 0",
        "UPDATE orders SET price = -0.01, updated_at = '2026-02-01' WHERE id % 2",
        "INSERT INTO orders (id, t) VALUES (18446744073709551615, NULL)",
    ]
    for count, change in zip((50, 25, 1), changes, strict=True):
        shop.execute(change)
        assert materialize(own).success
        assert own.metadata("my", "shop", "orders")["elt/records_read"] == count
        rows = own.table("my", "shop", "orders").to_pyarrow_table().sort_by("id").to_pylist()
        query = "SELECT id, price, HEX(t), updated_at FROM orders ORDER BY id"
        stored = [
            [
                str(row["id"]),
                "NULL" if row["price"] is None else f"{row['price']:.2f}",
                "NULL" if row["t"] is None else row["t"].encode().hex().upper(),
                f"{row['updated_at']:%Y-%m-%d %H:%M:%S.%f}",
            ]
            for row in rows
        ]
        assert stored == shop.texts(query)


@pytest.mark.long
def test_the_source_conforms(shop: MariaDb) -> None:
    shop.execute(TABLE)
    shop.execute(
        "CREATE TABLE plain (t text, b blob); INSERT INTO plain VALUES ('a', 'b'), (NULL, NULL)"
    )
    command = [sys.executable, "-m", "connectors.mysql"]
    report = Kit(
        command, shop.config(slice_rows=7), KitOptions(cursors={"orders": "updated_at"})
    ).report()
    assert report.passed, "\n".join(report.lines())
