"""Pods that live for one command: the next one, with another home, continues with what the last one left."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography.fernet import Fernet

from tests.programs.hostile_source import program
from tests.support.object_store import ObjectStore, new_bucket, s3_server
from tests.support.project import BIN

CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source:
    command: [%s]
    config: {token: {env: CRM_TOKEN}}
  streams: [{name: users, fields: {hash: [email]}}]
"""
CATALOG = {
    "streams": [
        {
            "name": "users",
            "supported_sync_modes": ["full_refresh"],
            "json_schema": {"properties": {"email": {"type": "string"}}},
        }
    ]
}
ONCE = """
token = json.load(open(files["--config"]))["token"]
with open(%r, "a") as used:
    used.write(token + "\\n")
if verb == "check":
    say("CONTROL", control={"type": "CONNECTOR_CONFIG", "emitted_at": 1,
        "connectorConfig": {"config": {"token": token + "+"}}})
    say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
else:
    record({"email": "ada@example.com"})
"""


class Pods:
    """A project that each command reads on a machine of its own."""

    def __init__(self, root: Path, store: ObjectStore):
        self.root, self.store = root / "acme", store
        self.used, self.count = root / "used", 0
        folder = self.root / "defs" / "crm"
        folder.mkdir(parents=True)
        specification = {"properties": {"token": {"type": "string", "airbyte_secret": True}}}
        source = program(root, ONCE % str(self.used), specification)
        (folder / "defs.yaml").write_text(CONNECTION % source)
        (folder / "catalog.json").write_text(json.dumps(CATALOG))
        settings = f'defs = "defs"\nlake = "{store.uri}"\nvault = "{store.uri}/_vault"\n'
        (self.root / "pyproject.toml").write_text(f"[tool.elt]\n{settings}")
        self.key = Fernet.generate_key().decode()

    def elt(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        self.count += 1
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
        environment = inherited | self.store.environment
        environment |= {"CRM_TOKEN": "tok", "ELT_VAULT_KEY": self.key}
        environment |= {"DAGSTER_HOME": str(self.root / f"home-{self.count}"), **variables}
        return subprocess.run(
            [str(BIN / "elt"), *words],
            env={name: value for name, value in environment.items() if value},
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )

    def tokens(self) -> list[str]:
        return self.used.read_text().splitlines()


def test_another_machine_continues_with_the_rotated_credential_and_the_salt(tmp_path: Path) -> None:
    with s3_server(tmp_path / "log") as endpoint:
        pods = Pods(tmp_path, new_bucket(endpoint))
        refused = pods.elt("check", "crm", ELT_VAULT_KEY="")
        assert refused.returncode != 0 and "ELT_VAULT_KEY" in refused.stderr
        assert not pods.used.exists()

        for _ in range(2):
            checked = pods.elt("check", "crm")
            assert checked.returncode == 0, checked.stderr
        assert pods.tokens() == ["tok", "tok+"]
        assert "tok" not in checked.stdout + checked.stderr
        other = pods.elt("check", "crm", CRM_TOKEN="new")  # as the user renewed it
        assert other.returncode == 0 and pods.tokens()[2:] == ["new"]

        with ThreadPoolExecutor(2) as pool:
            previews = list(
                pool.map(lambda _: pods.elt("--json", "preview", "crm", "users"), range(2))
            )
        assert [preview.returncode for preview in previews] == [0, 0], previews[0].stderr
        assert previews[0].stdout == previews[1].stdout
        assert "ada@" not in previews[0].stdout
        assert {key.split("/")[3] for key in pods.store.objects()} == {"config", "hash_salt"}
