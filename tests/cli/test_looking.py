"""`elt check`, `discover` and `status`, and how every command answers and fails."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from elt_assets.cli import main
from tests.programs.hostile_source import program
from tests.programs.scripted import record, script
from tests.support.elt import Elt
from tests.support.project import Project


def offer(own: Project, **changed: Any) -> None:
    """Change the stream that the scripted source has."""
    path = own.root / "scripted-source" / "catalog.json"
    catalog = json.loads(path.read_text())
    catalog["streams"][0].update(changed)
    path.write_text(json.dumps(catalog))


def catalog_of(own: Project) -> str:
    return (own.root / "defs" / "scripted" / "catalog.json").read_text()


@pytest.mark.spec("protocol.138")
def test_check_reports_that_the_source_is_available(own: Project, elt: Elt) -> None:
    script(own, [])
    assert "succeeded scripted" in elt("check", "scripted")
    answer = elt.json("check", "scripted")
    assert (answer["connection"], answer["succeeded"]) == ("scripted", True)


@pytest.mark.spec("protocol.5", "airbyte.12")
def test_a_failed_check_exits_with_an_error(own: Project, elt: Elt) -> None:
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


def test_check_reports_the_errors_that_loading_reports(own: Project, elt: Elt) -> None:
    script(own, [])
    own.amend("scripted", streams=[{"name": "thing"}])
    assert "did you mean 'things'?" in elt.refuse("check", "scripted")["message"]
    script(own, [], schema={}, destination_sync_mode="append_dedup", primary_key=[["id"]])
    assert "primary_key: 'id' is not a column" in elt.refuse("check", "scripted")["message"]
    (own.root / "defs" / "scripted" / "catalog.json").unlink()
    assert elt.json("check", "scripted")["succeeded"] is True  # comes before the first discovery


def test_check_logs_its_steps(own: Project, capsys: pytest.CaptureFixture[str]) -> None:
    script(own, [])
    (own.root / "defs" / "scripted" / "catalog.json").unlink()
    assert main(["check", "scripted"]) == 0
    log = capsys.readouterr().err
    assert log.splitlines() == [
        "the streams are not checked: run `elt discover scripted` first",
        "starting python",
    ]
    own.connection("far", source={"package": "source-none==1.0"}, streams=[{"name": "x"}])
    (own.home / "packages").write_text("no folder, so that nothing is installed")
    assert main(["check", "far"]) != 0
    assert "installing source-none==1.0; this is done once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("allows", "warned"), [({}, True), ({"additionalProperties": True}, False)]
)
def test_check_warns_of_a_config_field_that_the_specification_lacks(
    own: Project, elt: Elt, allows: dict[str, Any], warned: bool
) -> None:
    properties = {"host": {"type": "string"}, "port": {"type": "integer"}}
    specification = {"type": "object", "properties": properties, **allows}
    script(own, [], specification=specification, config={"host": "db", "prot": 5432})
    warnings = elt.json("check", "scripted")["warnings"]
    expected = "config.prot: the connector's specification has no such field; did you mean 'port'?"
    assert warnings == ([expected] if warned else [])


def test_streams_with_ambiguous_names_are_shown_with_quotes(own: Project, elt: Elt) -> None:
    """`c` of the namespace `a.b`, and `b.c` of the namespace `a`."""
    script(own, [])
    path = own.root / "scripted-source" / "catalog.json"
    (plain,) = json.loads(path.read_text())["streams"]
    named = [("c", "a.b"), ("b.c", "a"), ("d.e", None)]
    offer = [{**plain, "name": name, "namespace": space} for name, space in named]
    path.write_text(json.dumps({"streams": offer}))
    streams = [
        {k: v for k, v in entry.items() if k in ("name", "namespace") and v} for entry in offer
    ]
    own.amend("scripted", streams=streams)
    discovered = elt.json("discover", "scripted")
    names = ['"a.b".c', 'a."b.c"', "d.e"]
    assert [entry["stream"] for entry in discovered["streams"]] == names
    assert {entry["stream"] for entry in discovered["changes"]} == {"things", *names}
    assert [entry["stream"] for entry in elt.json("status", "scripted")["streams"]] == names
    for name in names:
        assert elt.json("preview", "scripted", name)["stream"] == name
        assert elt.json("replay", "scripted", name)["streams"][0]["stream"] == name
    assert elt.json("preview", "scripted", '"d.e"')["stream"] == "d.e"
    error = elt.refuse("preview", "scripted", "a.b.c")
    assert "2 streams 'a.b.c'" in error["message"]
    assert all(name in error["guidance"] for name in names[:2])


HOSTILE = """
say("LOG", log={"level": "WARN", "message": "old \\x1b[2J"})
say("LOG", log={"level": "INFO", "message": "news \\x1b[2J"})
say("LOG", log={"level": "DEBUG", "message": "details"})
status = {"status": "FAILED", "message": "no \\x1b]0;title\\x07 access [bold]"}
if verb == "check": say("CONNECTION_STATUS", connectionStatus=status); exit(1)
if verb == "discover" and "MUTE" in os.environ: fail("no \\x1b[31m way", stack_trace="at\\x1b[0m x"); exit(1)
fields = {"f\\x1b[1m\\r": {"type": "string"}}
modes = {"supported_sync_modes": ["full_refresh"]}
streams = [{"name": "s\\x1b[5m", "json_schema": {"properties": fields}, **modes}]
data = {"f\\x1b[1m\\r": "v\\x9b2J"}
if verb == "spec": print("\\x1b]8;;http://evil\\x07link\\u202e", file=sys.stderr)
if verb == "discover": say("CATALOG", catalog={"streams": streams})
if verb == "read": say("RECORD", record={"stream": streams[0]["name"], "data": data, "emitted_at": 1})
"""


def test_control_characters_of_a_connector_are_escaped_on_the_terminal(
    own: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"command": [program(own.root, HOSTILE)], "environment": ["MUTE"]}
    own.connection("hostile", source=source, streams=[{"name": "s\x1b[5m"}])
    outputs: list[str] = []
    for code, *words in (
        (1, "check", "hostile"),
        (0, "discover", "hostile"),
        (0, "preview", "hostile", "s\x1b[5m"),
        (0, "status", "hostile"),
        (2, "preview", "hostile", "s\x1b[6m"),
        (1, "test-connector", "hostile", "--verbose", "--cuts", "1"),
    ):
        assert main([str(word) for word in words]) == code
        outputs += capsys.readouterr()
    monkeypatch.setenv("MUTE", "1")
    assert main(["discover", "hostile"]) == 1
    outputs += capsys.readouterr()
    text = "".join(outputs)
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(text)
    for part in ("access [bold]", "s\\x1b[5m", "v\\x9b2J", "no \\x1b[31m way", "at\\x1b[0m x"):
        assert part in text


def test_the_log_of_a_connector_is_filtered_by_level(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"command": [program(own.root, HOSTILE)]}
    own.connection("hostile", source=source, streams=[{"name": "x"}])
    assert "warning: old" in elt("check", "hostile", code=1)
    assert elt.json("check", "hostile", code=1)["warnings"] == ["old \\x1b[2J"]
    assert main(["discover", "hostile"]) == 0
    log = capsys.readouterr().err
    assert "info: news" in log and "details" not in log
    assert main(["--verbose", "discover", "hostile"]) == 0
    assert "debug: details" in capsys.readouterr().err


def test_a_check_is_stopped_at_its_deadline(own: Project, elt: Elt) -> None:
    source = {"command": [program(own.root, "time.sleep(600)")]}
    own.connection("slow", source=source, streams=[{"name": "x"}], deadlines={"check": "1s"})
    error = elt.refuse("check", "slow", code=1)
    assert error["failure_type"] == "transient_error" and "1 seconds" in error["message"]
    assert "`deadlines.check`" in error["guidance"]


def test_discover_reports_changes_of_the_catalog(own: Project, elt: Elt) -> None:
    script(own, [])
    assert "nothing has changed" in elt("discover", "scripted")
    before = catalog_of(own)
    fields = {"id": {"type": "string"}, "age": {"type": "integer"}}
    offer(own, json_schema={"properties": fields}, source_defined_primary_key=[["id"]])

    output = elt("discover", "scripted", "--dry-run")
    assert "was not changed" in output and "primary_key" in output
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


@pytest.mark.spec("protocol.24", "airbyte.13")
def test_the_first_discovery_reports_all_streams_as_new(own: Project, elt: Elt) -> None:
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


def test_discover_warns_if_the_connection_is_not_valid_for_the_catalog(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [])
    offer(own, supported_sync_modes=["full_refresh"])
    answer = elt.json("discover", "scripted", "--dry-run")
    (warning,) = answer["warnings"]
    assert "'incremental' is not supported by the source" in warning
    assert main(["discover", "scripted", "--dry-run"]) == 0
    assert "warning: with this catalog" in capsys.readouterr().err


def test_discover_replaces_a_malformed_catalog(own: Project, elt: Elt) -> None:
    script(own, [])
    path = own.root / "defs" / "scripted" / "catalog.json"
    path.write_text("{")
    elt("discover", "scripted")
    assert "things" in path.read_text()


def test_status_shows_streams_that_were_never_synced(own: Project, elt: Elt) -> None:
    script(own, [record(id=1)])
    assert "incremental → append" in elt("status", "scripted", "--state")
    assert "never" in elt("status", "scripted")
    (stream,) = elt.json("status", "scripted")["streams"]
    assert (stream["stream"], stream["rows"], stream["state"], stream["figures"]) == (
        *("things", 0, None, None),
    )
    assert (stream["result"], stream["last_sync"], stream["seconds_ago"]) == ("never", None, None)


def test_status_shows_all_connections(own: Project, elt: Elt) -> None:
    script(own, [])
    script(own, [], name="other")
    output = elt("status")
    assert "scripted/things" in output and "other/things" in output
    answers = elt.json("status")["connections"]
    assert [(answer["connection"], len(answer["streams"])) for answer in answers] == [
        ("other", 1),
        ("scripted", 1),
    ]
    script(own, [], name="broken", history=True)
    answer = elt.json("status", code=1)
    assert len(answer["connections"]) == 2 and "versions need a key" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["check", "nowhere"], "there is no connection 'nowhere'"),
        (["check"], "Missing argument 'CONNECTION'"),
        (["chek", "scripted"], "No such command 'chek'"),
        (["preview", "scripted", "things", "-n", "0"], "'-n': 0 is not in the range x>=1"),
        (["discover", "scripted", "--exit-code"], "--exit-code needs --dry-run"),
        (["replay", "scripted", "thongs"], "has no stream 'thongs'"),
    ],
)
def test_an_error_of_the_user_is_reported_with_guidance(
    own: Project, elt: Elt, words: list[str], expected: str
) -> None:
    script(own, [])
    error = elt.refuse(*words)
    assert error["failure_type"] == "config_error" and error["guidance"]
    assert expected in error["message"]
    assert expected in elt(*words, code=2)


def test_the_json_option_may_precede_the_command(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [])
    assert json.loads(elt("--json", "check", "scripted"))["succeeded"] is True


def test_the_help_shows_the_exit_codes_and_examples(elt: Elt) -> None:
    assert "Exit codes:" in elt("--help")
    assert "elt sync shop users orders" in elt("sync", "--help")
