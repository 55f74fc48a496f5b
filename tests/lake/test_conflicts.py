"""Commits of others while a run writes: a restore, other columns, a run of another partition that died."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import CompanionChange, StreamTables
from tests.lake.arrow import (
    IDS,
    LONG,
    PARTED,
    STRING,
    columns,
    commit,
    make_old,
    put,
    removed_days_ago,
    values,
)


def rows(partition: str, *ids: int) -> list[dict[str, object]]:
    return [{"id": each, "_elt_partition": partition} for each in ids]


def filled(uri: str, ids: range) -> Table:
    """A table with one commit an id, each with a state."""
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    for number in ids:
        commit(table, put(table, IDS, [{"id": number}]), state=f'{{"c":{number}}}')
    return table


def version_with(uri: str, state: str) -> int:
    return next(int(e["version"]) for e in DeltaTable(uri).history() if e.get("elt.state") == state)


# A restore


def test_a_run_does_not_commit_onto_a_table_that_was_restored_meanwhile(uri: str) -> None:
    filled(uri, range(1, 4))
    run = Table(uri, "elt:orders")
    new = put(run, IDS, [{"id": 4}])
    DeltaTable(uri).restore(version_with(uri, '{"c":2}'))
    with pytest.raises(ConcurrentSync, match="restored"):
        commit(run, new, state='{"c":4}')
    assert values(uri) == [1, 2]
    after = Table(uri, "elt:orders")
    assert after.metadata.state == '{"c":2}'
    commit(after, put(after, IDS, [{"id": 3}, {"id": 4}]), state='{"c":4}')
    assert values(uri) == [1, 2, 3, 4]
    assert Table(uri, "elt:orders").metadata.state == '{"c":4}'


def test_a_restore_is_detected_after_another_commit_of_the_run(uri: str) -> None:
    filled(uri, range(1, 4))
    run = Table(uri, "elt:orders")
    DeltaTable(uri).restore(version_with(uri, '{"c":2}'))
    run.advance()
    run.prepare(columns(id=LONG, more=STRING))  # a commit of its own, onto the newest snapshot
    with pytest.raises(ConcurrentSync, match="restored"):
        commit(run, put(run, IDS, [{"id": 4}]), state='{"c":4}')


def test_a_companion_is_not_committed_after_its_table_was_restored(uri: str) -> None:
    tables = StreamTables(uri, "elt:orders")
    tables.main.prepare(IDS)
    reject(tables, IDS, [{"id": 0}])
    version = DeltaTable(uri).version()
    reject(tables, IDS, [{"id": 1}])
    DeltaTable(uri).restore(version)
    with pytest.raises(ConcurrentSync, match="restored"):
        reject(tables, IDS, [{"id": 2}])
    assert values(f"{uri}_dead_letter") == [0, 1]
    again = StreamTables(uri, "elt:orders")
    again.roll_back_companions("run")
    assert values(f"{uri}_dead_letter") == [0]


# Columns


def test_files_of_an_older_type_are_not_committed_to_a_widened_table(uri: str) -> None:
    old = Table(uri, "elt:orders|p2")
    old.prepare(PARTED)
    written = put(old, PARTED, rows("p2", 2))
    wide = columns(id=STRING, _elt_partition=STRING)
    new = Table(uri, "elt:orders|p1")
    new.commit(TableChange(), CommitMetadata(1, 1, None), 0, wide)
    with pytest.raises(ConcurrentSync, match=r"changed columns.*id"):
        commit(old, written)
    assert values(uri) == []


def test_the_second_of_two_runs_that_add_a_column_with_different_types_fails(uri: str) -> None:
    Table(uri, "elt:orders|p0").prepare(PARTED)
    first, second = Table(uri, "elt:orders|p1"), Table(uri, "elt:orders|p2")
    first.prepare(t.StructType([*PARTED.fields, t.StructField("x", STRING)]))
    with pytest.raises(ConcurrentSync, match=r"changed columns.*x"):
        second.prepare(t.StructType([*PARTED.fields, t.StructField("x", LONG)]))


def test_a_column_that_another_run_adds_does_not_prevent_a_commit(uri: str) -> None:
    run = Table(uri, "elt:orders|p1")
    run.prepare(PARTED)
    written = put(run, PARTED, rows("p1", 1))
    nested = t.StructField("x", t.StructType([t.StructField("y", t.ArrayType(LONG))]))
    Table(uri, "elt:orders|p2").prepare(t.StructType([*PARTED.fields, nested]))
    commit(run, written)
    assert values(uri) == [1]


# A run that died between the commit of a companion and that of its table


def reject(
    tables: StreamTables,
    schema: t.StructType,
    found: list[dict[str, object]],
    *,
    dies: bool = False,
) -> list[DataFile]:
    """Sync nothing but rejected rows; `dies`: before the table's own commit."""
    dead = tables.dead_letter
    dead.prepare(schema)
    files = put(dead, schema, found)
    companion = CompanionChange(
        dead, schema, TableChange(files), CommitMetadata(0, 1, None, "run"), len(found)
    )
    head = CommitMetadata(
        tables.metadata.sequence + 1, 1, None, companions=tables.metadata.companions
    )
    if dies:
        if tables.metadata.companions is None:
            tables._record_companions(head)
        companion.publish()
    else:
        tables.commit(TableChange(), head, 0, [companion])
    return files


