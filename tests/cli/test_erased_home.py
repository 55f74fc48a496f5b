"""A person that `elt erase` has removed is found nowhere under the home: each place has a copy before."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from elt_assets.orchestration.erased_home import ErasedTexts, clean_home
from elt_assets.orchestration.unerased import list_other_folders, list_unsearched
from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.value_search import find_value

SECRET = "zoe.erased+1@example.test"
TEXT = {"type": "string"}
SCHEMA: Any = {"id": TEXT, "name": TEXT, "age": {"type": "integer"}}
LIVE: Any = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
    "checks": {"accepted_values": [{"column": "name", "values": ["ann"]}]},
}
KEY = "scripted/things"


def say(text: str) -> dict[str, Any]:
    return {"type": "LOG", "log": {"level": "WARN", "message": text}}


def list_places(project: Project) -> set[str]:
    """Return the kinds of files in the home that have the value."""
    paths = {place.path.relative_to(project.home) for place in find_value(SECRET, project.home)}
    kinds = set()
    for path in paths:
        parts = path.parts
        if "_delta_log" in parts:
            kinds.add(f"{parts[2]} log {path.suffix}")
        elif parts[0] == "lake":
            kinds.add(f"{parts[2]} {parts[3]}")
        else:
            kinds.add(parts[0])
    return kinds


def plant(project: Project) -> None:
    """Put copies where killed runs and other programs leave some."""
    lake = project.home / "lake" / "scripted"
    for table in ("things", "things_history", "things_dead_letter"):
        DeltaTable(str(lake / table)).create_checkpoint()
        orphan = next((lake / table / "data").rglob("*.parquet"))
        orphan.with_name("orphan.parquet").write_bytes(orphan.read_bytes())
    hidden = lake / "things" / "_elt" / "left"
    hidden.mkdir(parents=True)
    (hidden / "keys.json").write_text(json.dumps({"state": SECRET}))
    (lake / "things" / "_delta_log" / ".left.tmp").write_text(SECRET)
    (lake / "things" / "data" / "archive.gz").write_bytes(gzip.compress(SECRET.encode()))
    staged = project.home / "staging" / "sync-host-0123456789abcdef"
    staged.mkdir(parents=True)
    (staged / ".elt-scratch").write_text("1")
    (staged / "things.rows").write_text(SECRET)
    logs = project.home / "storage" / "run" / "compute_logs"
    logs.mkdir(parents=True)
    (logs / "step.err").write_text(f"what came was {SECRET}\n")


@pytest.mark.usefixtures("spark")
def test_an_erased_person_is_found_nowhere(own: Project, elt: Elt) -> None:
    def send(*lines: Any, cursor: int) -> None:
        script(own, [*lines, state(cursor)], schema=SCHEMA, **LIVE)
        elt("sync", "scripted", "--allow-failed-checks")

    send(record(id=SECRET, name="zoe", age=1), record(id="ann", name="ann"), cursor=1)
    send(
        say(f"a record of {SECRET} is odd"),
        record(id=SECRET, name="zoe", age=2),
        record(name=SECRET, age=3),
        cursor=2,
    )
    plant(own)
    before = list_places(own)
    assert before >= {
        "things data",
        "things _elt",
        "things log .json",
        "things log .parquet",
        "things log .tmp",
        "things_history data",
        "things_history log .json",
        "things_history log .parquet",
        "things_dead_letter data",
        "things_dead_letter log .json",
        "things_dead_letter log .parquet",
        "staging",
        "storage",
        "history",
    }, before
    answer = elt.json("erase", KEY, "--where", f"id = '{SECRET}' or name = '{SECRET}'", "--yes")
    assert answer["warnings"] == []
    assert (answer["rows"], answer["history"], answer["rejected"]) == (1, 1, 1)
    assert answer["events"] and answer["logs"]
    assert list_places(own) == set()

    assert [row["id"] for row in own.rows("scripted", "things")] == ["ann"]
    send(record(id="bob", name="bob"), cursor=3)
    assert {row["id"] for row in own.rows("scripted", "things")} == {"ann", "bob"}


@pytest.mark.usefixtures("spark")
def test_a_state_that_has_a_text_is_named_and_goes_after_the_next_sync(
    own: Project, elt: Elt
) -> None:
    stream = {**LIVE, "checks": {}, "history": False}
    script(own, [record(id=SECRET, name="ann"), state(SECRET)], schema=SCHEMA, **stream)
    elt("sync", "scripted")
    erase = ("erase", KEY, "--where", f"id = '{SECRET}'", "--all", "--yes")
    (warning,) = elt.json(*erase)["warnings"]
    assert "the state in" in warning and "run this again after a sync that brings" in warning
    script(own, [record(id="bob", name="ann"), state(3)], schema=SCHEMA, **stream)
    elt("sync", "scripted")
    assert elt.json(*erase)["warnings"] == []
    assert list_places(own) == set()


def test_databases_and_logs_outside_of_the_home_are_cleaned(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    logs = other / "logs" / "run" / "compute_logs"
    for folder in (home, other / "db", logs):
        folder.mkdir(parents=True)
    settings = {
        "storage": {"sqlite": {"base_dir": str(other / "db")}},
        "compute_logs": {
            "module": "dagster._core.storage.local_compute_log_manager",
            "class": "LocalComputeLogManager",
            "config": {"base_dir": str(other / "logs")},
        },
    }
    (home / "dagster.yaml").write_text(json.dumps(settings))
    (logs / "step.err").write_text(f"a record of {SECRET} is odd")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        asset = dg.AssetMaterialization("things", description=SECRET)
        instance.report_runless_asset_event(asset)
        folders = [home, *list_other_folders(instance, home)]
        assert list(list_unsearched(instance)) == []
        assert find_value(SECRET, other / "db")
        cleaned = clean_home(folders, ErasedTexts((SECRET,), (), ["id"]), ())
    assert (cleaned.left, cleaned.logs, find_value(SECRET, tmp_path)) == ([], 1, [])


def test_a_storage_that_is_not_searched_is_named() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        (sentence,) = list_unsearched(instance)
    assert "InMemoryEventLogStorage" in sentence and "docs/data-protection.md says what" in sentence


def test_examples_of_an_erased_number_go(tmp_path: Path) -> None:
    """A number is in too much else to be replaced everywhere."""
    path = tmp_path / "index.db"
    entry = {"label": "examples", "entry_data": {"data": [{"id": "7"}, {"id": "8"}]}}
    other = {"label": "rows", "entry_data": {"value": 7, "text": "7"}}
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table event_logs (id integer primary key, event text)")
        event = json.dumps({"metadata_entries": [entry, other]})
        database.execute("insert into event_logs (event) values (?)", (event,))
        database.commit()
    cleaned = clean_home((tmp_path,), ErasedTexts((), {("7",)}, ["id"]), ())
    assert (cleaned.events, cleaned.left) == (1, [])
    with closing(sqlite3.connect(path)) as database:
        ((text,),) = database.execute("select event from event_logs").fetchall()
    entries = json.loads(text)["metadata_entries"]
    assert [entry["entry_data"] for entry in entries] == [
        {"data": [{"id": "8"}]},
        other["entry_data"],
    ]


def test_what_cannot_be_changed_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(SECRET)
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table runs (body text)")
        database.execute("insert into runs values (?)", (SECRET,))
        database.commit()
    cleaned = clean_home((tmp_path,), ErasedTexts((SECRET,), (), ["id"]), ())
    assert str(tmp_path / "notes.txt") in cleaned.left
    assert any("the table runs of" in place for place in cleaned.left)


def test_free_pages_of_a_database_are_cleaned(tmp_path: Path) -> None:
    """Rows that were deleted before stay in them until a VACUUM (n8n-io/n8n#819)."""
    path = tmp_path / "index.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table event_logs (id integer primary key, event text)")
        rows = [(json.dumps({"user_message": f"{SECRET} {number}" * 90}),) for number in range(40)]
        database.executemany("insert into event_logs (event) values (?)", rows)
        database.commit()
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("delete from event_logs")
        database.commit()
    assert find_value(SECRET, tmp_path)
    cleaned = clean_home((tmp_path,), ErasedTexts((SECRET,), (), ["id"]), ())
    assert (cleaned.left, find_value(SECRET, tmp_path)) == ([], [])
