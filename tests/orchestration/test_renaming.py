"""Streams and tables that get other names: no table is lost, and `elt rename` moves what there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.cli import main
from elt_assets.connection import place_in
from elt_assets.failpoints import VARIABLE, Failpoint
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.pipeline.former_tables import find_former_tables
from elt_assets.storage.location import Location
from tests.lake.crashing import killed_at
from tests.programs.scripted import KEYED, record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import BIN, REPOSITORY, Project
from tests.support.runs import failure_of, fetch_materializations, materialize

pytestmark = pytest.mark.usefixtures("spark_provider")


def run_sync(project: Project, *lines: Any, connection: Any = None, **stream: Any) -> None:
    script(project, [*lines], **{**KEYED, **stream})
    project.amend("scripted", **(connection or {}))
    result = materialize(project)
    assert result.success, failure_of(result)


def has_resumed(project: Project) -> bool:
    """Return whether the last read began from a state."""
    path = project.root / "scripted-source" / "arguments.json"
    return "--state" in json.loads(path.read_text())


FIRST = [record(id=1, name="a"), record(id=None), state(1)]
SECOND = [record(id=2, name="b"), state(2)]


def test_a_table_with_other_names_is_not_lost_and_moved_with_its_state(
    own: Project, elt: Elt, spark: SparkSession
) -> None:
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED, table="crm_dinge")
    own.amend("scripted", namespace="raw")
    lake = own.home / "lake"
    before = sorted(str(path) for path in lake.rglob("*"))
    error = failure_of(materialize(own))
    assert "would be read from the beginning, into a new table raw/crm_dinge" in error
    assert "elt rename scripted scripted/things things" in error
    elt.capture.readouterr()
    refused = elt.refuse("state", "set", "scripted/things", '{"cursor": 5}')
    assert "would be read from the beginning" in refused["message"]
    assert sorted(str(path) for path in lake.rglob("*")) == before

    answer = elt.json("rename", "scripted", "things", "crm_dinge")
    assert answer["table"] == "raw/crm_dinge" and answer["former"] == "scripted/things"
    folders = {path.name for path in (lake / "raw").iterdir()}
    assert folders == {"crm_dinge", "crm_dinge_history", "crm_dinge_dead_letter"}
    assert not list((lake / "scripted").iterdir())
    assert elt.json("state", "show", "scripted/things")["state"] == {"cursor": 1}
    assert materialize(own).success
    assert has_resumed(own)
    for key, count in {"": 2, "_history": 2, "_dead_letter": 1}.items():
        assert read_table(spark, f"scripted/things{key}").count() == count
    elt.capture.readouterr()
    states = elt.json("state", "history", "scripted/things")["states"]
    assert {"cursor": 1} in [commit["state"] for commit in states]
    assert elt.json("replay", "scripted")["streams"][0]["rejected"] == 1
    again = elt.refuse("rename", "scripted", "things", "crm_dinge")
    assert "has no tables 'things'" in again["message"]


def rename_in_files(project: Project, new: str) -> None:
    """Let the source, the catalog and the connection call the stream by another name."""
    for path in (
        project.root / "scripted-source" / "read.jsonl",
        project.root / "scripted-source" / "catalog.json",
        project.root / "defs" / "scripted" / "catalog.json",
        project.root / "defs" / "scripted" / "defs.yaml",
    ):
        path.write_text(path.read_text().replace("things", new))


def test_a_stream_with_another_name_keeps_its_table_after_any_kill(own: Project, elt: Elt) -> None:
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED)
    rename_in_files(own, "dinge")
    error = failure_of(materialize(own))
    assert "scripted/things has the same columns and a state" in error
    command = "elt rename scripted scripted/things dinge"
    assert command in error
    words = command.split()[1:]
    for point, number in ((Failpoint.MOVE_BEGUN, 1), (Failpoint.WRITER_CHANGED, 2)):
        killed_at(point, number, lambda: main(words))
        assert "elt rename" in failure_of(materialize(own))
    killed = subprocess.run(
        [str(BIN / "elt"), *words],
        env={**own.environment, VARIABLE: "table_moved:2"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "elt rename" in failure_of(materialize(own))
    elt.capture.readouterr()
    done = elt.json(*command.split()[1:])
    assert done["asset"] == "scripted/dinge"
    assert elt.json("state", "show", "scripted/dinge")["state"] == {"cursor": 1}
    event = fetch_materializations(own, "scripted", "dinge")[None]
    assert event["elt/renamed_from"] == "scripted/things"
    assert event["dagster/row_count"] == 1
    entries = own.table("scripted", "dinge").history()
    stored = json.loads(next(entry["elt.state"] for entry in entries if "elt.state" in entry))
    assert stored["stream"]["stream_descriptor"]["name"] == "dinge"
    assert materialize(own).success
    assert has_resumed(own)
    assert [row["id"] for row in own.rows("scripted", "dinge")] == [1, 2]
    assert len(own.rows("scripted", "dinge_history")) == 2


def test_a_new_stream_that_looks_like_a_former_one_names_its_table(own: Project) -> None:
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED, table="dinge")
    rename_in_files(own, "dinge")
    assert materialize(own).success
    assert [row["id"] for row in own.rows("scripted", "dinge")] == [2]
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]


def test_a_stream_with_another_name_may_keep_the_path_of_its_table(own: Project, elt: Elt) -> None:
    run_sync(own, *FIRST, table="all")
    script(own, SECOND, **KEYED, table="all")
    rename_in_files(own, "dinge")
    assert "was not written by scripted/dinge" in failure_of(materialize(own))
    elt("rename", "scripted", "things", "dinge")
    assert materialize(own).success
    assert [row["id"] for row in own.rows("scripted", "all")] == [1, 2]


def test_partitions_keep_their_states(own: Project, elt: Elt) -> None:
    keys: Any = {"type": "static", "keys": ["north", "south"], "bind": "station"}
    windowed(own, partitions=keys)
    for key in keys["keys"]:
        assert materialize(own, 'key:"weather/readings"', partition=key).success
    rows = own.rows("weather", "readings")
    own.amend("weather", prefix="w_")
    failed = failure_of(materialize(own, 'key:"weather/readings"', partition="north"))
    assert "elt rename weather weather/readings readings" in failed
    answer = elt.json("rename", "weather", "weather/readings", "readings")
    assert sorted(answer["partitions"]) == ["north", "south"]
    assert own.rows("weather", "w_readings") == rows
    assert materialize(own, 'key:"weather/readings"', partition="north").success


def test_a_move_is_refused_while_a_run_is_in_progress(own: Project, elt: Elt) -> None:
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED, table="dinge")
    run = dg.DagsterRun("sync", run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.STARTED)
    elt.capture.readouterr()
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.add_run(run)
        refused = elt.refuse("rename", "scripted", "things", "dinge")
        assert run.run_id in refused["message"]
        instance.report_run_canceled(run)
    assert (own.home / "lake" / "scripted" / "things").is_dir()
    elt("rename", "scripted", "things", "dinge")


def test_a_rename_that_was_killed_at_its_end_is_reported_by_the_next_call(
    own: Project, elt: Elt
) -> None:
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED)
    rename_in_files(own, "dinge")
    words = ("rename", "scripted", "scripted/things", "dinge")
    killed_at(Failpoint.TABLE_ALTERED, 3, lambda: main(words))
    assert fetch_materializations(own, "scripted", "dinge") == {}
    elt.capture.readouterr()
    first, again = elt.json(*words), elt.json(*words)
    assert first == again and first["table"] == "scripted/dinge"
    [event] = fetch_materializations(own, "scripted", "dinge").values()
    assert event["elt/renamed_from"] == "scripted/things"
    assert materialize(own).success and has_resumed(own)
    elt.capture.readouterr()
    assert "has no tables" in elt.refuse(*words)["message"]


def test_a_connection_with_another_name_keeps_its_tables(own: Project, elt: Elt) -> None:
    """At the path that it is given, or at the same one by `namespace`; a configured one keeps its own."""
    run_sync(own, *FIRST)
    script(own, SECOND, name="crm", **KEYED)
    elt.capture.readouterr()
    words = ("rename", "crm", "scripted/things", "things")
    refused = elt.refuse(*words)
    assert "things is the table of scripted/things, which is configured" in refused["message"]
    own.amend("crm", namespace="scripted")
    assert "which is configured" in elt.refuse("rename", "crm", "things", "things")["message"]
    own.amend("crm", namespace=None)
    elt("remove", "scripted", "--yes")  # as the guidance says
    elt(*words)
    key = 'key:"crm/things"'
    assert materialize(own, key).success
    source = json.loads((own.root / "crm-source" / "arguments.json").read_text())
    assert "--state" in source
    assert [row["id"] for row in own.rows("crm", "things")] == [1, 2]
    assert len(own.rows("crm", "things_history")) == 2
    own.amend("crm", name="sales", namespace="crm")
    elt("rename", "sales", "crm/things", "things")
    assert materialize(own, 'key:"sales/things"').success
    assert [row["id"] for row in own.rows("crm", "things")] == [1, 2]


@pytest.mark.parametrize(
    ("former", "new", "message"),
    [
        ("nothing", "things", "has no tables 'nothing' that could be those of scripted/things"),
        ("things", "nothing", "scripted has no stream 'nothing'"),
    ],
)
def test_names_that_do_not_exist_are_refused(
    own: Project, elt: Elt, former: str, new: str, message: str
) -> None:
    script(own, [])
    refused = elt.refuse("rename", "scripted", former, new)
    assert message in refused["message"] and "defs.yaml first" in refused["guidance"]
    assert not Path(own.home, "lake").exists() and os.environ["DAGSTER_HOME"] == str(own.home)


def test_a_damaged_former_table_is_not_taken_for_none(
    own: Project, elt: Elt, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream had it there by an event; of any other one it is not known whose it is."""
    run_sync(own, *FIRST)
    script(own, SECOND, **KEYED)
    own.amend("scripted", prefix="crm_")
    log = own.home / "lake" / "scripted" / "things" / "_delta_log"
    newest = max(log.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    assert "is not whole" in failure_of(materialize(own))
    assert not (own.home / "lake" / "scripted" / "crm_things").exists()
    elt.capture.readouterr()
    assert "is not whole" in elt.refuse("rename", "scripted", "things", "things")["message"]
    place = place_in(own.root / "defs" / "scripted")
    (asset,) = ConnectionComponent.load_at(place).stream_assets()
    assert find_former_tables(Location.parse(str(own.home / "lake")), asset) == []
    assert "whether" in caplog.text and "scripted/things was the table of" in caplog.text
