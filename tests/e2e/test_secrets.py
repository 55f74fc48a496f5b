"""Secrets of a project through its commands: where they are read, and that nothing shows them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.programs.hostile_source import program
from tests.support.project import BIN

SETTINGS = """
[tool.dg.project]
root_module = "acme"

[tool.elt]
secrets = "acme.vault:read"
"""
VAULT = """
from pathlib import Path
def read(name):
    with (Path(__file__).parent / "calls").open("a") as calls:
        calls.write(name + "\\n")
    return {"password": "hunter-two", "number": 7} if name == "crm" else None
"""
CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source:
    command: [%s]
    config:
      token: {file: secrets/token}
      login: {secret: crm}
      nested: [{key_json: {secret: crm}}]
      as_it_is: {literal: {secret: crm}}
      url: "https://ada:{{ env.CRM_PASSWORD }}@{{ env('CRM_HOST', 'localhost') }}"
    environment: {CRM_TOKEN: {file: secrets/token}, CRM_LOGIN: {secret: crm}}
  destination:
    command: [%s]
    config: {token: {file: secrets/token}}
  streams: [{name: users}]
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "login": {"type": "object"},
        "nested": {"type": "array", "items": {"properties": {"key_json": {"type": "string"}}}},
    },
}
SCRIPT = """
config = json.load(open(files["--config"]))
with open(%r, "a") as witness:
    witness.write(json.dumps([config, os.environ.get("CRM_TOKEN"), os.environ.get("CRM_LOGIN")]) + "\\n")
say("LOG", log={"level": "INFO", "message": "it is " + json.dumps(config)})
say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED", "message": "with " + config["token"]})
"""


class Team:
    """A project with one connection, whose programs write down the config that they get."""

    def __init__(self, root: Path):
        self.root = root / "acme"
        self.folder = self.root / "src" / "acme" / "defs" / "crm"
        self.witness, self.calls = root / "witness", self.root / "src" / "acme" / "calls"
        (self.folder / "secrets").mkdir(parents=True)
        (self.root / "pyproject.toml").write_text(SETTINGS)
        (self.root / "src" / "acme" / "vault.py").write_text(VAULT)
        (self.folder / "secrets" / "token").write_text("t0ken-of-crm\n")
        source = program(root, SCRIPT % str(self.witness), SCHEMA)
        (self.folder / "defs.yaml").write_text(CONNECTION % (source, source))

    def elt(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
        environment |= {"DAGSTER_HOME": str(self.root / "dagster_home"), "CRM_PASSWORD": "s3same"}
        return subprocess.run(
            [str(BIN / "elt"), *words],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


def test_files_and_secrets_reach_the_connectors_and_are_shown_nowhere(team: Team) -> None:
    checked = team.elt("check", "crm", "--verbose")
    output = checked.stdout + checked.stderr
    assert checked.returncode == 0, output
    source, destination = map(json.loads, team.witness.read_text().splitlines())
    crm = {"password": "hunter-two", "number": 7}
    [config, token, login] = source
    assert config == {
        "token": "t0ken-of-crm",
        "login": crm,
        "nested": [{"key_json": json.dumps(crm)}],
        "as_it_is": {"secret": "crm"},
        "url": "https://ada:s3same@localhost",
    }
    assert token == "t0ken-of-crm" and json.loads(login) == crm
    assert destination[0] == {"token": "t0ken-of-crm"}
    assert team.calls.read_text() == "crm\n"  # once
    assert '"token": "****"' in output and "with ****" in output
    assert "t0ken" not in output and "hunter" not in output and "s3same" not in output


def test_a_missing_file_and_a_missing_secret_are_reported_when_a_connector_starts(
    team: Team,
) -> None:
    text = (team.folder / "defs.yaml").read_text()
    (team.folder / "defs.yaml").write_text(text.replace("{secret: crm}}]", "{secret: erp}}]"))
    validated = team.elt("validate")
    assert "erp" not in validated.stdout + validated.stderr
    assert not team.calls.exists()  # nothing is read at load
    checked = " ".join(team.elt("check", "crm").stderr.split())
    assert "config.nested[0].key_json refers to the secret erp, and acme.vault:read" in checked
    (team.folder / "secrets" / "token").unlink()
    checked = " ".join(team.elt("check", "crm").stderr.split())
    assert "environment.CRM_TOKEN refers to the file" in checked and "No such file" in checked
    assert "hunter" not in checked and not team.witness.exists()
