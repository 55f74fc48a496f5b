"""A team's own project: its settings and resources hold for its connections, its assets and `elt`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from elt_assets.connection import COMPONENT
from elt_assets.orchestration.io_manager import _project_resources
from tests.support.elt import Elt
from tests.support.project import BIN

SETTINGS = """
[project]
name = "acme"
version = "1"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "acme"

[tool.elt]
resources = "acme.resources:RESOURCES"
spark = {"spark.driver.memory" = "1g"}
"""
RESOURCES = """
from dagster import EnvVar
from dagster_pyspark import LazyPySparkResource, PySparkResource
from elt_assets import LakeResource
RESOURCES = {"elt_lake": LakeResource(root=EnvVar("ACME_LAKE")), "elt_spark": %s, "mail": object()}
"""
DEFINITIONS = """
from pathlib import Path
import dagster as dg
import elt_assets
defs = elt_assets.definitions_for(Path(__file__).parent / "defs")
"""
CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source: {connector: faker, config: {count: 3}}
  streams: [{name: users, destination_sync_mode: overwrite}]
"""

TEAM_COMPONENT = """
import elt_assets

class TeamConnection(elt_assets.ConnectionComponent):
    def get_asset_spec(self, stream):
        return super().get_asset_spec(stream).replace_attributes(owners=["team:data"])
"""


class Team:
    """A project in a folder of its own, which knows the package only as an installed one."""

    def __init__(self, root: Path):
        self.root, self.lake = root / "acme", root / "team_lake"
        self.package = self.root / "src" / "acme"
        self.write("../../pyproject.toml", SETTINGS)
        self.write("__init__.py", "")
        self.write("defs/__init__.py", "")
        self.write("definitions.py", DEFINITIONS)
        self.write("resources.py", RESOURCES % "PySparkResource(spark_config={})")
        self.write("defs/crm/defs.yaml", CONNECTION)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "DAGSTER_HOME": str(self.root / "dagster_home"),
            "ACME_LAKE": str(self.lake),
            "PYTHONPATH": str(self.root / "src"),
        }

    def write(self, name: str, text: str) -> None:
        path = self.package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_well(self, *command: str) -> str:
        """Run a command, which must succeed, and return its output."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        program = BIN / command[0]
        words = [str(program) if program.exists() else command[0], *command[1:]]
        return subprocess.run(
            words,
            env={**os.environ, **self.environment, "PYTHONWARNINGS": "ignore"},
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )


def forget_modules() -> None:
    """Forget the modules of the team and their resources, as a process of its own would not have them."""
    _project_resources.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


@pytest.fixture
def team(tmp_path: Path, empty_home: Path) -> Team:
    forget_modules()
    team = Team(tmp_path)
    shutil.copytree(empty_home, team.root / "dagster_home")
    return team


@pytest.fixture
def here(team: Team, elt: Elt, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elt]:
    """`elt` in this process, whose working directory and environment are those of the team."""
    for name in ("ELT_DEFS", "ELT_LAKE", "ELT_STAGING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in team.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(team.root / "src")
    monkeypatch.chdir(team.root)
    yield elt
    forget_modules()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "kind", ["LazyPySparkResource", pytest.param("PySparkResource", marks=pytest.mark.long)]
)
def test_every_command_uses_the_resources_of_the_project(
    team: Team, here: Elt, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.write("resources.py", RESOURCES % f"{kind}(spark_config={{'spark.ui.enabled': 'false'}})")
    here("discover", "crm")
    select = ("--select", 'key:"crm/users"')
    team.run_well("dagster", "asset", "materialize", "-m", "acme.definitions", *select)
    assert DeltaTable(str(team.lake / "crm" / "users")).to_pyarrow_table().num_rows == 3
    monkeypatch.chdir(team.package)
    here("sync", "crm")
    status = here.json("status", "crm")
    assert status["streams"][0]["path"] == str(team.lake / "crm" / "users")
    assert status["streams"][0]["rows"] == 3
    assert len(here.json("state", "history", "crm/users")["states"]) == 2
    assert not (team.root / "dagster_home" / "lake").exists()


UNUSABLE = {
    "RESOURCES = {'elt_lake': 's3://bucket'}": "elt_lake is a str, not a LakeResource",
    "RESOURCES = 5": "is a int, not a mapping",
    "": "has no attribute 'RESOURCES'",
}
ANSI = RESOURCES % "PySparkResource(spark_config={'spark.sql.ansi.enabled': True})"


def test_a_resource_that_cannot_be_used_is_refused_by_name(team: Team, here: Elt) -> None:
    here("discover", "crm")
    for resources, message in UNUSABLE.items():
        team.write("resources.py", resources)
        forget_modules()
        assert message in here.refuse("sync", "crm")["message"]
    team.write("resources.py", ANSI)
    done = team.run("elt", "sync", "crm")  # this process may have a session already
    assert done.returncode != 0
    assert "the resource `elt_spark` sets spark.sql.ansi.enabled" in " ".join(
        (done.stdout + done.stderr).split()
    )
    assert not team.lake.exists()


TEMPLATES = """
type: elt_assets.ConnectionComponent
template_vars_module: .variables
requirements: {env: [CRM_SEED, CRM_CRON, CRM_HOST, CRM_RETRIES, CRM_MAX]}
attributes:
  name: crm
  source: {connector: faker, config: {count: 3, seed: "{{ env('CRM_SEED', 7) }}"}}
  schedule: "{{ env('CRM_CRON', '0 6 * * *') }}"
  group: "{{ group }}"
  tags: {host: "{{ env.CRM_HOST }}"}
  retry: {attempts: "{{ env.CRM_RETRIES }}"}
  streams:
    - name: users
      destination_sync_mode: overwrite
      description: "in {{ context.project_root }}"
      owners: ["team:{{ names.owner }}"]
      checks: {changed: {max: "{{ env('CRM_MAX', '0.5') }}"}}
