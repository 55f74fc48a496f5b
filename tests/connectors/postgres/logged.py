"""Reads of the log of a test's database."""

from __future__ import annotations

from collections.abc import Sequence

from tests.connectors import logged
from tests.connectors.postgres.support import Database


class Lake(logged.Lake):
    """The lake of a connection to a database."""

    def __init__(self, database: Database, config: logged.Json, names: Sequence[str]):
        super().__init__("connectors.postgres:Postgres", config, names)
        self.database = database