def open_partition(uri: str, partition: str) -> StreamTables:
    tables = StreamTables(uri, f"elt:orders|{partition}")
    tables.roll_back_companions("run")
    tables.main.prepare(PARTED)
    return tables


def compacted(uri: str, partition: str) -> list[DataFile]:
    """Put the rejected rows of a partition into one file; returns the files before."""
    dead = StreamTables(uri, f"elt:orders|{partition}").dead_letter
    own = [
        file for file in dead.files if dead.bounds(["_elt_partition"])[file.path][0] == partition
    ]
    found = [row for file in own for row in rows(partition, *ids_of(uri, file))]
    dead.reorganise(TableChange(put(dead, PARTED, found), own))
    return own


def ids_of(uri: str, file: DataFile) -> list[int]:
    return list(pq.read_table(Path(f"{uri}_dead_letter", file.path)).column("id").to_pylist())


def test_a_retry_rolls_back_only_the_rejections_of_its_partition(uri: str) -> None:
    reject(open_partition(uri, "p2"), PARTED, rows("p2", 1, 2))
    reject(open_partition(uri, "p2"), PARTED, rows("p2", 3))
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 10), dies=True)
    former = compacted(uri, "p2")
    StreamTables(uri, "elt:orders|p2").dead_letter.storage.discard(former)  # vacuum, long after
    reject(open_partition(uri, "p2"), PARTED, rows("p2", 4))
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 10))
    assert values(f"{uri}_dead_letter") == [1, 2, 3, 4, 10]


def test_rejections_can_be_rolled_back_after_a_compaction(uri: str) -> None:
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 1))
    reject(open_partition(uri, "p2"), PARTED, rows("p2", 5))
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 2), dies=True)
    compacted(uri, "p1")
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 2))
    assert values(f"{uri}_dead_letter") == [1, 2, 5]
    assert not StreamTables(uri, "elt:orders").is_ahead("dead_letter")


def test_a_companion_is_ahead_if_any_of_its_partitions_is_ahead(uri: str) -> None:
    reject(open_partition(uri, "p2"), PARTED, rows("p2", 1))
    whole = StreamTables(uri, "elt:orders")
    assert not whole.is_ahead("dead_letter")
    reject(open_partition(uri, "p1"), PARTED, rows("p1", 10), dies=True)
    assert StreamTables(uri, "elt:orders").is_ahead("dead_letter")


def test_maintenance_keeps_the_files_that_a_rollback_of_a_companion_needs(uri: str) -> None:
    """A run that replaced a file of the companion was killed ten days ago, before its table's commit."""
    tables = open_partition(uri, "p1")
    (old,) = reject(tables, PARTED, rows("p1", 1))
    dead = tables.dead_letter
    commit(dead, put(dead, PARTED, rows("p1", 1, 2), days=10), [old])
    removed_days_ago(dead.uri, 10)
    make_old(Path(dead.storage.root, old.path), 30)
    whole = StreamTables(uri, "elt:orders")
    maintain(cast(SparkSession, None), whole)  # with nothing to compact it asks for no session
    assert StreamTables(uri, "elt:orders|p1").roll_back_companions("run")
    assert values(dead.uri) == [1]


def test_rejections_that_an_unfinished_refresh_names_are_not_compacted(uri: str) -> None:
    """The run's last commit removes all rejections but those, by the names of their files."""
    tables = open_partition(uri, "p1")
    (first,) = reject(tables, PARTED, rows("p1", 1))
    (second,) = reject(open_partition(uri, "p1"), PARTED, rows("p1", 2))
    refresh = Refresh(2, True, None, (), (), (first, second), "overwrite:1")
    commit(open_partition(uri, "p1").main, refresh=refresh)
    maintain(cast(SparkSession, None), StreamTables(uri, "elt:orders"))  # it would need a session
    found = StreamTables(uri, "elt:orders").dead_letter.files
    assert {file.path for file in found} == {first.path, second.path}
