"""`elt test-connector`: the conformance kit on the source of a connection."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from elt_assets.cli import main
from tests.support.project import Project

pytestmark = pytest.mark.process

RULES = ("--rule", "states-resume-exactly", "--rule", "no-secret-in-output")


CLIENT = """
import json, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
place = words.index("test/source:1")
command = words[place + 1:]
mounts = [words[n + 1].split(":")[0] for n in range(place) if words[n] == "--volume"]
if not all(file.startswith(tuple(mounts)) for file in command[2::2]):
    sys.exit("a file that the container does not see")
program = [sys.executable, "-S", "-m", "tests.programs.broken.base"]
sys.exit(subprocess.call([*program, *command]))
"""
"""A stand-in for docker, which runs the source here, if all its files are in the container."""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the stand-in."""
    program, log = tmp_path / "client.py", tmp_path / "log"
    program.write_text(CLIENT.format(log=str(log)))
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {program}")
    return log


def connection(project: Project, program: str, **source: Any) -> None:
    command = [sys.executable, "-m", f"tests.programs.broken.{program}"]
    config = {"token": {"env": "TOKEN"}, "count": 5}
    project.connection(
        "shop",
        source={"command": command, "config": config, **source},
        streams=[{"name": "users", "sync_mode": "incremental"}],
    )


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-abc")


def test_a_source_that_follows_the_rules_passes(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    connection(own, "base")
    assert main(["test-connector", "shop", *RULES, "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "passed         states-resume-exactly" in out
    assert "passed         no-secret-in-output" in out
    assert "2 rules: 2 passed (7 processes" in out  # the connection has one of the two streams


def test_a_source_that_violates_a_rule_fails(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    connection(own, "no_secret_in_output")
    assert main(["test-connector", "shop", *RULES, "--json", "--config", '{"count": 3}']) == 1
    out = capsys.readouterr().out
    assert "hunter2" not in out
    document = json.loads(out)
    failed = [each for each in document["rules"] if each["status"] == "failed"]
    assert [each["rule"] for each in failed] == ["no-secret-in-output"]
    assert failed[0]["findings"][0]["seen"] == "the value of config.token, in line 1 of stderr"


def test_a_tap_is_tested(own: Project, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "tests.programs.broken.tap", "state"]
    stream = {"name": "db-orders", "sync_mode": "incremental", "cursor_field": ["updated"]}
    config = {"token": {"env": "TOKEN"}}
    own.connection("shop", source={"tap": command, "config": config}, streams=[stream])
    assert main(["test-connector", "shop", "--cuts", "2", *RULES]) == 1
    out = capsys.readouterr().out
    assert "failed         states-resume-exactly" in out
    assert "passed         no-secret-in-output" in out


def test_invalid_arguments_are_refused(own: Project, capsys: pytest.CaptureFixture[str]) -> None:
    connection(own, "base")
    assert main(["test-connector", "shop", "--config", "[]"]) == 2
    assert "--config must be a JSON object" in capsys.readouterr().err
    assert main(["test-connector", "shop", "--rule", "none"]) == 2
    capsys.readouterr()
    for words in ([], ["shop", "--image", "some/source:1"]):
        assert main(["test-connector", *words]) == 2
        assert "write either a connection or --image" in capsys.readouterr().err
    assert main(["test-connector", "--image", "Some Source"]) == 2
    assert "is not an image reference" in capsys.readouterr().err


def test_the_rules_are_checked_without_a_specification(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [sys.executable, "-c", "pass"]
    own.connection("shop", source={"command": silent}, streams=[{"name": "users"}])
    assert main(["test-connector", "shop", "--rule", "spec-is-valid"]) == 1
    captured = capsys.readouterr()
    assert "failed         spec-is-valid" in captured.out
    assert "the config is not validated" in captured.err


@pytest.mark.parametrize("is_connection", [True, False])
def test_an_image_is_tested(
    is_connection: bool, own: Project, client: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"token": {"env": "TOKEN"}, "count": 5}
    if is_connection:
        source = {"image": "test/source:1", "config": config, "container": {"network": "none"}}
        own.connection("boxed", source=source, streams=[{"name": "users"}])
        words = ["boxed"]
    else:
        words = ["--image", "test/source:1", "--config", json.dumps(config)]
    rules = [*RULES, "--rule", "sigterm-ends-a-read"]
    assert main(["test-connector", *words, "--cuts", "1", *rules]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "passed         states-resume-exactly" in out
    assert "passed         no-secret-in-output" in out
    assert "not applicable sigterm-ends-a-read: a container's output is buffered" in out
    calls = [json.loads(line) for line in client.read_text().splitlines()]
    assert {call[0] for call in calls} == {"run"}
    assert len({call[call.index("--name") + 1] for call in calls}) == len(calls) > 4
    for call in calls:
        assert call[call.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
        assert ("--network=none" in call) is is_connection
