"""`elt check`, `discover` and `status`, and how every command answers and fails."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from elt_assets.cli import main
from tests.cli.running import Elt
from tests.project import Project
from tests.scripted import record, script


def offered(own: Project, **changed: Any) -> None:
    """Change the stream that the scripted source has."""
    path = own.root / "scripted-source" / "catalog.json"
    catalog = json.loads(path.read_text())
    catalog["streams"][0].update(changed)
    path.write_text(json.dumps(catalog))


def catalog_of(own: Project) -> str:
    return (own.root / "defs" / "scripted" / "catalog.json").read_text()


def test_check_says_whether_the_source_is_there(own: Project, elt: Elt) -> None:
    script(own, [])
    assert "succeeded scripted" in elt("check", "scripted")
    answer = elt.json("check", "scripted")
    assert (answer["connection"], answer["succeeded"]) == ("scripted", True)


def test_a_check_that_fails_is_no_success(own: Project, elt: Elt) -> None:
    answers = {
        "spec": {"type": "SPEC", "spec": {"connectionSpecification": {}}},
        "check": {
            "type": "CONNECTION_STATUS",
            "connectionStatus": {"status": "FAILED", "message": "the token hunter2 has expired"},
        },
    }
    failing = f"import json, sys; print(json.dumps({answers!r}[sys.argv[1]]))"
    source = {"command": [sys.executable, "-c", failing], "config": {"token": {"env": "TOKEN"}}}
    own.connection("out", source=source, streams=[{"name": "x"}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN", "hunter2")
        answer = elt.json("check", "out", code=1)
    assert answer["message"] == "the token **** has expired"


def test_check_finds_what_loading_finds(own: Project, elt: Elt) -> None:
    script(own, [])
    own.amend("scripted", streams=[{"name": "thing"}])
    assert "did you mean 'things'?" in elt.refused("check", "scripted")["message"]
    script(own, [], schema={}, destination_sync_mode="append_dedup", primary_key=[["id"]])
    assert "primary_key: 'id' is no column" in elt.refused("check", "scripted")["message"]
    (own.root / "defs" / "scripted" / "catalog.json").unlink()
    assert elt.json("check", "scripted")["succeeded"] is True  # comes before the first discovery


def test_check_says_what_it_does(own: Project, capsys: pytest.CaptureFixture[str]) -> None:
    script(own, [])
    (own.root / "defs" / "scripted" / "catalog.json").unlink()
    assert main(["check", "scripted"]) == 0
    told = capsys.readouterr().err
    assert told.splitlines() == [
        "the streams are not checked: `elt discover scripted` has not been run yet",
        "starting python",
    ]
    own.connection("far", source={"package": "source-none==1.0"}, streams=[{"name": "x"}])
    assert main(["check", "far"]) != 0
    assert "installing source-none==1.0: once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("allows", "warned"), [({}, True), ({"additionalProperties": True}, False)]
)
def test_a_config_field_that_the_source_does_not_know(
    own: Project, elt: Elt, allows: dict[str, Any], warned: bool
) -> None:
    known = {"host": {"type": "string"}, "port": {"type": "integer"}}
    specification = {"type": "object", "properties": known, **allows}
    script(own, [], specification=specification, config={"host": "db", "prot": 5432})
    warnings = elt.json("check", "scripted")["warnings"]
    expected = "config.prot: the connector's specification has no such field; did you mean 'port'?"
    assert warnings == ([expected] if warned else [])


def test_streams_whose_names_look_the_same(own: Project, elt: Elt) -> None:
    """`c` of the namespace `a.b`, and `b.c` of the namespace `a`."""
    script(own, [])
    path = own.root / "scripted-source" / "catalog.json"
    (plain,) = json.loads(path.read_text())["streams"]
    named = [("c", "a.b"), ("b.c", "a"), ("d.e", None)]
    offered = [{**plain, "name": name, "namespace": space} for name, space in named]
    path.write_text(json.dumps({"streams": offered}))
    wanted = [{k: v for k, v in one.items() if k in ("name", "namespace") and v} for one in offered]
    own.amend("scripted", streams=wanted)
    found = elt.json("discover", "scripted")
    names = ['"a.b".c', 'a."b.c"', "d.e"]
    assert [one["stream"] for one in found["streams"]] == names
    assert {one["stream"] for one in found["changes"]} == {"things", *names}
    assert [one["stream"] for one in elt.json("status", "scripted")["streams"]] == names
    for name in names:
        assert elt.json("preview", "scripted", name)["stream"] == name
        assert elt.json("replay", "scripted", name)["streams"][0]["stream"] == name
    assert elt.json("preview", "scripted", '"d.e"')["stream"] == "d.e"
    error = elt.refused("preview", "scripted", "a.b.c")
    assert "2 streams 'a.b.c'" in error["message"]
    assert all(name in error["guidance"] for name in names[:2])


def test_discover_tells_what_has_changed(own: Project, elt: Elt) -> None:
    script(own, [])
    assert "nothing has changed" in elt("discover", "scripted")
    before = catalog_of(own)
    fields = {"id": {"type": "string"}, "age": {"type": "integer"}}
    offered(own, json_schema={"properties": fields}, source_defined_primary_key=[["id"]])

    shown = elt("discover", "scripted", "--dry-run")
    assert "was left as it is" in shown and "primary_key" in shown
    answer = elt.json("discover", "scripted", "--dry-run", "--exit-code", code=1)
    assert answer["written"] is False and catalog_of(own) == before
    assert {
        (c["stream"], c["kind"], c["field"], c["before"], c["after"]) for c in answer["changes"]
    } == {
        ("things", "type", "id", "integer", "string"),
        ("things", "column", "name", "string", None),
        ("things", "column", "age", None, "integer"),
        ("things", "primary_key", None, None, "id"),
    }

    assert elt.json("discover", "scripted")["changes"] == answer["changes"]
    assert '"age"' in catalog_of(own)
    assert elt.json("discover", "scripted", "--dry-run", "--exit-code")["changes"] == []


def test_the_first_discovery_finds_everything_new(own: Project, elt: Elt) -> None:
    script(own, [])
    (own.root / "defs" / "scripted" / "catalog.json").unlink()
    answer = elt.json("discover", "scripted")
    assert [(c["stream"], c["kind"], c["told"]) for c in answer["changes"]] == [
        ("things", "stream", "the source has a new stream")
    ]
    (stream,) = answer["streams"]
    assert (stream["stream"], stream["configured"], stream["cursor_field"]) == (
        "things",
        True,
        ["id"],
    )


def test_discover_says_when_the_connection_no_longer_goes_with_it(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [])
    offered(own, supported_sync_modes=["full_refresh"])
    answer = elt.json("discover", "scripted", "--dry-run")
    (warning,) = answer["warnings"]
    assert "'incremental' is not supported by the source" in warning
    assert main(["discover", "scripted", "--dry-run"]) == 0
    assert "warning: with this catalog" in capsys.readouterr().err


def test_a_catalog_that_cannot_be_read_is_written_anew(own: Project, elt: Elt) -> None:
    script(own, [])
    path = own.root / "defs" / "scripted" / "catalog.json"
    path.write_text("{")
    elt("discover", "scripted")
    assert "things" in path.read_text()


def test_status_of_streams_that_were_never_synced(own: Project, elt: Elt) -> None:
    script(own, [record(id=1)])
    assert "incremental → append" in elt("status", "scripted")
    (stream,) = elt.json("status", "scripted")["streams"]
    assert (stream["stream"], stream["rows"], stream["state"], stream["figures"]) == (
        *("things", 0, None, None),
    )


def test_status_of_all_connections(own: Project, elt: Elt) -> None:
    script(own, [])
    script(own, [], name="other")
    shown = elt("status")
    assert "scripted:" in shown and "other:" in shown
    answers = elt.json("status")["connections"]
    assert [(one["connection"], len(one["streams"])) for one in answers] == [
        ("other", 1),
        ("scripted", 1),
    ]
    script(own, [], name="broken", history=True)
    answer = elt.json("status", code=1)
    assert len(answer["connections"]) == 2 and "versions need a key" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "nowhere"], "there is no connection 'nowhere'"),
        (["check"], "required: connection"),
        (["chek", "scripted"], "invalid choice: 'chek'"),
        (["preview", "scripted", "things", "-n", "0"], "'0' is no number of one or more"),
        (["discover", "scripted", "--exit-code"], "--exit-code tells what --dry-run found"),
        (["replay", "scripted", "thongs"], "has no stream 'thongs'"),
    ],
)
def test_what_the_user_must_change(own: Project, elt: Elt, words: list[str], said: str) -> None:
    script(own, [])
    error = elt.refused(*words)
    assert error["failure_type"] == "config_error" and error["guidance"]
    assert said in error["message"]
    assert said in elt(*words, code=2)


def test_json_may_stand_before_the_command(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [])
    assert json.loads(elt("--json", "check", "scripted"))["succeeded"] is True


def test_the_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str], elt: Elt) -> None:
    with pytest.raises(SystemExit) as ended:
        elt("--help")
    assert ended.value.code == 0
    assert "exit codes:" in capsys.readouterr().out
