"""The installed package beside dbt, dlt and Sling, in one environment without our constraints."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemons import free_ports, wait
from tests.e2e.dagster_dev import LAUNCH, LOCATIONS, REPOSITORY_NAME
from tests.e2e.graphql import ask
from tests.orchestration import guest
from tests.support.project import BIN, REPOSITORY, Project

pytestmark = [pytest.mark.external, pytest.mark.long]

OTHERS = ("dagster-dbt", "dbt-duckdb", "dagster-dlt", "dagster-sling")
# From 1.12 on, dbt-core has a part that is downloaded from GitHub when it is installed.
INSTALLABLE = ("dbt-core<1.12", *OTHERS)
RUN = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
STALE = """
{ assetsOrError { ... on AssetConnection { nodes { key { path } definition { staleStatus } } } } }
"""
FILES = {
    "dbt/dbt_project.yml": "{name: shop, version: '1.0', profile: shop}\n",
    "dbt/profiles.yml": (
        "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb}}}\n"
    ),
    "dbt/models/counted.sql": "select 1 as id",
    "src/acme/defs/models/defs.yaml": """
type: dagster_dbt.DbtProjectComponent
attributes:
  project: "{{ context.project_root }}/dbt"
  translation: {group_name: "{{ node.resource_type | upper }}"}
""",
    "src/acme/defs/loads/loads.py": """
import dlt

@dlt.source
def numbers():
    @dlt.resource
    def odd():
        yield {"id": 1}
    return odd

source = numbers()
pipeline = dlt.pipeline("numbers", destination="duckdb", dataset_name="numbers")
""",
    "src/acme/defs/loads/defs.yaml": """
type: dagster_dlt.DltLoadCollectionComponent
attributes:
  loads:
    - source: .loads.source
      pipeline: .loads.pipeline
      translation: {group_name: "{{ resource.name ~ '_numbers' }}"}
""",
    "src/acme/defs/copies/replication.yaml": (
        "source: DUCKDB\ntarget: DUCKDB\nstreams: {main.copied: {object: main.two}}\n"
    ),
    "src/acme/defs/copies/defs.yaml": """
type: dagster_sling.SlingReplicationCollectionComponent
attributes:
  connections: {DUCKDB: {type: duckdb, instance: "{{ context.project_root }}/x.duckdb"}}
  replications: [{path: replication.yaml}]
""",
}


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12"])
def test_the_newest_release_of_each_can_be_in_one_environment(tmp_path: Path, version: str) -> None:
    requirements = tmp_path / "requirements.in"
    requirements.write_text("\n".join([f"elt-assets @ {REPOSITORY.as_uri()}", *OTHERS]))
    _uv("pip", "compile", "--python-version", version, str(requirements), "-o", tmp_path / "out")
    newest = (tmp_path / "out").read_text()
    assert "dagster==1.13" in newest and "dbt-core==1" in newest


def test_components_of_dbt_dlt_and_sling_are_as_without_us(
    project: Project, tmp_path: Path
) -> None:
    project.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    project.discover("crm")
    catalog = (project.root / "defs" / "crm" / "catalog.json").read_text()
    python = _install(tmp_path)
    for folder, own in (("alone", None), ("together", catalog)):
        guest.write_project(tmp_path / folder, own, **FILES)
        dbt = [str(python.with_name("dbt")), "parse", "--profiles-dir", "."]
        subprocess.run(dbt, cwd=tmp_path / folder / "dbt", check=True, capture_output=True)
    alone, together = (
        guest.observe(tmp_path / folder, str(python)) for folder in ("alone", "together")
    )
    groups = {spec["group_name"] for spec in alone["specs"].values()}
    assert {"MODEL", "odd_numbers"} <= groups
    assert together == alone


def test_dg_dev_runs_the_job_of_the_team_and_marks_nothing(
    project: Project, tmp_path: Path
) -> None:
    project.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    project.discover("crm")
    catalog = (project.root / "defs" / "crm" / "catalog.json").read_text()
    root = tmp_path / "acme"
    guest.write_project(root, catalog)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    variables = {**guest.make_environment(root), "VIRTUAL_ENV": sys.prefix}
    variables |= {"DG_CLI_CONFIG": str(root / "none")}
    command = [str(BIN / "dg"), "dev", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=root, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait(lambda: bool(ask(url, LOCATIONS)["locationEntries"]), "the webserver", seconds=300)
        (entry,) = ask(url, LOCATIONS)["locationEntries"]
        here = {"repositoryLocationName": entry["name"], "repositoryName": REPOSITORY_NAME}
        selector = {**here, "jobName": "team"}
        run = ask(url, LAUNCH, run={"selector": selector, "runConfigData": "{}"})["run"]["runId"]
        wait(lambda: ask(url, RUN, id=run)["status"] == "SUCCESS", "the run", seconds=300)
        nodes = ask(url, STALE)["nodes"]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
    marks = {"/".join(node["key"]["path"]): node["definition"]["staleStatus"] for node in nodes}
    team = ("greeting", "settings", "numbers", "made")
    assert {marks[name] for name in team} == {"FRESH"} and marks["crm/users"] == "MISSING"
    answer = pickle.loads((root / "home" / "storage" / "settings").read_bytes())
    assert answer == {"answer": 42}


def _install(folder: Path) -> Path:
    """Install the built wheel beside the others, and return the Python of the environment."""
    source, python = folder / "source", folder / "environment" / "bin" / "python"
    for package in ("elt_assets", "connectors"):
        hidden = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, source / package, ignore=hidden)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, source)
    _uv("build", "--wheel", "--out-dir", folder / "wheels", source)
    (wheel,) = (folder / "wheels").glob("*.whl")
    _uv("venv", folder / "environment")
    _uv("pip", "install", "--python", python, wheel, *INSTALLABLE)
    return python


def _uv(*command: str | Path) -> None:
    done = subprocess.run(
        [BIN / "uv", *command], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
