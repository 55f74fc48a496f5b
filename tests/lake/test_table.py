"""A Delta table: what a commit carries, who may commit, what a reopened table knows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from tests.lake.staging import APP, data_files

CONTRACT = ("elt.state", "elt.sequence", "elt.generation", "elt.run_id", "elt.records")
"""The keys that every commit carries, by the public contract."""
ID = t.StructType([t.StructField("id", t.LongType())])
WIDER = t.StructType([*ID.fields, t.StructField("name", t.StringType())])


def ddl(text: str) -> t.StructType:
    schema = t.DataType.fromDDL(text)
    assert isinstance(schema, t.StructType)
    return schema


def write(spark: SparkSession, table: Table, *ids: int) -> list[DataFile]:
    table.prepare(ID)
    return table.write_files(spark.createDataFrame([(each,) for each in ids], ID))


def commit(
    table: Table,
    files: list[DataFile],
    state: str | None = None,
    remove: list[DataFile] | None = None,
) -> None:
    head = CommitMetadata(table.metadata.sequence + 1, 1, state, "run-1")
    table.commit(TableChange(files, remove or []), head, sum(file.records for file in files))


def append(spark: SparkSession, table: Table, number: int, state: str | None = None) -> None:
    commit(table, write(spark, table, number), state)


def ids(spark: SparkSession, table: Table) -> list[int]:
    return sorted(row["id"] for row in table.dataframe(spark).collect())


@pytest.fixture
def table(uri: str) -> Table:
    return Table(uri, APP)


def reopened(table: Table) -> Table:
    return Table(table.uri, table.app_id)


# Commits


def test_a_table_does_not_exist_before_its_first_commit(spark: SparkSession, table: Table) -> None:
    assert not table.exists
    assert (table.version, table.metadata, table.files, table.records) == (
        -1,
        CommitMetadata(0, 0, None),
        [],
        0,
    )
    assert not Path(table.uri).exists()


def test_a_commit_carries_state_and_transaction(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1, '{"cursor": 1}')
    delta = DeltaTable(table.uri)
    entry = delta.history(1)[0]
    assert entry["elt.commit"]
    assert {key: entry[key] for key in ("elt.app", *CONTRACT)} == {
        "elt.app": APP,
        "elt.state": '{"cursor": 1}',
        "elt.sequence": "1",
        "elt.generation": "1",
        "elt.run_id": "run-1",
        "elt.records": "1",
    }
    assert delta.transaction_version(APP) == 1


def test_a_state_is_read_back_byte_for_byte(spark: SparkSession, table: Table) -> None:
    state = '{"b": 1.50, "a":"\\u0000 \\" ünï 😀"}'
    append(spark, table, 1, state)
    head = reopened(table).metadata
    assert (head.sequence, head.generation, head.state, head.run_id) == (1, 1, state, "run-1")


def test_the_state_is_found_before_many_commits_of_other_writers(
    spark: SparkSession, table: Table
) -> None:
    append(spark, table, 1, "1")
    for number in range(7):
        write_deltalake(table.uri, pa.table({"id": [number]}), mode="append")
    assert reopened(table).metadata.state == "1"


def test_files_can_be_replaced_in_one_commit(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1)
    commit(table, write(spark, table, 2, 3), remove=table.files)
    assert ids(spark, reopened(table)) == [2, 3]
    assert reopened(table).records == 2


def test_uncommitted_files_are_not_read(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1)
    before = data_files(table.uri)
    files = write(spark, table, 2)
    assert ids(spark, reopened(table)) == [1]
    table.storage.discard(files)
    table.storage.discard(files)
    assert data_files(table.uri) == before


def test_a_job_that_fails_leaves_no_files(spark: SparkSession, table: Table) -> None:
    table.prepare(WIDER)
    failing = spark.range(0, 2, 1, 2).selectExpr("id", "if(id = 1, raise_error('no'), '') as name")
    with pytest.raises(Exception, match="no"):
        table.write_files(failing)
    assert list(Path(table.uri, "data").glob("*")) == []


def test_a_table_may_have_a_relative_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's working directory is fixed at its start; what lists files is not.
    append(spark, Table(str(tmp_path / "lake"), APP), 1)
    monkeypatch.chdir(tmp_path)
    table = Table("lake", APP)
    table.storage.discard(table.files)
    assert data_files(str(tmp_path / "lake")) == []


@pytest.mark.parametrize("name", ["_events", "größe", "顧客"])
def test_a_table_of_any_clean_name_is_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = Table(str(tmp_path / "a b" / name), APP)
    append(spark, table, 1)
    assert ids(spark, reopened(table)) == [1]


# Two writers


def test_the_second_of_two_writers_changes_nothing(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1, "1")
    winner, loser = reopened(table), reopened(table)
    late = write(spark, loser, 3)
    append(spark, winner, 2, "2")
    with pytest.raises(ConcurrentSync):
        commit(loser, late, "3")
    assert reopened(table).metadata == winner.metadata
    assert ids(spark, reopened(table)) == [1, 2]


def test_the_second_of_two_overwrites_changes_nothing(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1)
    winner, loser = reopened(table), reopened(table)
    for each in (winner, loser):
        write(spark, each, 0)
    commit(winner, write(spark, winner, 2), remove=winner.files)
    with pytest.raises(ConcurrentSync):
        commit(loser, write(spark, loser, 3), remove=loser.files)
    assert ids(spark, reopened(table)) == [2]


def test_the_first_commit_detects_another_writer(spark: SparkSession, table: Table) -> None:
    other = reopened(table)
    append(spark, table, 1, "1")
    files = write(spark, other, 2)
    with pytest.raises(ConcurrentSync):
        commit(other, files, "2")
    assert ids(spark, reopened(table)) == [1]


def test_a_new_column_does_not_hide_another_writer(spark: SparkSession, table: Table) -> None:
    append(spark, table, 1, "1")
    winner, loser = reopened(table), reopened(table)
    append(spark, winner, 2, "2")
    loser.prepare(WIDER)
    with pytest.raises(ConcurrentSync):
        commit(loser, write(spark, loser, 3), "3")
    assert reopened(table).metadata.state == "2"


def test_a_writer_that_lost_a_conflict_cannot_commit_later(
    spark: SparkSession, table: Table
) -> None:
    append(spark, table, 1)
    zombie = reopened(table)
    for number in (2, 3):
        append(spark, table, number, str(number))
    with pytest.raises(ConcurrentSync):
        append(spark, zombie, 9)
    with pytest.raises(ConcurrentSync):
        append(spark, zombie, 9)
    assert ids(spark, reopened(table)) == [1, 2, 3]


def test_an_append_of_another_application_keeps_our_state(
    spark: SparkSession, table: Table
) -> None:
    append(spark, table, 1, "1")
    write_deltalake(table.uri, pa.table({"id": [10]}), mode="append")
    assert reopened(table).metadata.state == "1"
    append(spark, table, 2, "2")  # with the snapshot from before it
    write_deltalake(table.uri, pa.table({"id": [11]}), mode="append")
    after = reopened(table)
    assert (after.metadata.sequence, after.metadata.state) == (2, "2")
    assert ids(spark, after) == [1, 2, 10, 11]
    assert after.records == 4


# Time travel


def test_a_restore_restores_the_state(spark: SparkSession, table: Table) -> None:
    for number in (1, 2, 3):
        append(spark, table, number, str(number))
    version = {state: v for v, state in states(table.uri).items()}["1"]
    DeltaTable(table.uri).restore(version)
    after = reopened(table)
    assert (after.metadata.state, ids(spark, after)) == ("1", [1])
    append(spark, after, 4, "4")  # its transactions go on from the newest
    assert (reopened(table).metadata.state, ids(spark, reopened(table))) == ("4", [1, 4])


def test_a_restore_of_a_restore_restores_the_state(spark: SparkSession, table: Table) -> None:
    for number in (1, 2):
        append(spark, table, number, str(number))
    first, second = sorted(states(table.uri))
    DeltaTable(table.uri).restore(first)
    DeltaTable(table.uri).restore(second)
    assert reopened(table).metadata.state == "2"


def test_a_restore_to_before_our_first_commit_has_no_state(
    spark: SparkSession, table: Table
) -> None:
    append(spark, table, 1, "1")
    DeltaTable(table.uri).restore(0)
    after = reopened(table)
    assert (after.metadata.state, after.files) == (None, [])
    append(spark, after, 2, "2")
    assert reopened(table).metadata.state == "2"


def states(uri: str) -> dict[int, str]:
    """Version → state, of the commits that carry one."""
    found = (e for e in DeltaTable(uri).history() if "elt.state" in e)
    return {int(entry["version"]): entry["elt.state"] for entry in found}


# Columns


def test_a_column_that_the_catalog_no_longer_has_is_kept(spark: SparkSession, table: Table) -> None:
    table.prepare(WIDER)
    append(spark, table, 1)
    assert reopened(table).schema == WIDER
    assert tuple(*reopened(table).dataframe(spark).collect()) == (1, None)


@pytest.mark.usefixtures("spark")
def test_every_type_is_read_back_from_the_log(table: Table) -> None:
    kinds = (
        "a date, b timestamp, c timestamp_ntz, d decimal(38,9), e binary, f struct<x:array<int>>"
    )
    schema = ddl(kinds)
    table.prepare(schema)
    table.prepare(schema)
    assert reopened(table).schema == schema
