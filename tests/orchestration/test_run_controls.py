"""Run controls of connections and streams: what starts runs, when, in which pool and with which tags."""

from __future__ import annotations

import datetime as dt
from typing import Any

import dagster as dg
import pytest

from elt_assets.definitions import build
from tests.orchestration.test_automation import refuse
from tests.orchestration.ticking import evaluate_schedule, execute, tick
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import materialize, read_log

TICK = dt.datetime(2026, 1, 4, 2, tzinfo=dt.timezone.utc)
THINGS = 'key:"scripted/things"'
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
MEMORY = {"container_config": {"resources": {"requests": {"memory": "4Gi"}}}}


def names(definitions: dg.Definitions) -> set[str]:
    """Return the names of the schedules and sensors of the connections."""
    repository = definitions.get_repository_def()
    schedules = {definition.name for definition in repository.schedule_defs}
    sensors = {definition.name for definition in repository.sensor_defs}
    general = {"elt_maintenance_schedule", "default_automation_condition_sensor"}
    return (schedules | sensors) - general


def op(definitions: dg.Definitions, *key: str) -> dg.OpDefinition:
    assets = definitions.resolve_asset_graph().get(dg.AssetKey(list(key))).assets_def
    node = assets.node_def
    assert isinstance(node, dg.OpDefinition)
    return node


def weather(project: Project, *streams: dict[str, Any], **attributes: Any) -> None:
    windowed(project)
    project.amend("weather", streams=list(streams), **attributes)


def test_what_is_not_enabled_is_started_by_hand_alone(own: Project, spark: object) -> None:
    live = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    starting = {
        "schedule": "0 2 * * *",
        "full_refresh": "0 3 * * 0",
        "drift": {},
        "new_data": {"read": True},
        "automation": "eager",
        "freshness": {"fail_after": "1d"},
    }
    weather(own, {"name": "readings", **live}, {"name": "stations", "enabled": False}, **starting)
    enabled = names(build())
    assert enabled == {
        "weather_schedule", "weather_full_refresh_schedule", "weather_drift", "weather_new_data",
    }  # fmt: skip
    (request,) = evaluate_schedule(own, "weather_schedule", TICK)
    assert request.asset_selection == [dg.AssetKey(["weather", "readings"])]
    specs = {spec.key.path[-1]: spec for spec in build().resolve_all_asset_specs()}
    assert specs["readings"].automation_condition and specs["readings"].freshness_policy
    assert not (specs["stations"].automation_condition or specs["stations"].freshness_policy)
    assert specs["stations"].metadata["elt/enabled"] is False

    own.amend("weather", enabled=False)
    assert names(build()) == set()
    done = materialize(own, 'key:"weather/stations"')
    assert done.success
    assert "stations is not enabled" in read_log(own, done)
    assert own.rows("weather", "stations")


def test_an_op_has_its_pool_and_tags_and_a_schedule_its_time_zone(own: Project) -> None:
    weather(
        own,
        {
            "name": "readings",
            "partitions": DAILY,
            "pool": "api",
            "schedule": "0 2 * * *",
            "owners": ["a@b.com"],
        },
        {"name": "stations", "op_tags": {"dagster-k8s/config": MEMORY}, "timezone": "Asia/Tokyo"},
        op_tags={"size": "small"},
        owners=["team:data"],
        timezone="Europe/Berlin",
        automation='on_cron "0 6 * * *"',
        full_refresh="0 3 * * 0",
    )
    definitions = build()
    assert op(definitions, "weather", "readings").pool == "api"
    stations = op(definitions, "weather", "stations")
    assert stations.pool == "weather__stations"
    assert set(stations.tags) >= {"size", "dagster-k8s/config"}
    schedules = {s.name: s for s in definitions.get_repository_def().schedule_defs}
    assert schedules["weather__readings_schedule"].execution_timezone == "Europe/Berlin"
    assert schedules["weather_full_refresh_schedule"].execution_timezone == "Europe/Berlin"
    specs = {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}
    assert (specs["readings"].owners, specs["stations"].owners) == (["a@b.com"], ["team:data"])
    assert "Asia/Tokyo" in str(specs["stations"].automation_condition)
    assert "Europe/Berlin" in str(specs["readings"].automation_condition)


