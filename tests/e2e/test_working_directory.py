"""Connectors start whatever modules the working directory holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.test_project import Team

SHADOW = 'raise SystemExit("a module of the working directory was imported: " + __file__)\n'
MANIFEST = """
version: 6.0.0
type: DeclarativeSource
check: {type: CheckStream, stream_names: [users]}
streams: []
spec: {type: Spec, connection_specification: {type: object, properties: {}}}
"""


@pytest.fixture
def team(tmp_path: Path) -> Team:
    """A project whose folder has modules with names of ours, of a library and of Python itself."""
    team = Team(tmp_path)
    for name in ("connectors/__init__.py", "connectors/sdk/__init__.py", "msgspec.py", "types.py"):
        team.write(f"../../{name}", SHADOW)
    return team


def test_built_in_connectors_start_in_a_folder_with_modules_of_their_names(team: Team) -> None:
    team.run_well("elt", "discover", "crm")
    preview = team.run("elt", "--json", "preview", "crm", "users", "-n", "2")
    assert len(json.loads(preview.stdout)["records"]) == 2, preview.stderr


def test_programs_started_with_m_find_the_connectors_of_the_package(team: Team) -> None:
    for name in ("msgspec.py", "types.py"):
        (team.root / name).unlink()
    team.write(
        "../connectors/__init__.py", SHADOW
    )  # on `PYTHONPATH`, before the installed packages
    checked = team.run(sys.executable, "-m", "elt_assets.cli", "check", "crm")
    assert checked.returncode == 0, checked.stderr


def test_manifests_start_in_a_folder_with_modules_of_their_names(team: Team) -> None:
    """The engine reads the manifest, and reports that it has no streams."""
    team.write("manifest.yaml", MANIFEST)
    team.write(
        "defs/crm/defs.yaml",
        "type: elt_assets.ConnectionComponent\n"
        "attributes: {name: crm, source: {manifest: ../../manifest.yaml}, streams: [{name: users}]}\n",
    )
    checked = team.run("elt", "check", "crm")
    assert "was imported" not in checked.stderr
    assert "it has neither `streams` nor `dynamic_streams`" in checked.stderr
