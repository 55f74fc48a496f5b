"""A table that was restored to a version of which vacuum has removed hidden files."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.files import Change, DataFile
from elt_assets.lake.delta.table import Table
from tests.lake.staging import APP


def test_hidden_files_are_needed_after_a_restore_but_not_by_a_refresh(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "users"), APP)
    table.prepare(t.StructType([t.StructField("id", t.LongType())]))
    ends = (DataFile("_elt/lost.parquet", 1, 1),)
    table.commit(Change(), CommitMetadata(1, 1, "1", tombstones=ends), 0)
    version = table.version
    table.commit(Change(), CommitMetadata(2, 1, "2"), 0)
    table.refuse_lost(replaces=False)
    DeltaTable(table.uri).restore(version)
    restored = Table(table.uri, APP)
    assert restored.metadata.tombstones == ends
    restored.refuse_lost(replaces=True)
    with pytest.raises(SystemFailure, match=r"1 files no longer exist, such as .*lost\.parquet"):
        restored.refuse_lost(replaces=False)


def test_a_rollback_to_files_that_vacuum_has_removed_is_refused(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "users"), APP)
    table.prepare(t.StructType([t.StructField("id", t.LongType())]))
    ends = (DataFile("_elt/lost.parquet", 1, 1),)
    table.commit(Change(), CommitMetadata(1, 1, "1", tombstones=ends), 0)
    first = table.metadata.commit
    table.commit(Change(), CommitMetadata(2, 1, "2"), 0)
    version = table.version
    with pytest.raises(SystemFailure, match=r"such as .*lost\.parquet"):
        table.roll_back(first, "run-2")
    assert Table(table.uri, APP).version == version
