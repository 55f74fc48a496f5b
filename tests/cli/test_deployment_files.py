"""The files of `elt init --deployment`: they agree with each other, and their commands and keys exist."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster_k8s.job import UserDefinedDagsterK8sConfig

from elt_assets.cli import main

HOME = "/opt/dagster/dagster_home"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project") / "Big_Shop"
    assert main(["init", str(root), "--deployment"]) == 0
    return root / "deploy"


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize("is_there", [False, True])
def test_the_folder_of_data_of_a_project_is_private(is_there: bool, tmp_path: Path) -> None:
    """The others are of the project, and have the mode that the umask defines, or had."""
    root = tmp_path / "above" / "shop"
    if is_there:
        root.mkdir(parents=True)
    umask = os.umask(0)
    os.umask(umask)
    assert main(["init", str(root)]) == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert modes.pop("dagster_home") == 0o700
    assert modes["src"] == modes["tests"] == stat.S_IMODE(root.stat().st_mode) == 0o777 & ~umask


@pytest.fixture(scope="module")
def compose(folder: Path) -> Any:
    return yaml.safe_load((folder / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def values(folder: Path) -> Any:
    return yaml.safe_load((folder / "helm-values.yaml").read_text())


def instructions(folder: Path) -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with its text in one line."""
    lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if line[:1] != "#"]
    text = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line]


def commands_of(folder: Path, compose: Any) -> list[list[str]]:
    """Return all commands of this package and of Dagster in the files."""
    image = dict(instructions(folder))
    commands = [json.loads(image["CMD"]), json.loads(image["HEALTHCHECK"].partition(" CMD ")[2])]
    for service in compose["services"].values():
        commands.append(service.get("command", []))
        commands.append(service.get("healthcheck", {}).get("test", ["CMD"])[1:])
    return [command for command in commands if command and command[0].startswith("dagster")]


def test_every_command_exists_with_its_options(
    folder: Path, compose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = commands_of(folder, compose)
    assert len(commands) == 6
    for program, *arguments in commands:
        [entry] = entry_points(group="console_scripts", name=program)
        monkeypatch.setattr(sys, "argv", [program, *arguments, "--help"])
        with pytest.raises(SystemExit) as ended:
            entry.load()()
        assert ended.value.code == 0, (program, arguments)


def test_ports_modules_and_users_are_the_same_in_all_files(
    folder: Path, compose: Any, values: Any
) -> None:
    image = dict(instructions(folder))
    command = json.loads(image["CMD"])
    assert command == compose["services"]["code"]["command"]
    port, module = (command[command.index(name) + 1] for name in ("--port", "--module-name"))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert (str(deployment["port"]), deployment["dagsterApiGrpcArgs"]) == (
        port,
        ["--module-name", module],
    )
    workspace = yaml.safe_load((folder / "workspace.yaml").read_text())
    (server,) = (entry["grpc_server"] for entry in workspace["load_from"])
    assert server == {"host": "code", "port": int(port), "location_name": "big-shop"}
    assert image["EXPOSE"] == port and f'"--port", "{port}"' in image["HEALTHCHECK"]
    assert module == "big_shop.definitions"
    (published,) = compose["services"]["webserver"]["ports"]
    assert published.endswith(":3000") and "3000" in compose["services"]["webserver"]["command"]
    assert image["USER"] == str(deployment["podSecurityContext"]["runAsUser"]) == "10001"


def test_volumes_are_declared_and_owned_by_the_user_of_the_image(
    folder: Path, compose: Any, values: Any
) -> None:
    owned = next(text for name, text in instructions(folder) if "chown" in text)
    for service in ("code", "webserver", "daemon"):
        places = [volume.split(":")[:2] for volume in compose["services"][service]["volumes"]]
        named = {name: place for name, place in places if not name.startswith(".")}
        assert set(named) <= set(compose["volumes"])
        assert named["home"] == compose["services"][service]["environment"]["DAGSTER_HOME"] == HOME
        for place in set(named.values()) - {HOME}:
            assert place in owned.partition("chown")[2]
        (instance,) = (name for name, _ in places if name.startswith("."))
        assert (folder / instance).is_file()
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert {m["name"] for m in deployment["volumeMounts"]} == {
        v["name"] for v in deployment["volumes"]
    }
    assert values["global"]["dagsterHome"] == HOME


def test_the_instance_takes_every_variable_from_the_compose_file(
    folder: Path, compose: Any
) -> None:
    text = (folder / "dagster.yaml").read_text()
    names = set(re.findall(r"env: (\w+)", text))
    assert names == {"POSTGRES_HOST", "POSTGRES_DB", "POSTGRES_USER", "POSTGRES_PASSWORD"}
    assert names <= set(compose["services"]["daemon"]["environment"])
    own = yaml.safe_load((folder.parent / "dagster_home" / "dagster.yaml").read_text())
    document = yaml.safe_load(text)
    assert {key: value for key, value in document.items() if key != "storage"} == own


def test_no_secret_is_in_a_layer_or_in_a_file(folder: Path, compose: Any) -> None:
    ignored = (folder / "Dockerfile.dockerignore").read_text().splitlines()
    assert {"**/.env", "**/.git", "dagster_home", "lake"} <= set(ignored)
    assert not re.search(r"(?i)password|secret|token|ARG ", (folder / "Dockerfile").read_text())
    passwords = {s["environment"]["POSTGRES_PASSWORD"] for s in compose["services"].values()}
    assert passwords == {"${POSTGRES_PASSWORD:?set it in .env}"}
    assert dict(instructions(folder))["USER"] not in ("0", "root")


def test_the_values_of_the_chart_are_what_kubernetes_accepts(values: Any) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    run = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    container = {key: deployment[key] for key in ("securityContext", "resources", "volumeMounts")}
    pod = {"securityContext": deployment["podSecurityContext"], "volumes": deployment["volumes"]}
    for parts in (
        {"container_config": container, "pod_spec_config": pod},
        {"container_config": run["containerConfig"], "pod_spec_config": run["podSpecConfig"]},
    ):
        # it refuses a key that Kubernetes does not know
        config = UserDefinedDagsterK8sConfig.from_dict(parts)  # type: ignore[no-untyped-call]
        assert config.pod_spec_config["security_context"]["run_as_user"] == 10001


@pytest.mark.parametrize("name", ["Ünïcode Shop", "a_b", "x" * 80])
def test_names_are_those_that_images_and_pods_may_have(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    (root / "pyproject.toml").write_text('[tool.elt]\ndefs = "defs"\n')
    assert main(["init", str(root), "--deployment"]) == 0
    compose = yaml.safe_load((root / "deploy" / "compose.yaml").read_text())
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", compose["name"])
    assert "elt_assets.definitions" in compose["services"]["code"]["command"]


def test_files_that_are_there_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, removed = folder / "Dockerfile", folder / "workspace.yaml"
    text = changed.read_text() + "# ours\n"
    changed.write_text(text)
    removed.unlink()
    assert main(["init", str(folder.parent), "--deployment"]) == 0
    assert removed.is_file() and changed.read_text() == text
    assert main(["init", str(folder.parent), "--deployment"]) != 0
    assert "has all files of a deployment already" in capsys.readouterr().err
