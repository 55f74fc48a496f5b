"""`elt` with manifests: `new --manifest`, other commands with such a connection, and docs/manifests.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.declarative.manifest.shapes import TYPES, types_without_class
from elt_assets.cli import main
from elt_assets.connection import load_connection
from elt_assets.definitions import build
from elt_assets.runner.references import resolve_references
from tests.connection.test_connection import declare, load
from tests.programs.json_api import JsonApi, Tokens
from tests.programs.written_manifest import DOCUMENT, manifest_text, settings, shop_api
from tests.support.elt import Elt
from tests.support.project import BIN, Project

TEXT = DOCUMENT.read_text()


Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with shop_api() as served:
        yield served


@pytest.fixture
def manifest(own: Project) -> Path:
    """The manifest of the document, in a folder that is not a connection's."""
    file = own.root / "downloads" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(manifest_text())
    return file


def defs(own: Project, name: str = "shop") -> Path:
    return own.root / "defs" / name


def new(elt: Elt, manifest: Path, config: Any = None, name: str = "shop") -> Any:
    options = [] if config is None else ["--config", json.dumps(config)]
    return elt.json("new", name, "--manifest", str(manifest), *options)


# --- elt new ----------------------------------------------------------------------------------------


def test_required_config_is_written_with_comments_and_variables(
    own: Project, elt: Elt, manifest: Path
) -> None:
    answer = new(elt, manifest)
    assert answer["environment"] == {"SHOP_API_KEY": "config.api_key"}
    assert answer["examples"] == ["config.url", "config.start_date"]
    assert answer["source"] == {"manifest": "manifest.yaml"}
    text = (defs(own) / "defs.yaml").read_text()
    assert text.startswith(
        """\
type: elt_assets.ConnectionComponent
attributes:
  name: shop
  source:
    manifest: manifest.yaml
    config:
      # The address of the API; string; replace this example
      url: https://shop.example.com
      # The key of the API; string; secret
      api_key:
        env: SHOP_API_KEY
      # The first sync reads from this time on; string; replace this example
      start_date: '2026-01-01T00:00:00Z'
"""
    )
    assert (defs(own) / "manifest.yaml").read_text() == manifest_text()
    incremental = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    assert yaml.safe_load(text)["attributes"]["streams"] == [
        {"name": "stores", "sync_mode": "full_refresh", "destination_sync_mode": "overwrite"},
        {"name": "orders", **incremental},
        {"name": "visits", **incremental},
    ]
    catalog = json.loads((defs(own) / "catalog.json").read_text())["streams"]
    keys = {stream["name"]: stream.get("source_defined_primary_key") for stream in catalog}
    assert keys == {"stores": [["id"]], "orders": [["store"], ["id"]], "visits": [["id"]]}
    cursors = {stream["name"]: stream.get("default_cursor_field") for stream in catalog}
    assert cursors["orders"] == cursors["visits"] == ["updated_at"]
    assets = build().resolve_asset_graph().get_all_asset_keys()
    assert "shop/visits" in {key.to_user_string() for key in assets}


def test_config_that_is_given_is_kept_and_its_secrets_are_not(
    own: Project, elt: Elt, manifest: Path, api: JsonApi
) -> None:
    answer = new(elt, manifest, settings(api))
    assert answer["environment"] == {"SHOP_API_KEY": "config.api_key"}
    assert answer["examples"] == []
    stored_config = load_connection(defs(own)).source.config
    assert stored_config == {**settings(api), "api_key": {"env": "SHOP_API_KEY"}}
    assert "a-test-key" not in (defs(own) / "defs.yaml").read_text()


OPTIONS = {
    "type": "object",
    "required": ["region", "size", "login", "account"],
    "properties": {
        "region": {"type": "string", "enum": ["eu", "us"]},
        "size": {"type": "integer", "default": 50, "title": "Records of a page"},
        "account": {"type": "integer", "title": "<b>Account</b>\nnumber\u0007."},
        "login": {
            "type": "object",
            "title": "How to log in",
            "oneOf": [
                {
                    "title": "Token",
                    "required": ["kind", "token"],
                    "properties": {
                        "kind": {"type": "string", "const": "token"},
                        "token": {"type": "string", "airbyte_secret": True},
                    },
                },
                {
                    "title": "User",
                    "required": ["kind", "user"],
                    "properties": {"kind": {"const": "user"}, "user": {"type": "string"}},
                },
            ],
        },
    },
}


def set_specification(file: Path, specification: Any) -> None:
    document = yaml.safe_load(manifest_text("stores"))
    document["spec"]["connection_specification"] = specification
    requester = document["definitions"]["requester"]
    requester |= {"url_base": "http://127.0.0.1:9", "authenticator": {"type": "NoAuth"}}
    file.write_text(yaml.safe_dump(document))


