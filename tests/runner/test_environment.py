"""The environment of a connector's process."""

from __future__ import annotations

import json
import os
import re
import string
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.masking import Masker
from elt_assets.runner.environment import Declared
from elt_assets.runner.kinds import KINDS, open_connector
from elt_assets.runner.marked_processes import MARK
from elt_assets.runner.references import looks_secret
from tests.programs.hostile_source import hostile_source, program
from tests.support.connector_specs import spec_of
from tests.support.project import REPOSITORY

SHOW = """
if verb == "check":
    text = json.dumps(dict(os.environ))
    say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED", "message": text})
"""
PLAIN = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/me",
    "USER": "me",
    "XDG_CACHE_HOME": "/home/me/.cache",
    "LD_LIBRARY_PATH": "/opt/lib",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "https_proxy": "http://proxy:1",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "JAVA_HOME": "/opt/java",
}
PYTHON = {"PYTHONPATH": "/opt/lib"}
OTHERS = {
    "SHOP_REGION": "eu",
    "DOCKER_HOST": "tcp://docker:1",
    "DBPASS": "hunter2",
    "SLACK_WEBHOOK": "https://hooks.example.com/T0/B0/x",
    "KENNWORT": "hunter2",
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
    for name, value in {**PLAIN, **PYTHON, **OTHERS, **SECRETS}.items():
        monkeypatch.setenv(name, value)


def found(folder: Path, kind: str, value: Any, declared: Declared | None = None) -> dict[str, str]:
    """Return the environment of a program of this kind; the program prints it."""
    environment = KINDS[kind].environment(value, declared)
    message = hostile_source(folder, SHOW, variables=environment).check().message
    assert message is not None
    return {name: text for name, text in json.loads(message).items() if name not in STRAY}


FOREIGN: list[tuple[str, Any]] = [("package", "x==1"), ("tap", "x==1")]
OWN: list[tuple[str, Any]] = [("command", ["x"]), ("tap", ["x"]), ("connector", "faker")]


@pytest.mark.parametrize(("kind", "value"), [*FOREIGN, *OWN])
def test_a_program_gets_only_what_is_listed(
    kind: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {**SECRETS_BY_NAME, **SECRETS_BY_VALUE, **HARMLESS}.items():
        monkeypatch.setenv(name, text)
    python = PYTHON if (kind, value) in OWN else {}
    assert found(tmp_path, kind, value) == {**PLAIN, **python}


def test_each_documented_variable_of_the_base_set_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (REPOSITORY / "docs" / "connections.md").read_text()
    paragraph = text.split("\nThe base set: ")[1].split("One of them")[0]
    names = [name.replace("*", "X") for name in re.findall("`([A-Z_*]+)`", paragraph)]
    assert len(names) == 18
    for name in names:
        monkeypatch.setenv(name, "x")
    assert set(names) <= KINDS["package"].environment("x==1", None).variables()[0].keys()


@given(st.text(string.ascii_uppercase + "_", min_size=1, max_size=12), st.booleans())
def test_no_other_variable_is_passed_on_whatever_its_name(name: str, is_declared: bool) -> None:
    environment = KINDS["command"].environment(["x"], ["SHOP_REGION"] if is_declared else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, "hunter2")
        listed = {*PLAIN, *PYTHON, "TMPDIR", "SHELL", "LANG", "LOGNAME", "SHOP_REGION"}
        passed = environment.variables()[0].keys() - listed
    assert all(other.startswith(("LC_", "XDG_")) or "PROXY" in other for other in passed)


@pytest.mark.parametrize(("kind", "value"), [*FOREIGN, *OWN])
@pytest.mark.parametrize("proxy", ["http://me:hunter2@proxy:1", "me:hunter2@proxy:1"])
def test_a_proxy_with_a_password_is_passed_only_if_it_is_declared(
    kind: str, value: Any, proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    assert "https_proxy" not in KINDS[kind].environment(value, None).variables()[0]
    variables, secrets = KINDS[kind].environment(value, ["https_proxy"]).variables()
    assert variables["https_proxy"] == proxy
    assert Masker(secrets)(f"{proxy} and hunter2") == "**** and ****"


def test_secrets_that_the_client_of_containers_gets_are_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://me:hunter2@docker:1")
    _, secrets = KINDS["image"].environment("test/source:1", None).variables()
    assert Masker(secrets)("with hunter2") == "with ****"


FAILS = "fail({text!r}, failure_type='config_error'); exit(1)"


@pytest.mark.parametrize(
    ("text", "guidance"),
    [
        ("KeyError: 'DBPASS'", "not passed to the connector: DBPASS; declare those"),
        ("set SHOP_REGION or KENNWORT", "not passed to the connector: KENNWORT, SHOP_REGION; "),
        ("set DBPASSWORD, NODBPASS", None),
        (
            "the environment lacks the token",
            "gets a base set of variables and those that are declared",
        ),
        (
            "Unable to locate credentials",
            "gets a base set of variables and those that are declared",
        ),
        ("the server does not answer", None),
        ("ELT_HASH_SALT, TZ, PYTHONPATH", None),
    ],
)
def test_the_failure_of_a_connector_names_the_variables_that_it_may_lack(
    text: str, guidance: str | None, tmp_path: Path
) -> None:
    """And no others: most variables of a machine have nothing to do with a connector."""
    connector = hostile_source(tmp_path, FAILS.format(text=text))
    with pytest.raises(ConfigError) as failure:
        connector.check()
    assert (failure.value.guidance is None) == (guidance is None)
    assert guidance is None or guidance in (failure.value.guidance or "")
    assert guidance is None or "under `environment`" in (failure.value.guidance or "")
    assert "hunter2" not in str(failure.value) and connector.notices() == []


def test_a_container_lacks_what_the_program_that_starts_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    environment = KINDS["image"].environment("acme/source:1", None)
    assert "HTTP_PROXY" in (environment.hint("set HTTP_PROXY") or "")
    assert "the connector gets only those" in (environment.hint("see the environment") or "")
    passed_on = KINDS["image"].environment("acme/source:1", ["HTTP_PROXY"])
    assert passed_on.hint("set HTTP_PROXY") is None


def test_a_variable_that_is_declared_is_not_lacking(tmp_path: Path) -> None:
    """The remedy of the message: after it, the connector has the variable."""
    script = "import os\nif 'DBPASS' not in os.environ: fail('DBPASS'); exit(1)\n" + SHOW
    for declared in (["DBPASS"], {"DBPASS": {"env": "DBPASS"}}):
        environment = KINDS["command"].environment(["x"], declared)
        assert environment.hint("KeyError: DBPASS") is None
        assert hostile_source(tmp_path, script, variables=environment).check().succeeded


@pytest.mark.parametrize(
    ("body", "config", "named", "unnamed"),
    [
        ("fail('no A_TOKEN', failure_type='config_error')", {"x": {"env": "A_TOKEN"}}, "", "A_TOKEN"),
        ("fail('A_TOKEN, B_TOKEN')", {"x": ["{{ env.A_TOKEN }}"]}, "B_TOKEN", "A_TOKEN"),
        ("fail('set A_TOKEN', failure_type='config_error')", {}, "A_TOKEN", "B_TOKEN"),
        ("sys.stderr.write('KeyError: A_TOKEN')", {}, "A_TOKEN", "B_TOKEN"),
        ("fail('set A_TOKEN', failure_type='transient_error')", {}, "", "TOKEN"),
        ("fail('A_TOKEN')", {"x": {"env": "A_TOKEN"}, "y": {"env": "B_TOKEN"}}, "", "TOKEN"),
    ],
)  # fmt: skip
def test_a_variable_that_the_config_has_by_reference_is_not_lacking(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    config: dict[str, Any],
    named: str,
    unnamed: str,
) -> None:
    monkeypatch.setenv("A_TOKEN", "hunter2")
    monkeypatch.setenv("B_TOKEN", "hunter3")
    fails = hostile_source(tmp_path, f"{body}; exit(1)", config=config)
    with pytest.raises(EltError) as failure:
        fails.check()
    guidance = failure.value.guidance or ""
    assert named in guidance and unnamed not in guidance and "hunter" not in guidance


@pytest.mark.parametrize(("kind", "value"), [*FOREIGN, *OWN])
def test_a_declared_environment_replaces_the_default_one(
    kind: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {**PLAIN, **(PYTHON if (kind, value) in OWN else {})}
    declared = {"SHOP_REGION": "us", "PORT": 5, "TZ": "CET", "HOST": {"env": "SHOP_HOST"}}
    monkeypatch.setenv("SHOP_HOST", "h")
    expected = {"SHOP_REGION": "us", "PORT": "5", "TZ": "CET", "HOST": "h"}
    assert found(tmp_path, kind, value, declared) == {**base, **expected}
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
        hostile_source(tmp_path, script, variables=environment).check()
    text = str(failure.value)
    assert "it is ****" in text
    assert "hunter2" not in text and "12345" not in text


@pytest.mark.parametrize(
    ("name", "value", "is_masked"),
    [
        ("DBPASS", "hunter2", True),
        ("DBPASS", "swordfish", True),
        ("DBPASS", "1234", True),
        ("SLACK_WEBHOOK", "https://hooks.example.com/T0/B0/x", True),
        ("KENNWORT", "hunter2", True),
        ("KENNWORT", "correct horse battery", True),
        ("X", "Tr0ub4dor&3", True),
        ("X", "123456", True),
        ("X", "0a1b2c", True),
        ("X", "abcdefghijklm", True),
        ("X", "/services/T00000000/aaaaaaaaaaaaaaaaaaaaaaaa", True),
        ("X", "https://example.com/a", True),
        ("X", "me:hunter2@proxy:1", True),
        ("TOKEN_CHECK", "true", False),
        ("DBPASS", "", False),
        ("LOG_LEVEL", "info", False),
        ("STAGE", "Production", False),
        ("PORT", "5432", False),
        ("BASE", "https://api.example.com:8080/", False),
        ("CA", "/etc/ssl/ca.pem", False),
        ("TZ", "Europe/Berlin", False),
        ("PATH", "/opt/bin:/usr/bin", False),
    ],
)
@pytest.mark.parametrize("form", ["literal", "listed"])
def test_a_declared_value_is_masked_unless_its_form_is_harmless(
    form: str, name: str, value: str, is_masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    declared: Declared = {name: value} if form == "literal" else [name]
    _, secrets = KINDS["command"].environment(["x"], declared).variables()
    assert (Masker(secrets)(f"it is {value}.") == "it is ****.") == is_masked
    assert is_masked or Masker(secrets)(f"it is {value}.") == f"it is {value}."


def test_a_missing_variable_is_reported_when_the_connector_starts(tmp_path: Path) -> None:
    command = [program(tmp_path, SHOW)]
    declared = {"HOST": {"env": "NOT_SET"}}
    connector = open_connector(spec_of("command", command, tmp_path, environment=declared))
    with pytest.raises(ConfigError, match=r"environment\.HOST refers to .* NOT_SET"):
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
    connector = open_connector(spec_of("image", "test/source:1", folder, environment=declared))
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
        ("DBPASS", True),
        ("dbpwd", True),
        ("clientSecret", True),
        ("AUTHTOKEN", True),
        ("SLACK_WEBHOOK", True),
        ("webhookUrl", True),
        ("BYPASS", False),
        ("COMPASS", False),
        ("OLDPWD", False),
        ("PATH_INFO", False),
        ("TOKENIZER", False),
        ("KEYBOARD", False),
        ("API_KEYRING", False),
        ("PWD", False),
        ("SECRETARY_NAME", False),
    ],
)
def test_names_of_secrets_are_recognized(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret
