"""Times at which streams are synced: schedules, automation conditions and sensors, each at its tick."""

from __future__ import annotations

import datetime as dt
import shutil
from typing import Any

import dagster as dg
import pytest
from msgspec import Raw

from elt_assets.definitions import build
from elt_assets.orchestration.new_data import is_new
from elt_assets.orchestration.sensors import reason_to_wait
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredStream
from elt_assets.protocol.messages import RawRecord
from tests.orchestration.ticking import evaluate_schedule, execute, instance_of, run_job, tick
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import END, START, materialize

UTC = dt.timezone.utc
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
READINGS, STATIONS = dg.AssetKey(["weather", "readings"]), dg.AssetKey(["weather", "stations"])
SHOP = dg.AssetKey("shop")
USERS, ORDERS = dg.AssetKey(["shop", "users"]), dg.AssetKey(["shop", "orders"])


@dg.job
def JOB() -> None: ...


def shop(project: Project, streams: list[str], config: Any = None, **attributes: Any) -> None:
    how = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    project.connection(
        "shop",
        source={"connector": "faker", "config": {"count": 10, **(config or {})}},
        streams=[{"name": name, **how} for name in streams],
        **attributes,
    )
    project.discover("shop")


def refuse(project: Project) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Dagster wraps it
        build()
    texts: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return "\n".join(texts)


# --- schedules --------------------------------------------------------------------------------------


def test_the_schedule_of_a_connection_starts_one_run_of_its_streams(
    own: Project, spark: object
) -> None:
    shop(own, ["users", "orders", "products"], schedule="0 6 * * *")
    own.amend(
        "shop",
        streams=[
            {"name": "users"},
            {"name": "orders"},
            {"name": "products", "schedule": "30 * * * *"},
        ],
    )
    tick = dt.datetime(2026, 1, 5, 6, tzinfo=UTC)
    (request,) = evaluate_schedule(own, "shop_schedule", tick)
    assert request.asset_selection == [USERS, ORDERS]
    (other,) = evaluate_schedule(own, "shop__products_schedule", tick)
    assert other.asset_selection == [dg.AssetKey(["shop", "products"])]
    assert execute(own, other).success
    assert own.rows("shop", "products")


def test_a_schedule_of_a_stream_with_windows_requests_the_newest_window(
    own: Project, spark: object
) -> None:
    windowed(own, partitions=DAILY, schedule="0 2 * * *")
    (request,) = evaluate_schedule(
        own, "weather__readings_schedule", dt.datetime(2026, 1, 9, 2, tzinfo=UTC)
    )
    assert request.partition_key == "2026-01-08"
    assert execute(own, request).success
    assert {row["_elt_partition"] for row in own.rows("weather", "readings")} == {"2026-01-08"}


def test_a_schedule_of_a_stream_with_keys_requests_each_key(own: Project) -> None:
    keys = {"type": "static", "keys": ["north", "south"], "bind": "station"}
    windowed(own, partitions={"type": "multi", "window": DAILY, "key": keys})
    own.amend("weather", schedule="0 2 * * *")
    (request,) = evaluate_schedule(own, "weather_schedule", dt.datetime(2026, 1, 9, 2, tzinfo=UTC))
    assert (request.tags[START], request.tags[END]) == ("north|2026-01-08", "south|2026-01-08")


# --- automation conditions --------------------------------------------------------------------------


def evaluate(
    project: Project, time: dt.datetime, before: dg.EvaluateAutomationConditionsResult | None = None
) -> dg.EvaluateAutomationConditionsResult:
    with instance_of(project) as instance:
        return dg.evaluate_automation_conditions(
            build(), instance, evaluation_time=time, cursor=before.cursor if before else None
        )


def test_on_cron_requests_a_run_without_events_of_the_source(own: Project) -> None:
    shop(own, ["users", "orders"], automation='on_cron "0 6 * * *"')
    before = evaluate(own, dt.datetime(2026, 1, 5, 5, 59, tzinfo=UTC))
    after = evaluate(own, dt.datetime(2026, 1, 5, 6, 1, tzinfo=UTC), before)
    later = evaluate(own, dt.datetime(2026, 1, 5, 6, 2, tzinfo=UTC), after)
    assert [result.total_requested for result in (before, after, later)] == [0, 2, 0]


