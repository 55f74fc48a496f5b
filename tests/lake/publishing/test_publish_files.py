"""Files of a snapshot: what the log tells, what both lists of files tell, and how manifests stay small."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from elt_assets.errors import ConfigError
from elt_assets.lake.publish import manifests
from elt_assets.lake.publish.commits import commit, snapshot_updates
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.publish.manifests import (
    SnapshotChange,
    UnknownFiles,
    list_live_files,
    write_snapshot,
)
from tests.lake.publishing import oracle

pytestmark = pytest.mark.unit


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    return oracle.lake_table(tmp_path / "lake" / "shop" / "users")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(oracle.sqlite_settings(tmp_path / "catalog"))


def append(table: LakeTable, *ids: int) -> None:
    write_deltalake(table.location.uri, pa.table({"id": list(ids)}), mode="append")


def log_entry(table: LakeTable, version: int) -> Path:
    return Path(table.location.uri, "_delta_log", f"{version:020d}.json")


# What the log does not tell


def test_a_restore_is_published(table: LakeTable, publisher: Publisher) -> None:
    append(table, 1)
    append(table, 2)
    publisher.publish(table)
    DeltaTable(table.location.uri).restore(0)
    publisher.publish(table)
    oracle.check_current(publisher, table)


def test_a_catch_up_over_entries_that_are_gone_compares_both_lists_of_files(
    table: LakeTable, publisher: Publisher
) -> None:
    append(table, 1)
    publisher.publish(table)
    for number in range(2, 5):
        append(table, number)
    delta = DeltaTable(table.location.uri)
    delta.delete("id = 1")
    delta.create_checkpoint()
    for version in range(3):
        log_entry(table, version).unlink()
    Publisher(publisher._settings).publish(table)
    oracle.check_current(publisher, table)


def test_a_version_that_was_written_again_is_published_again(
    table: LakeTable, publisher: Publisher
) -> None:
    append(table, 1)
    append(table, 2)
    publisher.publish(table)
    log_entry(table, 1).unlink()  # as the message about a damaged entry says
    append(table, 3)
    Publisher(publisher._settings).publish(table)
    oracle.check_current(publisher, table)


def test_a_table_that_was_made_anew_at_the_place_is_published_again(
    table: LakeTable, publisher: Publisher, tmp_path: Path
) -> None:
    append(table, 1)
    append(table, 2)
    publisher.publish(table)
    Path(table.location.uri).rename(tmp_path / "away")
    write_deltalake(table.location.uri, pa.table({"name": ["new"]}))
    later = Publisher(publisher._settings)
    with pytest.raises(ConfigError, match="its metadata is gone") as caught:
        later.publish(table)
    assert "`elt publish shop --replace`" in (caught.value.guidance or "")
    later.publish(table, replace=True)
    oracle.check_current(publisher, table)
    Path(table.location.uri, "_delta_log").rename(tmp_path / "log")
    write_deltalake(table.location.uri, pa.table({"name": ["newer"]}))
    later = Publisher(publisher._settings)
    later.publish(table)
    oracle.check_current(later, table)


def test_a_file_that_another_engine_adds_again_is_named_once(
    table: LakeTable, publisher: Publisher
) -> None:
    append(table, 1)
    publisher.publish(table)
    lines = log_entry(table, 0).read_text().splitlines()
    again = [line for line in lines if json.loads(line).get("add")]
    again.append(json.dumps({"commitInfo": {"timestamp": 1, "operation": "COMPUTE STATS"}}))
    log_entry(table, 1).write_text("\n".join(again) + "\n")
    publisher.publish(table)
    oracle.check_current(publisher, table)


@pytest.mark.parametrize("is_listed", [True, False], ids=["first", "later"])
def test_a_file_of_another_engine_whose_path_the_log_encodes_is_found(
    table: LakeTable, publisher: Publisher, is_listed: bool
) -> None:
    append(table, 1)
    if not is_listed:
        publisher.publish(table)
    root = Path(table.location.uri)
    pq.write_table(pa.table({"id": [2]}), root / "part é.parquet")
    size = (root / "part é.parquet").stat().st_size
    add = {"path": "part%20%C3%A9.parquet", "size": size, "partitionValues": {}}
    add |= {"modificationTime": 0, "dataChange": True}
    log_entry(table, 1).write_text(json.dumps({"add": add}) + "\n")
    publisher.publish(table)
    oracle.check_current(publisher, table)
    DeltaTable(table.location.uri).delete("id = 2")
    publisher.publish(table)
    oracle.check_current(publisher, table)


def test_a_commit_without_files_is_a_snapshot_too(table: LakeTable, publisher: Publisher) -> None:
    append(table, 1)
    publisher.publish(table)
    DeltaTable(table.location.uri).alter.set_table_properties({"delta.appendOnly": "false"})
    published = publisher.publish(table)
    assert published is not None and published.version == 1
    oracle.check_current(publisher, table)
    assert publisher.publish(table) == published


# Manifests


def make_file(table: Table, number: int) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{number:06}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )


@pytest.fixture
def iceberg(table: LakeTable, publisher: Publisher) -> Table:
    append(table, 1)
    publisher.publish(table)
    table_there = oracle.load(publisher, table)
    assert table_there is not None
    return table_there


def change(iceberg: Table, added: Sequence[int], removed: Sequence[int] = ()) -> Table:
    """Commit files that need not exist."""
    gone = {make_file(iceberg, number).file_path for number in removed}
    new = (make_file(iceberg, number) for number in added)
    metadata = iceberg.metadata
    snapshot = write_snapshot(
        iceberg, metadata.schema(), metadata.spec(), SnapshotChange(new, gone)
    )
    commit(iceberg, list(snapshot_updates(snapshot)), snapshot.snapshot_id)
    return iceberg.catalog.load_table(iceberg.name())


def counts(iceberg: Table) -> list[int]:
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    return [
        (m.added_files_count or 0) + (m.existing_files_count or 0)
        for m in snapshot.manifests(iceberg.io)
    ]


def numbers(iceberg: Table) -> set[int]:
    names = (path.rpartition("/")[2] for path in list_live_files(iceberg))
    return {int(name.removesuffix(".parquet")) for name in names if name[:6].isdigit()}


def test_manifests_have_a_limit_and_only_those_of_removed_files_are_written_again(
    iceberg: Table,
) -> None:
    after = change(iceberg, range(2500))
    assert sorted(counts(after)) == [1, 500, 1000, 1000]
    before = {m.manifest_path for m in after.current_snapshot().manifests(after.io)}  # type: ignore[union-attr]
    last = change(after, [5000], [7, 8])
    unchanged = {m.manifest_path for m in last.current_snapshot().manifests(last.io)}  # type: ignore[union-attr]
    assert len(before & unchanged) == 3
    assert numbers(last) == {*range(2500), 5000} - {7, 8}
    summary = last.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["total-data-files"], summary["deleted-data-files"]) == ("2500", "2")
    whole = change(last, [9999], sorted(numbers(last)))
    assert numbers(whole) == {9999}


def test_small_manifests_are_combined(iceberg: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_SMALL", 5)
    monkeypatch.setattr(manifests, "MAX_ENTRIES", 10)
    table_there = iceberg
    for number in range(60):
        table_there = change(table_there, [number], [number - 30] if number >= 30 else [])
        assert len(counts(table_there)) <= 5 + 30 // 5 + 2
    assert numbers(table_there) == set(range(30, 60))


def list_removed(iceberg: Table) -> list[tuple[set[int], bool]]:
    """Return the numbers of the removed files in each manifest, and whether it has others too."""
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    manifests = []
    for manifest in snapshot.manifests(iceberg.io):
        entries = manifest.fetch_manifest_entry(iceberg.io, discard_deleted=False)
        gone = [e for e in entries if e.status == ManifestEntryStatus.DELETED]
        names = {int(e.data_file.file_path[-14:].removesuffix(".parquet")) for e in gone}
        manifests.append((names, len(gone) < len(entries)))
    return [(names, is_mixed) for names, is_mixed in manifests if names]


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 7), st.sets(st.integers(0, 20))), max_size=5))
def test_only_the_snapshot_that_removes_a_file_names_it(
    iceberg: Table, monkeypatch: pytest.MonkeyPatch, steps: Sequence[tuple[int, set[int]]]
) -> None:
    """Its entry has bounds, which are values of its rows."""
    monkeypatch.setattr(manifests, "MAX_SMALL", 4)
    monkeypatch.setattr(manifests, "MAX_ENTRIES", 5)
    present = iceberg.catalog.load_table(iceberg.name())
    for count, places in steps:
        live = sorted(numbers(present))
        first = max(live, default=0) + 1
        new = range(first, first + count)
        gone = {live[place % len(live)] for place in places if live}
        present = change(present, new, sorted(gone))
        removed = list_removed(present)
        assert not any(is_mixed for _, is_mixed in removed)
        assert {number for names, _ in removed for number in names} == gone
        assert numbers(present) == {*live, *new} - gone


def test_a_manifest_of_a_former_version_with_removed_and_other_files_is_written_again(
    iceberg: Table,
) -> None:
    present = change(iceberg, range(3))
    writer = manifests._SnapshotWriter(present, present.schema(), present.spec())
    (manifest, first) = present.current_snapshot().manifests(present.io)  # type: ignore[union-attr]
    with writer._open(present.spec()) as file:
        for number, entry in enumerate(manifest.fetch_manifest_entry(present.io)):
            (file.existing if number else file.delete)(entry)
    snapshot = writer.finish([file.to_manifest_file(), first], {})
    commit(present, list(snapshot_updates(snapshot)), snapshot.snapshot_id)
    mixed = iceberg.catalog.load_table(iceberg.name())
    assert list_removed(mixed) == [({0}, True)]
    after = change(mixed, [])
    assert (list_removed(after), numbers(after)) == ([], {1, 2})


def test_a_file_that_the_table_does_not_have_cannot_be_removed(iceberg: Table) -> None:
    with pytest.raises(UnknownFiles, match="1 files, such as"):
        change(iceberg, [1], [2])


def test_a_table_that_lacks_a_removed_file_is_compared_as_a_whole(
    table: LakeTable, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    append(table, 1)
    append(table, 2)
    publisher.publish(table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    # The first file is taken out as a defect would: with the marks of a publication.
    snapshot = write_snapshot(
        iceberg,
        iceberg.metadata.schema(),
        iceberg.metadata.spec(),
        SnapshotChange([], list_live_files(iceberg), {"elt.delta-version": "1"}),
    )
    commit(iceberg, list(snapshot_updates(snapshot)), snapshot.snapshot_id)
    path = DeltaTable(table.location.uri).file_uris()[0].rpartition("/")[2]
    remove = {"path": path, "dataChange": True, "deletionTimestamp": 1}
    log_entry(table, 2).write_text(json.dumps({"remove": remove}) + "\n")
    publisher.publish(table)
    oracle.check_current(publisher, table)
    assert "both lists of files are compared" in caplog.text
