"""The health of tables: what it measures, from the log alone, is what maintenance then puts in order."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elt_assets.lake.admin import health, maintenance
from elt_assets.lake.admin.health import (
    Measure,
    measure_log_length,
    measure_small_files,
    measure_unsorted,
    measure_vacuum_debt,
)
from elt_assets.lake.admin.maintenance import CHECKPOINT_ENTRIES, maintain
from elt_assets.lake.admin.vacuum_mark import PATH, VacuumMark
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE
from tests.lake.arrow import make_old
from tests.lake.crashing import configured, event, sync
from tests.lake.harness import Lake
from tests.lake.staging import APP
from tests.lake.test_maintenance import BATCHES

DAYS = 10
ORDER = [["id"]]
STEPS = ["sync", "merge", "overwrite", "age", "maintain"]


def age(folder: Path) -> None:
    """All that is there was done ten days earlier. Checkpoints are removed, since they have times too."""
    for checkpoint in [*folder.rglob("*.checkpoint.parquet"), *folder.rglob("_last_checkpoint")]:
        checkpoint.unlink()
    for entry in folder.rglob("_delta_log/*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            for kind, key in (("commitInfo", "timestamp"), ("remove", "deletionTimestamp")):
                if kind in action:
                    action[kind][key] -= DAYS * 86_400_000
        if entry.name.startswith("0"):
            entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    for file in folder.rglob("*"):
        if file.is_file():
            make_old(file, DAYS)


def measure(tables: StreamTables) -> dict[str, Measure]:
    return {
        "small_files": measure_small_files(tables, ORDER),
        "unsorted": measure_unsorted(tables, ORDER),
        "vacuum_debt": measure_vacuum_debt(tables, free_bytes=0),
        "log_length": measure_log_length(tables),
    }


def assert_done(lake: Lake) -> None:
    """Assert that maintenance has left nothing."""
    left = {name: measure.value for name, measure in measure(lake.tables()).items()}
    assert left.pop("log_length") <= CHECKPOINT_ENTRIES
    assert set(left.values()) == {0}


def run_steps(lake: Lake, steps: Sequence[str]) -> None:
    for number, step in enumerate(steps):
        if step == "age":
            age(lake.folder)
        elif step == "maintain":
            maintain(lake.spark, lake.tables(), cluster_by=ORDER)
        else:
            policy = {"sync": APPEND, "merge": APPEND_DEDUP, "overwrite": OVERWRITE}[step]
            rows = [event(number % 3, number), event(None, number)]
            lake.sync(configured(lake, policy), *rows, value=number)


def check_remedies(provider: SparkProvider, folder: Path, steps: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lake = Lake(provider, folder, history=True)
    run_steps(lake, ["sync", *steps])
    maintain(lake.spark, lake.tables(), cluster_by=ORDER)
    assert_done(lake)


@pytest.mark.long
def test_maintenance_remedies_what_is_measured(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    """After any history of syncs and maintenance, all is as maintenance would leave it."""

    @given(st.lists(st.sampled_from(STEPS), max_size=7))
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def check(steps: list[str]) -> None:
        check_remedies(spark_provider, tmp_path / "lake", steps)

    check()


def test_what_is_measured_grows_and_maintenance_ends_it(lake: Lake) -> None:
    lake.history = True
    run_steps(lake, ["sync", "sync", "merge"])
    before = measure(lake.tables())
    assert before["small_files"].numbers["users_dead_letter"] == 3
    assert (before["unsorted"].value, before["vacuum_debt"].value) == (1, 0)
    assert before["log_length"].value >= 3
    maintain(lake.spark, lake.tables(), cluster_by=ORDER)
    assert_done(lake)
    age(lake.folder)  # the files that maintenance has replaced are past the retention now
    removed = [path for path in lake.folder.rglob("*.parquet") if "/users/data" in str(path)]
    live = {Path(lake.uri, file.path) for file in lake.table.files}
    debt = measure_vacuum_debt(lake.tables())
    assert debt.value == 0  # less than a gigabyte
    sizes = sum(path.stat().st_size for path in removed if path not in live)
    assert debt.numbers["users"] == sizes > 0
    assert measure(lake.tables())["vacuum_debt"].value == sizes / sum(
        path.stat().st_size for path in live
    )
    maintain(lake.spark, lake.tables(), cluster_by=ORDER)
    assert_done(lake)
    assert {path for path in removed if path.exists()} == live


def test_the_measures_read_no_file_of_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.history = True
    rows = [[{**event(n, n), "text": None}] for n in range(3)]
    sync(lake, rows)
    age(lake.folder)
    tables = lake.tables()
    opened: list[str] = []
    real = TableStorage.open_path

    def open_path(storage: TableStorage, path: str) -> Any:
        opened.append(path)
        return real(storage, path)

    monkeypatch.setattr(TableStorage, "open_path", open_path)
    measure(tables)
    assert {path.partition("/")[0] for path in opened} <= {"_delta_log"}


def test_a_lost_or_damaged_mark_is_that_of_no_vacuum(lake: Lake) -> None:
    sync(lake, BATCHES, configured(lake, APPEND))
    maintain(lake.spark, lake.tables())
    age(lake.folder)
    maintain(lake.spark, lake.tables())
    assert VacuumMark.read(lake.table.storage).version == lake.table.version
    for text in ("", "{", "[1]", '{"version": null}'):
        Path(lake.uri, PATH).write_text(text)
        assert VacuumMark.read(lake.table.storage) == VacuumMark()
        assert measure_vacuum_debt(lake.tables()).numbers["users"] > 0


def test_a_long_log_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of which another engine has removed the oldest entries."""
    uri = str(tmp_path / "users")
    for number in range(40):
        rows = pa.table({"id": list(range(100)), "n": [number] * 100})
        write_deltalake(uri, rows, mode="overwrite")
    age(tmp_path)
    tables = StreamTables(uri, APP)
    exact = measure_vacuum_debt(tables)
    monkeypatch.setattr(health, "_SAMPLE", 10)
    sampled = measure_vacuum_debt(tables)
    assert "about" in sampled.text and "about" not in exact.text
    assert sampled.numbers["users"] == pytest.approx(exact.numbers["users"], rel=0.1)
    tables.main.write_checkpoint()
    assert tables.main.log_length == 0
    for version in range(20):
        Path(uri, "_delta_log", f"{version:020}.json").unlink()
    monkeypatch.setattr(health, "_SAMPLE", 200)
    rest = measure_vacuum_debt(StreamTables(uri, APP)).numbers["users"]
    assert rest == pytest.approx(exact.numbers["users"] / 2, rel=0.1)


