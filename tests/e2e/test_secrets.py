"""Secrets of a project through its commands: where they are read, and that nothing shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elt_assets.cli import main
from tests.programs.hostile_source import program
from tests.support.elt import Elt

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


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    team = Team(tmp_path)
    for name in ("ELT_DEFS", "ELT_LAKE", "ELT_STAGING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(team.root / "dagster_home"))
    monkeypatch.setenv("CRM_PASSWORD", "s3same")
    monkeypatch.chdir(team.root)
    yield team
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def test_files_and_secrets_reach_the_connectors_and_are_shown_nowhere(
    team: Team, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "crm", "--verbose"]) == 0
    output = "".join(capfd.readouterr())
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
    team: Team, elt: Elt
) -> None:
    text = (team.folder / "defs.yaml").read_text()
    (team.folder / "defs.yaml").write_text(text.replace("{secret: crm}}]", "{secret: erp}}]"))
    assert "erp" not in elt("validate", code=1)  # it has no catalog
    assert not team.calls.exists()  # nothing is read at load
    message = elt.refuse("check", "crm")["message"]
    assert "config.nested[0].key_json refers to the secret erp, and acme.vault:read" in message
    (team.folder / "secrets" / "token").unlink()
    message = elt.refuse("check", "crm")["message"]
    assert "environment.CRM_TOKEN refers to the file" in message and "No such file" in message
    assert "hunter" not in message and not team.witness.exists()
