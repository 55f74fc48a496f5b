"""Tables that an earlier version of this project wrote: the present one goes on with them.

`former_lake.zip` was written through assets by commit 53da87b, before the packages of `elt_assets` were
rearranged: `versions/things` (append_dedup with a history: two syncs, then a truncating refresh that failed
after its first checkpoint, with records rejected before and within it) and `days/things` (append_dedup, the
partitions `mon` and `tue`, a record of each rejected).
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.cli import main
from tests.orchestration.running import failure_of, materialize
from tests.programs.scripted import record, script, state
from tests.project import Project

pytestmark = pytest.mark.usefixtures("spark_provider")

KEYED: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
DAYS: dict[str, Any] = {"partitions": {"type": "static", "keys": ["mon", "tue"], "bind": "day"}}
DAY = {"type": "object", "properties": {"day": {"type": "string"}}}


@pytest.fixture
def former(own: Project) -> Project:
    with zipfile.ZipFile(Path(__file__).with_name("former_lake.zip")) as archive:
        archive.extractall(own.home / "lake")
    return own


def rejected(spark: SparkSession, key: str) -> list[Any]:
    rows = read_table(spark, f"{key}_dead_letter").collect()
    return sorted(json.loads(row.record)["name"] for row in rows)


def test_an_unfinished_refresh_of_an_earlier_version_is_resumed(
    former: Project, spark: SparkSession
) -> None:
    rows = [(row["id"], row["name"]) for row in former.rows("versions", "things")]
    assert rows == [(1, "A"), (2, "b"), (3, '["odd"]')]
    assert rejected(spark, "versions/things") == ["rejected", "rejected anew"]

    script(former, [record(id=4, name="late"), state(12)], name="versions", **KEYED, history=True)
    result = materialize(former, 'key:"versions/things"')
    assert result.success, failure_of(result)

    rows = [(row["id"], row["name"]) for row in former.rows("versions", "things")]
    assert rows == [(1, "new"), (4, "late")]
    assert rejected(spark, "versions/things") == ["rejected anew"]
    metadata = former.metadata("versions", "things")
    assert metadata["elt/generation"] == 2 and metadata["elt/state"] == state(12)["state"]
    past = read_table(spark, "versions/things_history").orderBy("id", "_valid_from").collect()
    assert [(row.id, row.name, row._is_current) for row in past if row._is_current] == [
        (1, "new", True),
        (4, "late", True),
    ]
    # The cursor is the id: a key has one version for each.
    ended = {(row.id, row.name) for row in past if not row._is_current}
    assert ended == {(2, "b"), (3, '["odd"]')}


def test_a_partition_of_an_earlier_version_is_replaced_alone(
    former: Project, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    how = {**KEYED, **DAYS, "sync_mode": "full_refresh"}
    script(former, [record(id=7, name="y"), state(2)], name="days", specification=DAY, **how)
    result = materialize(former, 'key:"days/things"', partition="mon")
    assert result.success, failure_of(result)
    rows = {(row["_elt_partition"], row["id"]) for row in former.rows("days", "things")}
    assert rows == {("mon", 7), ("tue", 1)}
    assert main(["replay", "days"]) == 0
    assert "0 records replayed, 1 rejected again" in capsys.readouterr().out
