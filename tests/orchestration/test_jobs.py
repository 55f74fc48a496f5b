"""Jobs of a connection and of the project, and the alert about a failed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from elt_assets.definitions import build
from elt_assets.orchestration import alerts
from elt_assets.orchestration.alerts import FailureAlert
from tests.orchestration import hooks
from tests.orchestration.ticking import instance_of, run_job, tick
from tests.programs.hostile_source import program
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, observations, read_log

TYPES = {"id": {"type": "integer"}, "name": {"type": "string"}}
UPDATE = {"ops": {"scripted_discover_source": {"config": {"policy": "update"}}}}


def evolve(project: Project, schema: Any, **stream: Any) -> None:
    """The source has other columns from here on."""
    path = project.root / "scripted-source" / "catalog.json"
    catalog = json.loads(path.read_text())
    catalog["streams"][0]["json_schema"]["properties"] = schema
    catalog["streams"][0].update(stream)
    path.write_text(json.dumps(catalog))


def catalog_of(project: Project) -> Path:
    return project.root / "defs" / "scripted" / "catalog.json"


def drifts(project: Project) -> list[Any]:
    return [metadata["elt/drift"] for metadata in observations(project, "scripted", "things")]


def test_the_check_job_logs_its_result(own: Project) -> None:
    script(own, [])
    result = run_job(own, "scripted_check")
    assert result.success
    assert "the check succeeded" in read_log(own, result)


def test_a_failed_check_fails_its_run(own: Project) -> None:
    script(own, [], specification={"type": "object", "required": ["host"]})
    assert "host" in failure_of(run_job(own, "scripted_check"))


def test_warnings_of_a_check_are_events_of_its_run(own: Project) -> None:
    answers = """
