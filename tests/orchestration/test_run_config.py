"""Tests of the options of one run: refresh, a start state and a window; and of the current state."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from elt_assets import paths
from elt_assets.connection import place_in
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration import states
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.streams import StreamAsset
from tests.programs.windowed_source import calls, windowed
from tests.support.project import Project
from tests.support.runs import (
    failure_of,
    fetch_materializations,
    materialize,
    observations,
    read_log,
)

KEY, READINGS = 'key:"weather/readings"', dg.AssetKey(["weather", "readings"])
LIVE: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
WINDOW = {"bind": {"start": "from", "end": "to", "format": "%Y-%m-%dT%H:%M:%SZ"}}
FIRST, SECOND = {"at": "2026-01-01T23:00:00+00:00"}, {"at": "2026-01-02T23:00:00+00:00"}

pytestmark = pytest.mark.usefixtures("spark")


def asset(project: Project) -> StreamAsset:
    folder = project.root / "defs" / "weather"
    (stream_asset,) = ConnectionComponent.load_at(place_in(folder)).stream_assets()
    return stream_asset


def rows(project: Project) -> list[dict[str, Any]]:
    return project.rows("weather", "readings")


def two_syncs(project: Project, **how: Any) -> None:
    windowed(project, config={"to": "2026-01-02"}, **{**LIVE, **how})
    assert materialize(project, KEY).success
    project.reconfigure("weather", to="2026-01-03")
    assert materialize(project, KEY).success


def instance(project: Project) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(project.home))


def test_a_window_is_read_without_changing_the_cursor(own: Project) -> None:
    two_syncs(own, window=WINDOW)
    own.reconfigure("weather", factor=100)
    window = {"start": "2026-01-01T06:00:00Z", "end": "2026-01-01T09:00:00Z"}
    result = materialize(own, KEY, window=window)
    assert result.success
    metadata = fetch_materializations(own, "weather", "readings")[None]
    assert metadata["elt/records_read"] == 6
    assert metadata["elt/state"]["stream"]["stream_state"] == SECOND
    changed = [row["at"].isoformat() for row in rows(own) if row["value"] >= 100]
    assert sorted(set(changed)) == [f"2026-01-01T{hour:02d}:00:00+00:00" for hour in (6, 7, 8)]
    assert len(rows(own)) == 96
    own.reconfigure("weather", factor=1, to="2026-01-04")
    file = own.root / "weather-calls"
    assert materialize(own, KEY).success
    assert calls(file)[-1]["state"] == SECOND


@pytest.mark.parametrize(
    ("window", "how", "expected"),
    [
        (
            {"start": "2026-01-02", "end": "2026-01-01"},
            {},
            "`end` (2026-01-01) is not after `start`",
        ),
        ({"start": "monday", "end": "2026-01-01"}, {}, "write a date"),
        ({"start": "2026-01-01", "end": "2026-01-02"}, {"window": None}, "add `window: {bind"),
        (
            {"start": "2026-01-01", "end": "2026-01-02"},
            {"destination_sync_mode": "append"},
            "destination_sync_mode: append_dedup",
        ),
    ],
)
def test_an_invalid_window_is_refused(own: Project, window: Any, how: Any, expected: str) -> None:
    file = windowed(own, **{**LIVE, "window": WINDOW, **how})
    assert expected in failure_of(materialize(own, KEY, window=window))
    assert not calls(file)


def test_a_truncating_refresh_replaces_the_rows(own: Project) -> None:
    two_syncs(own)
    own.reconfigure("weather", **{"from": "2026-01-02"})
    assert materialize(own, KEY, refresh="truncate").success
    assert calls(own.root / "weather-calls")[-1]["state"] is None
    assert {row["at"].day for row in rows(own)} == {2}
    assert fetch_materializations(own, "weather", "readings")[None]["elt/generation"] == 2


def test_a_retaining_refresh_keeps_the_former_rows(own: Project) -> None:
    two_syncs(own)
    own.reconfigure("weather", **{"from": "2026-01-02"}, factor=100)
    assert materialize(own, KEY, refresh="retain").success
    assert {row["at"].day for row in rows(own)} == {1, 2}
    assert max(row["value"] for row in rows(own) if row["at"].day == 2) == 2300


def test_a_run_may_start_from_a_given_state(own: Project) -> None:
    file = windowed(own, config={"to": "2026-01-04"}, **LIVE)
    assert materialize(own, KEY, state=SECOND).success
    assert calls(file)[-1]["state"] == SECOND
    assert {row["at"].day for row in rows(own)} == {3}


def test_a_state_and_a_refresh_together_are_refused(own: Project) -> None:
    file = windowed(own, **LIVE)
    assert "set only one of them" in failure_of(
        materialize(own, KEY, state=FIRST, refresh="retain")
    )
    assert not calls(file)


def test_rewinding_to_the_first_state_gives_the_same_rows(own: Project) -> None:
    two_syncs(own)
    before = rows(own)
    past = states.history(asset(own), paths.lake())
    first = next(commit for commit in reversed(past) if commit.metadata.state is not None)
    with instance(own) as dagster:
        states.rewind(asset(own), paths.lake(), first.metadata.sequence, dagster)
    result = materialize(own, KEY)
    assert result.success
    assert "rolled back" not in read_log(own, result)
    assert calls(own.root / "weather-calls")[-1]["state"] == FIRST
    assert rows(own) == before


def test_a_state_that_is_set_by_hand_is_used_and_reported(own: Project) -> None:
    two_syncs(own)
    with instance(own) as dagster:
        tables = states.set_state(asset(own), paths.lake(), FIRST, dagster)
    assert observations(own, "weather", "readings")[-1]["elt/set_by_hand"] is True
    assert tables.metadata.sequence == states.history(asset(own), paths.lake())[0].metadata.sequence
    assert materialize(own, KEY).success
    assert calls(own.root / "weather-calls")[-1]["state"] == FIRST


def test_a_reset_starts_a_new_generation(own: Project) -> None:
    two_syncs(own)
    with instance(own) as dagster:
        states.reset(asset(own), paths.lake(), dagster)
    assert len(rows(own)) == 96
    assert materialize(own, KEY).success
    assert calls(own.root / "weather-calls")[-1]["state"] is None
    assert fetch_materializations(own, "weather", "readings")[None]["elt/generation"] == 2
    assert len(rows(own)) == 96


def test_a_state_can_be_set_before_the_first_sync(own: Project) -> None:
    file = windowed(own, config={"to": "2026-01-04"}, **LIVE)
    with instance(own) as dagster:
        states.set_state(asset(own), paths.lake(), SECOND, dagster)
    assert materialize(own, KEY).success
    assert calls(file)[-1]["state"] == SECOND


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ([], "must be a JSON object"),
        ({}, "must be a JSON object"),
        ("2026-01-01", "must be a JSON object"),
        ({"type": "GLOBAL", "global": {"stream_states": []}}, "is not the state of one stream"),
        ({"type": "STREAM"}, "is not the state of one stream"),
        ({"type": "STREAM", "stream": {"stream_descriptor": {"name": "x"}}}, "to another stream"),
        ({"type": "STREAM", "stream": 5}, "not a valid STATE message"),
    ],
)
def test_a_malformed_state_is_refused(own: Project, state: Any, expected: str) -> None:
    windowed(own, **LIVE)
    with instance(own) as dagster, pytest.raises(ConfigError) as error:
        states.set_state(asset(own), paths.lake(), state, dagster)
    assert expected in str(error.value)
    assert not (own.home / "lake").exists()


def test_other_options_are_refused_while_a_refresh_is_unfinished(own: Project) -> None:
    two_syncs(own, window=WINDOW)
    own.amend("weather", checkpoint={"rows": 12})
    own.reconfigure("weather", fails_at="2026-01-02T12:00:00+00:00")
    assert not materialize(own, KEY, refresh="truncate").success
    window = {"start": "2026-01-01", "end": "2026-01-02"}
    others: list[dict[str, Any]] = [{"state": FIRST}, {"window": window}]
    for config in others:
        assert "in the middle of a refresh" in failure_of(materialize(own, KEY, **config))
    own.reconfigure("weather", fails_at="")
    assert materialize(own, KEY).success
    assert len(rows(own)) == 96


def test_the_launchpad_describes_each_option(own: Project) -> None:
    windowed(own, **LIVE)
    job = build().get_repository_def().get_implicit_job_def_for_assets([READINGS])
    assert job is not None
    fields = job.run_config_schema.config_type.fields  # type: ignore[attr-defined]
    options = fields["ops"].config_type.fields["weather__readings"].config_type.fields["config"]
    described = {name: option.description for name, option in options.config_type.fields.items()}
    assert set(described) == {"follow", "refresh", "state", "window"}
    spark = fields["resources"].config_type.fields["elt_spark"].config_type.fields["config"]
    settings = spark.config_type.fields["spark_config"]
    assert all([*described.values(), settings.description])
