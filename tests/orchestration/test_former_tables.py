"""Tables that an earlier version of this project wrote: the present one goes on with them.

`former_lake.zip` was written through assets by commit 53da87b, before the packages of `elt_assets` were
rearranged: `versions/things` (append_dedup with a history: two syncs, then a truncating refresh that failed
after its first checkpoint, with records rejected before and within it) and `days/things` (append_dedup, the
partitions `mon` and `tue`, a record of each rejected).

`first_lake.zip` was written by c44695e, the first commit with assets, and `last_lake.zip` by 2b8f873, the
last commit that records no format: `versions/things`, append_dedup, two syncs.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.cli import main
from elt_assets.errors import ConfigError
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")

KEYED: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
DAYS: dict[str, Any] = {"partitions": {"type": "static", "keys": ["mon", "tue"], "bind": "day"}}
DAY = {"type": "object", "properties": {"day": {"type": "string"}}}


@pytest.fixture
def former(own: Project) -> Project:
    with zipfile.ZipFile(Path(__file__).with_name("former_lake.zip")) as archive:
        archive.extractall(own.home / "lake")
    return own


def read_rejected(spark: SparkSession, key: str) -> list[Any]:
    rows = read_table(spark, f"{key}_dead_letter").collect()
    return sorted(json.loads(row.record)["name"] for row in rows)


def test_an_unfinished_refresh_of_an_earlier_version_is_resumed(
    former: Project, spark: SparkSession
) -> None:
    rows = [(row["id"], row["name"]) for row in former.rows("versions", "things")]
    assert rows == [(1, "A"), (2, "b"), (3, '["odd"]')]
    assert read_rejected(spark, "versions/things") == ["rejected", "rejected anew"]

    script(former, [record(id=4, name="late"), state(12)], name="versions", **KEYED, history=True)
    result = materialize(former, 'key:"versions/things"')
    assert result.success, failure_of(result)

    rows = [(row["id"], row["name"]) for row in former.rows("versions", "things")]
    assert rows == [(1, "new"), (4, "late")]
    assert read_rejected(spark, "versions/things") == ["rejected anew"]
    metadata = former.metadata("versions", "things")
    assert metadata["elt/generation"] == 2 and metadata["elt/state"] == state(12)["state"]
    past = read_table(spark, "versions/things_history").orderBy("id", "_valid_from").collect()
    assert [(row.id, row.name, row._is_current) for row in past if row._is_current] == [
        (1, "new", True),
        (4, "late", True),
    ]
    # The refresh ends the versions that it replaces. What the history answered before, it still answers.
    ended = {(row.id, row.name) for row in past if not row._is_current}
    assert ended == {(1, "A"), (2, "b"), (3, '["odd"]')}


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
    output = capsys.readouterr().out
    assert "0 records replayed, 1 rejected again" in output
    assert "1 of 1 records rejected, to the dead letter: " in output


# The format of tables


@pytest.fixture(params=["first_lake.zip", "last_lake.zip"])
def unversioned(own: Project, request: pytest.FixtureRequest) -> Project:
    """A table that a version without a format has written: two syncs."""
    with zipfile.ZipFile(Path(__file__).with_name(request.param)) as archive:
        archive.extractall(own.home / "lake")
    return own


def _format(project: Project) -> str | None:
    configuration: dict[str, str] = project.table("versions", "things").metadata().configuration
    return configuration.get("elt.format")


def test_a_table_without_a_format_is_read_and_upgraded(
    unversioned: Project, spark: SparkSession
) -> None:
    before = unversioned.table("versions", "things").version()
    assert _format(unversioned) is None
    rows = sorted((row.id, row.name) for row in read_table(spark, "versions/things").collect())
    assert rows == [(1, "a"), (2, "B"), (3, "c")]
    assert unversioned.table("versions", "things").version() == before
    script(unversioned, [record(id=3, name="C"), state(4)], name="versions", **KEYED)
    result = materialize(unversioned, 'key:"versions/things"')
    assert result.success, failure_of(result)
    assert "--state" in json.loads(
        (unversioned.root / "versions-source" / "arguments.json").read_text()
    )
    rows = sorted((row["id"], row["name"]) for row in unversioned.rows("versions", "things"))
    assert rows == [(1, "a"), (2, "B"), (3, "C")]
    assert _format(unversioned) == "1"
    entries = unversioned.table("versions", "things").history()
    assert [entry["version"] for entry in entries if entry.get("elt.format") == "1"] == [before + 1]


def test_a_new_table_records_its_format_and_a_newer_one_is_refused(
    own: Project, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [record(id=1), state(1)], name="versions", **KEYED)
    assert materialize(own).success
    delta = own.table("versions", "things")
    assert delta.history()[-1]["elt.format"] == "1" == _format(own)

    delta.alter.set_table_properties({"elt.format": "2"}, raise_if_not_exists=False)
    version = own.table("versions", "things").version()
    paths = sorted((own.home / "lake").rglob("*"))
    text = "has format 2; this version of elt-assets reads and writes formats up to 1"
    assert text in failure_of(materialize(own))
    with pytest.raises(ConfigError, match=text):
        read_table(spark, "versions/things")
    assert main(["state", "reset", "versions/things", "--yes"]) == 2
    assert text in capsys.readouterr().err
    assert own.table("versions", "things").version() == version
    assert sorted((own.home / "lake").rglob("*")) == paths


# Restores of backups


def _sync(project: Project, *lines: Any) -> str:
    """Sync, and return the log of the run."""
    script(project, [*lines], **APPENDED)
    result = materialize(project)
    assert result.success, failure_of(result)
    return read_log(project, result)


def _ids(project: Project) -> list[int]:
    return [row["id"] for row in project.rows("scripted", "things")]


APPENDED: dict[str, Any] = {
    "destination_sync_mode": "append",
    "fields": {"hash": ["name"]},
}


def test_an_older_lake_beside_a_newer_event_log_reads_again_what_it_lacks(
    own: Project, tmp_path: Path
) -> None:
    _sync(own, record(id=1), state(1))
    shutil.copytree(own.home / "lake", tmp_path / "backup")
    _sync(own, record(id=2), state(2))
    shutil.rmtree(own.home / "lake")
    shutil.copytree(tmp_path / "backup", own.home / "lake")
    assert "it was rolled back or deleted" in _sync(own, record(id=2), record(id=3), state(3))
    assert _ids(own) == [1, 2, 3]
    assert "rolled back" not in _sync(own, record(id=4), state(4))


def test_an_older_home_beside_a_newer_lake_reports_what_is_missing(
    own: Project, tmp_path: Path
) -> None:
    _sync(own, record(id=1), state(1))
    skip = shutil.ignore_patterns("lake", "staging")
    shutil.copytree(own.home, tmp_path / "backup", ignore=skip)
    _sync(own, record(id=2), state(2))
    (own.home / "lake").rename(tmp_path / "lake")
    shutil.rmtree(own.home)
    shutil.copytree(tmp_path / "backup", own.home)
    (tmp_path / "lake").rename(own.home / "lake")
    log = _sync(own, record(id=3), state(3))
    assert "missing" in log
    assert _ids(own) == [1, 2, 3]


def test_a_lake_without_its_salt_is_refused(own: Project) -> None:
    _sync(own, record(id=1, name="a"), state(1))
    salt = own.home / "hash_salt"
    text = salt.read_text()
    salt.unlink()
    script(own, [record(id=2, name="a"), state(2)], **APPENDED)
    assert "were made with another salt" in failure_of(materialize(own))
    assert _ids(own) == [1]
    salt.write_text(text)
    _sync(own, record(id=2, name="a"), state(2))
    assert len({row["name"] for row in own.rows("scripted", "things")}) == 1