def test_a_long_log_gets_a_checkpoint(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_ENTRIES", 2)
    run_steps(lake, ["sync", "sync", "sync"])
    assert measure_log_length(lake.tables()).value > 2
    state = lake.table.metadata
    maintain(lake.spark, lake.tables())
    assert measure_log_length(lake.tables()).value == 0
    assert lake.table.metadata == state


@pytest.mark.parametrize("version", range(0, 45, 3))
def test_the_newest_due_version_is_found(tmp_path: Path, version: int) -> None:
    uri = str(tmp_path / "users")
    for number in range(40):
        write_deltalake(uri, pa.table({"id": [number]}), mode="append")
    tables = StreamTables(uri, APP)
    for number in range(min(version, 40)):
        entry = Path(uri, "_delta_log", f"{number:020}.json")
        info, *rest = entry.read_text().splitlines(keepends=True)[::-1]
        entry.write_text("".join(rest[::-1]) + info)
        text = entry.read_text()
        stamp = json.loads(next(x for x in text.splitlines() if "commitInfo" in x))
        old = stamp["commitInfo"]["timestamp"]
        entry.write_text(text.replace(str(old), str(old - DAYS * 86_400_000)))
    for mark in (VacuumMark(), VacuumMark(5)):
        due = mark.find_due_version(tables.main)
        assert due == max(min(version, 40) - 1, mark.version)
    assert VacuumMark().find_due_version(tables.main, dt.timedelta(days=99)) == -1
