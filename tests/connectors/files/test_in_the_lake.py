"""Files in the lake: tasks on Spark read them, and the table has the same rows as through the process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from connectors.files import Files
from tests.connectors.support import call
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark")

STREAMS: list[dict[str, Any]] = [
    {
        "name": "sales",
        "glob": "sales/*.csv",
        "format": "csv",
        "columns": {"price": "number", "extra": "json"},
    },
    {"name": "events", "glob": "events/*.jsonl", "format": "jsonl", "primary_key": ["id"]},
]
MODES = {
    "sales": {"destination_sync_mode": "append", "sync_mode": "incremental"},
    "events": {"destination_sync_mode": "append_dedup", "sync_mode": "incremental"},
}


def connect(project: Project, data: Path, *, slices: bool = True) -> None:
    config = {"location": str(data), "streams": STREAMS}
    folder = project.connection(
        "files",
        source={"connector": "files", "config": config, "slices": slices},
        streams=[{"name": name, **modes} for name, modes in MODES.items()],
    )
    code, messages = call(Files(), project.root, "discover", config=config)
    assert code == 0, messages
    (folder / "catalog.json").write_text(json.dumps(messages[-1]["catalog"]))


def write(data: Path, name: str, text: str, seconds: int) -> None:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))


def rows(project: Project, name: str) -> list[dict[str, Any]]:
    return project.comparable_rows("files", name)


def fill(data: Path) -> None:
    write(
        data, "sales/1.csv", 'id,price,day,extra\n1,1.5,2024-01-01,"{""a"": 1}"\n2,2\n3,x,,[\n', 1
    )
    write(data, "sales/2.csv", "id,price,day,more\n4,0.1,2024-01-02,new\n", 2)
    write(data, "events/1.jsonl", '{"id": 1, "v": 1}\n{"id": 2, "v"\n{"id": 2, "v": 1.0}\n', 1)
    write(data, "events/2.jsonl", '{"id": 1, "v": 2}\n"text"\n{"v": 3}\n', 2)


def test_tasks_give_the_same_tables_as_the_process(tmp_path: Path, own: Project) -> None:
    data = tmp_path / "data"
    fill(data)
    names = ("sales", "sales_dead_letter", "events", "events_dead_letter")
    results = []
    for slices in (True, False):
        shutil.rmtree(own.home / "lake", ignore_errors=True)
        connect(own, data, slices=slices)
        assert materialize(own, 'group:"files"').success
        results.append({name: rows(own, name) for name in names})
    by_tasks, by_process = results
    assert by_tasks == by_process
    sales = {row["id"]: row for row in by_tasks["sales"]}
    assert {number: row["price"] for number, row in sales.items()} == {1: 1.5, 3: None, 4: 0.1}
    assert sales[3]["_airbyte_meta"][0]["field"] == "price" and sales[4]["more"] == "new"
    assert (sales[1]["extra"], sales[3]["extra"]) == ('{"a":1}', '"["')
    bad = [json.loads(row["record"]) for row in by_tasks["sales_dead_letter"]]
    assert bad == [
        [{"file": "sales/1.csv", "row": 3, "error": "2 values, and not 4", "text": "2,2"}]
    ]
    bad = [json.loads(row["record"]) for row in by_tasks["events_dead_letter"]]
    assert {(line[0]["file"], line[0]["line"]) for line in bad if isinstance(line, list)} == {
        ("events/1.jsonl", 2),
        ("events/2.jsonl", 2),
    }
    assert {row["id"]: row["v"] for row in by_tasks["events"]} == {1: 2, 2: 1}


def test_new_and_changed_files_are_read_once_and_a_failure_resumes(
    tmp_path: Path, own: Project
) -> None:
    data = tmp_path / "data"
    fill(data)
    connect(own, data)
    assert materialize(own, 'key:"files/sales"').success
    before = rows(own, "sales")
    assert materialize(own, 'key:"files/sales"').success
    assert rows(own, "sales") == before
    write(data, "sales/0-late.csv", "id,price\n10,1\n", 0)
    write(data, "sales/2.csv", "id,price\n4,5\n", 3)
    (data / "sales" / "5-not-text.csv").write_bytes(b"id,price\n1,\xff\n")
    text = failure_of(materialize(own, 'key:"files/sales"'))
    assert "sales/5-not-text.csv" in text and "csv.encoding" in text
    assert rows(own, "sales") == before
    write(data, "sales/5-not-text.csv", "id,price\n6,1\n", 6)
    assert materialize(own, 'key:"files/sales"').success
    ids = sorted(row["id"] for row in rows(own, "sales"))
    assert ids == [1, 3, 4, 4, 6, 10]
