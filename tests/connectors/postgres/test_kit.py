"""The rules for sources, also those about slices, over tables of a real server."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from connectors.testing import Kit, KitOptions
from connectors.testing.findings import PASSED
from tests.connectors.postgres.support import Database

pytestmark = [pytest.mark.external, pytest.mark.long]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, price numeric(9, 2), body jsonb, pad text,
    updated_at timestamptz NOT NULL);
INSERT INTO orders SELECT n, n * 1.25, jsonb_build_object('n', n), repeat('x', 2000),
    timestamptz '2026-01-01+00' + n * interval '1 minute' FROM generate_series(1, 1200) n;
CREATE TABLE plain (t text, b bytea);
INSERT INTO plain VALUES ('a', 'b'), (NULL, NULL);
ANALYZE;
"""


@pytest.mark.parametrize("incremental", ["cursor", "xmin"])
def test_the_source_conforms(database: Database, incremental: str) -> None:
    database.execute(TABLES)
    config = database.config(incremental=incremental, slice_megabytes=1)
    cursors: Any = {"orders": "updated_at"} if incremental == "cursor" else {}
    command = [sys.executable, "-m", "connectors.postgres"]
    report = Kit(command, config, KitOptions(cursors=cursors, cuts=2)).report()
    assert report.passed, "\n".join(report.lines())
    passed = {outcome.rule for outcome in report.outcomes if outcome.status == PASSED}
    assert {
        "slices-have-the-same-records",
        "slices-are-read-again-alike",
        "slices-and-records-share-states",
        "waits-end-when-slices-are-read",
    } <= passed
