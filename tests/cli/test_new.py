"""`elt new` and `elt connectors`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.connection import load_connection
from elt_assets.definitions import build
from elt_assets.runner.packages import newest_version
from tests.runner.test_package import wheel
from tests.support.elt import Elt
from tests.support.project import Project

SECRETS = {
    "type": "object",
    "required": ["token", "account"],
    "properties": {
        "token": {"type": "string", "airbyte_secret": True, "title": "API token"},
        "account": {"type": "string"},
        "login": {"oneOf": [{"properties": {"pass word": {"airbyte_secret": True}}}]},
        "pin": {"type": "integer", "airbyte_secret": True},
        "keys": {"type": "array", "items": {"type": "string", "airbyte_secret": True}},
    },
}


def source(own: Project, specification: Any = None, streams: list[Any] | None = None) -> str:
    """A program with these streams; returns the command."""
    folder = own.root / "a source"
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(specification or {"type": "object"}))
    (folder / "catalog.json").write_text(json.dumps({"streams": streams or [stream("things")]}))
    return shlex.join([sys.executable, "-m", "tests.programs.scripted", str(folder)])


def stream(name: str, **how: Any) -> dict[str, Any]:
    schema = {"properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}
    return {"name": name, "json_schema": schema, **how}


def read_definition(own: Project, name: str) -> dict[str, Any]:
    document = yaml.safe_load((own.root / "defs" / name / "defs.yaml").read_text())
    assert document["type"] == "elt_assets.ConnectionComponent"
    attributes: dict[str, Any] = document["attributes"]
    return attributes


def test_a_new_connection_can_be_loaded(own: Project, elt: Elt) -> None:
    assert "next: elt sync store" in elt(
        "new", "store", "--source", "faker", "--config", '{"count": 7}'
    )
    attributes = read_definition(own, "store")
    assert attributes["source"] == {"connector": "faker", "config": {"count": 7}}
    assert [stream["name"] for stream in attributes["streams"]] == ["users", "products", "orders"]
    keys = {key.to_user_string() for key in build().resolve_asset_graph().get_all_asset_keys()}
    assert "store/users" in keys


def test_each_stream_gets_the_best_modes_that_it_supports(own: Project, elt: Elt) -> None:
    both = {"supported_sync_modes": ["full_refresh", "incremental"]}
    key, cursor = {"source_defined_primary_key": [["id"]]}, {"default_cursor_field": ["at"]}
    own_cursor = {"source_defined_cursor": True}
    offered = [
        stream("a", **both, **key, **cursor, **own_cursor),
        stream("b", **both, **cursor),
        stream("c", **both, **key),
        stream("d", **key, **cursor),
        stream("e", **both, **key, **own_cursor, namespace="n"),
        stream("f", **both, **key, default_cursor_field=["nowhere"]),
    ]
    answer = elt.json("new", "modes", "--source", source(own, streams=offered))
    assert answer["left_out"] == ["f"]
    streams = {stream.pop("name"): stream for stream in read_definition(own, "modes")["streams"]}
    dedup = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    append = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    overwrite = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
    assert streams == {
        "a": dedup,
        "b": {**append, "cursor_field": ["at"]},
        "c": overwrite,
        "d": overwrite,
        "e": {**dedup, "namespace": "n"},
    }


def test_secrets_are_replaced_by_environment_variables(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "token": "hunter2",
        "account": "acme",
        "login": {"pass word": "hunter3"},
        "keys": ["hunter4", "hunter5"],
    }
    answer = elt.json(
        "new", "safe", "--source", source(own, SECRETS), "--config", json.dumps(config)
    )
    assert answer["environment"] == {
        "SAFE_TOKEN": "config.token",
        "SAFE_LOGIN_PASS_WORD": "config.login.pass word",
        "SAFE_KEYS_0": "config.keys.0",
        "SAFE_KEYS_1": "config.keys.1",
    }
    files = [p.read_bytes() for p in own.root.rglob("*") if p.is_file()]
    assert not any(b"hunter" in data for data in files) and "hunter" not in json.dumps(answer)
    stored_config = load_connection(own.root / "defs" / "safe").source.config
    assert stored_config == {
        "token": {"env": "SAFE_TOKEN"},
        "account": "acme",
        "login": {"pass word": {"env": "SAFE_LOGIN_PASS_WORD"}},
        "keys": [{"env": "SAFE_KEYS_0"}, {"env": "SAFE_KEYS_1"}],
    }
    for name in answer["environment"]:
        monkeypatch.setenv(name, "hunter2")
    elt("check", "safe")


def test_the_variable_of_a_secret_has_no_reserved_name(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connectors are given no variable whose name begins with ELT."""
    config = json.dumps({"token": "hunter2", "account": "acme"})
    answer = elt.json("new", "elt_shop", "--source", source(own, SECRETS), "--config", config)
    [name] = answer["environment"]
    monkeypatch.setenv(name, "hunter2")
    elt("check", "elt_shop")


