"""The environment of a connector's process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.credentials import looks_secret
from elt_assets.runner.config.environment import Declared
from elt_assets.runner.kinds.registry import KINDS, ConnectorOptions, open_connector
from elt_assets.runner.process.marked_processes import MARK
from tests.programs.hostile_source import hostile_source, program

SHOW = """
if verb == "check":
    text = json.dumps(dict(os.environ))
    say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED", "message": text})
"""
PLAIN = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "https_proxy": "http://proxy:1",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "JAVA_HOME": "/opt/java",
}
OTHERS = {
    "SHOP_REGION": "eu",
    "PYTHONPATH": "/opt/lib",
    "DOCKER_HOST": "tcp://docker:1",
}
SECRETS = {
    "PG_PASSWORD": "hunter2-a",
    "GITHUB_TOKEN": "hunter2-b",
    "AWS_SECRET_ACCESS_KEY": "hunter2-c",
    "stripe_api_key": "hunter2-d",
    "ELT_HASH_SALT": "hunter2-e",
    "DAGSTER_HOME": "/dagster",
}
SECRETS_BY_NAME = {
    "PGPASSWORD": "x",
    "MYSQL_PWD": "x",
    "SMTP_PASS": "x",
    "GITHUB_PAT": "x",
    "SENTRY_DSN": "x",
    "REDISCLI_AUTH": "x",
    "AZURE_STORAGE_CONNECTION_STRING": "x",
    "STRIPE_KEY": "x",
    "DATABASE_URL": "postgresql://db/shop",
    "SLACK_WEBHOOK_URL": "https://hooks.example.com/x",
    "SSH_AUTH_SOCK": "/run/agent",
    "PGPASSFILE": "/home/me/.pgpass",
    "KUBECONFIG": "/home/me/.kube/config",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token",
    "AWS_CONFIG_FILE": "/home/me/.aws/config",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
}
SECRETS_BY_VALUE = {
    "BACKEND": "amqp://me:hunter2@queue:5672/x",
    "CACHE": "redis://:hunter2@cache:6379",
    "WAREHOUSE": "postgresql+psycopg://me:hun/ter2@db/x",
    "MIRROR": "https://ghp_0123456789@github.com/x.git",
    "JDBC": "jdbc:postgresql://db/x?user=me&password=hunter2",
    "STORE": "AccountName=me;AccountKey=aHVudGVyMg==",
    "PG": "host=db user=me password=hunter2",
    "SERVICE_ACCOUNT": '{"private_key": "-----BEGIN PRIVATE KEY-----..."}',
}
HARMLESS = {
    "AWS_REGION": "eu-west-1",
    "DOCS": "https://example.com:8080/a?page=2",
    "CLONE": "git@github.com:me/x.git",
    "JDBC_PLAIN": "jdbc:postgresql://db:5432/x?user=me",
    "TOKENIZER": "bpe",
    "OLDPWD": "/tmp",
}
STRAY = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING", "PYTEST_CURRENT_TEST", MARK}
"""Variables that Python, the system, pytest or `Process` puts into any environment."""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in {**PLAIN, **OTHERS, **SECRETS}.items():
        monkeypatch.setenv(name, value)


def found(folder: Path, kind: str, value: Any, declared: Declared | None = None) -> dict[str, str]:
    """Return the environment of a program of this kind; the program prints it."""
    environment = KINDS[kind].environment(value, declared)
    message = hostile_source(folder, SHOW, environment=environment).check().message
    assert message is not None
    return {name: text for name, text in json.loads(message).items() if name not in STRAY}


FOREIGN: list[tuple[str, Any]] = [("package", "x==1"), ("tap", "x==1")]
OWN: list[tuple[str, Any]] = [("command", ["x"]), ("tap", ["x"]), ("connector", "faker")]


@pytest.mark.parametrize(("kind", "value"), FOREIGN)
def test_a_third_party_program_gets_only_the_basic_variables(
    kind: str, value: Any, tmp_path: Path
) -> None:
    assert found(tmp_path, kind, value) == PLAIN


@pytest.mark.parametrize(("kind", "value"), OWN)
def test_an_own_program_gets_all_variables_except_secrets(
    kind: str, value: Any, tmp_path: Path
) -> None:
    assert found(tmp_path, kind, value) == {**PLAIN, **OTHERS}


@pytest.mark.parametrize(("kind", "value"), OWN)
def test_an_own_program_gets_no_variables_that_may_contain_a_credential(
    kind: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {**SECRETS_BY_NAME, **SECRETS_BY_VALUE}
    for name, text in {**secrets, **HARMLESS}.items():
        monkeypatch.setenv(name, text)
    assert found(tmp_path, kind, value) == {**PLAIN, **OTHERS, **HARMLESS}
    withheld = KINDS[kind].environment(value, None).withheld()
    assert withheld == sorted(
        [*secrets, *(n for n in SECRETS if not n.startswith(("ELT_", "DAGSTER_")))]
    )


@pytest.mark.parametrize(("kind", "value"), [*FOREIGN, *OWN])
def test_a_proxy_with_a_password_is_passed_only_if_it_is_declared(
    kind: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = "http://me:hunter2@proxy:1"
    monkeypatch.setenv("https_proxy", proxy)
    assert "https_proxy" not in found(tmp_path, kind, value)
    assert "https_proxy" in KINDS[kind].environment(value, None).withheld()
    assert "https_proxy" not in KINDS[kind].environment(value, ["https_proxy"]).withheld()
    variables, secrets = KINDS[kind].environment(value, ["https_proxy"]).variables()
    assert variables["https_proxy"] == proxy
    assert Masker(secrets)(f"{proxy} and hunter2") == "**** and ****"


def test_the_failure_of_a_connector_names_the_withheld_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    fails = hostile_source(tmp_path, "fail('no password', failure_type='config_error'); exit(1)")
    with pytest.raises(ConfigError, match=r"no password.*\n.*PGPASSWORD.*`environment`") as failure:
        fails.check()
    assert "hunter2" not in str(failure.value)
    [(level, text)] = fails.notices()
    assert level == "DEBUG" and "PGPASSWORD" in text and "hunter2" not in text
    for name in [*SECRETS, "PGPASSWORD"]:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError) as failure:
        fails.check()
    assert failure.value.guidance is None and fails.notices() == []


@pytest.mark.parametrize(("kind", "value"), [*FOREIGN, *OWN])
def test_a_declared_environment_replaces_the_default_one(
    kind: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = {"PYTHONPATH": "/opt/lib"} if kind == "connector" else {}
    base = {**PLAIN, **python}
    declared = {"SHOP_REGION": "us", "PORT": 5, "TZ": "CET", "HOST": {"env": "SHOP_HOST"}}
    monkeypatch.setenv("SHOP_HOST", "h")
    given = {"SHOP_REGION": "us", "PORT": "5", "TZ": "CET", "HOST": "h"}
    assert found(tmp_path, kind, value, declared) == {**base, **given}
    assert found(tmp_path, kind, value, ["SHOP_REGION", "NOT_SET"]) == {**base, "SHOP_REGION": "eu"}
    assert found(tmp_path, kind, value, []) == base


@pytest.mark.parametrize(
    "declared",
    [
        {"GITHUB_TOKEN": "hunter2-b", "NAME": {"env": "PG_PASSWORD"}, "PIN_TOKEN": 12345},
        {"GITHUB_TOKEN": {"env": "GITHUB_TOKEN"}, "NAME": "x", "PIN_TOKEN": "12345"},
        ["GITHUB_TOKEN", "NAME", "PIN_TOKEN"],
    ],
)
def test_a_declared_secret_is_passed_and_masked(
    declared: Declared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME", "plain")
    monkeypatch.setenv("PIN_TOKEN", "12345")
    script = """
