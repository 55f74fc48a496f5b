"""docs/cli.md: its commands run as they stand there, in their order, and it leaves none out."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from elt_assets.cli import main
from elt_assets.cli.entry import COMMANDS
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.project import BIN, REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "cli.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)


def test_each_command_works_as_written(project: Project) -> None:
    (project.root / "defs").mkdir()
    environment = project.environment
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 20
    for command in commands:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            environment[name] = value
            continue
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "only-an-example" not in done.stdout + done.stderr
    assert project.metadata("store", "users")["elt/records_read"] == 500


def test_each_command_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Exit codes:")[0]
    commands = re.findall(r"^  ([a-z-]+) ", listed, flags=re.MULTILINE)
    assert commands == list(COMMANDS)
    assert set(commands) == set(re.findall(r"^\| `elt ([a-z-]+)", DOCUMENT, flags=re.MULTILINE))


def test_errors_are_as_documented() -> None:
    (text,) = blocks("json")
    assert set(json.loads(text)["error"]) == {"failure_type", "message", "guidance", "detail"}
    for kind in (ConfigError, TransientError, SystemFailure):
        assert issubclass(kind, EltError) and f"`{kind.failure_type}`" in DOCUMENT
