"""`elt erase`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import Project

LIVE: Any = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}
KEY = "scripted/things"


@pytest.mark.usefixtures("spark")
def test_a_row_goes_and_the_next_sync_continues(own: Project, elt: Elt) -> None:
    rejected = record(name="a")
    script(own, [record(id=1, name="a"), record(id=2, name="b"), rejected, state(2)], **LIVE)
    elt("sync", "scripted")

    preview = elt.json("erase", KEY, "--where", "name = 'a'", "--dry-run")
    assert (preview["rows"], preview["history"], preview["rejected"]) == (1, 1, 1)
    assert len(own.rows("scripted", "things")) == 2
    assert "add --yes" in elt.refuse("erase", KEY, "--where", "name = 'a'")["guidance"]

    answer = elt.json("erase", KEY, "--where", "name = 'a'", "--yes")
    assert {name: answer[name] for name in ("rows", "history", "rejected")} == {
        name: preview[name] for name in ("rows", "history", "rejected")
    }
    tables = ("things", "things_history", "things_dead_letter")
    assert [len(own.rows("scripted", table)) for table in tables] == [1, 1, 0]
    assert elt.json("state", "show", KEY)["state"] is not None

    script(own, [record(id=3, name="c"), state(3)], **LIVE)
    elt("sync", "scripted")
    assert sorted(row["id"] for row in own.rows("scripted", "things")) == [2, 3]
    again = elt.json("erase", KEY, "--where", "name = 'a'", "--yes")
    assert again["rows"] == 0


@pytest.mark.usefixtures("spark")
def test_deleted_rows_that_stay_are_erased_too(own: Project, elt: Elt) -> None:
    fields = {"id": {"type": "integer"}, "name": {"type": "string"}}
    fields["_sdc_deleted_at"] = {"type": "string", "format": "date-time"}
    live = {**LIVE, "deletes": "keep", "schema": fields}
    rows = [record(id=1, name="a"), record(id=2, name="b"), state(2)]
    script(own, rows, **live)
    elt("sync", "scripted")
    script(own, [record(id=1, _sdc_deleted_at="2026-03-01T12:00:00Z"), state(3)], **live)
    elt("sync", "scripted")
    assert len(own.rows("scripted", "things")) == 2
    assert elt.json("erase", KEY, "--where", "name = 'a'", "--yes")["rows"] == 1
    assert [row["id"] for row in own.rows("scripted", "things")] == [2]


@pytest.mark.usefixtures("spark")
def test_keys_come_from_a_file(own: Project, elt: Elt, tmp_path: Path) -> None:
    script(own, [*(record(id=n, name=str(n)) for n in range(5)), state(2)], **LIVE)
    elt("sync", "scripted")
    path = tmp_path / "keys.csv"
    assert "cannot be read" in elt.refuse("erase", KEY, "--keys", str(path), "--yes")["message"]
    path.write_text("id\n1\n4\n7\n")
    assert elt.json("erase", KEY, "--keys", str(path), "--yes")["rows"] == 2
    path.write_text('{"id": 2}\n')
    assert elt.json("erase", KEY, "--keys", str(path), "--yes")["rows"] == 1
    assert sorted(row["id"] for row in own.rows("scripted", "things")) == [0, 3]
    for text, reason in [
        ("name\n1\n", "it has no 'id'"),
        ("id\nx\n", "not a int64"),
        ('{"id": 1.5}\n', "not a int64"),
        ("{\n", "it is not JSON"),
        ("", "has no key"),
    ]:
        path.write_text(text)
        assert reason in elt.refuse("erase", KEY, "--keys", str(path), "--yes")["message"]


@pytest.mark.usefixtures("spark")
def test_what_is_no_selection_is_refused(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="a"), record(id=2, name="b"), state(2)], **LIVE)
    elt("sync", "scripted")
    for where, reason in [
        ("1 = 1", "names no column"),
        ("id in (select 1)", "a query in it"),
        ("reflect('a', 'b') = name", "not a function that it may call"),
        ("nam = 'a'", "no column 'nam'"),
        ("id = 1; drop table x", "not one query"),
        ("count(id) > 1", "function of several rows"),
        ("name[0][1] = 3", "cannot be computed"),
        ("id > 0", "all 2 rows"),
    ]:
        refused = elt.refuse("erase", KEY, "--where", where, "--yes")
        assert reason in refused["message"], (where, refused)
    assert "either --where or --keys" in elt.refuse("erase", KEY, "--yes")["message"]
    assert "no stream" in elt.refuse("erase", "scripted/other", "--where", "a = 1")["message"]
    assert len(own.rows("scripted", "things")) == 2
    assert elt.json("erase", KEY, "--where", "id > 0", "--all", "--yes")["rows"] == 2


@pytest.mark.usefixtures("spark")
def test_each_partition_keeps_its_state(own: Project, elt: Elt) -> None:
    by_station = {"type": "static", "keys": ["north", "south"], "bind": "station"}
    windowed(own, partitions=by_station, sync_mode="incremental", destination_sync_mode="append")
    for key in ("north", "south"):
        elt("sync", "weather", "readings", "--partition", key)
    rows = own.rows("weather", "readings")
    states = [
        elt.json("state", "show", "weather/readings", "--partition", key)["state"]
        for key in ("north", "south")
    ]
    column = next(name for name in rows[0] if not name.startswith("_"))
    value = json.dumps(rows[0][column]).replace('"', "'")
    gone = [row for row in rows if row[column] == rows[0][column]]
    extra = ("--all",) if len(gone) == len(rows) else ()
    answer = elt.json(
        "erase", "weather/readings", "--where", f"{column} = {value}", "--yes", *extra
    )
    assert answer["rows"] == len(gone)
    assert len(own.rows("weather", "readings")) == len(rows) - len(gone)
    assert states == [
        elt.json("state", "show", "weather/readings", "--partition", key)["state"]
        for key in ("north", "south")
    ]


@pytest.mark.usefixtures("spark")
def test_a_stream_without_a_key_is_erased_by_condition_alone(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="a"), record(id=1, name="b")], destination_sync_mode="append")
    elt("sync", "scripted")
    assert "has no primary key" in elt.refuse("erase", KEY, "--keys", "x", "--yes")["message"]
    where = ("--where", "name = 'a'", "--yes")
    assert "has no primary key" in elt.refuse("erase", KEY, *where, "--suppress")["message"]
    assert elt.json("erase", KEY, *where)["rows"] == 1


@pytest.mark.usefixtures("spark")
def test_a_suppressed_key_is_not_stored_again(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="a"), record(id=2, name="b"), state(2)], **LIVE)
    elt("sync", "scripted")
    answer = elt.json("erase", KEY, "--where", "name = 'a'", "--suppress", "--yes")
    assert (answer["rows"], answer["suppressed_keys"]) == (1, 1)

    sent = [record(id=1, name="a"), record(id=3, name="c"), record(id=1, name=["no"]), state(3)]
    script(own, sent, **LIVE)
    preview = elt("sync", "scripted")
    assert "2 of 3 records are not stored: their keys were erased" in preview
    for table in ("things", "things_history"):
        assert sorted(row["id"] for row in own.rows("scripted", table)) == [2, 3]
    assert own.metadata("scripted", "things")["elt/records_suppressed"] == 2
