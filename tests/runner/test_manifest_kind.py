"""The kind of source `manifest:`: where its file is found, and how it is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elt_assets.module_start import module_command
from elt_assets.runner.kinds import KINDS, to_install
from elt_assets.runner.manifests import AIRBYTE_ENGINE
from tests.connection.test_connection import declare, load, refusal
from tests.support.connector_specs import spec_of

pytestmark = pytest.mark.unit

MANIFEST = KINDS["manifest"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package that fails if it is imported."""
    folder = tmp_path / "site" / "source_wares"
    (folder / "versions").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('it was imported')")
    for name in ("manifest.yaml", "versions/old.yaml"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def command(value: str, *trusted: str, engine: str | None = None) -> list[str]:
    return list(
        MANIFEST.command(spec_of("manifest", value, Path(), trusted=trusted, engine=engine))
    )


@pytest.mark.spec("builder.1")
def test_a_manifest_is_run_by_the_engine_of_this_python(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.touch()
    engine = [*module_command("connectors.declarative"), "--manifest", str(file)]
    assert command(str(file)) == engine
    trusted = ("acme.components", "https://files.example.com")
    options = ["--trust", "acme.components", "--trust", "https://files.example.com"]
    assert command(str(file), *trusted) == [*engine, *options]
    assert command(str(file), engine="ours") == [*engine, "--engine", "ours"]


def test_a_path_starts_at_the_folder_of_the_connection(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for path in (folder / "manifest.yaml", tmp_path / "shared.yaml", folder / "a:b.yaml"):
        path.touch()
    for value, file in (
        ("manifest.yaml", folder / "manifest.yaml"),
        ("../shared.yaml", tmp_path / "shared.yaml"),
        (str(tmp_path / "shared.yaml"), tmp_path / "shared.yaml"),
        ("./a:b.yaml", folder / "a:b.yaml"),
    ):
        source = load(folder, declare(source={"manifest": value})).source
        assert Path(source.value).samefile(file)


def test_the_home_directory_may_be_abbreviated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").touch()
    folder = tmp_path / "shop"
    folder.mkdir()
    source = load(folder, declare(source={"manifest": "~/mine.yaml"})).source
    assert source.value == str(tmp_path / "mine.yaml")


def test_a_manifest_in_a_package_is_found_without_importing_it(
    package: Path, tmp_path: Path
) -> None:
    assert command("source_wares:manifest.yaml")[-1] == str(package / "manifest.yaml")
    assert command("source_wares:versions/old.yaml")[-1] == str(package / "versions" / "old.yaml")
    source = load(tmp_path, declare(source={"manifest": "source_wares:manifest.yaml"})).source
    assert source.value == "source_wares:manifest.yaml"
    assert MANIFEST.display(source.value) == "source_wares:manifest.yaml"
    found = dict(MANIFEST.available(tmp_path))
    assert found["source_wares:manifest.yaml"] == str(package / "manifest.yaml")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("manifest.yml", "there is no manifest {folder}/manifest.yml"),
        ("", "there is no manifest {folder}"),
        ("source_wares:other.yaml", "there is no manifest {package}/other.yaml"),
        ("source_nothing:manifest.yaml", "there is no package 'source_nothing'"),
        (f"{'long' * 100}.yaml", "there is no manifest"),
    ],
)
def test_a_manifest_that_is_missing_is_an_error_when_the_connection_is_loaded(
    package: Path, tmp_path: Path, value: str, text: str
) -> None:
    refused = refusal(tmp_path, declare(source={"manifest": value}))
    assert text.format(folder=tmp_path, package=package) in refused
    assert "source: manifest: " in refused


def test_trusted_names_and_an_engine_go_with_a_manifest_only(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").touch()
    names = ["acme", "acme.components", "https://files.example.com:8443"]
    install = {"packages": ["pendulum==3.0.0"]}
    source = {"manifest": "manifest.yaml", "trust": names, "engine": "airbyte", "install": install}
    loaded = load(tmp_path, declare(source=source)).source
    assert (loaded.trust, loaded.engine) == (names, "airbyte")
    for key, value in (("trust", names), ("engine", "ours")):
        refused = refusal(tmp_path, declare(source={"connector": "faker", key: value}))
        assert f"`{key}` is only for `manifest`" in refused
    refused = refusal(tmp_path, declare(source={"manifest": "manifest.yaml", "container": {}}))
    assert "`container` is only for" in refused
    refused = refusal(tmp_path, declare(source={"manifest": "manifest.yaml", "engine": "cdk"}))
    assert "source.engine: " in refused and "'airbyte' or 'ours'" in refused


def test_a_manifest_may_need_a_package_that_is_installed_before(tmp_path: Path) -> None:
    assert to_install("manifest", "manifest.yaml", tmp_path, engine="airbyte") == AIRBYTE_ENGINE
    assert to_install("manifest", "manifest.yaml", tmp_path) is None


@pytest.mark.parametrize(
    "name", ["-x", "acme/components", "https://me@x.com", "https://x.com/a", ""]
)
def test_a_name_that_cannot_be_trusted_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "manifest.yaml").touch()
    source = {"manifest": "manifest.yaml", "trust": [name]}
    refused = refusal(tmp_path, declare(source=source))
    assert "source.trust.0: " in refused and "neither the name of a Python module" in refused


def test_a_destination_cannot_be_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").touch()
    refused = refusal(tmp_path, declare(destination={"manifest": "manifest.yaml"}))
    assert "unknown key 'manifest'" in refused


def test_the_engine_gets_the_base_variables_and_those_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    passed = {
        "PATH": "/bin",
        "HTTP_PROXY": "http://proxy:1",
        "HTTPS_PROXY": "http://proxy:1",
        "NO_PROXY": "localhost",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "PYTHONPATH": "/opt/lib",
    }
    for name, value in {**passed, "SHOP_REGION": "eu", "SHOP_TOKEN": "x"}.items():
        monkeypatch.setenv(name, value)
    assert MANIFEST.environment("x", None).variables()[0] == passed
    declared, _ = MANIFEST.environment("x", ["SHOP_REGION"]).variables()
    assert declared == {**passed, "SHOP_REGION": "eu"}