def test_defaults_and_options_of_a_specification_are_written(
    own: Project, elt: Elt, manifest: Path
) -> None:
    set_specification(manifest, OPTIONS)
    new(elt, manifest)
    text = (defs(own) / "defs.yaml").read_text()
    for comment in (
        "      # string; one of: eu, us; replace this example\n      region: eu\n",
        "      # Records of a page; integer\n      size: 50\n",
        "      # Account number; integer; replace this example\n      account: 1\n",
        "      # How to log in; object; one of: Token, User\n      login:\n",
        "        # string; secret\n        token:\n          env: SHOP_LOGIN_TOKEN\n",
    ):
        assert comment in text
    login = load_connection(defs(own)).source.config["login"]
    assert login == {"kind": "token", "token": {"env": "SHOP_LOGIN_TOKEN"}}
    answer = new(elt, manifest, {"login": {"kind": "user"}}, name="other")
    assert "config.login.user" in answer["examples"] and not answer["environment"]


def test_no_default_of_a_specification_is_a_reference(
    own: Project, elt: Elt, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of a manifest would else read any variable and any file of the user."""
    monkeypatch.setenv("CANARY", "a-secret-of-another")
    file = own.root / "canary"
    file.write_text("a-secret-of-another")
    texts: dict[str, Json] = {
        "constant": {"const": "{{ env.CANARY }}"},
        "default": {"default": "{{ env('CANARY') }}"},
        "example": {"examples": ["x-{{ env.CANARY }}"]},
        "choice": {"enum": ["{{ context.project_root }}"]},
    }
    values: dict[str, Json] = {
        "variable": {"default": {"env": "CANARY"}},
        "file": {"default": {"file": str(file)}},
        "secret": {"const": {"secret": "CANARY"}},
        "inner": {"default": {"a": [{"literal": 1}, {"env": "CANARY"}]}},
        "sample": {"examples": [{"env": "CANARY"}]},
        "hidden": {"examples": [{"env": "CANARY"}], "airbyte_secret": True},
    }
    properties = {name: {"type": "string", **rule} for name, rule in texts.items()}
    properties |= {name: {"type": "object", **rule} for name, rule in values.items()}
    schema = {"type": "object", "required": list(properties), "properties": properties}
    set_specification(manifest, schema)
    new(elt, manifest)
    assert "a-secret" not in (defs(own) / "defs.yaml").read_text()
    config = load_connection(defs(own)).source.config
    resolved, secrets = resolve_references({**config, "hidden": {}})
    assert not secrets
    expected = {
        **{name: next(iter(rule.values())) for name, rule in (texts | values).items()},
        **{
            name: rule["examples"][0]
            for name, rule in (texts | values).items()
            if "examples" in rule
        },
        "choice": "{{ context.project_root }}",
        "hidden": {},
    }
    assert resolved == expected


def test_streams_that_need_the_api_are_refused_without_config(
    own: Project, elt: Elt, manifest: Path, api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(manifest_text("stores"))
    stores = document["definitions"]["stores"]
    del stores["primary_key"]
    selector = document["definitions"]["visits"]["retriever"]["record_selector"]
    stores["schema_loader"] = {
        "type": "DynamicSchemaLoader",
        "retriever": {**stores["retriever"], "record_selector": selector},
        "schema_type_identifier": {"schema_pointer": ["data"], "key_pointer": ["id"]},
    }
    manifest.write_text(yaml.safe_dump(document))
    api.tokens = Tokens(valid={"a-test-key"})
    words = ["new", "shop", "--manifest", str(manifest), "--config", json.dumps({"url": api.url})]
    error = elt.refuse(*words)
    assert "401" in error["message"]
    todo = "give config.start_date with --config and set SHOP_API_KEY, and try again"
    assert todo in error["guidance"]
    assert not defs(own).exists()
    monkeypatch.setenv("SHOP_API_KEY", "a-test-key")
    elt(*words)
    catalog = json.loads((defs(own) / "catalog.json").read_text())
    assert {"a", "b"} <= set(catalog["streams"][0]["json_schema"]["properties"])


def test_schemas_beside_a_manifest_are_copied_with_it(
    own: Project, elt: Elt, manifest: Path
) -> None:
    document = yaml.safe_load(manifest_text("stores"))
    document["definitions"]["stores"]["schema_loader"] = {
        "type": "JsonFileSchemaLoader",
        "file_path": "./schemas/{{ parameters['name'] }}.json",
    }
    manifest.write_text(yaml.safe_dump(document))
    (manifest.parent / "schemas").mkdir()
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    (manifest.parent / "schemas" / "stores.json").write_text(json.dumps(schema))
    new(elt, manifest)
    assert (defs(own) / "schemas" / "stores.json").is_file()
    catalog = json.loads((defs(own) / "catalog.json").read_text())
    assert catalog["streams"][0]["json_schema"]["properties"] == schema["properties"]


def test_a_manifest_in_a_package_stays_there(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = own.root / "site" / "source_shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "manifest.yaml").write_text(manifest_text("stores"))
    monkeypatch.syspath_prepend(package.parent)
    name = "source_shop:manifest.yaml"
    answer = elt.json("new", "shop", "--manifest", name, "--trust", "source_shop")
    assert answer["source"] == {"manifest": name, "trust": ["source_shop"]}
    assert not (defs(own) / "manifest.yaml").exists()
    sources = elt.json("connectors")["found"]
    assert sources[f"manifest: {name}"] == str(package / "manifest.yaml")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--manifest", "nowhere.yaml"], "there is no manifest"),
        (["--manifest", "no_package:x.yaml"], "there is no package 'no_package'"),
        (["--manifest", "FILE", "--source", "faker"], "write one of --source and --manifest"),
        ([], "write one of --source and --manifest"),
        (["--source", "faker", "--trust", "x"], "--trust and --engine go with --manifest"),
        (["--source", "faker", "--engine", "ours"], "--trust and --engine go with --manifest"),
        (["--manifest", "FILE", "--trust", "-x"], "'-x' is neither the name of a Python module"),
        (["--manifest", "FILE", "--config", '{"start_date": 5}'], "config.start_date"),
    ],
)
def test_wrong_arguments_are_refused(
    own: Project, elt: Elt, manifest: Path, words: list[str], text: str
) -> None:
    words = [str(manifest) if word == "FILE" else word for word in words]
    assert text in elt.refuse("new", "shop", *words)["message"]
    assert not defs(own).exists()


def test_a_manifest_that_cannot_be_run_is_refused_with_every_place(
    own: Project, elt: Elt, manifest: Path
) -> None:
    document = yaml.safe_load(manifest_text("stores"))
    stores = document["definitions"]["stores"]
    stores["retriever"]["requester"] = {"type": "NoRequester"}
    stores["transformations"] = [{"type": "CustomTransformation", "class_name": "source_x.Change"}]
    manifest.write_text(yaml.safe_dump(document))
    error = elt.refuse("new", "shop", "--manifest", str(manifest))
    assert f"{manifest} has 2 problems" in error["message"]
    assert "streams[0].retriever.requester" in error["message"]
    assert "source_x.Change" in error["message"] and "trust" in error["message"]
    assert not defs(own).exists()


# --- the other commands -----------------------------------------------------------------------------


@pytest.fixture
def shop(own: Project, elt: Elt, manifest: Path, api: JsonApi) -> JsonApi:
    """The connection `shop`, and its API."""
    own.connection(
        "shop",
        source={"manifest": "../../downloads/shop.yaml", "config": settings(api)},
        streams=[{"name": name} for name in ("stores", "orders", "visits")],
    )
    elt("discover", "shop")
    return api


def test_a_connection_with_a_manifest_is_listed_validated_and_checked(
    own: Project, elt: Elt, shop: JsonApi, manifest: Path
) -> None:
    assert elt("validate", "shop") == "valid shop\n"
    assert "succeeded shop: downloads/shop.yaml" in elt("check", "shop")
    (listed,) = elt.json("list")["connections"]
    assert Path(listed["source"].removeprefix("manifest: ")).samefile(manifest)
    shop.tokens = Tokens()
    answer = elt.json("check", "shop", code=1)
    assert "401" in answer["message"] and "a-test-key" not in answer["message"]
    manifest.unlink()
    (error,) = elt.json("validate", code=1)["connections"]
    assert "there is no manifest" in error["error"]["message"]


def test_what_changed_in_a_manifest_is_shown(elt: Elt, shop: JsonApi, manifest: Path) -> None:
    text = manifest.read_text().replace("city: {type: string}", "town: {type: string}")
    manifest.write_text(text)
    output = elt("discover", "shop", "--dry-run")
    assert "city" in output and "town" in output


def test_records_are_previewed(elt: Elt, shop: JsonApi) -> None:
    records = elt.json("preview", "shop", "orders", "-n", "4")["records"]
    assert [(record["store"], record["id"]) for record in records] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]
    assert len(elt.json("preview", "shop", "visits")["records"]) == 6
    authorizations = {request.headers["authorization"] for request in shop.requests}
    assert authorizations == {"Bearer a-test-key"}


def test_parents_and_days_are_partitions(elt: Elt, shop: JsonApi) -> None:
    def contexts(stream: str) -> list[Any]:
        partitions = elt.json("partitions", "shop", stream)["partitions"]
        return [entry["context"] for entry in partitions]

    assert [entry["store"] for entry in contexts("orders")] == ["a", "b", "c"]
    days = [f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3, 4)]
    assert [entry["start_time"] for entry in contexts("visits")] == days
    error = elt.refuse("partitions", "shop", "stores")
    assert "single partitions of stream 'stores' cannot be read" in error["message"]


@pytest.mark.parametrize(
    "stream",
    ["orders", *(pytest.param(name, marks=pytest.mark.long) for name in ("stores", "visits"))],
)
def test_a_source_follows_the_rules_of_its_protocol(
    own: Project, api: JsonApi, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sources have parents, pages, and a cursor with steps. All in one: the command of the document."""
    folder = own.connection(
        "shop",
        source={"manifest": "manifest.yaml", "config": settings(api)},
        streams=[{"name": stream}],
    )
    (folder / "manifest.yaml").write_text(manifest_text(stream))
    code = main(["test-connector", "shop", "--cuts", "2", "--json"])
    output = capsys.readouterr().out
    assert code == 0, output
    assert json.loads(output)


def test_manifests_in_the_folders_of_connections_are_listed(
    own: Project, elt: Elt, manifest: Path
) -> None:
    new(elt, manifest)
    (defs(own) / "notes.yaml").write_text("type: something else\n")
    sources = elt.json("connectors")["found"]
    listed = {name: place for name, place in sources.items() if name.startswith("manifest: ../")}
    assert listed == {"manifest: ../shop/manifest.yaml": str(defs(own) / "manifest.yaml")}
    own.connection(
        "second",
        source={"manifest": "../shop/manifest.yaml", "config": {}},
        streams=[{"name": "stores"}],
    )
    assert load_connection(defs(own, "second")).source.kind == "manifest"


def test_programs_and_installed_packages_are_listed(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = own.root / "bin"
    programs.mkdir()
    for name in ("source-wares", "tap-wares", "source-notes.txt"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o644 if name.endswith(".txt") else 0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name in (
        "source-x==1.0-py3.11",
        "x-tap-y==2.0-py3.11-0123456789abcdef",
        "incomplete==1-py3.11",
    ):
        folder = own.home / "packages" / name
        folder.mkdir(parents=True)
        if not name.startswith("incomplete"):
            (folder / ".installed").write_text("bin")
    sources = elt.json("connectors")["found"]
    assert sources["command: [source-wares]"] == str(programs / "source-wares")
    assert sources["tap: [tap-wares]"] == str(programs / "tap-wares")
    assert (
        sources["package: source-x==1.0"] == sources["tap: x-tap-y==2.0"] == "installed from PyPI"
    )
    assert not any("notes" in name or "incomplete" in name for name in sources)


# --- the document -----------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)


def test_each_command_of_the_document_works(
    own: Project, elt: Elt, api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands of `elt` run in this process, and the others in a shell."""
    monkeypatch.chdir(own.root)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    Path("manifest.yaml").write_text(manifest_text())
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 11
    for written_command in commands:
        command = written_command.replace("http://127.0.0.1:8080", api.url)
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            monkeypatch.setenv(name, value)
        elif command.startswith("elt "):
            assert main(shlex.split(command)[1:]) == 0, elt.capture.readouterr()
        else:
            done = subprocess.run(
                ["sh", "-c", command], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "only-an-example" not in elt.capture.readouterr().out


@pytest.mark.parametrize("example", [block for block in blocks("yaml") if "version:" not in block])
def test_each_example_of_yaml_loads(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "source_x"
    package.mkdir()
    for file in (tmp_path / "manifest.yaml", package / "__init__.py", package / "manifest.yaml"):
        file.touch()
    monkeypatch.syspath_prepend(tmp_path)
    load(
        tmp_path,
        declare(**{"source": {"manifest": "manifest.yaml"}, **yaml.safe_load(example)}),
    )


def test_the_test_suite_of_the_document_is_collected(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own.root)
    (program,) = blocks("python")
    names: dict[str, Any] = {}
    exec(program, names)
    assert any(name.startswith("test_") for name in dir(names["TestShop"]))


def test_each_component_is_documented() -> None:
    section = TEXT.split("## What is supported")[1].split("\n## ")[0]
    assert set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", section)) == TYPES.keys() | types_without_class()
