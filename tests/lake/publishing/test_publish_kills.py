"""A publication that is killed at a failpoint: what it leaves is never wrong, and the next one goes on."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from tests.lake.crashing import Death, Killed
from tests.lake.publishing import oracle

pytestmark = pytest.mark.unit

Step = Callable[[Publisher, LakeTable], object]


def append(table: LakeTable, *ids: int) -> None:
    write_deltalake(table.location.uri, pa.table({"id": list(ids)}), mode="append")


def change(table: LakeTable) -> None:
    append(table, 4, 5)
    DeltaTable(table.location.uri).delete("id = 4")


def publish(publisher: Publisher, table: LakeTable) -> None:
    publisher.publish(table)


def expire(publisher: Publisher, table: LakeTable) -> None:
    publisher.expire(table, dt.timedelta(0))


def drop(publisher: Publisher, table: LakeTable) -> None:
    publisher.drop(table)


def replace(publisher: Publisher, table: LakeTable) -> None:
    publisher.publish(table, replace=True)


@pytest.mark.parametrize(
    ("point", "step", "is_first"),
    [
        (Failpoint.ICEBERG_CREATED, publish, True),
        (Failpoint.SNAPSHOT_WRITTEN, publish, True),
        (Failpoint.SNAPSHOT_WRITTEN, publish, False),
        (Failpoint.SNAPSHOT_PUBLISHED, publish, True),
        (Failpoint.SNAPSHOT_PUBLISHED, publish, False),
        (Failpoint.SNAPSHOTS_EXPIRED, expire, False),
        (Failpoint.ICEBERG_DROPPED, drop, False),
        (Failpoint.ICEBERG_DROPPED, replace, False),
        (Failpoint.ICEBERG_CREATED, replace, False),
    ],
)
def test_a_publication_survives_a_kill_at_any_point(
    tmp_path: Path, point: Failpoint, step: Step, is_first: bool
) -> None:
    settings = oracle.sqlite_settings(tmp_path / "catalog")
    table = oracle.lake_table(tmp_path / "lake" / "shop" / "users")
    append(table, 1, 2, 3)
    publisher = Publisher(settings)
    if not is_first:
        publisher.publish(table)
        change(table)
    death = Death(point)
    with contextlib.suppress(Killed), armed(death):
        step(publisher, table)
    assert death.point is point
    oracle.check(publisher, table)
    oracle.check_files(publisher, table)
    change(table)
    Publisher(settings).publish(table)
    oracle.check_current(publisher, table)
    Publisher(settings).expire(table, dt.timedelta(0))
    oracle.check_current(publisher, table)
    assert_no_leftovers(publisher, table)


def assert_no_leftovers(publisher: Publisher, table: LakeTable) -> None:
    """Check that each file in the folder of the metadata is named by the table.

    A dropped table leaves its metadata files if it is killed before they are removed.
    """
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    identity = str(iceberg.metadata.table_uuid)
    named = oracle.list_named(iceberg)
    folder = Path(table.location.uri, "_iceberg")
    present = {path.name for path in folder.iterdir() if identity in path.read_text("latin-1")}
    own = {path.name for path in folder.iterdir() if identity in path.name}
    assert present | own <= named