def test_eager_requests_a_run_after_a_materialization_of_the_source(own: Project) -> None:
    shop(own, ["users"], automation="eager")
    time = dt.datetime(2026, 1, 5, tzinfo=UTC)
    before = evaluate(own, time)
    with instance_of(own) as instance:
        # Each sync leaves an observation on the source, which must not ask for the next one.
        instance.report_runless_asset_event(dg.AssetObservation(SHOP))
    observed = evaluate(own, time, before)
    with instance_of(own) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(SHOP))
    after = evaluate(own, time, observed)
    requested = [result.total_requested for result in (before, observed)]
    assert (requested, after.get_num_requested(USERS)) == ([0, 0], 1)


def test_eager_requests_a_window_when_it_has_ended(own: Project) -> None:
    windowed(own, partitions=DAILY, automation="eager")
    before = evaluate(own, dt.datetime(2026, 1, 5, 23, 59, tzinfo=UTC))
    after = evaluate(own, dt.datetime(2026, 1, 6, 0, 1, tzinfo=UTC), before)
    assert after.get_requested_partitions(READINGS) == {"2026-01-05"}


# --- sensors ----------------------------------------------------------------------------------------


def test_drift_is_checked_in_a_run_at_the_configured_interval(own: Project) -> None:
    script(own, [])
    own.amend("scripted", drift={"every": "6h"})
    first = tick(own, "scripted_drift")
    assert len(first.run_requests or []) == 1
    result = run_job(own, "scripted_discover")
    assert result.success
    again = tick(own, "scripted_drift", first.cursor)
    assert not again.run_requests and "the next check is due" in (again.skip_message or "")
    past = dt.datetime.now(UTC) - dt.timedelta(hours=6, seconds=1)
    assert tick(own, "scripted_drift", past.isoformat()).run_requests


@pytest.mark.parametrize(
    ("outcomes", "failures"),
    [
        ([], 0),
        (["FAILURE", "SUCCESS"], 0),
        (["FAILURE"], 1),
        (["FAILURE", "CANCELED", "FAILURE", "FAILURE"], 2),
        (["FAILURE"] * 12, 10),
    ],
)
def test_a_sensor_waits_longer_after_each_failure_in_succession(
    own: Project, outcomes: list[str], failures: int
) -> None:
    start, tags = dt.datetime.now(UTC), {"dagster/sensor_name": "x"}
    with instance_of(own) as instance:
        for outcome in outcomes:
            run = instance.create_run_for_job(JOB, tags=tags)
            report = dg.DagsterEvent(f"PIPELINE_{outcome}", JOB.name, message="over")
            instance.report_dagster_event(report, run.run_id)

        def waits(minutes: float, every: int) -> bool:
            time, interval = start + dt.timedelta(minutes=minutes), dt.timedelta(minutes=every)
            return reason_to_wait(instance, "x", time, interval) is not None

        for every in (1, 7, 600):
            pause = max(every, min(60, every * 2**failures))
            assert waits(pause - 0.5, every) is (failures > 0)
            assert not waits(pause + 2, every)
        instance.create_run_for_job(JOB, tags=tags, status=dg.DagsterRunStatus.STARTED)
        assert waits(100_000, 1)


def test_there_is_no_drift_sensor_without_a_drift_setting(own: Project) -> None:
    script(own, [])
    assert not build().get_repository_def().has_sensor_def("scripted_drift")


def configure_discovery(project: Project, kind: Any = None, **discover: Any) -> None:
    """Readings of one partition for each station that the other stream has."""
    windowed(project, config={"stations": ["north", "south"], "to": "2026-01-02"})
    discovery = {"stream": "stations", "field": "id", **discover}
    partitions = {"type": "dynamic", "bind": "station", "discover": discovery}
    if kind == "multi":
        partitions = {"type": "multi", "window": DAILY, "key": partitions}
    readings = {"name": "readings", "partitions": partitions}
    stations = {"name": "stations", "destination_sync_mode": "overwrite"}
    project.amend("weather", streams=[readings, stations])


