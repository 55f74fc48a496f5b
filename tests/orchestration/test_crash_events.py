"""Kill −9 between the commits of partitions and their events in Dagster: the next run reports what is
missing, and no record is lost or doubled.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from elt_assets.failpoints import VARIABLE, Failpoint, armed
from tests.programs.windowed_source import windowed
from tests.support.failpoints import assert_reached
from tests.support.project import REPOSITORY, Project
from tests.support.runs import fetch_materializations, materialize

pytestmark = pytest.mark.usefixtures("spark")

KEY = 'key:"weather/readings"'
FIRST, LAST = "north", "south"
DAYS = 3
POINTS = (Failpoint.STATE_OBSERVED, Failpoint.STREAM_COMPLETE, Failpoint.EVENT_RECOVERED)


@pytest.fixture
def readings(own: Project) -> Project:
    """Two partitions of three days: a commit after two days, and one at the end."""
    windowed(
        own,
        sync_mode="incremental",
        destination_sync_mode="append_dedup",
        partitions={"type": "static", "keys": [FIRST, LAST], "bind": "station"},
        config={"to": f"2026-01-{1 + DAYS:02}"},
    )
    own.amend("weather", checkpoint={"rows": 48})
    return own


@dataclass
class Camera:
    """Copies what is on disk, with the event log, the last time that each of `POINTS` is reached: what a kill
    there leaves."""

    home: Path
    album: Path
    shots: dict[Failpoint, Path] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # others commit beside

    def __call__(self, point: Failpoint) -> None:
        with self.lock:
            if point in POINTS:
                shot = self.album / point.name
                shutil.rmtree(shot, ignore_errors=True)
                shutil.copytree(self.home, shot)
                self.shots[point] = shot


def photograph(project: Project, album: str) -> dict[Failpoint, Path]:
    """Sync both partitions; return what a kill at each of the failpoints leaves."""
    camera = Camera(project.home, project.root / album)
    with armed(camera):
        assert materialize(project, KEY, partition=FIRST, through=LAST).success
    return camera.shots


def put_back(project: Project, shot: Path) -> None:
    shutil.rmtree(project.home)
    shutil.copytree(shot, project.home)


def assert_complete(project: Project) -> None:
    stations = [row["_elt_partition"] for row in project.rows("weather", "readings")]
    assert {name: stations.count(name) for name in stations} == {FIRST: 24 * DAYS, LAST: 24 * DAYS}
    state = {"at": f"2026-01-{DAYS:02}T23:00:00+00:00"}
    reported = fetch_materializations(project, "weather", "readings")
    states = {
        name: event["elt/state"]["stream"]["stream_state"] for name, event in reported.items()
    }
    assert states == {FIRST: state, LAST: state}


def list_recovered(project: Project) -> list[str | None]:
    """Return the partitions of which the event of a killed run was recovered, each once."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        key = dg.AssetKey(["weather", "readings"])
        records = instance.fetch_observations(key, limit=100).records
    events = [record.event_log_entry.asset_observation for record in records]
    partitions = [
        event.partition for event in events if event and "elt/recovered" in event.metadata
    ]
    assert len(partitions) == len(set(partitions))
    return partitions


def test_partitions_survive_a_kill_between_commit_and_event(
    readings: Project, request: pytest.FixtureRequest
) -> None:
    points: set[Failpoint | None] = set()
    for point, shot in photograph(readings, "first").items():
        put_back(readings, shot)
        later = photograph(readings, f"after-{point.name}")
        assert_complete(readings)
        assert list_recovered(readings) or point is not Failpoint.STREAM_COMPLETE
        points |= {point, *later}
        if Failpoint.EVENT_RECOVERED in later:
            put_back(readings, later[Failpoint.EVENT_RECOVERED])
            assert materialize(readings, KEY, partition=FIRST, through=LAST).success
            assert_complete(readings)
            assert list_recovered(readings)
    assert_reached(request.node.nodeid, points)


@pytest.mark.spec("protocol.103")
@pytest.mark.parametrize("number", [2, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_was_killed_before_its_event_is_reported(
    readings: Project, number: int
) -> None:
    done = subprocess.run(
        [*readings.materialize_command(KEY), "--partition-range", f"{FIRST}...{LAST}"],
        env={**readings.environment, VARIABLE: f"{Failpoint.STREAM_COMPLETE.name}:{number}"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(fetch_materializations(readings, "weather", "readings")) < 2
    assert materialize(readings, KEY, partition=FIRST, through=LAST).success
    assert list_recovered(readings)
    assert_complete(readings)
