"""Tables of another version of this project, and tables that are older than the event log."""

from __future__ import annotations

import shutil
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


# The format of tables


def _format(project: Project) -> str | None:
    configuration: dict[str, str] = project.table("versions", "things").metadata().configuration
    return configuration.get("elt.format")


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
