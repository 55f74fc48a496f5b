"""Schedules: which streams share one, which partitions a tick requests, and in how many runs; and names."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elt_assets.connection import load_connection
from elt_assets.connection.partitions import TimePartitions
from elt_assets.definitions import build
from elt_assets.orchestration import partitions
from elt_assets.orchestration.schedules import newest_window
from elt_assets.orchestration.streams import connection_name, is_ambiguous, output_name, valid_name
from elt_assets.pipeline.stream import key_levels
from tests.orchestration.ticking import evaluate_schedule, execute, instance_of, tick
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import END, START

UTC = dt.timezone.utc
TICK = dt.datetime(2026, 1, 9, 2, tzinfo=UTC)
BIND = {"start": "from", "end": "to"}
DAILY = {"type": "daily", "start": "2026-01-01", "bind": BIND}
READINGS = dg.AssetKey(["weather", "readings"])


def keys(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "static", "keys": [f"k{n:04}" for n in range(count)], "bind": "station", **more}


def ranges(requests: list[dg.RunRequest]) -> list[tuple[str, str]]:
    """Return the first and the last partition of each request."""
    return [
        (request.partition_key or request.tags[START], request.partition_key or request.tags[END])
        for request in requests
    ]


# --- definitions of partitions ----------------------------------------------------------------------


def test_streams_of_different_partitions_have_a_schedule_for_each_definition(own: Project) -> None:
    windowed(own)
    later = {**DAILY, "start": "2026-01-05"}
    for other in (later, keys(2), {"type": "dynamic", "bind": "station"}):
        own.amend(
            "weather",
            schedule="0 2 * * *",
            streams=[
                {"name": "readings", "partitions": DAILY},
                {"name": "stations", "partitions": other},
            ],
        )
        repository = build().get_repository_def()
        names = {schedule.name for schedule in repository.schedule_defs}
        assert names >= {"weather_schedule", "weather__stations_schedule"}
        (request,) = evaluate_schedule(own, "weather_schedule", TICK)
        assert (request.asset_selection, request.partition_key) == ([READINGS], "2026-01-08")


def test_streams_of_one_definition_and_those_without_share_the_schedule(own: Project) -> None:
    windowed(own, schedule=None)
    own.amend(
        "weather",
        schedule="0 2 * * *",
        streams=[{"name": "stations"}, {"name": "readings", "partitions": DAILY}],
    )
    requests = evaluate_schedule(own, "weather_schedule", TICK)
    assert [candidate.partition_key for candidate in requests] == [None, "2026-01-08"]
    names = {candidate.name for candidate in build().get_repository_def().schedule_defs}
    assert names == {"weather_schedule", "elt_maintenance_schedule"}


# --- batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("per_run", "expected"),
    [
        (None, [("k0000", "k0999"), ("k1000", "k1999"), ("k2000", "k2499")]),
        (2_400, [("k0000", "k2399"), ("k2400", "k2499")]),
    ],
)
def test_a_tick_requests_runs_of_many_keys(
    own: Project, per_run: int | None, expected: list[tuple[str, str]]
) -> None:
    more = {} if per_run is None else {"partitions_per_run": per_run}
    windowed(own, partitions=keys(2_500, **more), schedule="0 2 * * *")
    assert ranges(evaluate_schedule(own, "weather__readings_schedule", TICK)) == expected
    with instance_of(own) as instance:
        instance.add_dynamic_partitions("weather__readings", [f"k{n:04}" for n in range(900)])
        instance.add_dynamic_partitions("weather__readings", [f"k{n:04}" for n in range(900, 1800)])
    windowed(own, partitions={"type": "dynamic", "bind": "station", **more}, schedule="0 2 * * *")
    last = expected[:-1] if per_run is None else [("k0000", "k1799")]
    requested = ranges(evaluate_schedule(own, "weather__readings_schedule", TICK))
    assert requested == [(first, min(end, "k1799")) for first, end in last]


def test_a_run_of_several_pairs_reads_their_keys_in_one_window(own: Project, spark: object) -> None:
    inner = {"type": "static", "keys": ["north", "south", "west"], "bind": "station"}
    multi = {"type": "multi", "window": DAILY, "key": {**inner, "partitions_per_run": 2}}
    windowed(own, partitions=multi, schedule="0 2 * * *")
    first, second = evaluate_schedule(own, "weather__readings_schedule", TICK)
    assert ranges([first]) == [("north|2026-01-08", "south|2026-01-08")]
    assert second.partition_key == "west|2026-01-08"
    assert execute(own, first).success
    partitions = {row["_elt_partition"] for row in own.rows("weather", "readings")}
    assert partitions == {"north|2026-01-08", "south|2026-01-08"}


def test_discovered_keys_are_added_in_several_ticks(own: Project, spark: object) -> None:
    stations = [f"s{n:04}" for n in range(1_100)]
    windowed(own, config={"stations": stations})
    discover = {"stream": "stations", "field": "id"}
    dynamic = {"type": "dynamic", "bind": "station", "discover": discover}
    own.amend(
        "weather",
        streams=[{"name": "readings", "partitions": dynamic}, {"name": "stations"}],
    )
    request = dg.RunRequest(asset_selection=[dg.AssetKey(["weather", "stations"])])
    assert execute(own, request).success
    first = tick(own, "weather__readings_partitions")
    second = tick(own, "weather__readings_partitions", first.cursor)
    third = tick(own, "weather__readings_partitions", second.cursor)
    sizes = [
        [len(request.partition_keys) for request in done.dynamic_partitions_requests or []]
        for done in (first, second, third)
    ]
    assert sizes == [[1_000], [100], []]
    requested = [ranges(list(done.run_requests or [])) for done in (first, second, third)]
    assert requested == [[("s0000", "s0999")], [("s1000", "s1099")], []]


# --- windows that have ended ------------------------------------------------------------------------


def test_nothing_is_requested_after_the_end_of_the_windows(own: Project) -> None:
    windowed(own, partitions={**DAILY, "end": "2026-01-10"}, schedule="0 2 * * *")
    days = [dt.datetime(2026, 1, day, 2, tzinfo=UTC) for day in (9, 10, 11, 12)]
    requests_by_day = [evaluate_schedule(own, "weather__readings_schedule", day) for day in days]
    assert [ranges(requests) for requests in requests_by_day] == [
        [("2026-01-08", "2026-01-08")],
        [("2026-01-09", "2026-01-09")],
        [],
        [],
    ]


@given(
    kind=st.sampled_from(["hourly", "daily", "weekly", "monthly"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"]),
    hours=st.integers(1, 3_000),
    later=st.integers(0, 3_000),
)
def test_the_newest_window_is_requested_only_until_another_one_would_be_over(
    kind: str, zone: str, hours: int, later: int
) -> None:
    start = dt.datetime(2025, 12, 31)  # noqa: DTZ001 - in the zone of the windows
    end = start + dt.timedelta(hours=hours)
    settings = {"type": kind, "start": start, "timezone": zone, "bind": BIND}
    ended = TimePartitions.model_validate({**settings, "end": end})
    endless = TimePartitions.model_validate(settings)
    tick = dt.datetime(2025, 12, 31, tzinfo=UTC) + dt.timedelta(hours=later)
    windows = partitions.definition(ended, "x")
    with dg.partition_loading_context(tick):
        newest = newest_window(ended, windows)
        unbounded = newest_window(endless, partitions.definition(endless, "x"))
        assert newest in (None, unbounded)
        if newest is not None:
            assert newest in windows.get_partition_keys()
        elif unbounded is not None:
            assert isinstance(windows, dg.TimeWindowPartitionsDefinition)
            over = windows.time_window_for_partition_key(unbounded).end
            assert over > end.replace(tzinfo=over.tzinfo)


# --- names ------------------------------------------------------------------------------------------


PART = st.text("ab_", min_size=1, max_size=4)
KEYS = st.lists(
    st.lists(PART, min_size=2, max_size=3).map(tuple), min_size=1, max_size=6, unique=True
)


@settings(max_examples=30)
@given(KEYS.map(set))
@example({("a", "b__c"), ("a__b", "c"), ("a", "b", "c"), ("a", "b")})
def test_names_in_a_project_are_distinct_and_plain_unless_two_would_be_equal(
    keys: set[tuple[str, ...]],
) -> None:
    """Dagster keeps the state of schedules, and dynamic partitions, by name: an upgrade must not rename."""
    levels = keys | {key[:1] for key in keys}
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        project = Project(Path(root))
        patch.setenv("ELT_DEFS", str(project.root / "defs"))
        names = list(name_all(project, keys))
    plain = Counter("__".join(key) for key in levels)
    assert len(names) == len(levels) == len(set(names))
    assert set(plain) <= set(names)


def name_all(project: Project, keys: set[tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of the connections and streams of a project that has these keys."""
    connections = {key[0] for key in keys}
    for name in connections:
        levels = sorted(key[1:] for key in keys if key[0] == name)
        streams = [dict(zip(("name", "namespace"), key[::-1], strict=False)) for key in levels]
        project.connection(name, source={"connector": "faker"}, streams=streams)
    for name in connections:
        connection = load_connection(project.root / "defs" / name)
        yield connection_name(connection)
        for stream in connection.streams:
            hashed = is_ambiguous(connection, stream.id)
            yield valid_name(key_levels(name, stream.id), hashed=hashed)


