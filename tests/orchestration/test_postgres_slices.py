"""Tables of PostgreSQL in the lake: read by tasks and by the connector's process, and continued."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connectors.postgres import Postgres as Source
from tests.connectors.postgres.values import TYPES, make_table
from tests.support.postgres import Postgres, postgres
from tests.support.project import Project
from tests.support.runs import materialize

__all__ = ["postgres"]
pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]

KEY = 'key:"shop/public/t"'
DEDUP: Any = {"destination_sync_mode": "append_dedup", "sync_mode": "incremental"}


def connect(project: Project, server: Postgres, *, by_tasks: bool = True, **config: Any) -> Path:
    config |= {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
    source = {"connector": "postgres", "config": config, "slices": by_tasks}
    stream: dict[str, Any] = {"name": "t", "namespace": "public", **DEDUP}
    folder = project.connection("shop", source=source, streams=[stream])
    described = [json.loads(stream.describe().to_json()) for stream in Source().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": described}))
    return folder


def rows(project: Project) -> dict[int, dict[str, Any]]:
    """The rows of the table by their id, without what differs between two syncs."""
    stored = project.table("shop", "public", "t").to_pyarrow_table().to_pylist()
    for row in stored:
        row["_changes"] = row["_airbyte_meta"]["changes"]
        for name in [name for name in row if name.startswith("_airbyte")]:
            del row[name]
    return {row["id"]: row for row in stored}


def test_both_ways_of_reading_give_the_same_table(own: Project, postgres: Postgres) -> None:
    postgres.execute(TYPES + make_table("t"))
    tables = []
    for by_tasks in (True, False):
        shutil.rmtree(own.home / "lake", ignore_errors=True)
        connect(own, postgres, by_tasks=by_tasks, incremental="xmin", slice_megabytes=1)
        assert materialize(own, KEY).success
        tables.append(rows(own))
    by_tasks_rows, by_process_rows = tables
    assert by_tasks_rows == by_process_rows
    assert by_tasks_rows[2]["c0"] == Decimal("9999999999.990000000")
    assert len(by_tasks_rows[2]["_changes"]) >= 16


def test_a_table_is_continued_by_xmin(own: Project, postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, pad text DEFAULT repeat('x', 900));"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 4000) g"
    )
    connect(own, postgres, incremental="xmin", slice_megabytes=1)
    assert materialize(own, KEY).success
    assert own.metadata("shop", "public", "t")["elt/records_read"] == 4000
    postgres.execute("UPDATE t SET v = 1 WHERE id % 100 = 0; INSERT INTO t VALUES (5000, 2)")
    assert materialize(own, KEY).success
    assert own.metadata("shop", "public", "t")["elt/records_read"] == 41
    stored = {key: row["v"] for key, row in rows(own).items()}
    lines = postgres.execute("SELECT id, v FROM t").splitlines()
    assert stored == {int(i): int(v) for i, v in (line.split("|") for line in lines)}
