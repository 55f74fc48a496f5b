"""Syncs and `elt rename` with a catalog: the tables are found there by name, and a catalog stops no sync."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from elt_assets.definitions import build
from elt_assets.lake.publish.registration import Entry, EntryName
from tests.lake.publishing.catalogs import TOKEN, UNITY_CATALOG, Server, catalog_server
from tests.programs.scripted import KEYED, PEOPLE, record, script, state
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark_provider")


@pytest.fixture(scope="module")
def unity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with catalog_server("unity", tmp_path_factory.mktemp("unity")) as server:
        yield server


@pytest.fixture
def catalog(unity: Server, own: Project, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The catalog of the project, with a database for each test."""
    unity.new_database()
    unity.proxy.plan(())
    settings = {
        "type": "unity",
        "url": f"http://127.0.0.1:{unity.proxy.port}",
        "catalog": UNITY_CATALOG,
        "token": {"env": "UNITY_TOKEN"},
        "database": f"{unity.database}_{{namespace}}",
        "replace_entries": True,
    }
    monkeypatch.setenv("ELT_CATALOG", json.dumps(settings))
    monkeypatch.setenv("UNITY_TOKEN", TOKEN)
    return unity


def run_sync(project: Project, *lines: Any, **stream: Any) -> None:
    result = materialize(project)
    assert result.success, failure_of(result)


def find(catalog: Server, table: str, namespace: str = "scripted") -> Entry | None:
    return catalog.direct.find(EntryName(f"{catalog.database}_{namespace}", table))


def test_a_stream_is_registered_changed_renamed_and_found(
    own: Project, elt: Elt, catalog: Server
) -> None:
    script(own, [record(id=1, name="a"), record(id=None), state(1)], schema=PEOPLE, **KEYED)
    run_sync(own)
    users, history = find(catalog, "things"), find(catalog, "things_history")
    assert users is not None and history is not None
    assert find(catalog, "things_dead_letter") is None
    lake = own.home / "lake"
    assert users.location == f"file://{lake}/scripted/things"
    assert users.facts["columns"][:2] == (
        ("id", "bigint", "who it is", True),
        ("name", "string", "", True),
    )
    more = {**PEOPLE, "day": {"type": "string", "format": "date"}}
    lines = [record(id=2, name="b", day="2026-01-02"), state(2)]
    script(own, lines, schema=more, **KEYED)
    run_sync(own)
    users = find(catalog, "things")
    assert users is not None
    assert ("day", "date", "", True) in users.facts["columns"]

    script(own, lines, schema=more, **KEYED, table="orders")
    own.amend("scripted", namespace="raw")
    elt.capture.readouterr()
    catalog.proxy.plan(["lose request"] * 50)
    lost = elt.refuse("rename", "scripted", "things", "orders", code=1)
    assert "cannot be reached" in lost["message"]
    assert (lake / "scripted" / "things").is_dir()
    catalog.proxy.plan(())
    elt.json("rename", "scripted", "things", "orders")
    assert find(catalog, "things") is None and find(catalog, "things_history") is None
    for name in ("orders", "orders_history"):
        entry = find(catalog, name, "raw")
        assert entry is not None and entry.location == f"file://{lake}/raw/{name}"


def test_a_catalog_that_is_down_is_a_warning_and_the_next_sync_catches_up(
    own: Project, elt: Elt, catalog: Server
) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE)
    catalog.proxy.plan(["lose request"] * 50)
    run_sync(own)
    text = elt.capture.readouterr().err
    assert "the table scripted.things is committed, and not published" in text
    assert "Unity Catalog at" in text and "cannot be reached" in text
    assert find(catalog, "things") is None
    catalog.proxy.plan(())
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE)
    run_sync(own)
    assert find(catalog, "things") is not None
    assert "not published" not in elt.capture.readouterr().err


def test_an_entry_of_another_lake_is_named_and_left_alone(
    own: Project, elt: Elt, catalog: Server, tmp_path: Path
) -> None:
    database = EntryName(f"{catalog.database}_scripted", "things")
    catalog.database = database.database
    other = catalog.registration("things")
    catalog.direct.create(other)
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE)
    run_sync(own)
    text = elt.capture.readouterr().err
    assert f"is a table at another place, {other.location}" in text
    entry = catalog.direct.find(database)
    assert entry is not None and entry.location == other.location
    assert "at another place" in run_check(own)
    refused = elt("publish", "scripted", "things", code=2)
    assert "`elt publish CONNECTION STREAM --replace`" in refused
    [table, dead] = elt.json("publish", "scripted", "things", "--replace")["tables"]
    assert table["entry"] == "replaced another entry in Unity Catalog"
    assert dead["reason"] is not None
    entry = catalog.direct.find(database)
    assert entry is not None and entry.location == f"file://{own.home}/lake/scripted/things"
    assert run_check(own) == ""
    assert "is registered in Unity Catalog" in elt("publish")


def test_a_name_that_the_catalog_refuses_is_changed_by_a_rename(
    own: Project, elt: Elt, catalog: Server
) -> None:
    """The remedy that the warning of the sync names: nothing of that name is there to be removed."""
    name = "information_schema"
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, table=name)
    run_sync(own)
    text = elt.capture.readouterr().err
    assert f"Unity Catalog refuses the name '{name}'" in text and "write another name" in text
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE, table="orders")
    elt.json("rename", "scripted", name, "orders")
    assert find(catalog, "orders") is not None
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE, table=name)
    warnings = elt.json("rename", "scripted", "orders", name)["warnings"]
    assert "refuses the name" in warnings[0] and find(catalog, "orders") is None
    elt.json("remove", "scripted", "--data", "--yes")
    assert not (own.home / "lake" / "scripted").exists()


def test_a_removal_goes_on_when_the_catalog_is_up_again(
    own: Project, elt: Elt, catalog: Server
) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **KEYED)
    run_sync(own)
    elt.capture.readouterr()
    catalog.proxy.plan(["lose request"] * 50)
    lost = elt.refuse("remove", "scripted", "--data", "--yes", code=1)
    assert "cannot be reached" in lost["message"]
    assert (own.home / "lake" / "scripted" / "things").is_dir()
    assert (own.root / "defs" / "scripted" / "defs.yaml").exists()
    catalog.proxy.plan(())
    elt.json("remove", "scripted", "--data", "--yes")
    assert find(catalog, "things") is None and find(catalog, "things_history") is None


def run_check(project: Project) -> str:
    """Return why the check `published` warns, run by itself; empty if it passes."""
    definitions = build()
    key = dg.AssetCheckKey(dg.AssetKey(["scripted", "things"]), "published")
    selection = dg.AssetSelection.checks(key)
    job = dg.define_asset_job("check", selection=selection)
    resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        result = resolved.resolve_job_def("check").execute_in_process(instance=instance)
    [evaluation] = result.get_asset_check_evaluations()
    return "" if evaluation.passed else str(evaluation.description)
