"""The commands in docs/cli.md run as they stand there, in their order, and no command is missing."""

from __future__ import annotations

import re
import shlex

import pytest

from elt_assets.cli import main
from elt_assets.cli.entry import COMMANDS
from tests.support.documents import code_blocks
from tests.support.elt import Elt
from tests.support.project import REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "cli.md").read_text()


@pytest.mark.usefixtures("spark")
def test_each_documented_command_works_as_written(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [line for block in code_blocks(DOCUMENT, "sh") for line in block.splitlines()]
    assert len(commands) == 21
    for command in commands:
        program, *words = shlex.split(command)
        if program == "export":
            monkeypatch.setenv(*words[0].split("=", 1))
            continue
        assert program == "elt"
        assert "only-an-example" not in elt(*words)
    assert own.metadata("store", "users")["elt/records_read"] == 500


def test_each_command_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Exit codes:")[0]
    commands = re.findall(r"^  ([a-z-]+) ", listed, flags=re.MULTILINE)
    assert commands == list(COMMANDS)
    assert set(commands) == set(re.findall(r"^\| `elt ([a-z-]+)", DOCUMENT, flags=re.MULTILINE))
