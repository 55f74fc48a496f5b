"""Runs commands of `elt` in this process, in a project of the test's own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elt_assets.cli import main
from tests.support.project import Project


@dataclass
class Elt:
    """`elt` as a user runs it; the environment of the test's project must be in force."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str, code: int = 0) -> str:
        """Return the text that it prints on stdout, or on stderr if it fails."""
        assert main(words) == code
        output = self.capture.readouterr()
        return output.out if code == 0 else output.err

    def json(self, *words: str, code: int = 0) -> Any:
        """The one document on stdout."""
        assert main([*words, "--json"]) == code
        return json.loads(self.capture.readouterr().out)

    def refuse(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error on stderr; stdout is empty."""
        assert main([*words, "--json"]) == code
        output = self.capture.readouterr()
        assert output.out == ""
        error: dict[str, Any] = json.loads(output.err)["error"]
        assert set(error) == {"failure_type", "message", "guidance", "detail"}
        return error


@pytest.fixture
def own(
    tmp_path: Path, empty_home: Path, dagster_caches: None, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project whose environment is in force."""
    project = Project(tmp_path)
    shutil.copytree(empty_home, project.home)
    (tmp_path / "defs").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    monkeypatch.setenv("ELT_DEFS", str(tmp_path / "defs"))
    monkeypatch.delenv("ELT_LAKE", raising=False)
    monkeypatch.delenv("ELT_STAGING", raising=False)
    return project


@pytest.fixture
def elt(capsys: pytest.CaptureFixture[str]) -> Elt:
    return Elt(capsys)
