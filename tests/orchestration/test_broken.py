"""A broken connection among healthy ones, with `on_broken_connection: skip`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from elt_assets import definitions_for
from elt_assets.errors import ConfigError
from tests.orchestration.ticking import instance_of
from tests.support.project import Project


@pytest.fixture
def project(own: Project) -> Project:
    """A project with one healthy connection, and one of each way to be broken."""
    streams = [{"name": "users", "destination_sync_mode": "overwrite"}]
    for name in ("good", "no_catalog", "no_stream", "no_key"):
        own.connection(name, source={"connector": "faker"}, streams=streams)
    own.discover("good")
    catalog = (own.root / "defs" / "good" / "catalog.json").read_text()
    own.amend("no_key", sources=5)
    own.amend("no_stream", streams=[{"name": "nobody"}])
    for name in ("no_stream", "no_key"):
        (own.root / "defs" / name / "catalog.json").write_text(catalog)
    folder = own.root / "defs" / "raw" / "no_yaml"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text("type: [")
    return own


def test_what_is_broken_with_an_overlay_or_without_a_name_does_not_stop_the_others(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", "skip")
    monkeypatch.setenv("ELT_ENV", "prod")
    folder = project.root / "defs"
    nameless = {"type": "elt_assets.ConnectionComponent", "attributes": {}}
    for name in ("a", "b"):
        (folder / name / "crm").mkdir(parents=True)
        file = folder / name / "crm" / "defs.yaml"
        file.write_text(yaml.safe_dump_all([nameless, nameless]))
    (folder / "none").mkdir()
    (folder / "none" / "defs.yaml").write_text("attributes: {}")
    for path in ("no_yaml", "stray"):
        (folder / "raw" / path).mkdir(exist_ok=True)
        (folder / "raw" / path / "defs.prod.yaml").write_text("attributes: {}")
    (folder / "no_key" / "defs.prod.yaml").write_text("attributes: [")
    definitions = definitions_for(folder)
    dg.Definitions.validate_loadable(definitions)
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    broken = {"a_crm", "a_crm_1", "b_crm", "b_crm_1", "none", "raw_stray_defs_prod"}
    assert {"good/users", *BROKEN, *broken, "no_key_defs_prod"} <= keys
    assert "raw_no_yaml_defs_prod" not in keys


def test_folders_of_connections_are_loaded_by_the_same_rules(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.root / "defs"
    two = folder / "two"
    two.mkdir()
    document = yaml.safe_load((folder / "good" / "defs.yaml").read_text())
    texts = [yaml.safe_dump(document).replace("name: good", f"name: {name}") for name in "lr"]
    (two / "defs.yaml").write_text("---\n".join(texts))
    for name in "lr":
        catalog = (folder / "good" / "catalog.json").read_text()
        (two / f"catalog.{name}.json").write_text(catalog)
    folders = [two, folder / "no_key"]
    with pytest.raises(ConfigError, match="did you mean 'source'"):
        definitions_for(folders)
    with pytest.raises(ConfigError, match="both define a connection 'l'"):
        definitions_for([two, two])
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", "skip")
    keys = {key.to_user_string() for key in definitions_for(folders).resolve_all_asset_keys()}
    assert {"l/users", "r/users", "no_key"} <= keys


BROKEN = {
    "no_catalog": "catalog.json does not exist",
    "no_stream": "stream 'nobody' is not in the catalog",
    "no_key": "did you mean 'source'?",
    "raw_no_yaml": "is not valid YAML",
}


def test_a_broken_connection_is_a_failed_check_and_the_others_load(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.root / "defs"
    with pytest.raises(ConfigError):
        definitions_for(folder)
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", "skip")
    definitions = definitions_for(folder)
    dg.Definitions.validate_loadable(definitions)
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    assert {"good/users", *BROKEN} <= keys
    with instance_of(project) as instance:
        for name, message in BROKEN.items():
            check = dg.AssetCheckKey(dg.AssetKey([name]), "loads")
            sensor = definitions.get_sensor_def(f"{name}__loads")
            context = dg.build_sensor_context(instance=instance)
            result = sensor(context)
            assert isinstance(result, dg.SensorResult)
            (event,) = result.asset_events
            assert isinstance(event, dg.AssetCheckEvaluation)
            assert event.asset_check_key == check
            assert not event.passed and message in str(event.description)
            again = dg.build_sensor_context(instance=instance, cursor=result.cursor)
            assert isinstance(sensor(again), dg.SkipReason)
    validated = project.elt("validate")
    assert validated.returncode == 1
    for name, message in BROKEN.items():
        assert message in validated.stdout, name


def test_a_project_whose_connections_are_all_broken_or_missing_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", "skip")
    assert list(definitions_for(tmp_path).resolve_all_asset_keys()) == []
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump({"type": "elt_assets.ConnectionComponent"}))
    checks = definitions_for(tmp_path).resolve_asset_graph().asset_check_keys
    assert [key.name for key in checks] == ["loads"]