def test_an_environment_variable_in_the_config_is_kept(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "hunter2")
    file = own.root / "config.json"
    file.write_text('{"token": {"env": "MINE"}, "account": "acme"}')
    answer = elt.json("new", "mine", "--source", source(own, SECRETS), "--config", f"@{file}")
    assert answer["environment"] == {}
    assert read_definition(own, "mine")["source"]["config"]["token"] == {"env": "MINE"}


@pytest.mark.spec("protocol.43", "airbyte.10")
def test_an_incomplete_config_is_refused_with_the_required_fields(own: Project, elt: Elt) -> None:
    error = elt.refuse("new", "x", "--source", source(own, SECRETS), "--config", '{"pin": 1}')
    assert "token (string, secret): API token" in error["message"]
    assert "account (string)" in error["message"]
    assert "--config" in error["guidance"]
    assert list((own.root / "defs").iterdir()) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "--config is not JSON"),
        ("[]", "--config must be a JSON object"),
        ("@/nowhere", "/nowhere cannot be read"),
        ('{"token": "hunter2", "account": 5}', "config.account: is not of type"),
        (
            '{"token": "hunter2", "account": "a", "pin": 1234}',
            "config.pin is a secret and is not a text",
        ),
        ('{"token": {"env": "NOT_SET"}, "account": "a"}', "NOT_SET, which is not set"),
    ],
)
def test_an_invalid_config_is_refused(own: Project, elt: Elt, config: str, expected: str) -> None:
    error = elt.refuse("new", "x", "--source", source(own, SECRETS), "--config", config)
    assert expected in error["message"]
    assert "hunter" not in json.dumps(error)
    assert list((own.root / "defs").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("x", "nonesuch", "there is no connector and no program 'nonesuch'"),
        ("x", "nonesuch --flag", "there is no connector and no program 'nonesuch'"),
        ("x", "a==", "names no exact version"),
        ("x", "'", "No closing quotation"),
        ("a-b", "faker", "'a-b' is not a valid name of a connection"),
        ("../x", "faker", "is not a valid name of a connection"),
    ],
)
def test_an_invalid_name_or_source_is_refused(
    own: Project, elt: Elt, name: str, source: str, expected: str
) -> None:
    assert expected in elt.refuse("new", name, "--source", source)["message"]
    assert list((own.root / "defs").iterdir()) == []


def test_a_package_without_a_version_gets_the_newest_version(
    own: Project, monkeypatch: pytest.MonkeyPatch, elt: Elt
) -> None:
    folder = own.root / "index"
    folder.mkdir()
    for version in ("0.9", "1.10", "1.9"):
        wheel(folder, "source-wares", ("source-wares",), version=version)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (folder / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"')  # of another project
    monkeypatch.chdir(folder)
    assert newest_version("source-wares") == "1.10"
    error = elt.refuse("new", "x", "--source", "source-nothing")
    assert "no package source-nothing" in error["message"] and error["guidance"]


def test_an_unreachable_package_index_is_a_temporary_error(
    own: Project, monkeypatch: pytest.MonkeyPatch, elt: Elt
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/hunter2token/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PATH_TOKEN", "hunter2token")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    error = elt.refuse("new", "x", "--source", "source-wares", code=1)
    assert error["failure_type"] == "transient_error"
    assert "source-wares==VERSION" in error["guidance"]
    assert "****" in error["detail"] and "hunter2" not in json.dumps(error)


def test_an_existing_connection_is_not_overwritten(own: Project, elt: Elt) -> None:
    folder = own.root / "defs" / "store"
    folder.mkdir()
    assert "already exists" in elt.refuse("new", "store", "--source", "faker")["message"]
    assert list(folder.iterdir()) == []
    own.connection("crm", source={"connector": "faker"}, streams=[])
    (own.root / "defs" / "crm").rename(own.root / "defs" / "raw_crm")
    refused = elt.refuse("new", "crm", "--source", "faker")["message"]
    assert "the connection 'crm' already exists: " in refused
    assert "raw_crm" in refused


@pytest.mark.parametrize("name", ["{{ env.HOME }}", '{{ a "quoted\\" }} {% x', "{{{#"])
def test_a_name_with_braces_stays_a_name(own: Project, elt: Elt, name: str) -> None:
    command = source(own, streams=[stream(name, source_defined_primary_key=[["id"]])])
    elt("new", "braces", "--source", command)
    (configured,) = load_connection(own.root / "defs" / "braces").streams
    assert configured.name == name


def test_a_source_without_streams_is_refused(own: Project, elt: Elt) -> None:
    command = source(own)
    (own.root / "a source" / "catalog.json").write_text('{"streams": []}')
    assert "has no streams" in elt.refuse("new", "empty", "--source", command)["message"]


@pytest.mark.spec("protocol.47")
def test_connectors_lists_the_available_connectors(own: Project, elt: Elt) -> None:
    answer = elt.json("connectors")
    faker = next(
        connector for connector in answer["connectors"] if connector["connector"] == "faker"
    )
    assert "shop" in faker["description"] and "count" in faker["config"]
    assert any(kind.startswith("package: ") for kind in answer["kinds"])
    output = elt("connectors")
    assert "faker" in output and "command: " in output
    assert not Path(own.home / "lake").exists()
