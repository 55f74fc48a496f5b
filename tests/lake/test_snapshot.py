"""The project reads a log as delta-rs does, and an append or a state needs no list of files."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.lake.delta import log, snapshot
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableChange, TableStorage
from elt_assets.lake.delta.table import Table
from tests.lake.arrow import PARTED, commit, put

LOG = "_delta_log"


def entry(uri: str, version: int) -> Path:
    return Path(uri, LOG, f"{version:020d}.json")


def data_file(partition: str) -> DataFile:
    bounds = {
        "minValues": {"_elt_partition": partition},
        "maxValues": {"_elt_partition": partition},
    }
    stats = json.dumps({"numRecords": 1, **bounds, "nullCount": {"_elt_partition": 0}})
    return DataFile(f"data/{uuid4().hex}.parquet", 1, 1, stats)


def of_log(uri: str) -> Snapshot:
    """The snapshot that is read without delta-rs."""
    found = Snapshot.read(TableStorage(uri))
    assert found is not None
    return found


def assert_as_delta_rs_reads_it(uri: str, app_ids: list[str]) -> None:
    ours, theirs = of_log(uri), DeltaTable(uri)
    assert ours.version() == theirs.version()
    assert ours.protocol() == theirs.protocol()
    assert ours.metadata().configuration == theirs.metadata().configuration
    assert ours.metadata().partition_columns == theirs.metadata().partition_columns
    assert ours.schema() == theirs.schema()
    for app_id in app_ids:
        for name in (app_id, f"{app_id}#version"):
            assert ours.transaction_version(name) == theirs.transaction_version(name)


# What happens to a log: each step is applied to the table at its newest version.


def append(uri: str, app_id: str) -> None:
    table = Table(uri, app_id)
    commit(table, [data_file(app_id)], state=f'{{"c":{table.version}}}')


def replace_rows(uri: str, app_id: str) -> None:
    table = Table(uri, app_id)
    commit(table, [data_file(app_id)], table.files)


def add_column(uri: str, _app_id: str) -> None:
    table = Table(uri, "elt:columns")
    more = t.StructField(f"c{table.version}", t.TimestampNTZType())
    table.prepare(t.StructType([*table.schema.fields, more]))


def replace_columns(uri: str, app_id: str) -> None:
    table = Table(uri, app_id)
    after = CommitMetadata(table.metadata.sequence + 1, 1, None)
    table.commit(TableChange([], table.files), after, 0, PARTED)


def restore(uri: str, _app_id: str) -> None:
    delta = DeltaTable(uri)
    if delta.version():
        delta.restore(max(delta.version() - 2, 0), ignore_missing_files=True)


def checkpoint(uri: str, _app_id: str) -> None:
    DeltaTable(uri).create_checkpoint()


STEPS = [append, replace_rows, add_column, replace_columns, restore, checkpoint]


@settings(max_examples=15, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(["elt:o|a", "elt:o|é"])), max_size=8)
)
def test_the_log_is_read_as_delta_rs_reads_it(steps: list[tuple[Any, str]]) -> None:
    folder = tempfile.mkdtemp(prefix="snapshot-")
    try:
        uri = f"{folder}/orders"
        Table(uri, "elt:o|a").prepare(PARTED)
        DeltaTable(uri).alter.set_table_properties({"delta.checkpointInterval": "3"})
        snapshot_of_start = of_log(uri)
        for step, app_id in steps:
            step(uri, app_id)
            assert_as_delta_rs_reads_it(uri, ["elt:o|a", "elt:o|é"])
        snapshot_of_start.update_incremental()
        assert snapshot_of_start.version() == of_log(uri).version()
        assert snapshot_of_start.schema() == of_log(uri).schema()
        assert sorted(snapshot_of_start.delta_table.file_uris()) == sorted(
            DeltaTable(uri).file_uris()
        )
    finally:
        shutil.rmtree(folder)


def test_an_append_and_a_state_open_no_list_of_files(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Table(uri, "elt:orders|p0").prepare(PARTED)

    def refuse(*_args: object, **_options: object) -> DeltaTable:
        raise AssertionError("delta-rs opened the table, with the list of its files")

    monkeypatch.setattr(snapshot, "DeltaTable", refuse)
    for number in range(3):
        table = Table(uri, f"elt:orders|p{number}")
        table.prepare(PARTED)
        commit(table, [data_file(f"p{number}")], state='{"c":1}')
        commit(table, state='{"c":2}')
    assert Table(uri, "elt:orders|p1").metadata.state == '{"c":2}'
    assert Table(uri, "elt:orders|p9").metadata.sequence == 0


def test_a_version_is_created_once(uri: str) -> None:
    Table(uri, "elt:orders").prepare(PARTED)
    first, second = of_log(uri), of_log(uri)
    properties = CommitProperties({"elt.commit": "x"})
    first.create_write_transaction([], "append", first.schema(), properties)
    before = entry(uri, 1).read_bytes()
    with pytest.raises(CommitFailedError):
        second.create_write_transaction([], "append", second.schema(), properties)
    assert entry(uri, 1).read_bytes() == before
    assert not list(Path(uri, LOG).glob(".*"))  # no file of the attempt stays


def test_an_outdated_hint_does_not_hide_newer_versions(uri: str) -> None:
    """`_last_checkpoint` names an older checkpoint, and the entries between it and the newest are removed."""
    table = Table(uri, "elt:orders")
    table.prepare(PARTED)
    for _ in range(3):
        commit(table, [data_file("p")])
    DeltaTable(uri).create_checkpoint()
    hint = Path(uri, LOG, "_last_checkpoint")
    outdated = hint.read_bytes()
    for _ in range(3):
        commit(table, [data_file("p")])
    DeltaTable(uri).create_checkpoint()
    hint.write_bytes(outdated)
    assert Table(uri, "elt:orders").version == 6
    for version in range(6):
        entry(uri, version).unlink()
    assert Table(uri, "elt:orders").version == 6  # delta-rs has listed the log


def test_commits_without_metadata_do_not_shift_the_versions_of_others(uri: str) -> None:
    """An engine may leave the commitInfo out."""
    table = Table(uri, "elt:orders")
    table.prepare(PARTED)
    commit(table, [data_file("p")], state='{"c":1}')
    add = {"path": "data/x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    entry(uri, 2).write_text(json.dumps({"add": {**add, "dataChange": True}}) + "\n")
    again = Table(uri, "elt:orders")
    assert (again.version, again.metadata.state) == (2, '{"c":1}')
    assert [version for _, version, _ in again.past_commits()] == [1]


def test_a_large_table_waits_with_its_checkpoints_until_they_are_worth_it() -> None:
    small = [v for v in range(1000) if log.is_due(v, 100, 100, 100_000, 300_000)]
    large = [v for v in range(1000) if log.is_due(v, 100, 100, 100_000, 36_000_000)]
    assert (small, large) == (list(range(99, 1000, 100)), [])
    assert log.is_due(399, 100, 400, 400_000, 36_000_000)
    assert log.is_due(1099, 100, 1000, 10_000, 36_000_000)
    assert log.is_due(7, 100, 1, 60_000_000, 36_000_000)


def test_a_checkpoint_is_written_by_the_project(uri: str) -> None:
    Table(uri, "elt:orders").prepare(PARTED)
    DeltaTable(uri).alter.set_table_properties({"delta.checkpointInterval": "5"})
    table = Table(uri, "elt:orders")
    for _ in range(6):
        commit(table, [data_file("p")])
    assert [path.name[:20] for path in Path(uri, LOG).glob("*.checkpoint.parquet")] == [f"{4:020d}"]
    assert_as_delta_rs_reads_it(uri, ["elt:orders"])


def test_a_checkpoint_that_cannot_be_written_does_not_fail_the_commit(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    Table(uri, "elt:orders").prepare(PARTED)
    DeltaTable(uri).alter.set_table_properties({"delta.checkpointInterval": "3"})
    Path(uri, LOG, f"{2:020d}.checkpoint.parquet").mkdir()
    table = Table(uri, "elt:orders")
    for _ in range(3):
        commit(table, [data_file("p")], state='{"c":1}')
    assert Table(uri, "elt:orders").metadata.sequence == 3
    assert "no checkpoint of it" in caplog.text


def test_a_state_that_stays_is_not_repeated_by_the_commits_of_rows(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(PARTED)
    state = json.dumps({"cursors": ["x" * 50] * 200})
    commit(table, state=state)
    for _ in range(3):
        commit(table, [data_file("p")])
    sizes = [entry(uri, version).stat().st_size for version in range(1, 5)]
    assert sizes[0] > len(state) > 4 * max(sizes[1:])
    assert len(list(Path(uri, "_elt", "metadata").glob("*"))) == 1
    assert Table(uri, "elt:orders").metadata.state == state


def test_files_of_a_partition_and_files_since_a_version(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(PARTED)
    files = [data_file(name) for name in ("a", "b", "c")]
    commit(table, files[:2])
    version = table.version
    wide = put(table, PARTED, [{"id": n, "_elt_partition": "abc"[n]} for n in range(3)])
    commit(table, [files[2], *wide], [files[0]])
    paths = {
        file.path: bounds for file, bounds in table.files_overlapping(["_elt_partition"], "b", "b")
    }
    assert paths == {files[1].path: ("b", "b"), wide[0].path: ("a", "c")}
    assert {file.path for file in table.files_since(version)} == {files[2].path, wide[0].path}
    assert (table.file_count, table.records) == (3, 5)
