"""A correction makes rows those of the source, whatever the table has, and later changes go on from there.

Its records are deletes without a cursor for keys of which a row is newer by its cursor, and then the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elt_assets.lake.admin.maintenance import compact
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, OVERWRITE_DEDUP, ConfiguredStream
from elt_assets.sync.events import Committed
from tests.lake.harness import Lake
from tests.lake.staging import (
    EMITTED_AT,
    INTEGER,
    STRING,
    TIMESTAMP,
    checkpoint,
    rows,
    stage,
    stream,
)

pytestmark = pytest.mark.spark

DELETED = "2026-06-01T00:00:00Z"


def people(*, logged: bool = False, policy: str = APPEND_DEDUP) -> ConfiguredStream:
    fields: dict[str, Any] = {"id": INTEGER, "name": STRING, "at": INTEGER}
    if logged:
        fields[DELETED_AT] = TIMESTAMP
    return stream(fields, policy, key=["id"], cursor=[] if policy == OVERWRITE_DEDUP else ["at"])


def person(number: int, name: str, time: int | None = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "at": time}


def end(number: int, time: int | None = None) -> dict[str, Any]:
    return {"id": number, "at": time, DELETED_AT: DELETED}


def correct(lake: Lake, users: ConfiguredStream, *records: Any) -> Committed:
    """Correct rows as `pipeline.correction` does: in one commit, which keeps the state."""
    version, state = lake.table.version, lake.table.metadata.state
    writer = lake.writer(users, keeps_state=True, corrects=True)
    writer.write(stage(lake.folder / "staging", records, at=EMITTED_AT + 1_000))
    done = writer.commit(checkpoint(None, final=True))
    assert lake.table.metadata.state == state
    assert done.sequence == writer.tables.metadata.sequence
    # A table that never had a history names its companions first, in a commit without rows.
    assert lake.table.version - version <= 1 + lake.history
    return done


@pytest.mark.usefixtures("agreeing_readers")
@pytest.mark.parametrize(("logged", "history"), [(True, False), (False, True)])
def test_the_rows_of_the_source_win(lake: Lake, engine: str, logged: bool, history: bool) -> None:
    """Also over a cursor value that is damaged; a key that ends comes back with the next record."""
    del engine
    lake.history = history
    users = people(logged=logged)
    before = [person(1, "old", 5), person(2, "old", 5), person(3, "damaged", 10**9)]
    lake.sync(users, *before, person(4, "gone", 5), person(5, "stays", 5), value=5)
    done = correct(
        lake, users, end(3), end(4), person(1, "new", 5), person(2, "new", 6), person(3, "new", 5)
    )
    assert (done.rejected, done.changed) == (0, 0)
    corrected = [(1, "new", 5), (2, "new", 6), (3, "new", 5), (5, "stays", 5)]
    assert rows(lake.spark, lake.table, "id", "name", "at") == corrected
    if history:
        current = [row for row in lake.versions("id", "name", "_is_current") if row[2]]
        assert current == [(number, name, True) for number, name, _ in corrected]
    lake.sync(users, person(1, "late", 4), person(3, "later", 7), person(4, "back", 1), value=8)
    assert rows(lake.spark, lake.table, "id", "name", "at") == [
        (1, "new", 5), (2, "new", 6), (3, "later", 7), (4, "back", 1), (5, "stays", 5)
    ]  # fmt: skip


def test_changes_of_a_log_that_are_older_than_the_correction_lose(lake: Lake) -> None:
    users = people(logged=True)
    lake.sync(users, person(1, "a", 1), person(2, "a", 1), value=1)
    correct(lake, users, end(2), end(2, 10), person(1, "corrected", 10))
    lake.sync(users, person(1, "b", 9), person(2, "b", 9), value=9)
    assert rows(lake.spark, lake.table, "id", "name") == [(1, "corrected")]
    lake.sync(users, person(1, "c", 11), person(2, "c", 11), value=11)
    assert rows(lake.spark, lake.table, "id", "name") == [(1, "c"), (2, "c")]


def test_a_correction_comes_back_as_it_is_after_compaction_and_a_second_one(lake: Lake) -> None:
    lake.history = True
    users = people()
    lake.sync(users, person(1, "a", 9), person(2, "a", 9), value=9)
    for _ in range(2):
        correct(lake, users, end(1), end(2), person(1, "b", 3))
        compact(lake.spark, lake.table)
        assert rows(lake.spark, lake.table, "id", "name") == [(1, "b")]
    current = [row for row in lake.versions("id", "name", "_is_current") if row[2]]
    assert current == [(1, "b", True)]


def test_a_history_keeps_what_it_said_before(lake: Lake) -> None:
    lake.history = True
    users = people()
    lake.sync(users, person(1, "a", 1), person(2, "a", 1), value=1)
    first = lake.versions("id", "name", "_valid_from")
    correct(lake, users, end(2), person(1, "b", 1))
    versions = lake.versions("id", "name", "_valid_from", "_valid_to", "_is_current")
    assert [row[:3] for row in versions if not row[4]] == first
    assert all(row[3] is not None for row in versions if not row[4])
    assert [row[:2] for row in versions if row[4]] == [(1, "b")]


def test_a_table_without_a_cursor_is_corrected(lake: Lake) -> None:
    users = people(policy=OVERWRITE_DEDUP)
    lake.sync(users, person(1, "a"), person(2, "a"))
    users.minimum_generation_id = 0
    correct(lake, users, end(2), person(1, "b"), person(3, "b"))
    assert rows(lake.spark, lake.table, "id", "name") == [(1, "b"), (3, "b")]
    again = people(policy=OVERWRITE_DEDUP)
    again.generation_id = again.minimum_generation_id = 2
    lake.sync(again, person(2, "c"))
    assert rows(lake.spark, lake.table, "id", "name") == [(2, "c")]


@pytest.mark.parametrize("columns", [("id", "name", "at")])
def test_no_column_is_added_for_the_deletes(lake: Lake, columns: tuple[str, ...]) -> None:
    users = people()
    lake.sync(users, person(1, "a"), value=1)
    names: Callable[[], list[str]] = lambda: [  # noqa: E731
        name for name in lake.table.schema.names if not name.startswith("_airbyte")
    ]
    correct(lake, users, end(1))
    assert names() == list(columns)
    lake.sync(users, person(2, "b", 2), value=2)
    assert names() == list(columns)
    assert lake.ids() == [2]