def test_streams_of_other_run_tags_get_runs_of_their_own(own: Project, spark: object) -> None:
    weather(
        own,
        {"name": "readings", "partitions": DAILY, "run_tags": {"team": "lab"}},
        {"name": "stations"},
        schedule="0 2 * * *",
        run_tags={"team": "sales", "dagster/priority": 3},
    )
    requests = evaluate_schedule(own, "weather_schedule", TICK)
    tags = [(request.tags["team"], request.tags["dagster/priority"]) for request in requests]
    assert tags == [("sales", "3"), ("lab", "3")]
    assert len({request.run_key for request in requests}) == 2
    assert build().resolve_job_def("weather_check").tags["team"] == "sales"
    live = {"name": "readings", "sync_mode": "incremental", "run_tags": {"team": "lab"}}
    own.amend("weather", streams=[live], new_data={"read": True})
    (asked,) = tick(own, "weather_new_data").run_requests or []
    assert (asked.tags["team"], asked.tags["dagster/priority"]) == ("lab", "3")


def test_a_refresh_on_a_schedule_replaces_what_incremental_syncs_left(
    own: Project, spark: object
) -> None:
    keyed: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    keyed["full_refresh"] = "0 3 * * 0"
    script(own, [record(id=1), record(id=2), state(2)], **keyed)
    assert materialize(own, THINGS).success
    script(own, [record(id=2, name="new"), record(id=3), state(3)], **keyed)
    assert materialize(own, THINGS).success
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2, 3]
    (request,) = evaluate_schedule(own, "scripted__things_full_refresh_schedule", TICK)
    assert execute(own, request).success
    assert [row["id"] for row in own.rows("scripted", "things")] == [2, 3]
    retained = {**keyed, "full_refresh": {"cron": "0 3 * * 0", "refresh": "retain"}}
    script(own, [record(id=4), state(4)], **retained)
    (request,) = evaluate_schedule(own, "scripted__things_full_refresh_schedule", TICK)
    assert execute(own, request).success
    assert [row["id"] for row in own.rows("scripted", "things")] == [2, 3, 4]


def test_a_refresh_of_the_connection_leaves_out_what_needs_none(own: Project) -> None:
    weather(
        own,
        {"name": "readings", "partitions": DAILY},
        {"name": "stations"},
        full_refresh="0 3 * * 0",
    )
    (request,) = evaluate_schedule(own, "weather_full_refresh_schedule", TICK)
    assert request.asset_selection == [dg.AssetKey(["weather", "stations"])]
    assert request.run_config == {"ops": {"weather__stations": {"config": {"refresh": "truncate"}}}}
    own.amend("weather", streams=[{"name": "stations", "full_refresh": None}])
    assert names(build()) == set()


@pytest.mark.parametrize(
    ("attributes", "stream", "message"),
    [
        ({"timezone": "Berlin"}, {}, "timezone: 'Berlin' is not a time zone"),
        ({}, {"timezone": "UTC"}, "timezone: the stream has no cron expression of its own"),
        ({"pool": "a b"}, {}, "pool: 'a b' is not the name of a pool"),
        ({"op_tags": {"dagster/concurrency_key": "a"}}, {}, "write `pool: NAME`"),
        ({"op_tags": {"a b": "c"}}, {}, "'a b' is not a valid key of a tag"),
        ({"run_tags": {"team": None}}, {}, "the value of 'team' is not JSON"),
        ({}, {"run_tags": {"dagster/run_id": "1"}}, "Dagster sets the tag 'dagster/run_id' itself"),
        ({"enabled": "perhaps"}, {}, "enabled"),
        ({"full_refresh": "sometimes"}, {}, "full_refresh: 'sometimes' is not a valid cron"),
        ({}, {"full_refresh": {"cron": "0 3 * * 0", "refresh": "none"}}, "full_refresh"),
        ({}, {"full_refresh": "0 3 * * 0", "partitions": DAILY}, "a backfill of its partitions"),
        (
            {},
            {"full_refresh": "0 3 * * 0", "destination_sync_mode": "overwrite"},
            "every sync replaces",
        ),
        ({"full_refresh": "0 3 * * 0"}, {"partitions": DAILY}, "no stream of the connection needs"),
        ({"read_together": True}, {"pool": "api"}, "pool: streams that are read together"),
        ({}, {"enabeld": False}, "did you mean 'enabled'?"),
    ],
)
def test_a_control_that_cannot_work_is_refused(
    own: Project, attributes: Any, stream: Any, message: str
) -> None:
    weather(own, {"name": "readings", **stream}, **attributes)
    assert message in refuse(own)
