"""The commands in docs/destination.md run as they stand there, and its tables are complete."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from elt_assets.destination.settings import SPECIFICATION
from tests.support.documents import code_blocks, shell_environment
from tests.support.project import REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "destination.md").read_text()


def block(language: str) -> str:
    (text,) = code_blocks(DOCUMENT, language)
    return text


@pytest.mark.spec("airbyte.29")
def test_the_documented_commands_work_as_written(project: Project) -> None:
    (project.root / "catalog.json").write_text(block("json"))
    environment = {**shell_environment(project), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["sh", "-e", "-c", block("sh")],
        cwd=project.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    status, count = done.stdout.splitlines()
    assert json.loads(status)["connectionStatus"]["status"] == "SUCCEEDED"
    assert count == "500"
    states = (project.root / "states.jsonl").read_text()
    assert '"destinationStats":{"recordCount":' in states


def test_each_property_is_documented() -> None:
    section = DOCUMENT.split("## The config")[1].split("##")[0]
    named = re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE)
    assert named == list(SPECIFICATION["properties"])