"""
VARIABLES = """
import dagster as dg

@dg.template_var
def group():
    return "sales"

@dg.template_var
def names():
    return {"owner": "core-team"}
"""


def test_templates_are_evaluated_at_each_level_as_dagster_does(
    team: Team, here: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.write("defs/crm/defs.yaml", TEMPLATES)
    team.write("defs/crm/variables.py", VARIABLES)
    monkeypatch.setenv("CRM_HOST", "5432")
    monkeypatch.setenv("CRM_RETRIES", "0")
    here("discover", "crm")
    here("validate")
    listed = json.loads(team.run_well("dg", "list", "defs", "--json"))
    (users,) = [asset for asset in listed["assets"] if asset["asset_key"] == "crm/users"]
    assert users["description"].startswith(f"in {team.root}\n") and users["group_name"] == "sales"
    assert users["owners"] == [{"team": "core-team"}]
    assert [schedule["name"] for schedule in listed["schedules"] if "crm" in schedule["name"]]
    team.run_well("dg", "check", "yaml")
    monkeypatch.delenv("CRM_HOST")
    message = here.refuse("check", "crm")["message"]
    assert "tags.host: the template '{{ env.CRM_HOST }}' cannot be evaluated" in message


def test_connections_are_found_where_dagster_finds_them(
    team: Team, here: Elt, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.write("lib.py", TEAM_COMPONENT)
    team.write("defs/raw/crm/defs.yaml", CONNECTION.replace(COMPONENT, "acme.lib.TeamConnection"))
    second = CONNECTION.replace("crm", "left"), CONNECTION.replace("crm", "right")
    team.write("defs/raw/both/defs.yaml", "---".join(second))
    team.write("defs/raw/both/defs.dev.yaml", "attributes: {name: left, owners: [team:core]}")
    (team.package / "defs" / "crm" / "defs.yaml").unlink()
    here("discover", "crm")
    catalog = (team.package / "defs" / "raw" / "crm" / "catalog.json").read_text()
    team.write("defs/raw/both/catalog.left.json", catalog)
    here("discover", "right")
    listed = here.json("list")
    assert [item["connection"] for item in listed["connections"]] == ["crm", "left", "right"]
    here("validate")
    synced = here.json("sync", "crm", "users")
    assert synced["streams"][0]["committed"] == 3
    assert DeltaTable(str(team.lake / "crm" / "users")).to_pyarrow_table().num_rows == 3
    monkeypatch.setenv("ELT_ENV", "dev")
    definitions = json.loads(team.run_well("dg", "list", "defs", "--json"))
    owners = {asset["asset_key"]: asset["owners"] for asset in definitions["assets"]}
    assert owners["crm/users"] == [{"team": "data"}]  # as the component of the team has it
    assert (owners["left/users"], owners["right/users"]) == ([{"team": "core"}], [])
