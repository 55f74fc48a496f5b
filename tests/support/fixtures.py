"""Fixtures of tests that run `elt` and Dagster in their own process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.elt import Elt
from tests.support.project import Project


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
