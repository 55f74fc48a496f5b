"""Each type and value of MariaDB: what the server says of it, or null with a change."""

from __future__ import annotations

import base64
import datetime as dt
import json
import shutil
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mysql.exact_types import (
    CASES,
    NULLED,
    column,
    create,
    is_equal,
    server_texts,
)
from tests.connectors.mysql.reads import configure, messages, open_stream
from tests.support.mariadb import MariaDb
from tests.support.project import Project
from tests.support.runs import materialize

pytestmark = pytest.mark.external


def compare(
    values: Sequence[Mapping[str, Any]],
    changed: Sequence[set[str]],
    expected: Sequence[Mapping[str, str | None]],
) -> set[str]:
    """Compare rows with the server's texts, and return the values that are null with a change."""
    nulled = set()
    for row, changes, texts in zip(values, changed, expected, strict=True):
        for number, (kind, _) in enumerate(CASES):
            name = column(number)
            if name in changes:
                assert row[name] is None
                nulled.add(f"{kind}: {texts[name]}")
            else:
                assert is_equal(kind, row[name], texts[name]), (kind, row[name], texts[name])
    return nulled


def test_each_value_is_what_the_server_says(shop: MariaDb, tmp_path: Path) -> None:
    create(shop)
    read = [m["record"] for m in messages(shop, tmp_path, "exact") if m["type"] == "RECORD"]
    changed = [
        {change["field"] for change in record.get("meta", {}).get("changes", ())} for record in read
    ]
    values = [record["data"] for record in read]
    assert compare(values, changed, server_texts(shop)) == NULLED
    assert len(CASES) > 60


@pytest.mark.usefixtures("spark")
def test_tasks_and_the_process_write_the_same_values(shop: MariaDb, own: Project) -> None:
    create(shop)
    tables = []
    for by_tasks in (True, False):
        shutil.rmtree(own.home / "lake", ignore_errors=True)
        stream = {"name": "exact", "namespace": "shop", "destination_sync_mode": "append"}
        source = {"connector": "mysql", "config": shop.config(slice_rows=2), "slices": by_tasks}
        folder = own.connection("my", source=source, streams=[stream])
        catalog = {"streams": [configure(open_stream(shop, "exact"))["stream"]]}
        (folder / "catalog.json").write_text(json.dumps(catalog))
        assert materialize(own).success
        rows = own.table("my", "shop", "exact").to_pyarrow_table().to_pylist()
        rows.sort(key=lambda row: row["id"])
        changed = [{change["field"] for change in row["_airbyte_meta"]["changes"]} for row in rows]
        values = [
            {name: _record_value(name, value) for name, value in row.items() if name[0] == "c"}
            for row in rows
        ]
        assert compare(values, changed, server_texts(shop)) == NULLED
        tables.append([[row[column(n)] for n in range(len(CASES))] for row in rows])
    assert tables[0] == tables[1]


def _record_value(name: str, value: Any) -> Any:
    """A value of the lake, as a record has it."""
    if isinstance(value, dt.date):  # also a datetime
        return value.isoformat().removesuffix("+00:00")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is not None and CASES[int(name[1:])][0] == "json":
        return json.loads(value, parse_float=Decimal)
    return value
