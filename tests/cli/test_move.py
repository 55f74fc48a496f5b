"""`elt move`: the whole lake to another root, with the states, and later the removal of the former one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from elt_assets.lake.publish.followers import LakeTable
from elt_assets.pipeline.following import follow_now
from elt_assets.storage.location import Location
from tests.lake.publishing.catalogs import TOKEN, UNITY_CATALOG, unity_store
from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.lossy_proxy import lossy_proxy
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

KEYED: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}


@pytest.mark.usefixtures("spark_provider")
def test_a_lake_is_moved_with_its_states(
    own: Project, elt: Elt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [record(id=1, name="a"), record(id=None), state(1)], **KEYED)
    assert materialize(own).success
    sequence = own.metadata("scripted", "things")["elt/sequence"]
    (own.home / "lake" / "notes.txt").write_text("mine")
    new, former = tmp_path / "new", own.home / "lake"
    elt.capture.readouterr()
    answer = elt.json("move", "--to", str(new))
    names = [f"scripted/things{suffix}" for suffix in ("", "_dead_letter", "_history")]
    assert answer["tables"] == names
    assert "notes.txt" in answer["warnings"][0]
    error = failure_of(materialize(own))
    assert f"is being moved from {former}/scripted/things to {new}/scripted/things" in error
    assert f"elt move --to {new}" in error

    monkeypatch.setenv("ELT_LAKE", str(new))
    script(own, [record(id=2, name="b"), state(2)], **KEYED)
    assert materialize(own).success
    elt.capture.readouterr()
    assert elt.json("state", "show", "scripted/things")["state"] == {"cursor": 2}
    for name, count in (("things", 2), ("things_history", 2), ("things_dead_letter", 1)):
        assert own.table(str(new / "scripted" / name)).to_pyarrow_table().num_rows == count
    assert own.metadata("scripted", "things")["elt/sequence"] == sequence + 1
    done = elt.json("move", "--remove-former", str(former))
    assert done["left"] == [f"{former}/notes.txt"] and not list(former.rglob("_delta_log"))


@pytest.mark.usefixtures("spark_provider")
def test_a_lake_is_not_moved_into_another_one(own: Project, elt: Elt, tmp_path: Path) -> None:
    script(own, [record(id=1, name="a"), state(1)])
    assert materialize(own).success
    other = tmp_path / "other"
    write_deltalake(other / "theirs" / "orders", pa.table({"id": [1]}))
    elt.capture.readouterr()
    error = elt.refuse("move", "--to", str(other))
    assert (
        f"{other} has 1 tables of another lake, such as {other}/theirs/orders" in error["message"]
    )
    place = other / "lake"
    assert f"such as {place}; nothing was changed" in error["guidance"]
    assert materialize(own).success  # the tables are not closed
    elt("move", "--to", str(place))
    assert sorted(path.name for path in place.iterdir()) == ["scripted"]


@pytest.mark.usefixtures("spark_provider")
def test_entries_in_catalogs_follow_a_move_and_its_end(
    own: Project, elt: Elt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of streams and of all other tables; a move that is given up has them at the former place again."""
    with (
        unity_store() as (url, store),
        lossy_proxy("127.0.0.1", int(url.rpartition(":")[2])) as proxy,
    ):
        entries = {
            "type": "unity",
            "url": f"http://127.0.0.1:{proxy.port}",
            "catalog": UNITY_CATALOG,
        }
        iceberg = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "/none"}
        monkeypatch.setenv("TOKEN", TOKEN)
        monkeypatch.setenv("ELT_CATALOG", json.dumps({**entries, "token": {"env": "TOKEN"}}))
        monkeypatch.setenv("ELT_ICEBERG", json.dumps({"catalog": iceberg}))
        script(own, [record(id=1, name="a"), state(1)], **KEYED)
        assert materialize(own).success
        lake, new = own.home / "lake", tmp_path / "new"
        write_deltalake(lake / "marts" / "totals", pa.table({"id": [1]}))
        totals = Location.parse(str(lake)).child("marts", "totals")
        follow_now([LakeTable(totals, "marts", ("marts", "totals"))])

        def list_roots() -> set[str]:
            names = [".".join(name) for name in store.tables]
            assert sorted(names) == ["marts.totals", "scripted.things", "scripted.things_history"]
            catalog = load_catalog("elt", **iceberg)
            tables = {name: catalog.load_table(name).location() for name in names}
            places = {entry["storage_location"] for entry in store.tables.values()}
            places |= set(tables.values())
            return {place.removeprefix("file://").rsplit("/", 2)[0] for place in places}

        assert list_roots() == {str(lake)}
        elt.capture.readouterr()
        proxy.plan(["lose request"] * 100)  # down in the middle
        warnings = elt.json("move", "--to", str(new))["warnings"]
        again = f"run `elt move --to {new}` again with `lake` at {lake}"
        assert any("cannot be reached" in text for text in warnings) and again in warnings[-1]
        proxy.plan(())
        assert elt.json("move", "--to", str(new)).get("warnings", []) == []
        assert list_roots() == {str(new)}
        elt("move", "--cancel")
        assert list_roots() == {str(lake)}
        script(own, [record(id=2, name="b"), state(2)], **KEYED)
        assert materialize(own).success
        assert "not published" not in elt.capture.readouterr().err
        shutil.rmtree(new)
        elt("move", "--to", str(new))
        assert list_roots() == {str(new)}


def test_what_cannot_be_moved_is_refused(own: Project, elt: Elt, tmp_path: Path) -> None:
    lake = own.home / "lake"
    assert "needs one of" in elt.refuse("move")["message"]
    assert "needs one of" in elt.refuse("move", "--cancel", "--to", "x")["message"]
    for place in (lake, lake / "inner", own.home):
        error = elt.refuse("move", "--to", str(place))
        assert "the lake" in error["message"]
    assert "is the present lake" in elt.refuse("move", "--remove-former", str(lake))["message"]
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.create_run_for_job(
            dg.JobDefinition(graph_def=dg.GraphDefinition("g"), name="g"),
            status=dg.DagsterRunStatus.STARTED,
        )
        assert "a run is in progress" in elt.refuse("move", "--to", str(tmp_path / "x"))["message"]