@given(*[st.lists(PART, min_size=1, max_size=3)] * 2)
def test_outputs_of_two_keys_never_have_the_same_name(first: list[str], other: list[str]) -> None:
    names = [output_name(dg.AssetKey(key)) for key in (first, other)]
    assert (names[0] == names[1]) == (first == other)


def test_dynamic_partitions_keep_their_name_though_a_connection_has_the_separator(
    own: Project,
) -> None:
    for name in ("my", "my__shop"):
        windowed(own, name, schedule="0 2 * * *", partitions={"type": "dynamic", "bind": "station"})
    repository = build().get_repository_def()
    definition = repository.asset_graph.get(dg.AssetKey(["my__shop", "readings"])).partitions_def
    assert isinstance(definition, dg.DynamicPartitionsDefinition)
    assert definition.name == "my__shop__readings"
    assert repository.has_schedule_def("my__shop__readings_schedule")


@pytest.mark.parametrize("together", [False, True])
def test_streams_of_a_connection_whose_names_join_to_the_same_name_load(
    own: Project, together: bool
) -> None:
    windowed(own, "a")
    path = own.root / "defs" / "a" / "catalog.json"
    (stream, *_) = json.loads(path.read_text())["streams"]
    ids: list[dict[str, str]] = [{"name": "x__y"}, {"name": "y", "namespace": "x"}]
    path.write_text(json.dumps({"streams": [{**stream, **stream_id} for stream_id in ids]}))
    own.amend("a", streams=ids, schedule="0 2 * * *", read_together=together)
    repository = build().get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.materializable_asset_keys}
    assert keys >= {"a/x__y", "a/x/y"}


