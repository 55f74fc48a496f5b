"""Connections whose records go to another destination than the lake."""

from __future__ import annotations

import json
import sys
from typing import Any

import dagster as dg
import pytest

from elt_assets.connection import place_in
from elt_assets.errors import ConfigError
from elt_assets.orchestration.build import build_connection_assets
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.status import stream_statuses
from tests.programs.scripted import record, script, state, status
from tests.programs.shared_source import append, connection
from tests.support.elt import Elt
from tests.support.project import BIN, Project
from tests.support.runs import (
    evaluations,
    failure_of,
    fetch_materializations,
    materialize,
    observations,
    read_log,
)

pytestmark = pytest.mark.usefixtures("spark")

KEY = 'key:"scripted/things"'


def to_file(project: Project, **config: Any) -> dict[str, Any]:
    file = str(project.root / "written.jsonl")
    command = [sys.executable, "-m", "tests.programs.file_destination"]
    return {"command": command, "config": {"file": file, **config}}


def read_output(project: Project) -> list[Any]:
    path = project.root / "written.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.usefixtures("details")
@pytest.mark.spec("protocol.104")
def test_a_state_is_acknowledged_when_the_destination_returns_it(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FILE_PASSWORD", "hunter2-hunter2")
    destination = to_file(own, password={"env": "FILE_PASSWORD"})
    script(own, [record(id=1), state(1), record(id=2), state(2), status("COMPLETE")])
    own.amend("scripted", destination=destination)
    result = materialize(own, KEY)
    assert result.success
    assert [row["data"]["id"] for row in read_output(own)] == [1, 2]
    metadata = fetch_materializations(own, "scripted", "things")[None]
    assert metadata["elt/state"]["stream"]["stream_state"] == {"cursor": 2}
    assert (metadata["elt/records_read"], metadata["elt/records_committed"]) == (2, 2)
    assert "dagster/row_count" not in metadata
    assert {"counts", "completed", "cursor"} <= set(evaluations(result))
    assert "columns" not in evaluations(result)
    text = read_log(own, result) + capsys.readouterr().err
    assert "wrote with ****" in text and "hunter2" not in text

    assert materialize(own, KEY).success  # from the state that was kept
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        assets = ConnectionComponent.load_at(place_in(own.root / "defs" / "scripted"))
        (stands,) = stream_statuses(assets.stream_assets(), str(own.home / "lake"), instance)
    assert stands.table is not None and stands.sync.figures is not None
    assert (stands.table.rows, stands.sync.figures.committed) == (4, 2)
    arguments = json.loads((own.root / "scripted-source" / "arguments.json").read_text())
    assert "--state" in arguments
    capsys.readouterr()
    [standing] = Elt(capsys).json("status", "scripted")["streams"]
    assert "rows delivered" in Elt(capsys)("status", "scripted")
    assert standing["rows"] == 4  # of both syncs


def test_states_that_a_killed_destination_acknowledged_are_kept(own: Project) -> None:
    script(own, [record(id=1), state(1), "!sleep 1.5", record(id=2), state(2), record(id=3)])
    own.amend("scripted", destination=to_file(own, dies_after=3))
    assert "was terminated by SIGKILL" in failure_of(materialize(own, KEY))
    assert fetch_materializations(own, "scripted", "things") == {}
    (*_, last) = observations(own, "scripted", "things")
    assert last["elt/state"]["stream"]["stream_state"]["cursor"] in (1, 2)


def test_a_destination_that_returns_no_state_fails_the_run(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    own.amend("scripted", destination=to_file(own, forgets=True))
    assert "without acknowledging the states of 'things'" in failure_of(materialize(own, KEY))
    assert fetch_materializations(own, "scripted", "things") == {}


def test_a_hanging_destination_is_stopped(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    own.amend(
        "scripted", destination=to_file(own, hangs=True), heartbeat="3s", retry={"attempts": 0}
    )
    assert "sent no output for 3 seconds" in failure_of(materialize(own, KEY))
    assert fetch_materializations(own, "scripted", "things") == {}


def test_an_unsupported_mode_of_the_destination_is_refused_before_reading(own: Project) -> None:
    script(own, [record(id=1), state(1)], sync_mode="full_refresh", destination_sync_mode="overwrite_dedup",
           primary_key=[["id"]])  # fmt: skip
    own.amend("scripted", destination=to_file(own))
    assert "supported modes: append, overwrite, append_dedup" in failure_of(materialize(own, KEY))
    assert not (own.root / "scripted-source" / "arguments.json").exists()


def test_a_refresh_that_the_destination_would_ignore_is_refused_before_reading(
    own: Project,
) -> None:
    script(own, [record(id=1), state(1)])
    own.amend("scripted", destination=to_file(own))
    assert materialize(own, KEY).success
    refused = failure_of(materialize(own, KEY, refresh="truncate"))
    assert "cannot refresh 'things'" in refused
    assert len(read_output(own)) == 1
    assert materialize(own, KEY).success  # no refresh is in progress
    assert materialize(own, KEY, refresh="retain").success
    numbers = [
        (catalog["generation_id"], catalog["minimum_generation_id"]) for catalog in catalogs(own)
    ]
    assert numbers == [(1, 0), (1, 0), (2, 0)]


def test_an_error_trace_of_the_destination_fails_the_run(own: Project) -> None:
    script(own, [record(id=1), state(1), status("COMPLETE")])
    own.amend("scripted", destination=to_file(own, reports="disk full"))
    assert "disk full" in failure_of(materialize(own, KEY))
    assert fetch_materializations(own, "scripted", "things") == {}


def test_streams_with_a_shared_state_are_sent_to_the_destination_together(own: Project) -> None:
    log = connection(own, destination_sync_mode="append")
    own.amend("shop", destination=to_file(own))
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, "group:shop").success
    assert [row["data"]["id"] for row in read_output(own)] == [1, 10]
    for stream in ("users", "orders"):
        metadata = fetch_materializations(own, "shop", stream)[None]
        assert metadata["elt/state"]["global"]["shared_state"] == {"position": 2}
    append(log, ("orders", 11))
    assert materialize(own, "group:shop").success
    assert [row["data"]["id"] for row in read_output(own)] == [1, 10, 11]


def test_elt_destination_may_be_the_destination(own: Project) -> None:
    script(own, [record(id=1, name="a"), state(1), record(id=2, name="b"), state(2)])
    other = {"lake": str(own.root / "other"), "namespace": "copied"}
    own.amend("scripted", destination={"command": [str(BIN / "elt-destination")], "config": other})
    result = materialize(own, KEY)
    assert result.success, read_log(own, result)
    copied = Project(own.root).table("..", "..", "other", "copied", "things").to_pyarrow_table()
    assert sorted(copied.column("id").to_pylist()) == [1, 2]
    metadata = fetch_materializations(own, "scripted", "things")[None]
    assert metadata["elt/state"]["stream"]["stream_state"] == {"cursor": 2}


def test_settings_of_the_lake_are_refused_for_another_destination(own: Project) -> None:
    script(own, [], destination_sync_mode="append_dedup", primary_key=[["id"]], history=True)
    own.amend("scripted", destination=to_file(own))
    with pytest.raises(ConfigError, match=r"things.*history.*another `destination`"):
        build_connection_assets(own.root / "defs" / "scripted")


def catalogs(project: Project) -> list[Any]:
    lines = (project.root / "written.jsonl.catalogs").read_text().splitlines()
    return [json.loads(line)["streams"][0] for line in lines]


def test_a_retry_keeps_the_unfinished_generation(own: Project) -> None:
    lines = [record(id=1), record(id=2), record(id=3)]
    script(own, lines, sync_mode="full_refresh", destination_sync_mode="overwrite")
    own.amend("scripted", destination=to_file(own, dies_after=2))
    assert "SIGKILL" in failure_of(materialize(own, KEY))
    own.amend("scripted", destination=to_file(own))
    assert materialize(own, KEY).success
    assert materialize(own, KEY).success
    numbers = [
        (catalog["generation_id"], catalog["minimum_generation_id"]) for catalog in catalogs(own)
    ]
    assert numbers == [(1, 1), (2, 2), (3, 3)]


def test_hashed_fields_are_declared_as_text_to_the_destination(own: Project) -> None:
    script(
        own,
        [record(id=1, code=7), state(1)],
        fields={"hash": ["code"]},
        schema={"id": {"type": "integer"}, "code": {"type": "integer"}},
    )
    own.amend("scripted", destination=to_file(own))
    assert materialize(own, KEY).success
    assert catalogs(own)[0]["stream"]["json_schema"]["properties"]["code"]["type"] != "integer"
    assert len(read_output(own)[0]["data"]["code"]) == 64