def test_new_values_add_partitions_and_request_runs(own: Project, spark: object) -> None:
    configure_discovery(own)
    sensor = "weather__readings_partitions"
    assert not tick(own, sensor).dynamic_partitions_requests
    assert materialize(own, 'key:"weather/stations"').success
    first = tick(own, sensor)
    (request,) = first.run_requests or []
    assert (request.tags[START], request.tags[END]) == ("north", "south")
    assert execute(own, request).success
    assert {row["station"] for row in own.rows("weather", "readings")} == {"north", "south"}

    idle = tick(own, sensor, first.cursor)
    assert not idle.run_requests and "has not changed" in (idle.skip_message or "")
    own.reconfigure("weather", stations=["north", "south", "west", "no\nkey"])
    assert materialize(own, 'key:"weather/stations"').success
    more = tick(own, sensor, first.cursor)
    assert [request.partition_key for request in more.run_requests or []] == ["west"]
    assert not tick(own, sensor).run_requests  # its cursor was lost: nothing is there to add


def test_partitions_may_be_added_without_runs(own: Project, spark: object) -> None:
    configure_discovery(own, materialize=False)
    assert materialize(own, 'key:"weather/stations"').success
    done = tick(own, "weather__readings_partitions")
    assert not done.run_requests and "added 2 partitions" in (done.skip_message or "")
    with instance_of(own) as instance:
        assert set(instance.get_dynamic_partitions("weather__readings")) == {"north", "south"}

    # The table of another lake, or one that was created again, has the same version and other values.
    shutil.rmtree(own.home / "lake")
    own.reconfigure("weather", stations=["north", "east"])
    assert materialize(own, 'key:"weather/stations"').success
    again = tick(own, "weather__readings_partitions", done.cursor)
    assert "added 1 partition" in (again.skip_message or "")


def test_new_values_of_a_stream_with_windows_request_the_newest_window(
    own: Project, spark: object
) -> None:
    configure_discovery(own, "multi")
    assert materialize(own, 'key:"weather/stations"').success
    (request,) = tick(own, "weather__readings_partitions").run_requests or []
    keys = [request.tags[name].split("|") for name in (START, END)]
    assert [key for key, _ in keys] == ["north", "south"]
    yesterday = (dt.datetime.now(UTC) - dt.timedelta(days=1)).date()
    assert {window for _, window in keys} == {yesterday.isoformat()}


@pytest.mark.parametrize(
    ("discover", "expected"),
    [
        ({"stream": "station"}, "no other stream 'station'"),
        ({"stream": "readings"}, "no other stream 'readings'"),
        ({"field": "name"}, "there is no field 'name'"),
    ],
)
def test_an_unknown_stream_or_field_in_discover_is_refused_at_load(
    own: Project, discover: Any, expected: str
) -> None:
    configure_discovery(own, **discover)
    text = refuse(own)
    assert expected in text and "stream 'readings': partitions.discover" in text


def test_streams_with_new_data_are_synced(own: Project, spark: object) -> None:
    shop(own, ["users", "orders"], {"days": 1}, new_data={"every": "5m"})
    first = tick(own, "shop_new_data")
    (request,) = first.run_requests or []
    assert request.asset_selection == [USERS, ORDERS]
    assert materialize(own, 'key:"shop/users"').success
    (request,) = tick(own, "shop_new_data").run_requests or []
    assert request.asset_selection == [ORDERS]
    assert execute(own, request).success
    done = tick(own, "shop_new_data")
    assert not done.run_requests and done.skip_message == "there is no new data"


def test_a_tick_is_skipped_while_the_requested_run_is_in_progress(own: Project) -> None:
    shop(own, ["users"], new_data={})
    (request,) = tick(own, "shop_new_data").run_requests or []
    job = build().resolve_implicit_global_asset_job_def()
    with instance_of(own) as instance:
        instance.create_run_for_job(job, tags=request.tags)
    done = tick(own, "shop_new_data")
    assert not done.run_requests and "still in progress" in (done.skip_message or "")


