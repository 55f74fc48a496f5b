"""A connection whose source is a file of SQLite with the table `orders`."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tests.support.project import Project

TABLE = """CREATE TABLE orders (id INTEGER NOT NULL, code TEXT NOT NULL, amount DECIMAL(10, 2), region TEXT,
at TIMESTAMP, u INTEGER, PRIMARY KEY (id, code))"""
LIVE: dict[str, Any] = {
    "sync_mode": "incremental",
    "cursor_field": ["u"],
    "destination_sync_mode": "append_dedup",
}


def change(project: Project, *statements: tuple[str, Sequence[Any]]) -> None:
    with closing(sqlite3.connect(project.root / "shop.db")) as connection, connection:
        for query, values in statements:
            connection.execute(query, values)


def put(number: int, *, amount: int | None = 1, u: int | None = None, region: str = "eu") -> Any:
    row = (number, f"né{number}", amount, region, "2026-01-01 10:00:00.5", u or number)
    return "INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?, ?, ?)", row


def configure(project: Project, *, discovers: bool = True, **stream: Any) -> None:
    source = {
        "command": [sys.executable, "-m", "tests.programs.sqlite_source"],
        "config": {"path": str(project.root / "shop.db"), "slice_rows": 1_000},
    }
    project.connection("shop", source=source, streams=[{"name": "orders", **LIVE, **stream}])
    if discovers:
        project.discover("shop")
