"""Secrets of AWS Secrets Manager, from a server of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from elt_assets.errors import ConfigError, TransientError
from elt_assets.secrets import aws
from tests.programs.hostile_source import program
from tests.support.object_store import ObjectStore, s3_server
from tests.support.project import BIN

LOGIN = {"user": "ada", "password": "hunter-two", "port": 5432, "empty": None}
CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source:
    command: [%s]
    config: {user: {secret: crm/login#user}, password: {secret: crm/login#password}, all: {secret: crm/login}}
  streams: [{name: users}]
"""
SCRIPT = """
config = json.load(open(files["--config"]))
open(%r, "w").write(json.dumps(config))
say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED", "message": "as " + config["password"]})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with secrets; the variables that name it."""
    with s3_server(tmp_path_factory.mktemp("aws") / "log") as endpoint:
        environment = ObjectStore(endpoint, "").environment
        client: Any = boto3.client(
            "secretsmanager",
            endpoint_url=endpoint,
            region_name=environment["AWS_REGION"],
            aws_access_key_id="x",
            aws_secret_access_key="y",
        )
        client.create_secret(Name="crm/login", SecretString=json.dumps(LOGIN))
        client.create_secret(Name="token", SecretString="t0ken")
        client.create_secret(Name="text-in-bytes", SecretBinary=b"t0ken")
        client.create_secret(Name="bytes", SecretBinary=b"hunter\xff")
        client.create_secret(Name="gone", SecretString="hunter-two")
        client.delete_secret(SecretId="gone")
        yield environment


@pytest.fixture
def aws_environment(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("aws_environment")
def test_a_secret_is_its_text_or_the_value_of_a_key() -> None:
    assert aws.read("token") == aws.read("text-in-bytes") == "t0ken"
    assert json.loads(aws.read("crm/login")) == LOGIN
    assert aws.read("crm/login#password") == "hunter-two"
    assert aws.read("crm/login#port") == 5432
    assert aws.read("no-such") is None and aws.read("no-such#key") is None


@pytest.mark.usefixtures("aws_environment")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("token#user", "is not a JSON object"),
        ("crm/login#usr", "has no such key"),
        ("crm/login#empty", "has no such key"),
        ("bytes", "is binary"),
        ("gone", "refused the request: InvalidRequestException"),
    ],
)
def test_what_cannot_be_read_is_an_error_without_a_value(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as failure:
        aws.read(name)
    assert failure.value.guidance and "hunter" not in str(failure.value)


def test_a_service_that_cannot_be_reached_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ObjectStore("http://127.0.0.1:9", "").environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws, "_ATTEMPTS", 1)
    with pytest.raises(TransientError, match="cannot be reached: EndpointConnectionError"):
        aws.read("token")


def test_missing_credentials_and_a_missing_region_are_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="NoRegionError"):
        aws.read("token")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(ConfigError, match="NoCredentialsError"):
        aws.read("token")
    with pytest.raises(ConfigError, match="NoCredentialsError"):
        aws.read("arn:aws:secretsmanager:us-east-1:123456789012:secret:token-AbCdEf")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(ConfigError, match=r"not installed\n.*elt-assets\[aws\]"):
        aws.read("token")


def test_a_project_reads_its_secrets_from_aws(server: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "defs" / "crm"
    folder.mkdir(parents=True)
    source = program(tmp_path, SCRIPT % str(tmp_path / "witness"))
    (folder / "defs.yaml").write_text(CONNECTION % source)
    settings = 'secrets = "elt_assets.secrets.aws:read"\ndefs = "defs"\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.elt]\n{settings}")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
    done = subprocess.run(
        [str(BIN / "elt"), "check", "crm"],
        env={**inherited, **server, "DAGSTER_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "as ****" in done.stdout and "hunter" not in done.stdout + done.stderr
    config = json.loads((tmp_path / "witness").read_text())
    assert config["user"] == "ada" and config["password"] == "hunter-two"
    assert json.loads(config["all"]) == LOGIN