for level in ("WARN", "INFO"): say("LOG", log={"level": level, "message": f"logged at {level}"})
say("CONNECTION_STATUS", connectionStatus={"status": "FAILED", "message": "the password is wrong"})
exit(1)
"""
    source = {"command": [program(own.root, answers)]}
    folder = own.connection("scripted", source=source, streams=[{"name": "things"}])
    (folder / "catalog.json").write_text('{"streams": [{"name": "things", "json_schema": {}}]}')
    result = run_job(own, "scripted_check")
    assert "the check of connection scripted failed: the password is wrong" in failure_of(result)
    log = read_log(own, result)
    assert "logged at WARN" in log
    assert "the last lines of the connector's log:\nINFO logged at INFO" in log


def test_an_unchanged_catalog_is_logged(own: Project) -> None:
    script(own, [])
    result = run_job(own, "scripted_discover")
    assert result.success
    assert "the source matches catalog.json" in read_log(own, result)
    assert not drifts(own)


def test_added_removed_and_changed_columns_are_reported(own: Project) -> None:
    script(own, [], schema={**TYPES, "age": {"type": "integer"}})
    before = catalog_of(own).read_text()
    evolve(own, {"id": {"type": "string"}, "name": TYPES["name"], "city": TYPES["name"]})
    result = run_job(own, "scripted_discover")
    assert result.success
    expected = [
        "id was integer, and is string",
        "age is gone: it was integer",
        "city is new: string",
    ]
    assert drifts(own) == [expected]
    assert "scripted/things has changed: id was integer" in read_log(own, result)
    assert catalog_of(own).read_text() == before


@pytest.mark.parametrize("by", ["the connection", "the run"])
def test_an_update_writes_the_catalog(own: Project, by: str) -> None:
    script(own, [])
    if by == "the connection":
        own.amend("scripted", drift={"policy": "update"})
    evolve(own, {**TYPES, "city": TYPES["name"]}, supported_sync_modes=["incremental"])
    result = run_job(own, "scripted_discover", UPDATE if by == "the run" else None)
    assert result.success, failure_of(result)
    assert "takes effect when the definitions are loaded again" in read_log(own, result)
    assert len(drifts(own)) == 1
    asset = build().resolve_asset_graph().get(dg.AssetKey(["scripted", "things"]))
    assert "city" in [c.name for c in asset.metadata["dagster/column_schema"].columns]
    assert run_job(own, "scripted_discover", UPDATE).success
    assert len(drifts(own)) == 1
    assert {path.name for path in catalog_of(own).parent.iterdir()} == {"defs.yaml", "catalog.json"}


def test_a_catalog_that_makes_the_connection_invalid_is_not_written(own: Project) -> None:
    script(own, [], destination_sync_mode="append_dedup", primary_key=[["id"]])
    before = catalog_of(own).read_text()
    evolve(own, {"name": TYPES["name"]}, default_cursor_field=["name"])
    text = failure_of(run_job(own, "scripted_discover", UPDATE))
    assert "catalog.json was not updated" in text and "'id'" in text
    assert drifts(own)
    assert catalog_of(own).read_text() == before


def test_dead_letters_are_replayed_from_the_ui(own: Project, spark: object) -> None:
    script(own, [record(id=1, name="a"), state(1)])
    assert materialize(own).success
    frozen: Any = {"schema": {**TYPES, "id": {"type": "string"}}, "on_schema_change": "freeze"}
    script(own, [record(id="x", name="b"), state(2)], **frozen)
    assert materialize(own).success
    assert len(own.rows("scripted", "things")) == 1
    script(own, [], **{**frozen, "on_schema_change": "evolve"})
    only = {"ops": {"replay_dead_letters": {"config": {"assets": ["scripted/things"]}}}}
    result = run_job(own, "elt_replay", only)
    assert result.success, failure_of(result)
    assert "scripted/things: 1 records replayed, 0 rejected again" in read_log(own, result)
    assert [row["id"] for row in own.rows("scripted", "things")] == ["1", "x"]
    assert run_job(own, "elt_replay").success


def test_dead_letters_of_partitions_are_replayed_to_them(own: Project, spark: object) -> None:
    keys = {"type": "static", "keys": ["a", "b"], "bind": "key"}
    stream: Any = {"destination_sync_mode": "append_dedup", "partitions": keys}
    for key in ("a", "b"):
        lines = [record(id=1, name=f"kept {key}"), record(name=f"lost {key}"), state(1)]
        script(own, lines, primary_key=[["id"]], **stream)
        assert materialize(own, partition=key).success
    script(own, [], primary_key=[["name"]], **stream)
    result = run_job(own, "elt_replay")
    assert result.success, failure_of(result)
    assert "scripted/things: 2 records replayed, 0 rejected again" in read_log(own, result)
    names = sorted((row["_elt_partition"], row["name"]) for row in own.rows("scripted", "things"))
    assert names == [("a", "kept a"), ("a", "lost a"), ("b", "kept b"), ("b", "lost b")]


@pytest.mark.parametrize("job", ["elt_replay", "elt_maintenance"])
def test_unknown_assets_are_refused(own: Project, job: str) -> None:
    script(own, [])
    (op,) = build().resolve_job_def(job).all_node_defs
    config = {"ops": {op.name: {"config": {"assets": ["scripted/thongs"]}}}}
    assert "not streams of a connection: scripted/thongs" in failure_of(run_job(own, job, config))


# --- alerts -----------------------------------------------------------------------------------------


def alert(project: Project, result: dg.ExecuteInProcessResult) -> None:
    """Run what the daemon runs after a run has failed."""
    sensor = build().get_repository_def().get_sensor_def("elt_failure_alert")
    with instance_of(project) as instance:
        context = dg.build_run_status_sensor_context(
            sensor_name=sensor.name,
            dagster_event=result.get_run_failure_event(),
            dagster_instance=instance,
            dagster_run=result.dagster_run,
        ).for_run_failure()
        sensor(context)


def test_a_failed_run_calls_the_alert_hook(
    own: Project, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    monkeypatch.setenv("ELT_ALERT_HOOK", "tests.orchestration.hooks:hear")
    monkeypatch.setenv("ELT_UI_URL", "http://localhost:3000/")
    script(own, ["!exit 3"])
    result = materialize(own)
    hooks.heard.clear()
    alert(own, result)
    (heard,) = hooks.heard
    assert "ended with exit code 3" in heard.error
    url = f"http://localhost:3000/runs/{result.run_id}"
    expected = (result.run_id, "run", ("scripted/things",), "system_error", url)
    reported = (heard.run_id, heard.job, heard.assets, heard.failure_type, heard.url)
    assert reported == expected


def test_the_alert_has_the_failure_type(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELT_ALERT_HOOK", "tests.orchestration.hooks:hear")
    script(own, [], specification={"type": "object", "required": ["host"]})
    result = run_job(own, "scripted_check")
    hooks.heard.clear()
    alert(own, result)
    (heard,) = hooks.heard
    assert isinstance(heard, FailureAlert)
    assert (heard.job, heard.failure_type, heard.url) == ("scripted_check", "config_error", None)
    assert heard.assets == ()


def test_an_error_of_the_alert_hook_is_only_logged(
    own: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ELT_ALERT_HOOK", "tests.orchestration.hooks:break_down")
    script(own, [], specification={"type": "object", "required": ["host"]})
    alert(own, run_job(own, "scripted_check"))
    assert "no answer for scripted_check" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "reason"), [("leave", "SystemExit(3)"), ("hang", "has not returned after 0 seconds")]
)
def test_a_hook_that_exits_or_hangs_does_not_stop_later_alerts(
    own: Project,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    reason: str,
) -> None:
    monkeypatch.setenv("ELT_ALERT_HOOK", f"tests.orchestration.hooks:{name}")
    monkeypatch.setattr(alerts, "SECONDS", 0.1)
    script(own, [], specification={"type": "object", "required": ["host"]})
    cursor = tick(own, "elt_failure_alert").cursor  # it begins here
    for _ in range(2):
        assert not run_job(own, "scripted_check").success
    for _ in range(3):
        cursor = tick(own, "elt_failure_alert", cursor).cursor
    log = capfd.readouterr().err
    assert log.count("ELT_ALERT_HOOK=") == 2 and reason in log


def test_there_is_no_alert_sensor_without_a_hook(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELT_ALERT_HOOK", raising=False)
    script(own, [])
    assert not build().get_repository_def().has_sensor_def("elt_failure_alert")


@pytest.mark.parametrize(
    "hook",
    ["nowhere:hear", "tests.orchestration.hooks", "tests.orchestration.hooks:not_callable"],
)
def test_an_invalid_alert_hook_is_refused(
    own: Project, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    script(own, [])
    monkeypatch.setenv("ELT_ALERT_HOOK", hook)
    with pytest.raises(Exception, match="ELT_ALERT_HOOK"):
        build()
