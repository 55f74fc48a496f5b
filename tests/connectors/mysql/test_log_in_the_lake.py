"""Syncs of changes from the log into tables of the lake."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from connectors.mysql.source import MySql
from elt_assets.failpoints import armed
from tests.connectors.logged import Failing
from tests.connectors.mysql.audit import AUDIT, list_audited, list_events, text_of
from tests.connectors.mysql.logs import run_logged
from tests.connectors.mysql.workload import NAMES, TABLES, Workload
from tests.support.elt import Elt
from tests.support.mariadb import MariaDb
from tests.support.project import Project
from tests.support.runs import materialize

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]


@pytest.fixture
def logged() -> Iterator[MariaDb]:
    with run_logged() as server:
        server.execute(TABLES)
        yield server


def connect(own: Project, server: MariaDb, modes: dict[str, Any]) -> None:
    """Configure a connection; its catalog is that of the source."""
    config = server.config(incremental="log", window_megabytes=1, slice_rows=50)
    streams = [
        {"name": name, "namespace": "shop", "sync_mode": "incremental", **mode}
        for name, mode in modes.items()
    ]
    source = {"connector": "mysql", "config": config}
    folder = own.connection("log", source=source, streams=streams, read_together=True)
    catalog = [msgspec.json.decode(stream.describe().to_json()) for stream in MySql().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": catalog}))


def read_table(own: Project, name: str) -> list[dict[str, Any]]:
    path = name.replace(" ", "_")  # as the lake names it
    rows: list[dict[str, Any]] = own.table("log", "shop", path).to_pyarrow_table().to_pylist()
    return rows


def assert_current(own: Project, server: MariaDb, names: Sequence[str]) -> None:
    """Check that tables have the rows of the server."""
    for name in names:
        columns = [row[0] for row in server.texts(f"SHOW COLUMNS FROM `{name}`")]
        rows = [[text_of(row[column]) for column in columns] for row in read_table(own, name)]
        expected = server.texts(f"SELECT {', '.join(columns)} FROM `{name}`")
        assert sorted(map(_plain, rows)) == sorted(map(_plain, expected)), name


def _plain(row: list[str]) -> list[str]:
    """A row whose JSON has sorted keys."""
    return [
        json.dumps(json.loads(value), sort_keys=True) if value[:1] == "{" else value
        for value in row
    ]


def run_seed(own: Project, server: MariaDb, seed: int, rounds: int) -> None:
    """Let the server work, and syncs fail anywhere; then compare all tables."""
    server.execute(AUDIT)
    work = Workload(random.Random(seed))
    dedup = {"destination_sync_mode": "append_dedup"}
    connect(
        own, server, {**dict.fromkeys(NAMES, dedup), "plain": {"destination_sync_mode": "append"}}
    )
    assert materialize(own).success
    for _ in range(rounds):
        work.run(server, 25, truncates=True)
        with armed(Failing(work.random.randrange(1, 40))):
            materialize(own)
    assert materialize(own).success
    assert_current(own, server, NAMES[1:])
    rows = sorted(read_table(own, "plain"), key=lambda row: row["_ab_cdc_cursor"])
    assert list_events(rows) == list_audited(server)


def test_syncs_that_fail_anywhere_lose_and_double_nothing(logged: MariaDb, own: Project) -> None:
    run_seed(own, logged, seed=7, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 14))
def test_many_syncs_that_fail_anywhere(logged: MariaDb, own: Project, seed: int) -> None:
    run_seed(own, logged, seed, rounds=8)


def test_a_new_column_of_the_log_stops_a_sync_before_its_transaction(
    logged: MariaDb, own: Project
) -> None:
    stopping = {"destination_sync_mode": "append_dedup", "on_undeclared": "stop"}
    logged.execute("CREATE TABLE late (id INT PRIMARY KEY)")
    connect(own, logged, {"late": stopping})
    logged.execute("INSERT INTO late VALUES (1)")
    assert materialize(own).success
    logged.execute("INSERT INTO late VALUES (2); ALTER TABLE late ADD due DATE")
    logged.execute("INSERT INTO late VALUES (3, '2026-01-31')")
    for _ in range(2):
        assert not materialize(own).success
        assert sorted(row["id"] for row in read_table(own, "late")) == [1, 2]
    connect(own, logged, {"late": stopping})  # with the catalog of the source
    assert materialize(own).success
    assert_current(own, logged, ["late"])


def test_a_new_column_of_the_log_is_added_and_filled(
    logged: MariaDb, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old row has a default of which no log tells."""
    logged.execute("CREATE TABLE fresh (id int PRIMARY KEY, name text)")
    adding = {"destination_sync_mode": "append_dedup", "on_undeclared": "add"}
    connect(own, logged, {"fresh": adding})
    logged.execute("INSERT INTO fresh VALUES (1, 'a'), (2, 'b')")
    assert materialize(own).success
    logged.execute("INSERT INTO fresh VALUES (3, 'c')")
    logged.execute("ALTER TABLE fresh ADD COLUMN c1 int DEFAULT 11, ADD COLUMN due date")
    logged.execute("INSERT INTO fresh VALUES (4, 'd', 22, '2026-01-31')")
    assert materialize(own).success
    rows = {row["id"]: row for row in read_table(own, "fresh")}
    assert {number: row["c1"] for number, row in rows.items()} == {1: None, 2: None, 3: None, 4: 22}
    elt = Elt(capsys)
    assert "3 rows filled" in elt("backfill", "log/shop/fresh", "--columns", "c1,due")
    assert_current(own, logged, ["fresh"])