def test_a_tick_is_skipped_if_the_source_cannot_be_checked(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(own, ["users"], new_data={})
    own.reconfigure("shop", api_key={"env": "NOT_SET_ANYWHERE"})
    done = tick(own, "shop_new_data")
    assert not done.run_requests
    assert "could not be checked for new data" in (done.skip_message or "")
    assert "NOT_SET_ANYWHERE" in (done.skip_message or "")


def test_a_source_that_cannot_be_probed_is_read_with_a_warning(
    own: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    shop(own, ["users"], new_data=READ)
    own.reconfigure("shop", api_key={"env": "NOT_SET_ANYWHERE"})
    assert not tick(own, "shop_new_data").run_requests
    output = "".join(capfd.readouterr())
    assert "the source could not be probed, so its streams were read instead" in output


def test_new_data_is_refused_for_sources_that_do_not_support_it(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    own.amend("scripted", new_data={"every": "1m"})
    assert "only a built-in connector" in refuse(own)
    own.amend("scripted", new_data=None)
    shop(own, ["users"], new_data={})
    own.amend("shop", streams=[{"name": "users"}])
    assert "needs an incremental stream without partitions" in refuse(own)


def test_sensors_are_stopped_by_default(own: Project) -> None:
    shop(own, ["users"], new_data={}, drift={})
    sensors = build().get_repository_def().sensor_defs
    ours = [sensor for sensor in sensors if sensor.name.startswith("shop")]
    assert {sensor.default_status for sensor in ours} == {dg.DefaultSensorStatus.STOPPED}
    assert len(ours) == 2


# --- new data by the start of a read ----------------------------------------------------------------

READ = {"every": "1m", "read": True}


def test_new_data_of_any_source_is_detected_by_a_short_read(own: Project, spark: object) -> None:
    script(own, [record(id=1), state(1, field="id"), "!sleep 300"])
    own.amend("scripted", new_data=READ)
    (request,) = tick(own, "scripted_new_data").run_requests or []
    assert request.asset_selection == [dg.AssetKey(["scripted", "things"])]
    assert not (own.home / "lake").exists()
    assert list((own.home / "staging").iterdir()) == []

    script(own, [record(id=1), state(1, field="id")])
    own.amend("scripted", new_data=READ)
    assert materialize(own, 'key:"scripted/things"').success
    idle = tick(own, "scripted_new_data")  # the record at the bookmark is sent again
    assert (idle.run_requests, idle.skip_message) == ([], "there is no new data")
    script(own, [record(id=1), record(id=2), "!sleep 300"])
    own.amend("scripted", new_data=READ)
    assert tick(own, "scripted_new_data").run_requests


def test_a_tick_is_skipped_with_the_error_of_a_failed_read(own: Project) -> None:
    script(own, ["!exit 1"])
    own.amend("scripted", new_data=READ)
    done = tick(own, "scripted_new_data")
    assert not done.run_requests
    assert "scripted/things: `read` of the connector of scripted" in (done.skip_message or "")
    assert "ended with exit code 1" in (done.skip_message or "")


def test_a_built_in_connector_is_probed_instead_of_read(own: Project, spark: object) -> None:
    shop(own, ["users"], {"days": 1}, new_data=READ)
    assert tick(own, "shop_new_data").run_requests
    assert materialize(own, 'key:"shop/users"').success
    assert tick(own, "shop_new_data").skip_message == "there is no new data"


def test_new_data_by_a_read_is_refused_for_streams_that_are_read_together(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    own.amend("scripted", new_data=READ, read_together=True)
    assert "the streams of this connection are read together" in refuse(own)


@pytest.mark.parametrize(
    ("data", "saved", "expected"),
    [
        ('{"at": 5}', '{"at": 5}', False),
        ('{"at": 5}', '{"at": "5.0"}', False),
        ('{"at": 5}', '{"at": 4}', True),
        ('{"at": 9007199254740993}', '{"at": 9007199254740992}', True),
        ('{"at": "2026-01-01T00:00:00Z"}', '{"at": "2026-01-01 00:00:00.000"}', False),
        ('{"at": "2026-01-01"}', '{"slices": [{"end": "2026-01-01T00:00:00Z"}]}', False),
        ('{"at": "2026-01-02"}', '{"slices": [{"end": "2026-01-01T00:00:00Z"}]}', True),
        ('{"at": "b"}', '{"at": "a"}', True),
        ('{"at": null}', '{"at": 5}', True),
        ('{"id": 5}', "null", True),
        ("[5]", '{"at": 5}', True),
    ],
)
def test_a_record_is_new_unless_the_state_contains_its_cursor(
    data: str, saved: str, expected: bool
) -> None:
    stream = ConfiguredStream(
        stream=AirbyteStream(name="things", json_schema={}, default_cursor_field=["at"])
    )
    record = RawRecord(stream="things", data=Raw(data.encode()))
    message = f'{{"type":"STREAM","stream":{{"stream_descriptor":{{}},"stream_state":{saved}}}}}'
    assert is_new(record, stream, message) is expected
    assert is_new(record, stream, None)
    other = RawRecord(stream="others", data=Raw(data.encode()))
    assert not is_new(other, stream, None)
