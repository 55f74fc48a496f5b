"""`elt move`: the whole lake to another root, with the states, and later the removal of the former one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
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
