"""Partitions of a stream: windows and keys bound to the source's config, each replaced alone."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import dagster as dg
import pytest

from elt_assets import read_table
from elt_assets.connection import load_connection
from elt_assets.connection.partitions import Bind, StaticPartitions
from elt_assets.errors import ConfigError
from elt_assets.orchestration.partitions import config_for_partition, config_for_window
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import calls, windowed
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize, read_log

KEY = 'key:"weather/readings"'
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
BY_STATION = {"type": "static", "keys": ["north", "south"], "bind": "station"}

pytestmark = pytest.mark.usefixtures("spark")


def values(project: Project, *path: str) -> dict[str, int]:
    """Return the number of rows of each partition."""
    counts: dict[str, int] = {}
    for row in project.rows(*(path or ("weather", "readings"))):
        counts[row["_elt_partition"]] = counts.get(row["_elt_partition"], 0) + 1
    return counts


def test_a_window_is_written_to_the_source_config(own: Project) -> None:
    file = windowed(own, partitions=DAILY)
    assert materialize(own, KEY, partition="2026-01-05").success
    (call,) = calls(file)
    assert (call["config"]["from"], call["config"]["to"]) == ("2026-01-05", "2026-01-06")
    assert call["state"] is None
    assert values(own) == {"2026-01-05": 48}


def test_only_the_synced_partition_is_replaced(own: Project) -> None:
    windowed(own, partitions=DAILY)
    for day in ("2026-01-05", "2026-01-06"):
        assert materialize(own, KEY, partition=day).success
    own.reconfigure("weather", factor=100)
    assert materialize(own, KEY, partition="2026-01-06").success
    greatest: dict[str, int] = {}
    for row in own.rows("weather", "readings"):
        day = row["_elt_partition"]
        greatest[day] = max(greatest.get(day, 0), row["value"])
    assert greatest == {"2026-01-05": 23, "2026-01-06": 2300}
    assert values(own) == {"2026-01-05": 48, "2026-01-06": 48}


@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("policy", "mode"),
    [
        ("append", "incremental"),
        ("append_dedup", "full_refresh"),
    ],
)
def test_a_range_in_one_run_equals_single_runs(
    own: Project, policy: str, mode: str, count: int
) -> None:
    windowed(own, partitions=DAILY, destination_sync_mode=policy, sync_mode=mode)
    windowed(own, "single", partitions=DAILY, destination_sync_mode=policy, sync_mode=mode)
    days = [f"2026-01-{day:02d}" for day in range(1, 1 + count)]
    assert materialize(own, KEY, partition=days[0], through=days[-1]).success
    for day in days:
        assert materialize(own, 'key:"single/readings"', partition=day).success
    assert own.rows("weather", "readings") == own.rows("single", "readings")
    assert values(own) == dict.fromkeys(days, 48)
    by_day = fetch_materializations(own, "weather", "readings")
    assert list(by_day) == days
    for day in days:
        metadata = by_day[day]
        assert metadata["elt/state"]["stream"]["stream_state"] == {"at": f"{day}T23:00:00+00:00"}
        assert (metadata["elt/records_read"], metadata["elt/generation"]) == (48, 1)


def test_a_failed_partition_of_a_range_does_not_affect_the_others(own: Project) -> None:
    windowed(own, partitions=DAILY, config={"fails_at": "2026-01-04T12:00:00+00:00"})
    result = materialize(own, KEY, partition="2026-01-03", through="2026-01-05")
    assert "partition '2026-01-04'" in failure_of(result)
    assert "the line is dead" in failure_of(result)
    assert values(own) == {"2026-01-03": 48, "2026-01-05": 48}
    assert set(fetch_materializations(own, "weather", "readings")) == {"2026-01-03", "2026-01-05"}
    own.reconfigure("weather", fails_at="")
    assert materialize(own, KEY, partition="2026-01-04").success
    assert values(own) == dict.fromkeys(["2026-01-03", "2026-01-04", "2026-01-05"], 48)


def test_each_key_has_its_own_cursor(own: Project) -> None:
    how: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    file = windowed(own, partitions=BY_STATION, config={"to": "2026-01-02"}, **how)
    assert materialize(own, KEY, partition="north").success
    own.reconfigure("weather", to="2026-01-03")
    assert materialize(own, KEY, partition="south").success
    assert materialize(own, KEY, partition="north").success
    states = [call["state"] for call in calls(file)]
    assert states == [None, None, {"at": "2026-01-01T23:00:00+00:00"}]
    assert values(own) == {"north": 48, "south": 48}
    by_key = fetch_materializations(own, "weather", "readings")
    assert by_key["north"]["elt/records_read"] == 24
    assert {key: value["elt/sequence"] for key, value in by_key.items()} == {"north": 2, "south": 1}


def test_two_partitions_may_contain_the_same_primary_key(own: Project) -> None:
    """The primary key of the source is one of a partition alone."""
    how: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    same = {**BY_STATION, "bind": "unread"}
    windowed(own, partitions=same, config={"to": "2026-01-02"}, **how)
    result = materialize(own, KEY, partition="north", through="south")
    assert result.success
    assert values(own) == {"north": 48, "south": 48}


def test_dynamic_keys_can_be_added_and_removed(own: Project) -> None:
    dynamic = {"type": "dynamic", "name": "stations", "bind": "station"}
    file = windowed(own, partitions=dynamic, config={"to": "2026-01-02"})
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.add_dynamic_partitions("stations", ["north"])
    assert materialize(own, KEY, partition="north").success
    with pytest.raises(dg.DagsterUnknownPartitionError):
        materialize(own, KEY, partition="nowhere")
    assert [call["config"]["station"] for call in calls(file)] == ["north"]


def test_windows_and_keys_can_be_combined(own: Project) -> None:
    windowed(own, partitions={"type": "multi", "window": DAILY, "key": BY_STATION})
    for key in ("north|2026-01-03", "south|2026-01-03", "north|2026-01-04"):
        assert materialize(own, KEY, partition=key).success
    assert values(own) == dict.fromkeys(
        ["north|2026-01-03", "south|2026-01-03", "north|2026-01-04"], 24
    )


def test_a_single_partition_can_be_read(own: Project, spark: Any) -> None:
    windowed(own, partitions=DAILY)
    assert materialize(own, KEY, partition="2026-01-05", through="2026-01-06").success
    assert read_table(spark, "weather/readings", partition="2026-01-06").count() == 48


def test_a_live_sync_keeps_its_cursor_beside_windows(own: Project) -> None:
    """Windows are read again beside an incremental stream of the same source."""
    how: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    live = windowed(own, "live", config={"to": "2026-01-02"}, **how)
    windowed(own, partitions=DAILY)
    for until in ("2026-01-02", "2026-01-03"):
        own.reconfigure("live", to=until)
        assert materialize(own, 'key:"live/readings"').success
        assert materialize(own, KEY, partition=until, through="2026-01-05").success
    assert [call["state"] for call in calls(live)] == [None, {"at": "2026-01-01T23:00:00+00:00"}]
    assert len(own.rows("live", "readings")) == 96


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"refresh": "truncate"}, "`refresh` is for streams without"),
        ({"window": {"start": "2026-01-01", "end": "2026-01-02"}}, "`window` is for streams"),
    ],
)
def test_refresh_and_window_are_refused_for_a_stream_with_partitions(
    own: Project, config: Any, expected: str
) -> None:
    file = windowed(own, partitions=DAILY)
    result = materialize(own, KEY, partition="2026-01-05", **config)
    assert expected in failure_of(result)
    assert not calls(file)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"type": "yearly"}, "`type` must be one of hourly, daily"),
        ({"start": "yesterday"}, "write a date"),
        ({"end": "2025-01-01"}, "stream 'readings': partitions: `end` (2025-01-01"),
        ({"timezone": "Mars"}, "'Mars' is not a time zone"),
        ({"bind": {}}, "name the config fields"),
        ({"bind": {"begin": "x"}}, "unknown key 'begin'"),
        ({"keys": ["a"]}, "unknown key 'keys'"),
    ],
)
def test_invalid_partitions_are_refused_at_load(own: Project, changes: Any, expected: str) -> None:
    windowed(own, partitions={**DAILY, **changes})
    folder = own.root / "defs" / "weather"
    with pytest.raises(ConfigError) as error:
        load_connection(folder)
    assert expected in str(error.value)


def test_a_partition_that_a_killed_run_did_not_report_is_reported_later(own: Project) -> None:
    windowed(own, partitions=DAILY)
    assert materialize(own, KEY, partition="2026-01-05").success
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.wipe_assets([dg.AssetKey(["weather", "readings"])])
    result = materialize(own, KEY, partition="2026-01-05")
    assert "an earlier run ended before it reported the commit" in read_log(own, result)
    assert values(own) == {"2026-01-05": 48}


def test_a_wide_stream_rewrites_no_other_partition(own: Project) -> None:
    """The log has the bounds of the partition, beyond the columns that Delta indexes by default."""
    wide = {name: {"type": "integer"} for name in ("id", *(f"column_{n}" for n in range(40)))}
    keyed = {**BY_STATION, "keys": ["a", "b", "c"], "bind": "unread"}
    script(
        own,
        [record(id=1), state(1)],
        schema=wide,
        partitions=keyed,
        sync_mode="full_refresh",
    )
    paths: list[set[str]] = []
    for key in ("a", "b", "a"):
        assert materialize(own, 'key:"scripted/things"', partition=key).success
        paths.append(set(own.table("scripted", "things").file_uris()))
    assert paths[0] < paths[1]
    assert paths[1] - paths[0] <= paths[2]
    assert values(own, "scripted", "things") == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("first", "then"), [({}, {"partitions": DAILY}), ({"partitions": DAILY}, {})]
)
def test_adding_or_removing_partitions_is_refused_for_an_existing_table(
    own: Project, first: Any, then: Any
) -> None:
    windowed(own, config={"to": "2026-01-02"}, **first)
    assert materialize(own, KEY, partition="2026-01-01" if first else None).success
    before = own.rows("weather", "readings")
    windowed(own, config={"to": "2026-01-02"}, **then)
    result = materialize(own, KEY, partition="2026-01-01" if then else None)
    assert "was not written by weather/readings as it is now" in failure_of(result)
    assert own.rows("weather", "readings") == before


def test_a_renamed_stream_is_refused_for_an_existing_table(own: Project) -> None:
    windowed(own, config={"to": "2026-01-02"})
    assert materialize(own, KEY).success
    own.amend("weather", translation={"key_prefix": "raw"})
    result = materialize(own, 'key:"raw/weather/readings"')
    assert "but by elt:weather/readings" in failure_of(result)


def test_a_given_state_is_refused_for_several_partitions(own: Project) -> None:
    how: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    state = {"at": "2026-01-01T05:00:00+00:00"}
    file = windowed(own, partitions=BY_STATION, config={"to": "2026-01-02"}, **how)
    result = materialize(own, KEY, partition="north", through="south", state=state)
    assert "each partition has a separate state" in failure_of(result)
    assert materialize(own, KEY, partition="north", state=state).success
    assert [call["state"] for call in calls(file)] == [state]
    windowed(own, "daily", partitions=DAILY, **how)
    result = materialize(own, 'key:"daily/readings"', partition="2026-01-01", state=state)
    assert "cannot start from a state" in failure_of(result)


@pytest.mark.parametrize(
    ("style", "last"),
    [
        ("%Y-%m-%d", "2026-01-05"),
        ("%Y-%m-%dT%H:%M:%SZ", "2026-01-05T23:59:59Z"),
        ("%Y-%m-%dT%H:%M:%S.%fZ", "2026-01-05T23:59:59.999999Z"),
        ("%s", 1767657599),
        ("%ms", 1767657599999),
    ],
)
def test_an_inclusive_end_is_the_last_value_of_the_window(style: str, last: Any) -> None:
    bind = Bind.model_validate({"start": "a.from", "end": "to", "format": style, "inclusive": True})
    start = dt.datetime(2026, 1, 5, tzinfo=dt.timezone.utc)
    config = {"a": {"b": 1}, "to": "x"}
    window_config = config_for_window(config, bind, start, start + dt.timedelta(days=1))
    assert window_config["to"] == last
    assert set(window_config["a"]) == {"b", "from"}
    assert config == {"a": {"b": 1}, "to": "x"}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("integer", "42", 42),
        ("number", "1.5", 1.5),
        ("boolean", "true", True),
        ("string", "42", "42"),
    ],
)
def test_a_key_is_converted_to_the_type_of_the_config_field(
    kind: str, key: str, value: Any
) -> None:
    settings = StaticPartitions.model_validate(
        {"type": "static", "keys": [key], "bind": {"field": "shop.id", "type": kind}}
    )
    config = config_for_partition({}, settings, dg.StaticPartitionsDefinition([key]), key)
    assert config == {"shop": {"id": value}}
    if kind != "string":
        with pytest.raises(ConfigError, match="cannot be used in the source config"):
            config_for_partition({}, settings, dg.StaticPartitionsDefinition([key]), "?")


def test_a_run_without_a_partition_is_refused_with_guidance(own: Project) -> None:
    file = windowed(own, partitions=DAILY)
    assert "`--partition KEY`" in failure_of(materialize(own, KEY))
    assert not calls(file)


def test_the_metadata_of_a_partition_has_its_own_row_count(own: Project) -> None:
    windowed(own, partitions=DAILY, dead_letter="asset")
    assert materialize(own, KEY, partition="2026-01-01", through="2026-01-02").success
    by_day = fetch_materializations(own, "weather", "readings")
    assert [metadata["dagster/row_count"] for metadata in by_day.values()] == [48, 48]
    assert by_day["2026-01-02"]["elt/table_rows"] == 96
    empty = fetch_materializations(own, "weather", "readings_dead_letter")
    assert {day: metadata["dagster/row_count"] for day, metadata in empty.items()} == dict.fromkeys(
        by_day, 0
    )


@pytest.mark.long
@pytest.mark.process
def test_runs_of_several_partitions_commit_at_the_same_time(own: Project) -> None:
    """Both create the table, or one of them finds it: each commits its own rows and state."""
    rules = {"unique": {"columns": ["station", "at"]}, "row_count": {"max": 24, "over": "new"}}
    merged: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    windowed(own, config={"to": "2026-01-02"}, partitions=BY_STATION, checks=rules, **merged)
    with ThreadPoolExecutor(2) as pool:
        sync = partial(own.elt, "sync", "weather", "readings", "--partition")
        done = list(pool.map(sync, BY_STATION["keys"]))
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    assert values(own) == {"north": 24, "south": 24}
    rows = own.rows("weather", "readings")
    assert all(row["station"] == row["_elt_partition"] for row in rows)
