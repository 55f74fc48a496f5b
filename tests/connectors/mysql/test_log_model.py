"""Any statements between syncs that are killed anywhere: a table equals the server's, or a sync said why not.

A seed decides all, so a failure comes again with its number: `pytest … -k 'model and 7'`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Warn
from elt_assets.errors import ConfigError, EltError, TransientError
from tests.connectors.logged import Killed, Lake
from tests.connectors.mysql.logs import SOURCE, make_lake
from tests.connectors.mysql.schema_work import NAMES, SchemaWork
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external


class Model:
    """Syncs of the tables of a workload. `warned`: those whose rows may differ, as a warning says."""

    def __init__(self, server: MariaDb, work: SchemaWork):
        self.lake = make_lake(server, *NAMES)
        self.warned: set[str] = set()
        self._work = work

    def sync(self, *, chance: float = 0.0) -> None:
        """Sync, and reset what an error names. `chance`: of an end at each item, and of changes there."""

        def on_item(item: Any) -> None:
            if isinstance(item, StreamPart) and isinstance(item.item, Warn):
                assert "elt reset" in item.item.text
                self.warned.add(item.stream.name)
            if self._work.random.random() < chance:
                self._work.change_rows(2)
            if self._work.random.random() < chance:
                raise Killed

        for _ in range(2 * len(NAMES)):
            try:
                self.lake.sync(on_item)
            except (Killed, TransientError):
                if not chance:
                    continue
            except ConfigError as error:
                self._reset(error)
                continue
            return
        raise AssertionError("the remedies of the errors do not help")

    def _reset(self, error: EltError) -> None:
        assert "elt reset" in (error.guidance or ""), error
        named = set(re.findall(r"\bshop`?\.`?(\w+)", error.message)) & set(NAMES)
        for name in named or NAMES:
            self.reset(name)

    def reset(self, name: str) -> None:
        self.lake.reset(name)
        self.warned.discard(name)

    def check(self) -> None:
        """Check that each table has the rows of the server's, in its present columns; one of which a warning
        says that values may be others has the same keys."""
        fresh = Lake(SOURCE, self.lake.config, self.lake.names)
        fresh.sync()
        for name in fresh.tables:
            columns = ["id"]
            if name not in self.warned:
                schema = fresh.catalog(name)["json_schema"]
                columns = [c for c in schema["properties"] if not c.startswith("_ab_cdc")]
            assert _list_rows(self.lake, name, columns) == _list_rows(fresh, name, columns), name


def _list_rows(lake: Lake, name: str, columns: Sequence[str]) -> list[bytes]:
    rows = [{column: row.get(column) for column in columns} for row in lake.rows(name)]
    return sorted(msgspec.json.encode(row, order="sorted") for row in rows)


def run_seed(server: MariaDb, seed: int, rounds: int) -> None:
    server.execute("DROP DATABASE IF EXISTS elsewhere; CREATE DATABASE elsewhere")
    work = SchemaWork(server, seed)
    try:
        work.create()
        model = Model(server, work)
        for _ in range(rounds):
            work.change_rows(work.random.randrange(20))
            work.change_tables(work.random.choice([0, 0, 1, 1, 2, 5]))
            work.change_rows(work.random.randrange(20))
            model.sync(chance=work.random.choice([0.0, 0.05, 0.2]))
            if work.random.random() < 0.5:
                model.sync()
                model.check()
                for name in list(model.warned):
                    model.reset(name)
        model.sync()
        model.check()
    finally:
        work.close()


@pytest.mark.parametrize("seed", range(2))
def test_model_of_any_statements(logged: MariaDb, seed: int) -> None:
    run_seed(logged, seed, rounds=12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_model_of_any_statements_for_many_seeds(logged: MariaDb, seed: int) -> None:
    run_seed(logged, seed, rounds=40)
