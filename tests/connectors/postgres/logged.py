"""Reads of the log of a test's database."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.connectors import logged
from tests.connectors.postgres.support import FULL, Database


class Lake(logged.Lake):
    """The lake of a connection to a database."""

    def __init__(self, database: Database, config: logged.Json, names: Sequence[str]):
        super().__init__("connectors.postgres:Postgres", config, names)
        self.database = database

    def reset_all(self) -> None:
        """Let the next sync read all streams from the beginning; the slot goes, as `elt reset CONNECTION`
        does."""
        self.shared, self.states = None, {}
        self.database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = "
            f"'{self.config['slot']}'"
        )

    def assert_equal(self, *names: str) -> None:
        """Check that tables, all by default, have the rows that a full refresh reads now."""
        for name in names or self.names:
            rows = self.database.reader(name, FULL).read()
            expected = [
                {k: v for k, v in row.items() if not k.startswith("_ab_cdc")} for row in rows
            ]
            assert _sort(self.rows(name)) == _sort(expected), name


def _sort(rows: list[logged.Json]) -> list[str]:
    return sorted(msgspec.json.encode(row, order="sorted").decode() for row in rows)
