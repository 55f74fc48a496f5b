"""A third log on the framework: after any interruption the tables are those of its file.

What the framework itself promises is shown here, on a log that needs no server.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.sdk.groups import GroupCheckpoint, StreamPart
from connectors.sdk.items import Measure, Slice, Warn
from elt_assets.errors import ConfigError
from tests.connectors.cdc.logged_file import (
    NAMES,
    LoggedFile,
    Workload,
    large_transaction,
    make_lake,
    truncate,
)
from tests.connectors.logged import DEDUP, Json, Killed, Lake, run_workload

APPEND: Json = {"sync_mode": "incremental", "destination_sync_mode": "append"}
Logged = tuple[LoggedFile, Lake]


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    with make_lake(tmp_path) as (file, lake):
        yield file, lake


def sort(rows: list[Json]) -> list[bytes]:
    return sorted(msgspec.json.encode(row, order="sorted") for row in rows)


def assert_equal(file: LoggedFile, lake: Lake) -> None:
    for name in lake.names:
        assert sort(lake.rows(name)) == sort(file.rows(name)), name


def run_seed(logged: Logged, seed: int) -> None:
    file, lake = logged
    work = Workload(random.Random(seed))
    run_workload(lake, file, work, seed, lambda *rows: file.execute(*large_transaction(*rows)))
    assert_equal(file, lake)


@pytest.mark.parametrize("seed", range(3))
def test_tables_equal_the_files_after_kills_and_a_workload(logged: Logged, seed: int) -> None:
    run_seed(logged, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 53))
def test_tables_equal_the_files_for_many_seeds(logged: Logged, seed: int) -> None:
    run_seed(logged, seed)


def test_each_change_is_appended_once(logged: Logged) -> None:
    file, lake = logged
    lake.mode, lake.names = APPEND, ("plain",)
    file.execute("INSERT INTO plain VALUES (0, 'a', 0)")
    for number in range(1, 9):

        def kill(item: Any, number: int = number) -> None:
            if isinstance(item, GroupCheckpoint) and number % 2:
                raise Killed

        with contextlib.suppress(Killed):
            lake.sync(kill)
        file.execute(f"UPDATE plain SET amount = {number}")
    lake.sync()
    assert [row["amount"] for row in lake.tables["plain"].events] == list(range(1, 9))


def test_a_change_of_a_key_deletes_the_old_one(logged: Logged) -> None:
    file, lake = logged
    file.execute("INSERT INTO plain VALUES (1, 'a', 0), (2, 'b', 0)")
    lake.sync()
    file.execute("UPDATE plain SET id = 3 WHERE id = 1", "UPDATE plain SET id = 1 WHERE id = 2")
    lake.sync()
    assert_equal(file, lake)
    assert [row["id"] for row in lake.tables["plain"].events[-4:]] == [1, 3, 2, 1]


def test_a_truncated_table_keeps_the_rows_that_come_after(logged: Logged) -> None:
    """apache/flink-cdc#467, yugabyte/yugabyte-db#10010: rows that come and go around a TRUNCATE are lost."""
    file, lake = logged
    file.execute("INSERT INTO plain VALUES (1, 'a', 0), (2, 'b', 0)")
    lake.sync()
    file.execute(
        "INSERT INTO plain VALUES (5, 'e', 0)",
        *truncate("plain"),
        "INSERT INTO plain VALUES (1, 'again', 0), (6, 'f', 0)",
        "DELETE FROM plain WHERE id = 6",
    )
    lake.sync()
    assert lake.rows("plain") == [{"id": 1, "name": "again", "amount": 0}]


def test_a_reset_table_loses_the_rows_that_are_gone(logged: Logged) -> None:
    file, lake = logged
    file.execute("INSERT INTO plain VALUES (1, 'a', 0), (2, 'b', 0)")
    lake.sync()
    file.execute("DELETE FROM plain WHERE id = 2")
    lake.reset("plain")
    lake.sync()
    assert_equal(file, lake)


def test_a_table_that_cannot_be_read_fails_alone_until_it_is_reset(logged: Logged) -> None:
    file, lake = logged
    file.execute("INSERT INTO plain VALUES (1, 'a', 0)", "INSERT INTO wide VALUES (1, 'a', '')")
    lake.sync()
    before = lake.states
    file.execute("INSERT INTO log VALUES (NULL, 0, 'plain', 'insert', NULL, '{\"name\": \"x\"}')")
    file.execute("INSERT INTO wide VALUES (2, 'b', '')", "INSERT INTO plain VALUES (2, 'b', 0)")
    for number in range(2):
        file.execute(f"INSERT INTO pairs VALUES ('a', {number}, 'v')")
        with pytest.raises(
            ConfigError, match="rows of plain without the columns id of the key"
        ) as e:
            lake.sync()
        assert "elt reset" in (e.value.guidance or "")
        assert sort(lake.rows("wide")) == sort(file.rows("wide"))
        assert sort(lake.rows("pairs")) == sort(file.rows("pairs"))
        for stream, state in lake.states.items():
            assert (state == before[stream]) == (stream.name == "plain")
    lake.reset("plain")
    lake.sync()
    assert_equal(file, lake)