assert os.environ["GITHUB_TOKEN"] == "hunter2-b" and os.environ["PIN_TOKEN"] == "12345"
for name in ("GITHUB_TOKEN", "NAME", "PIN_TOKEN"): print("it is", os.environ[name], file=sys.stderr)
exit(1)
"""
    environment = KINDS["package"].environment("x==1", declared)
    with pytest.raises(SystemFailure) as failure:
        hostile_source(tmp_path, script, environment=environment).check()
    text = str(failure.value)
    assert "it is ****" in text
    assert "hunter2" not in text and "12345" not in text


def test_a_missing_variable_is_reported_when_the_connector_starts(tmp_path: Path) -> None:
    command = [program(tmp_path, SHOW)]
    declared = {"HOST": {"env": "NOT_SET"}}
    connector = open_connector(
        "command", command, {}, tmp_path / "work", tmp_path, ConnectorOptions(environment=declared)
    )
    with pytest.raises(ConfigError, match=r"source\.environment\.HOST refers to .* NOT_SET"):
        connector.check()


@pytest.mark.parametrize("name", ["ELT_HASH_SALT", "DAGSTER_HOME"])
def test_variables_of_this_project_and_of_dagster_are_refused_unless_allowed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = rf"{name}.*\n.*ELT_ALLOW_REFERENCES={name}"
    reference = {"env": name}
    config = {"connection": {"salt": reference}}
    for declared in ({"SALT": reference}, [name]):
        with pytest.raises(ConfigError, match=allowed):
            KINDS["command"].environment(["x"], declared).variables()
    with pytest.raises(ConfigError, match=rf"config\.connection\.salt.*{allowed}"):
        hostile_source(tmp_path, SHOW, config).check()
    monkeypatch.setenv("ELT_ALLOW_REFERENCES", f"ELT_X, {name}")
    assert hostile_source(tmp_path, SHOW, config).config == {"connection": {"salt": SECRETS[name]}}
    variables, _ = KINDS["command"].environment(["x"], [name]).variables()
    assert variables[name] == SECRETS[name]


CLIENT = """
import json, os, subprocess, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
command = sys.argv[sys.argv.index("test/source:1") + 1:]
sys.exit(subprocess.call([{program!r}, *command]))
"""


def image(
    folder: Path, monkeypatch: pytest.MonkeyPatch, declared: Declared | None
) -> tuple[list[str], Mapping[str, str]]:
    """Return the arguments of the client of containers, and its environment."""
    log, client = folder / "log", folder / "client.py"
    client.write_text(CLIENT.format(log=str(log), program=program(folder, SHOW)))
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {client}")
    connector = open_connector(
        "image",
        "test/source:1",
        {},
        folder / "work",
        folder,
        ConnectorOptions(environment=declared),
    )
    connector.check()
    arguments, environment = json.loads(log.read_text().splitlines()[-1])
    return arguments, environment


def test_a_container_gets_declared_variables_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, environment = image(
        tmp_path, monkeypatch, {"API": {"env": "GITHUB_TOKEN"}, "REGION": "eu"}
    )
    variables = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--env"]
    assert variables == ["HOME=/tmp", "API", "REGION"]
    assert "hunter2" not in str(arguments)
    assert environment["API"] == "hunter2-b"
    given = {**PLAIN, "DOCKER_HOST": "tcp://docker:1", "API": "hunter2-b", "REGION": "eu"}
    assert {k: v for k, v in environment.items() if k not in STRAY} == given


def test_a_container_gets_no_other_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, environment = image(tmp_path, monkeypatch, None)
    assert arguments.count("--env") == 1
    assert not SECRETS.keys() & environment.keys()
    arguments, _ = image(tmp_path, monkeypatch, ["SHOP_REGION", "NOT_SET"])
    assert "SHOP_REGION" in arguments and "NOT_SET" not in arguments


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("PASSWORD", True),
        ("DB_PASSWORD_2", True),
        ("API_KEY", True),
        ("my_private_keys", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("PGPASSWORD", True),
        ("MYSQL_PWD", True),
        ("GITHUB_PAT", True),
        ("PATH_INFO", False),
        ("TOKENIZER", False),
        ("KEYBOARD", False),
        ("API_KEYRING", False),
        ("PWD", False),
        ("SECRETARY_NAME", False),
    ],
)
def test_names_of_secrets_are_recognized_by_whole_words(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret
