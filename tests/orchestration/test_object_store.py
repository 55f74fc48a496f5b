"""Assets of a lake in an S3 store: a sync, its checks, and an asset that loads its rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from elt_assets import read_table
from elt_assets.lake.session import SparkSession
from elt_assets.storage.folders import scratch
from tests.programs.scripted import record, script
from tests.support.object_store import SECRET, ObjectStore, new_bucket, s3_server
from tests.support.project import Project
from tests.support.runs import evaluations, failure_of, fetch_materializations, materialize

THINGS = 'key:"scripted/things"'
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def store(own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The lake of the project, whose options are in a file."""
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        (own.root / "store.yaml").write_text(json.dumps(store.options))
        monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(own.root / "store.yaml"))
        monkeypatch.setenv("ELT_LAKE", store.uri)
        yield store


@dg.asset(
    ins={"rows": dg.AssetIn(["scripted", "things"])},
    io_manager_key="io_manager",
    key=["scripted", "counted"],
)
def counted(rows: Any) -> Any:
    return rows.groupBy("name").count()


@dg.asset(
    ins={"rows": dg.AssetIn(["scripted", "things"], metadata={"columns": ["id", "name"]})},
    io_manager_key="io_manager",
    key=["scripted", "named"],
)
def count_names(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("name").agg(pl.len().alias("count"))


def test_rows_are_synced_checked_and_loaded(
    own: Project, store: ObjectStore, spark: SparkSession
) -> None:
    dedup: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    lines = [record(id=1, name="a"), record(id=2, name="a"), record(id=1, name="b")]
    script(own, lines, **dedup)
    selection = f'{THINGS} or key:"scripted/counted" or key:"scripted/named"'
    result = materialize(own, selection, [counted, count_names])
    assert result.success
    checks = evaluations(result)
    assert checks and all(check.passed for check in checks.values())
    rows = read_table(spark, "scripted/things").select("id", "name").collect()
    assert sorted(map(tuple, rows)) == [(1, "b"), (2, "a")]
    names = read_table(spark, "scripted/counted").select("name", "count").collect()
    assert sorted(map(tuple, names)) == [("a", 1), ("b", 1)]
    counts = read_table("scripted/named", form=pl.DataFrame).rows()
    assert sorted(counts) == [("a", 1), ("b", 1)]
    output = f"{fetch_materializations(own, 'scripted', 'things')} {result.all_events}"
    assert store.uri in output and SECRET not in output


def test_an_unknown_option_fails_the_run_before_the_source_is_read(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, ["!exit 3"])
    (own.root / "store.yaml").write_text(f"aws_secret_acces_key: {SECRET}\n")
    monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(own.root / "store.yaml"))
    monkeypatch.setenv("ELT_LAKE", "s3://bucket/lake")
    error = failure_of(materialize(own))
    assert "sets aws_secret_acces_key, which is not an option of s3://" in error
    assert SECRET not in error


def test_staging_in_a_store_is_empty_after_a_sync_and_free_of_what_a_killed_one_left(
    own: Project, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_STAGING", f"s3://{store.bucket}/staging")
    with scratch(own.home / "staging", "sync") as folder:
        copy = shutil.copytree(folder, own.root / "copy")
    copy.rename(folder)  # as after a kill: no process has its lock
    for session in (folder.name, "sync-another-0123456789abcdef"):
        with store.system.open_output_stream(f"{store.bucket}/staging/{session}/0/1.jsonl") as sink:
            sink.write(b"{}")
    script(own, [record(id=1, name="a"), record(id=None, name="b")], primary_key=[["id"]])
    assert materialize(own).success
    staged = [name.split("/")[2] for name in store.objects() if "/staging/" in name]
    assert staged == ["sync-another-0123456789abcdef"]
    assert list((own.home / "staging").iterdir()) == []
