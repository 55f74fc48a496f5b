"""`elt new-connector`: a source that works, in this project and in one of the user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets.cli.entry import main
from tests.support.project import REPOSITORY


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the package `acme`, in which commands are run."""
    (tmp_path / "src" / "acme").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "acme"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(project / "src"), str(REPOSITORY)])
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_connector_runs_and_passes_its_test(project: Path) -> None:
    assert main(["new-connector", "crm"]) == 0
    spec = run(project, "acme.connectors.crm", "spec")
    schema = json.loads(spec.stdout)["spec"]["connectionSpecification"]
    assert schema["properties"]["api_key"]["airbyte_secret"] is True
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "--import-mode=importlib", "-q")
    done = run(project, "pytest", *options, "tests/test_crm_connector.py")
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "failed" not in done.stdout


def test_the_entry_point_is_added_to_the_project(project: Path) -> None:
    assert main(["new-connector", "crm"]) == 0
    assert main(["new-connector", "erp"]) == 0
    text = (project / "pyproject.toml").read_text()
    assert text.count('[project.entry-points."elt_assets.connectors"]') == 1
    assert 'crm = "acme.connectors.crm"' in text
    assert 'erp = "acme.connectors.erp"' in text


@pytest.mark.parametrize(
    "text",
    [
        '[project]\nentry-points = {x = {y = "z"}}\n',
        "[project.entry-points.'elt_assets.connectors']\nx = \"y\"\n",
        '[project.entry-points."elt_assets.connectors"]\ncrm = "other"\n',
    ],
)
def test_existing_entry_points_are_not_changed(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = project / "pyproject.toml"
    file.write_text(f'{text}[tool.dg.project]\nroot_module="acme"\n')
    before = file.read_text()
    assert main(["new-connector", "crm", "--json"]) == 0
    assert file.read_text() == before
    steps = json.loads(capsys.readouterr().out)["next"]
    assert 'crm = "acme.connectors.crm"' in steps[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["My-Source"], "'My-Source' cannot be the name of a connector"),
        (["class"], "'class' cannot be the name of a connector"),
        (["faker"], "there is a connector 'faker' already"),
        (["crm", "--package", "other"], "there is no package 'other'"),
    ],
)
def test_a_wrong_argument_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["new-connector", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_an_existing_file_is_not_replaced(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-connector", "crm"]) == 0
    source = project / "src" / "acme" / "connectors" / "crm.py"
    source.write_text("mine")
    assert main(["new-connector", "crm"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert source.read_text() == "mine"


def test_a_folder_without_a_project_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-connector", "crm"]) == 2
    assert "it has no pyproject.toml" in capsys.readouterr().err
