from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.project import Project


@pytest.fixture
def own(
    tmp_path: Path, empty_home: Path, described_once: None, monkeypatch: pytest.MonkeyPatch
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
