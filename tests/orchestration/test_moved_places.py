"""The event log and the lake are lost, restored, shared or copied, each without the other.

The table alone says what was committed: a run continues from its newest commit, whatever Dagster's events
say, and its event then says what the table has.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP
from tests.programs.counting_source import counting, expected
from tests.support.project import Project
from tests.support.runs import materialize

POLICIES = (APPEND, APPEND_DEDUP)
EVERY = 10


def check_sync(project: Project, lake: Path, last: int) -> None:
    """Sync up to the number `last`; check that each row is there once, and that events equal tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(project.home))
        patch.setenv("ELT_DEFS", str(project.root / "defs"))
        patch.setenv("ELT_LAKE", str(lake))
        counting(project, "loop", last=last, every=EVERY, delay=0)
        result = materialize(project, " or ".join(f'key:"loop/{policy}"' for policy in POLICIES))
    assert result.success
    for policy in POLICIES:
        table = project.table(str(lake / "loop" / policy))
        numbers = sorted(table.to_pyarrow_table()["n"].to_pylist())
        assert numbers == expected(policy, last), policy
        event, commit = project.metadata("loop", policy), table.history(1)[0]
        assert event["elt/state"] == json.loads(commit["elt.state"]), policy
        assert event["elt/sequence"] == int(commit["elt.sequence"]), policy
        assert event["dagster/row_count"] == len(numbers), policy
    history = project.table(str(lake / "loop" / f"{APPEND_DEDUP}_history")).to_pyarrow_table()
    assert sorted(history["n"].to_pylist()) == list(range(1, last + 1))


@pytest.fixture
def lake(own: Project) -> Path:
    return own.root / "lake"


def new_home(project: Project, empty_home: Path) -> Project:
    """Return a project with the same connections and an event log of its own."""
    other = Project(project.root / "other")
    shutil.copytree(empty_home, other.home)
    return other


def test_a_lost_event_log_loses_no_row_and_repeats_none(
    own: Project, lake: Path, empty_home: Path
) -> None:
    check_sync(own, lake, 40)
    other = new_home(own, empty_home)
    check_sync(other, lake, 60)
    check_sync(own, lake, 80)  # also a former event log, whose events are older than the lake


def test_a_lost_lake_is_read_again(own: Project, lake: Path) -> None:
    check_sync(own, lake, 40)
    shutil.rmtree(lake)
    check_sync(own, lake, 60)


def test_a_restored_lake_continues_from_its_own_state(own: Project, lake: Path) -> None:
    check_sync(own, lake, 40)
    backup = shutil.copytree(lake, own.root / "backup")
    check_sync(own, lake, 60)
    shutil.rmtree(lake)
    backup.rename(lake)
    check_sync(own, lake, 60)


def test_a_copied_lake_goes_on_by_itself(own: Project, lake: Path, empty_home: Path) -> None:
    check_sync(own, lake, 40)
    copy = shutil.copytree(lake, own.root / "copy")
    check_sync(own, copy, 60)
    check_sync(new_home(own, empty_home), copy, 80)
    check_sync(own, lake, 50)
