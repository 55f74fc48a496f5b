"""Maintenance of published tables: snapshots go before the files that they name, and nothing is left."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from elt_assets.errors import EltError
from elt_assets.lake.admin.maintenance import vacuum
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish import commits, expiry
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from tests.lake.publishing import oracle
from tests.lake.publishing.test_publish_kills import assert_no_leftovers

pytestmark = pytest.mark.unit
NO_TIME = dt.timedelta(0)


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    return oracle.lake_table(tmp_path / "lake" / "shop" / "users")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(oracle.sqlite_settings(tmp_path / "catalog"))


def overwrite(table: LakeTable, number: int) -> None:
    write_deltalake(table.location.uri, pa.table({"id": [number]}), mode="overwrite")


def snapshots(publisher: Publisher, table: LakeTable) -> int:
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    return len(iceberg.snapshots())


def test_snapshots_go_before_their_files_and_no_metadata_is_left(
    table: LakeTable, publisher: Publisher
) -> None:
    for number in range(30):
        overwrite(table, number)
        publisher.publish(table)
    assert snapshots(publisher, table) == 30
    assert_no_leftovers(publisher, table)  # replaced metadata.json files are removed at once
    publisher.expire(table, dt.timedelta(days=7))
    assert snapshots(publisher, table) == 30
    publisher.expire(table, NO_TIME)
    assert snapshots(publisher, table) == 1
    assert_no_leftovers(publisher, table)
    vacuum(Table(table.location, "elt:shop/users"), NO_TIME)
    assert len(list(Path(table.location.uri).glob("*.parquet"))) == 1
    oracle.check_current(publisher, table)


def test_what_is_behind_is_published_before_the_vacuum(
    table: LakeTable, publisher: Publisher
) -> None:
    overwrite(table, 1)
    publisher.publish(table)
    overwrite(table, 2)
    publisher.expire(table, NO_TIME)
    vacuum(Table(table.location, "elt:shop/users"), NO_TIME)
    oracle.check_current(publisher, table)


def test_a_snapshot_stays_as_long_as_a_version_that_a_vacuum_keeps(
    table: LakeTable, publisher: Publisher
) -> None:
    for number in range(4):
        overwrite(table, number)
        publisher.publish(table)
    age(table, {0: 20, 1: 9, 2: 3, 3: 1})  # days
    Publisher(publisher._settings).expire(table, dt.timedelta(days=7))
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    versions = {snapshot.summary["elt.delta-version"] for snapshot in iceberg.snapshots()}  # type: ignore[index]
    assert (
        versions >= {"1", "2", "3"} and "0" not in versions
    )  # version 1 was the newest until three days ago


def age(table: LakeTable, days: dict[int, int]) -> None:
    """Write the times of commits as if they were made some days ago."""
    present_time = dt.datetime.now(dt.timezone.utc)
    for version, number in days.items():
        path = Path(table.location.uri, "_delta_log", f"{version:020d}.json")
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        then = int((present_time - dt.timedelta(days=number)).timestamp() * 1000)
        for action in actions:
            action.get("commitInfo", {})["timestamp"] = then
        path.write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_a_publication_removes_the_oldest_half_of_too_many_snapshots(
    table: LakeTable, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_SNAPSHOTS", 6)
    monkeypatch.setattr(expiry, "MAX_SNAPSHOTS", 6)
    for number in range(20):
        overwrite(table, number)
        publisher.publish(table)
        assert snapshots(publisher, table) <= 7
    publisher.expire(table, dt.timedelta(days=7))
    assert snapshots(publisher, table) <= 4
    oracle.check_current(publisher, table)
    publisher.expire(table, NO_TIME)
    assert_no_leftovers(publisher, table)


def test_two_catalogs_of_one_table_leave_each_other_alone(
    table: LakeTable, publisher: Publisher, tmp_path: Path
) -> None:
    other = Publisher(oracle.sqlite_settings(tmp_path / "other"))
    for number in range(3):
        overwrite(table, number)
        publisher.publish(table)
        other.publish(table)
    publisher.expire(table, NO_TIME)
    oracle.check(other, table)
    iceberg = oracle.load(other, table)
    assert iceberg is not None and len(iceberg.snapshots()) == 3
    assert {snapshot.manifests(iceberg.io)[0].manifest_path for snapshot in iceberg.snapshots()}
    publisher.drop(table)
    oracle.check_current(other, table)


def test_a_table_whose_catalog_cannot_be_asked_must_not_be_vacuumed(
    table: LakeTable, publisher: Publisher, tmp_path: Path
) -> None:
    overwrite(table, 1)
    publisher.publish(table)
    (tmp_path / "catalog" / "catalog.db").write_bytes(b"no database" * 1000)
    with pytest.raises(EltError):
        Publisher(publisher._settings).expire(table, NO_TIME)


def test_a_vacuum_leaves_the_folders_of_a_catalog_alone(table: LakeTable) -> None:
    overwrite(table, 1)
    for folder in ("metadata", "_iceberg", "data"):
        Path(table.location.uri, folder).mkdir()
        Path(table.location.uri, folder, "v1.metadata.json").write_text("{}")
    vacuum(Table(table.location, "elt:shop/users"), NO_TIME, ("metadata/",))
    left = {path.parent.name for path in Path(table.location.uri).glob("*/v1.metadata.json")}
    assert left == {"metadata", "_iceberg"}
