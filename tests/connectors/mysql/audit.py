"""What a server did with each row of the table `plain` of a workload, in order, by triggers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.support.mariadb import MariaDb

AUDIT = """
CREATE TABLE audit (number int AUTO_INCREMENT PRIMARY KEY, before_id int, id int, name varchar(40),
    amount decimal(12,2));
DELIMITER ;;
CREATE TRIGGER i AFTER INSERT ON plain FOR EACH ROW
  INSERT INTO audit (id, name, amount) VALUES (NEW.id, NEW.name, NEW.amount);;
CREATE TRIGGER u AFTER UPDATE ON plain FOR EACH ROW
  IF NOT (OLD.id <=> NEW.id AND OLD.name <=> NEW.name AND OLD.amount <=> NEW.amount AND OLD.at <=> NEW.at)
  THEN
    INSERT INTO audit (before_id, id, name, amount) VALUES (OLD.id, NEW.id, NEW.name, NEW.amount);
  END IF;;
CREATE TRIGGER d AFTER DELETE ON plain FOR EACH ROW INSERT INTO audit (before_id) VALUES (OLD.id);;
DELIMITER ;
"""
"""What the server did with each row of a table, in order."""


def text_of(value: Any) -> str:
    """A value of the lake as the server writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    return repr(value) if isinstance(value, float) else str(value)


def list_events(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What appended rows say was done: the key that was deleted, or the row."""
    return [
        row["id"]
        if row["_ab_cdc_deleted_at"]
        else (
            row["id"],
            text_of(row["name"]),
            None if row["amount"] is None else Decimal(row["amount"]),
        )
        for row in rows
    ]


def list_audited(server: MariaDb) -> list[Any]:
    events: list[Any] = []
    query = "SELECT before_id, id, name, amount FROM audit ORDER BY number"
    for before, key, name, amount in server.texts(query):
        if before not in ("NULL", key):
            events.append(int(before))
        if key != "NULL":
            events.append((int(key), name, None if amount == "NULL" else Decimal(amount)))
    return events
