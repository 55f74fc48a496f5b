"""A broken connection among healthy ones, with `on_broken_connection: skip`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from elt_assets import definitions_for
from elt_assets.errors import ConfigError
from tests.orchestration.ticking import instance_of
from tests.project import Project


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
