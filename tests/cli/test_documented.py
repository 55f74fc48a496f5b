"""The commands in docs/cli.md run as they stand there, in their order, and no command is missing."""

from __future__ import annotations

import re

import pytest

from elt_assets.cli import main
from elt_assets.cli.entry import COMMANDS
from tests.documents import code_blocks, run_command, shell_environment
from tests.project import REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "cli.md").read_text()


def test_each_documented_command_works_as_written(project: Project) -> None:
    (project.root / "defs").mkdir()
    environment = shell_environment(project)
    commands = [line for block in code_blocks(DOCUMENT, "sh") for line in block.splitlines()]
    assert len(commands) == 20
    for command in commands:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            environment[name] = value
            continue
        done = run_command(command, environment)
        assert "only-an-example" not in done.stdout + done.stderr
    assert project.metadata("store", "users")["elt/records_read"] == 500


def test_each_command_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Exit codes:")[0]
    commands = re.findall(r"^  ([a-z-]+) ", listed, flags=re.MULTILINE)
    assert commands == list(COMMANDS)
    assert set(commands) == set(re.findall(r"^\| `elt ([a-z-]+)", DOCUMENT, flags=re.MULTILINE))
