"""A Dagster project of somebody else's, which only installs this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.project import BIN

PYPROJECT = """
[project]
name = "other"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "other"
"""
DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
DOWNSTREAM = """
import dagster as dg


@dg.asset(ins={"users": dg.AssetIn(["people", "users"])}, io_manager_key="elt_io_manager")
def adults(users):
    return users.where("id < 10").select("id", "name")
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "other" / "defs").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    for package in ("other", "other/defs"):
        (root / package / "__init__.py").write_text("")
    (root / "other" / "definitions.py").write_text(DEFINITIONS)
    (root / "other" / "defs" / "downstream.py").write_text(DOWNSTREAM)
    return root


def run(root: Path, *command: str) -> str:
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=root,
        env={
            **inherited,
            "DAGSTER_HOME": str(home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "VIRTUAL_ENV": sys.prefix,
            "DG_CLI_CONFIG": str(root / "none"),
            "PYTHONWARNINGS": "ignore",
            "ELT_SPARK_ARCHIVE": "off",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


@pytest.mark.long  # `test_init` is its short form
def test_a_connection_is_scaffolded_filled_in_and_launched(other: Path) -> None:
    assert "elt_assets.ConnectionComponent" in run(other, "dg", "list", "components")
    component = "elt_assets.ConnectionComponent"
    run(other, "dg", "scaffold", "defs", component, "people", "--connector", "faker")
    folder = other / "other" / "defs" / "people"
    text = (folder / "defs.yaml").read_text()
    assert "connector: faker" in text and "destination_sync_mode: overwrite" in text
    (folder / "defs.yaml").write_text(
        text.replace("config: {}", "config: {count: 40}")
        + "  translation:\n"
        + "    group_name: crm\n"
        + "    tags: {stream: '{{ stream.name }}'}\n"
        + "post_processing:\n"
        + "  assets:\n"
        + "    - target: 'key:\"people/users\"'\n"
        + "      attributes: {owners: ['team:data']}\n"
    )
    run(other, "elt", "discover", str(folder))
    text = run(other, "dg", "list", "defs", "--json")
    listed, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    users = next(asset for asset in listed["assets"] if asset["asset_key"] == "people/users")
    assert (users["group_name"], users["owners"]) == ("crm", [{"team": "data"}])
    run(other, "dg", "launch", "--assets", "people/users,adults")
    lake = other.parent / "home" / "lake"
    assert DeltaTable(str(lake / "people" / "users")).count() == 40
    assert DeltaTable(str(lake / "adults")).count() == 9
