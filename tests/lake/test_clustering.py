"""Clustering: maintenance sorts the rows of a table by columns, part by part, and changes nothing else."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from elt_assets.lake.admin import maintenance
from elt_assets.lake.admin.maintenance import cluster, maintain
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.protocol.catalog import APPEND
from tests.lake.crashing import configured, event, expected, sync, view
from tests.lake.harness import Lake
from tests.lake.test_maintenance import BATCHES

pytestmark = pytest.mark.usefixtures("agreeing_readers")


def read_values(lake: Lake, file: DataFile, column: str) -> list[Any]:
    rows = Table(lake.uri, "reader").read_files(lake.spark, [file]).collect()
    return [row[column] for row in rows]


def test_maintenance_sorts_what_syncs_have_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "TARGET_ROWS", 2)
    lake.history = True
    sync(lake, BATCHES)
    state = lake.table.metadata.state
    main, *_ = maintain(lake.spark, lake.tables(), dt.timedelta(0), None, [["at"], ["id"]])
    assert main.clustered
    files = lake.table.files
    assert len(files) > 1
    assert all(file.path.startswith("data/sorted_") for file in files)
    contents = sorted(read_values(lake, file, "at") for file in files)
    assert [value for part in contents for value in part] == sorted(
        value for part in contents for value in part
    )
    assert lake.table.metadata.state == state
    assert view(lake) == expected(BATCHES)


def test_a_table_is_sorted_again_when_enough_rows_are_not(lake: Lake) -> None:
    lake.sync(configured(lake), *(event(n, n) for n in range(20)), value=1)
    assert cluster(lake.spark, lake.table, [["id"]]) == 1
    assert cluster(lake.spark, lake.table, [["id"]]) == 0
    lake.sync(configured(lake, APPEND), event(30, 1), value=2)
    assert cluster(lake.spark, lake.table, [["id"]]) == 0
    lake.sync(configured(lake, APPEND), event(10, 30), event(31, 1), value=3)
    assert cluster(lake.spark, lake.table, [["id"]]) == 3
    (file,) = lake.table.files
    assert read_values(lake, file, "id") == sorted([*range(20), 10, 30, 31])
    assert cluster(lake.spark, lake.table, [["text"]]) == 1  # other columns
    assert cluster(lake.spark, lake.table, [["no_such"], ["_airbyte_meta"]]) == 0


def test_a_merge_after_clustering_keeps_one_row_for_each_key(lake: Lake) -> None:
    lake.sync(configured(lake), *(event(n, n) for n in range(10)), value=1)
    cluster(lake.spark, lake.table, [["text"]])
    lake.sync(configured(lake), *(event(n, n + 100) for n in range(5)), value=2)
    rows = {row["id"]: row["at"] for row in lake.table.dataframe(lake.spark).collect()}
    assert rows == {n: n + 100 if n < 5 else n for n in range(10)}
