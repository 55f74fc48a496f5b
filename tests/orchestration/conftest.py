from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import Project


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose environment is in force."""
    project = Project(tmp_path)
    project.home.mkdir()
    (project.home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "defs").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    monkeypatch.setenv("ELT_DEFS", str(tmp_path / "defs"))
    monkeypatch.delenv("ELT_LAKE", raising=False)
    monkeypatch.delenv("ELT_STAGING", raising=False)
    return project
