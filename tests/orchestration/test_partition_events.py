"""Each partition that a run reads has one event, as soon as it is committed."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import dagster as dg
import pytest

from elt_assets.failpoints import Failpoint, armed
from tests.programs.windowed_source import windowed
from tests.support.project import REPOSITORY, Project
from tests.support.runs import materialize, read_log

KEY = dg.AssetKey(["weather", "readings"])
DEAD = dg.AssetKey(["weather", "readings_dead_letter"])
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
FIRST, LAST = "2026-01-01", "2026-01-03"
DAYS = [FIRST, "2026-01-02", LAST]

pytestmark = pytest.mark.usefixtures("spark")


def events(project: Project, key: dg.AssetKey = KEY) -> list[dg.AssetMaterialization]:
    """Return the asset's events, the oldest first."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(key, limit=1000).records
    materializations = [record.asset_materialization for record in reversed(records)]
    return [event for event in materializations if event is not None]


@pytest.mark.parametrize("select", ['key:"weather/readings"', 'key:"weather/readings*"'])
def test_an_event_follows_each_commit(own: Project, select: str) -> None:
    """The same holds for the dead letter, whether it is selected or not."""
    windowed(own, partitions=DAILY, dead_letter="asset")
    reported: list[int] = []

    def count(point: Failpoint) -> None:
        if point is Failpoint.STREAM_COMPLETE:
            reported.append(len(events(own)))

    with armed(count):
        assert materialize(own, select, partition=FIRST, through=LAST).success
    assert reported == [0, 1, 2]
    assert [event.partition for event in events(own)] == DAYS
    assert Counter(event.partition for event in events(own, DEAD)) == Counter(DAYS)


def test_the_event_of_a_partition_is_one_of_dagster(own: Project) -> None:
    """Dagster knows its versions of data and code, and the keys of its partition, by its tags."""
    stations = {"type": "static", "keys": ["north", "south"], "bind": "station"}
    both = {"type": "multi", "window": DAILY, "key": stations}
    windowed(own, partitions=both)
    assert materialize(own, 'key:"weather/readings"', partition="north|2026-01-02").success
    (event,) = events(own)
    assert event.partition == "north|2026-01-02"
    tags = event.tags or {}
    assert {"dagster/data_version", "dagster/code_version"} <= set(tags)
    assert tags["dagster/partition/window"] == "2026-01-02"
    assert tags["dagster/partition/key"] == "north"


@pytest.mark.long  # the test of a retry of such a run is quick
def test_a_killed_run_has_reported_what_it_committed(own: Project) -> None:
    """The next run reports the partition between whose commit and event the run was killed."""
    windowed(own, partitions=DAILY)
    kill_at_the_third_commit(own)
    rows = own.table("weather", "readings").to_pyarrow_table().column("_elt_partition")
    assert set(rows.to_pylist()) == set(DAYS)
    assert [event.partition for event in events(own)] == DAYS[:2]
    result = materialize(own, 'key:"weather/readings"', partition="2026-01-04")
    assert f"partition {LAST}: an earlier run ended" in read_log(own, result)
    assert [event.partition for event in events(own)] == [*DAYS, "2026-01-04"]


def kill_at_the_third_commit(project: Project) -> None:
    """Read three partitions in a process that is killed when it has committed the last."""
    command = project.materialize_command('key:"weather/readings"')
    done = subprocess.run(
        [*command, "--partition-range", f"{FIRST}...{LAST}"],
        env={**project.environment, "ELT_FAILPOINT": f"{Failpoint.STREAM_COMPLETE.name}:3"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