def test_columns_that_are_on_one_side_alone_are_told_with_their_values(logged: Logged) -> None:
    file, lake = logged
    lake.names = ("wide",)
    file.execute("INSERT INTO wide VALUES (1, 'a', '')")
    lake.sync()
    file.execute("INSERT INTO wide VALUES (2, 'b', 'gone'), (3, 'c', NULL)")
    file.connection.executescript(
        "DROP TRIGGER wide_insert; DROP TRIGGER wide_update; DROP TRIGGER wide_delete; "
        "ALTER TABLE wide DROP COLUMN big; ALTER TABLE wide ADD COLUMN more TEXT;"
    )
    file.log_tables()
    lake.sync()
    absent, unstored = lake.warnings
    assert "rows without the columns more" in absent
    assert "big (1)" in unstored
    assert all("elt reset" in text for text in lake.warnings)
    lake.reset("wide")
    lake.sync()
    assert_equal(file, lake)


def test_a_log_that_was_removed_is_an_error_of_the_tables_that_need_it(logged: Logged) -> None:
    file, lake = logged
    lake.sync()
    lake.names = ("plain",)
    file.execute("INSERT INTO plain VALUES (1, 'a', 0)", "INSERT INTO wide VALUES (1, 'a', '')")
    lake.sync()
    file.execute("DELETE FROM log")
    file.execute("INSERT INTO plain VALUES (2, 'b', 0)")
    lake.names = NAMES
    with pytest.raises(ConfigError, match="changes of wide were removed"):
        lake.sync()
    assert set(lake.failures) == {"wide", "pairs"}
    assert lake.rows("plain") == file.rows("plain")
    for name in lake.failures:
        lake.reset(name)
    lake.sync()
    assert_equal(file, lake)


def test_changes_stay_in_the_log_until_all_tables_have_them(logged: Logged) -> None:
    file, lake = logged
    lake.sync()
    count = "SELECT count(*) FROM log WHERE name = 'wide'"
    file.execute("INSERT INTO wide VALUES (1, 'a', '')", "INSERT INTO plain VALUES (1, 'a', 0)")
    lake.names = ("plain",)
    lake.sync()
    assert file.connection.execute(count).fetchone() == (1,)
    lake.names = NAMES
    lake.sync()
    assert file.connection.execute(count).fetchone() == (0,)
    assert_equal(file, lake)


def test_a_table_that_is_not_configured_any_more_needs_no_log(logged: Logged) -> None:
    file, lake = logged
    lake.sync()
    file.connection.execute("DROP TABLE wide")
    file.execute("INSERT INTO plain VALUES (1, 'a', 0)")
    lake.names = ("plain", "pairs")
    lake.sync()
    assert {stream.name for stream in lake.states} == {"plain", "pairs"}
    assert file.connection.execute("SELECT count(*) FROM log").fetchone() == (0,)


def test_states_of_another_log_are_refused(logged: Logged, tmp_path: Path) -> None:
    file, lake = logged
    lake.sync()
    file.execute("UPDATE server SET id = 'another'")
    with pytest.raises(ConfigError, match="is another one") as error:
        lake.sync()
    assert "elt reset" in (error.value.guidance or "")
    lake.shared = {"form": 2, "server": "another"}
    with pytest.raises(ConfigError, match="of a newer version"):
        lake.sync()
    lake.shared = {"cursor": "id"}
    with pytest.raises(ConfigError, match="not one of `incremental: log`"):
        lake.sync()


def test_a_key_that_the_user_has_chosen_moves_as_one_of_the_table(logged: Logged) -> None:
    file, lake = logged
    lake.names, lake.mode = ("wide",), {**DEDUP, "primary_key": [["note"]]}
    file.execute("INSERT INTO wide VALUES (1, 'x', ''), (2, 'y', '')")
    lake.sync()
    file.execute("UPDATE wide SET note = 'z' WHERE id = 1", "UPDATE wide SET id = 9 WHERE id = 2")
    lake.sync()
    assert_equal(file, lake)


def test_a_sync_without_changes_commits_nothing(logged: Logged) -> None:
    file, lake = logged
    lake.sync()
    file.execute("UPDATE server SET is_quiet = 0")
    items: list[Any] = []
    lake.sync(items.append)
    assert items == []


def test_a_rest_of_a_snapshot_has_the_numbers_of_the_first_part(logged: Logged) -> None:
    """A row that is deleted between both parts is deleted in the lake, as the log repeats it."""
    file, lake = logged
    lake.names = ("plain",)
    rows = ", ".join(f"({n}, 'a', 0)" for n in range(60))
    file.execute(f"INSERT INTO plain VALUES {rows}")
    checkpoints = iter(range(9))

    def kill(item: Any) -> None:
        if isinstance(item, GroupCheckpoint) and next(checkpoints) == 1:
            raise Killed

    with pytest.raises(Killed):
        lake.sync(kill)
    file.execute("DELETE FROM plain WHERE id IN (1, 59)", "UPDATE plain SET id = 99 WHERE id = 2")
    items: list[Any] = []
    lake.sync(items.append)
    parts = [item.item for item in items if isinstance(item, StreamPart)]
    slices = [part for part in parts if not isinstance(part, Measure)]
    assert all(isinstance(part, Slice | Warn) for part in slices)
    (oldest,) = [part for part in parts if isinstance(part, Measure)]  # of the changes above
    assert oldest.name == "source_commit_time" and 0 <= time.time() - oldest.value < 600
    assert_equal(file, lake)
