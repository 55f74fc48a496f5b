"""The growth of a table's log, and what opening the table reads of it after commits of many partitions."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.errors import SystemFailure
from elt_assets.lake.admin.maintenance import vacuum
from elt_assets.lake.delta.attachments import LIMITS
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from tests.lake.arrow import (
    IDS,
    PARTED,
    commit,
    make_old,
    put,
    removed_days_ago,
    values,
)

LARGE = json.dumps({"type": "GLOBAL", "global": {"shared_state": "x" * (1 << 20)}})


def entry_sizes(uri: str) -> list[int]:
    """Bytes of each commit in the log, the oldest first."""
    return [path.stat().st_size for path in sorted(Path(uri, "_delta_log").glob("*.json"))]


def attached(uri: str) -> list[Path]:
    return sorted(Path(uri, "_elt", "metadata").glob("*"))


def building(number: int) -> Refresh:
    files = tuple(DataFile(f"_elt/{n:032x}/{n:036x}.parquet", 1, 1) for n in range(number))
    return Refresh(2, True, f'{{"c":{number}}}', files, (), (), "append:1")


def test_a_large_state_is_written_once_to_a_file_beside_the_log(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    commit(table, state=LARGE)
    for number in range(
        3
    ):  # rows of a shared state: each commit has the state that was there before
        commit(table, put(table, IDS, [{"id": number}]))
    assert max(entry_sizes(uri)) < LIMITS["elt.state"]
    assert len(attached(uri)) == 1
    assert Table(uri, "elt:orders").metadata.state == LARGE
    commit(table, state='{"small": 1}')
    assert Table(uri, "elt:orders").metadata.state == '{"small": 1}'
    assert DeltaTable(uri).history(1)[0]["elt.state"] == '{"small": 1}'


def test_each_checkpoint_of_a_refresh_adds_the_same_size_to_the_log(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    for number in range(1, 200):
        commit(table, refresh=building(number))
    first, last = entry_sizes(uri)[60], entry_sizes(uri)[-1]
    assert last < 1.5 * first
    again = Table(uri, "elt:orders").metadata
    assert again.refresh == building(199)


def test_a_state_whose_file_is_missing_is_an_error_that_names_it(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    commit(table, state=LARGE)
    (only,) = attached(uri)
    only.unlink()
    with pytest.raises(SystemFailure, match=only.name):
        Table(uri, "elt:orders")


def test_vacuum_keeps_the_states_of_versions_within_the_retention(uri: str) -> None:
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    for number in range(3):
        commit(table, state=LARGE + " " * number)
    for path in attached(uri):
        make_old(path, days=30)
    vacuum(Table(uri, "elt:orders"))
    assert len(attached(uri)) == 3  # each was in force within the last days
    assert Table(uri, "elt:orders").metadata.state == LARGE + "  "


def opened(uri: str, app_id: str, monkeypatch: pytest.MonkeyPatch) -> tuple[CommitMetadata, int]:
    """A writer's head, and how many commits of the log were read for it."""
    read: list[int] = []
    history = DeltaTable.history

    def counted(self: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        found = history(self, limit)
        read.append(len(found))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "history", counted)
        table = Table(uri, app_id)
        _ = table.is_foreign, table.newest_writer
    return table.metadata, sum(read)


def test_opening_a_partition_reads_few_of_many_commits(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Table(uri, "elt:orders|p0")
    first.prepare(PARTED)
    commit(first, state='{"c":0}')
    for number in range(1, 60):
        commit(Table(uri, f"elt:orders|p{number}"), state=f'{{"c":{number}}}')
    old, read_for_old = opened(uri, "elt:orders|p0", monkeypatch)
    new, read_for_new = opened(uri, "elt:orders|new", monkeypatch)
    assert (old.state, new.state) == ('{"c":0}', None)
    assert read_for_old <= 20 and read_for_new <= 20


def test_after_a_restore_each_partition_has_the_state_of_the_restored_version(uri: str) -> None:
    Table(uri, "elt:orders|p0").prepare(PARTED)
    for number in range(4):
        for part in ("p0", "p1"):
            commit(Table(uri, f"elt:orders|{part}"), state=f'{{"c":{number}}}')
    DeltaTable(uri).restore(4)  # p0 at 1, p1 at 1
    commit(Table(uri, "elt:orders|p0"), state='{"c":9}')
    states = [Table(uri, f"elt:orders|{part}").metadata for part in ("p0", "p1")]
    assert [head.state for head in states] == ['{"c":9}', '{"c":1}']
    assert [head.restored for head in states] == [False, True]
    assert [head.sequence for head in states] == [5, 4]


def test_vacuum_keeps_removed_files_for_a_retention_of_more_than_a_week(uri: str) -> None:
    """A checkpoint of the log forgets removed files after a week."""
    table = Table(uri, "elt:orders")
    table.prepare(IDS)
    old = put(table, IDS, [{"id": 1}], days=40)
    commit(table, old)
    new = put(table, IDS, [{"id": 1}, {"id": 2}], days=10)
    commit(table, new, old)
    removed_days_ago(uri, 10)
    DeltaTable(uri).create_checkpoint()
    assert vacuum(Table(uri, "elt:orders"), dt.timedelta(days=30)) == 0
    assert vacuum(Table(uri, "elt:orders"), dt.timedelta(days=7)) == 1
    assert values(uri) == [1, 2]
