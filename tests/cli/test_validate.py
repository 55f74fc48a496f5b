"""`elt validate`: what keeps Dagster from loading connections, each of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elt_assets.cli import main
from tests.programs.scripted import script
from tests.support.elt import Elt
from tests.support.project import Project

KEYED: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["name"]]}


def test_all_connections_are_loaded_and_all_errors_are_shown(own: Project, elt: Elt) -> None:
    script(own, [], config={"password": {"env": "NOT_SET_ANYWHERE"}})
    script(own, [], name="keyless", history=True)
    own.connection("fresh", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.connection("typo", sauce={"connector": "faker"}, streams=[{"name": "users"}])
    answer = elt.json("validate", code=1)
    errors = {entry["connection"]: entry["error"] for entry in answer["connections"]}
    assert list(errors) == ["fresh", "keyless", "scripted", "typo"]
    assert errors["scripted"] is None
    assert "catalog.json does not exist" in errors["fresh"]["message"]
    assert errors["fresh"]["guidance"] == "write it with `elt discover fresh`"
    assert "history: versions need a key" in errors["keyless"]["message"]
    assert "did you mean 'source'?" in errors["typo"]["message"]


def test_all_errors_of_a_connection_are_shown(own: Project, elt: Elt) -> None:
    script(
        own,
        [],
        schema={"id": {"type": "array"}, "name": {"type": "string"}},
        schedule="often",
        **KEYED,
    )
    own.amend("scripted", schedule="sometimes")
    message = elt.json("validate", code=1)["connections"][0]["error"]["message"]
    assert "cursor_field: 'id' is stored as JSON text" in message
    assert "'sometimes' is not a valid cron expression" in message
    assert "'often' is not a valid cron expression" in message


def test_an_unknown_key_hides_no_other_error(own: Project, elt: Elt) -> None:
    script(own, [], destination_sync_mod="append", colour="blue")
    own.amend("scripted", nam="other", heartbeat="often")
    message = elt.json("validate", code=1)["connections"][0]["error"]["message"]
    assert "unknown key 'nam'; did you mean 'name'?" in message
    assert "unknown key 'destination_sync_mod'; did you mean 'destination_sync_mode'?" in message
    assert "unknown key 'colour'" in message
    assert "heartbeat: " in message


def test_a_single_connection_can_be_validated(own: Project, elt: Elt) -> None:
    script(own, [])
    own.connection("typo", sauce={"connector": "faker"}, streams=[{"name": "users"}])
    assert elt("validate", "scripted") == "valid scripted\n"
    assert elt.json("validate", "typo", code=1)["connections"][0]["error"]


def test_connections_that_conflict_are_refused(own: Project, elt: Elt) -> None:
    for name in ("one", "two"):
        script(own, [], name=name)
        own.amend(name, namespace="same")
    answer = elt.json("validate", code=1)
    assert [entry["error"] for entry in answer["connections"]] == [None, None]
    assert "write to the table same/things" in answer["error"]["message"]
    own.amend("one", namespace="one", name="both")
    own.amend("two", namespace="two", name="both")
    assert "both define a connection 'both'" in elt.json("validate", code=1)["error"]["message"]


def test_a_project_without_connections_is_valid(own: Project, elt: Elt) -> None:
    assert "there are no connections in" in elt("validate")


def test_errors_are_shown_as_text_and_as_json(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [], history=True)
    assert main(["validate"]) == 1
    assert "invalid scripted: " in capsys.readouterr().out
    assert main(["validate", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] is None