def test_a_connection_may_have_the_name_of_a_job(own: Project) -> None:
    windowed(own, "elt_maintenance")
    own.amend("elt_maintenance", schedule="0 2 * * *")
    names = {schedule.name for schedule in build().get_repository_def().schedule_defs}
    assert names == {"elt_maintenance_schedule", "elt_maintenance_connection_schedule"}


def test_connections_whose_names_join_to_the_same_name_load_together(own: Project) -> None:
    for name, stream in (("a", "b"), ("a__b", "c")):
        windowed(own, name, schedule="0 2 * * *")
        folder = own.root / "defs" / name / "catalog.json"
        folder.write_text(folder.read_text().replace('"readings"', f'"{stream}"'))
        own.amend(
            name,
            schedule="0 3 * * *",
            streams=[{"name": stream, "schedule": "0 2 * * *" if name == "a" else None}],
        )
    names = {schedule.name for schedule in build().get_repository_def().schedule_defs}
    assert len(names) == 3 and "a__b_schedule" in names


# --- failures ---------------------------------------------------------------------------------------


def test_an_invalid_schedule_names_its_stream(own: Project) -> None:
    script(own, [record(id=1), state(1)], schedule="often")
    with pytest.raises(Exception, match="stream 'things': schedule: 'often' is not a valid cron"):
        build()
