"""An erasure of a published table: no snapshot, manifest or metadata file has a bound of an erased row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest

from elt_assets.connection.read_only_query import check_condition
from elt_assets.errors import ConcurrentSync, EltError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Counts, Erasure, KeyLog, erase
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.protocol.catalog import APPEND_DEDUP
from tests.lake.crashing import done_at
from tests.lake.harness import Lake
from tests.lake.publishing import oracle
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, stream
from tests.support.value_search import find_value

pytestmark = pytest.mark.spark
SECRET = "zz.erased+1@example.test"
USERS = stream({"id": INTEGER, "email": STRING}, APPEND_DEDUP, key=["id"])


def erase_person(lake: Lake, publisher: Publisher) -> Counts:
    def expire(table: Table, _: str | None) -> bool:
        publisher.expire(
            oracle.lake_table(lake.folder / table.uri.rpartition("/")[2]), dt.timedelta(0)
        )
        return True

    erasure = Erasure(lake.provider, lake.table.storage.location, APP, USERS, "erasure-1")
    selection = Selection(erasure.key, check_condition(f"email = '{SECRET}'"))
    return erase(erasure, selection, KeyLog(b"salt", "fingerprint"), publish=expire)


@pytest.mark.parametrize("partition_by", [(), ("email",)])
def test_no_iceberg_metadata_has_a_value_of_an_erased_row(
    lake: Lake, partition_by: Sequence[str]
) -> None:
    lake.partition_by = partition_by
    publisher = Publisher(oracle.sqlite_settings(lake.folder / "catalog"))
    table = oracle.lake_table(lake.folder / "users")
    for email in (SECRET, "b@x"):
        lake.sync(USERS, {"id": 1, "email": SECRET}, {"id": 2, "email": email})
        publisher.publish(table)
    assert find_value(SECRET, lake.folder / "users" / "_iceberg")
    assert erase_person(lake, publisher).rows == 1
    assert not find_value(SECRET, lake.folder / "users", lake.folder / "catalog")
    oracle.check_current(publisher, table)
    lake.sync(USERS, {"id": 3, "email": "c@x"})
    publisher.publish(table)
    oracle.check_current(publisher, table)


@pytest.mark.parametrize("number", [1, 2])
def test_a_sync_beside_the_erasure_of_a_published_table_is_refused(lake: Lake, number: int) -> None:
    """An erasure of a published table commits twice, and then removes its first commit from the log: that
    version is free again for the sync, whose next commit is that of the history, or of the table."""
    lake.history = True
    publisher = Publisher(oracle.sqlite_settings(lake.folder / "catalog"))
    table = oracle.lake_table(lake.folder / "users")
    lake.sync(USERS, {"id": 1, "email": SECRET}, {"id": 2, "email": "b@x"}, value=1)
    publisher.publish(table)
    running = lake.writer(USERS)
    running.write(lake.stage({"id": 3, "email": "c@x"}))
    erasing = done_at(Failpoint.COMMIT_READY, lambda: erase_person(lake, publisher), number)
    with erasing, pytest.raises(ConcurrentSync):
        running.commit(checkpoint(2, final=True))
    running.close()
    assert lake.ids() == [2]
    lake.sync(USERS, {"id": 3, "email": "c@x"}, value=2)
    assert lake.ids() == [2, 3]
    assert lake.versions("id") == [(2,), (3,)]
    publisher.publish(table)
    oracle.check_current(publisher, table)


def test_a_version_that_is_erased_while_it_is_published_is_not_a_damaged_log(lake: Lake) -> None:
    settings = oracle.sqlite_settings(lake.folder / "catalog")
    publisher, other = Publisher(settings), Publisher(settings)
    table = oracle.lake_table(lake.folder / "users")
    lake.sync(USERS, {"id": 1, "email": SECRET}, {"id": 2, "email": "b@x"})
    with done_at(Failpoint.ICEBERG_CREATED, lambda: erase_person(lake, other)):
        publisher.publish(table)
    oracle.check_current(publisher, table)


def test_files_stay_if_the_catalog_cannot_let_them_go(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(oracle.sqlite_settings(lake.folder / "catalog"))
    table = oracle.lake_table(lake.folder / "users")
    lake.sync(USERS, {"id": 1, "email": SECRET}, {"id": 2, "email": "b@x"})
    publisher.publish(table)

    def refuse(*_: object) -> None:
        raise EltError("the catalog is down")

    with monkeypatch.context() as patch:
        patch.setattr(publisher, "expire", refuse)
        with pytest.raises(EltError, match="is down"):
            erase_person(lake, publisher)
    assert lake.ids() == [2]
    assert oracle.load(publisher, table) is not None
    assert find_value(SECRET, lake.folder / "users" / "data")
    assert erase_person(lake, publisher).rows == 0
    assert not find_value(SECRET, lake.folder / "users", lake.folder / "catalog")
    oracle.check_current(publisher, table)
