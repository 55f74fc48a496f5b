"""A retry reads only the partitions that no earlier attempt has committed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from tests.orchestration.test_partition_events import (
    DAILY,
    DAYS,
    FIRST,
    LAST,
    events,
    kill_at_the_third_commit,
)
from tests.orchestration.test_partitions import values
from tests.programs.windowed_source import calls, windowed
from tests.support.project import REPOSITORY, Project
from tests.support.runs import evaluations, failure_of, materialize

KEY = 'key:"weather/readings"'
MIDDLE = DAYS[1]
BROKEN = {"fails_at": f"{MIDDLE}T05:00:00+00:00"}
REPLACED: Any = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
BY_STATION = {"type": "static", "keys": ["north", "south"], "bind": "station"}

pytestmark = pytest.mark.usefixtures("spark")


def reads(file: Path, field: str = "from") -> Counter[str]:
    """Return the number of reads of each partition."""
    return Counter(call["config"][field] for call in calls(file))


def list_reported(project: Project, *runs: dg.ExecuteInProcessResult) -> list[list[str]]:
    """Return the partitions that each run has reported."""
    partitions = []
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        for run in runs:
            logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
            events = [entry.asset_materialization for entry in logs]
            partitions.append(
                [e.partition or "" for e in events if e and e.asset_key.path[-1] == "readings"]
            )
    return partitions


def read_range(project: Project, **options: Any) -> dg.ExecuteInProcessResult:
    return materialize(project, KEY, partition=FIRST, through=LAST, **options)


@pytest.mark.parametrize(
    "mode", ["full_refresh", pytest.param("incremental", marks=pytest.mark.long)]
)
def test_a_retry_of_the_step_reads_the_partitions_that_failed(own: Project, mode: str) -> None:
    file = windowed(own, partitions=DAILY, config=BROKEN, sync_mode=mode)
    own.amend("weather", retry={"attempts": 2, "delay": "0.1s"})
    result = read_range(own)
    assert f"1 of 3 partitions failed; committed partitions are kept\npartition '{MIDDLE}'" in (
        failure_of(result)
    )
    assert reads(file) == {FIRST: 1, MIDDLE: 3, LAST: 1}
    assert [event.partition for event in events(own)] == [FIRST, LAST]


def test_a_run_that_continues_a_failed_one_reads_the_partitions_that_failed(own: Project) -> None:
    """A new run reads all again."""
    file = windowed(own, partitions=DAILY, config=BROKEN, **REPLACED)
    failed = read_range(own)
    assert not failed.success
    again = read_range(own, parent=failed.run_id)
    assert not again.success
    own.reconfigure("weather", fails_at="", factor=2)
    last = read_range(own, parent=again.run_id)
    assert last.success
    assert all(evaluation.passed for evaluation in evaluations(last).values())
    assert reads(file) == {FIRST: 1, MIDDLE: 3, LAST: 1}
    assert list_reported(own, failed, again, last) == [[FIRST, LAST], [FIRST, LAST], DAYS]
    for figure in ("elt/records_read", "elt/source_records"):
        assert sum(figure in event.metadata for event in events(own)) == 3
    assert values(own) == dict.fromkeys(DAYS, 48)
    assert read_range(own).success
    assert reads(file) == {FIRST: 2, MIDDLE: 4, LAST: 2}


def test_a_partition_that_was_restored_since_is_read_again(own: Project) -> None:
    file = windowed(own, partitions=DAILY, config=BROKEN, **REPLACED)
    failed = read_range(own)
    own.table("weather", "readings").restore(1)  # the first partition is there, the last is not
    own.reconfigure("weather", fails_at="")
    assert read_range(own, parent=failed.run_id).success
    assert reads(file)[LAST] == 2
    assert values(own) == dict.fromkeys(DAYS, 48)


def test_a_partition_that_another_run_has_read_since_is_read_again(own: Project) -> None:
    file = windowed(own, partitions=DAILY, config=BROKEN, **REPLACED)
    failed = read_range(own)
    assert materialize(own, KEY, partition=FIRST).success
    assert not read_range(own, parent=failed.run_id).success
    assert reads(file) == {FIRST: 3, MIDDLE: 2, LAST: 1}


def test_a_retry_reports_what_a_killed_attempt_committed(own: Project) -> None:
    """The killed attempt has no event of its last partition, which is not read again for it."""
    file = windowed(own, partitions=DAILY, **REPLACED)
    kill_at_the_third_commit(own)
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        (killed,) = instance.get_runs()
    result = read_range(own, parent=killed.run_id)
    assert result.success
    assert reads(file) == dict.fromkeys(DAYS, 1)
    assert sorted(event.partition or "" for event in events(own)) == sorted([*DAYS, *DAYS[:2]])
    (recovered,) = (e.metadata for e in events(own) if e.partition == LAST)
    assert (recovered["elt/recovered"].value, recovered["dagster/row_count"].value) == (True, 48)
    assert all(evaluation.passed for evaluation in evaluations(result).values())


def test_a_cancelled_run_has_reported_what_it_committed(own: Project) -> None:
    """The connector ends with the run, and a retry reads the rest."""
    file = windowed(
        own, partitions=DAILY, config={"hangs_at": f"{LAST}T05:00:00+00:00"}, **REPLACED
    )
    command = [*own.materialize_command(KEY), "--partition-range", f"{FIRST}...{LAST}"]
    run = subprocess.Popen(command, env=own.environment, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        while run.poll() is None and len(calls(file)) < 3:
            time.sleep(0.1)
        connector = psutil.Process(calls(file)[-1]["pid"])
        run.terminate()
        assert run.wait() != 0
    finally:
        run.kill()
    assert not connector.is_running() or connector.status() == psutil.STATUS_ZOMBIE
    assert [event.partition for event in events(own)] == DAYS[:2]
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        (cancelled,) = instance.get_runs()
    own.reconfigure("weather", hangs_at="")
    assert read_range(own, parent=cancelled.run_id).success
    assert reads(file) == {FIRST: 1, DAYS[1]: 1, LAST: 2}
    assert values(own) == dict.fromkeys(DAYS, 48)


def test_a_retry_leaves_keys_with_a_cursor_that_are_complete(own: Project) -> None:
    """A key that was committed in part resumes from its cursor."""
    broken = {"to": "2026-01-03", "fails_at": "2026-01-02T05:00:00+00:00"}
    modes: Any = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    file = windowed(own, partitions=BY_STATION, config=broken, **modes)
    failed = materialize(own, KEY, partition="north", through="south")
    assert "2 of 2 partitions failed" in failure_of(failed)
    own.reconfigure("weather", fails_at="")
    assert materialize(own, KEY, partition="north", parent=failed.run_id).success
    again = materialize(own, KEY, partition="north", through="south", parent=failed.run_id)
    assert again.success
    assert reads(file, "station") == {"north": 3, "south": 2}
    assert [call["state"] for call in calls(file)][2:] == [
        {"at": "2026-01-01T23:00:00+00:00"},
        {"at": "2026-01-02T23:00:00+00:00"},
        {"at": "2026-01-01T23:00:00+00:00"},
    ]
    assert values(own) == {"north": 48, "south": 48}
