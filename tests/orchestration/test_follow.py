"""Runs that follow a log: what they commit and report, when they end, and which connections can have them.

The log is that of a file of SQLite; those of databases are followed in `tests/connectors`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from deltalake.exceptions import TableNotFoundError

from elt_assets.connection import load_connection
from elt_assets.connection.automation import Follow
from elt_assets.orchestration import continuous
from elt_assets.orchestration.continuous import Turns, find_end
from elt_assets.protocol.catalog import StreamId
from elt_assets.sync.events import Acknowledged, Committed
from tests.connectors.cdc.logged_file import NAMES, LoggedFile
from tests.orchestration.ticking import evaluate_schedule
from tests.programs.logged_source import LoggedSource
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, observations, read_log

DEDUP = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
FOLLOW = {"for": "8s", "every": "0.2s", "report": "1s"}
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def file(tmp_path: Path) -> LoggedFile:
    return LoggedFile(tmp_path / "logged.db")


def connect(own: Project, file: LoggedFile, mode: dict[str, Any] = DEDUP, **more: Any) -> None:
    """Configure a connection to a file; its catalog is that of the source."""
    config = {"path": str(file.path)}
    source = {"command": [sys.executable, "-m", "tests.programs.logged_source"], "config": config}
    streams = [{"name": name, **mode} for name in NAMES]
    attributes = {"source": source, "streams": streams, "read_together": True, **more}
    folder = own.connection("log", **attributes)
    catalog = [msgspec.json.decode(s.describe().to_json()) for s in LoggedSource().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": catalog}))


@contextlib.contextmanager
def meanwhile(work: Callable[[], object], delay: float = 2.0) -> Iterator[None]:
    """Do some work in another thread, a while after the start of the block."""
    errors: list[BaseException] = []

    def run() -> None:
        time.sleep(delay)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


def follow_while(own: Project, work: Callable[[], object]) -> dg.ExecuteInProcessResult:
    """Follow the log until some work is done, and then stop the run."""

    def stop() -> None:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    own.amend("log", follow={**FOLLOW, "for": "5m"})
    with meanwhile(stop):
        return materialize(own)


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def count_rows(own: Project, name: str = "plain") -> int:
    try:
        return len(own.rows("log", name))
    except TableNotFoundError:
        return -1


def has_rows(own: Project, count: int) -> bool:
    return count_rows(own) >= count


def list_materializations(own: Project, name: str) -> list[dict[str, Any]]:
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(["log", name]), limit=100).records
    events = [record.asset_materialization for record in reversed(records)]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def assert_equal(own: Project, file: LoggedFile, name: str = "plain") -> None:
    rows = [
        {k: v for k, v in row.items() if not k.startswith("_ab_")} for row in own.rows("log", name)
    ]
    assert sorted(map(json.dumps, rows)) == sorted(map(json.dumps, file.rows(name)))


def test_a_run_commits_what_changes_while_it_goes_on(own: Project, file: LoggedFile) -> None:
    file.execute("INSERT INTO plain VALUES (0, 'a', 0)")
    connect(own, file)
    assert materialize(own).success

    def work() -> None:
        for number in range(1, 5):
            file.execute(f"INSERT INTO plain VALUES ({number}, 'b', {number})")
            wait_for(partial(has_rows, own, number + 1))
            time.sleep(1)

    before = {name: len(list_materializations(own, name)) for name in NAMES}
    follow_while(own, work)
    assert_equal(own, file)
    seen = [event["elt/sequence"] for event in observations(own, "log", "plain")]
    assert len(set(seen)) == len(seen) == 4  # one for each window with rows, and no other
    events = list_materializations(own, "plain")[before["plain"] :]
    assert len(events) >= 3
    assert sum(event["elt/records_committed"] for event in events) == 4
    assert sum(event["elt/records_read"] for event in events) == 4
    assert events[-1]["dagster/row_count"] == 5
    # A table that does not change has no event of its windows.
    assert len(list_materializations(own, "pairs")) <= before["pairs"] + len(events) // 4
    assert observations(own, "log", "pairs") == []


def test_a_run_without_changes_commits_nothing_and_ends(own: Project, file: LoggedFile) -> None:
    connect(own, file, follow={**FOLLOW, "for": "1s"})
    assert materialize(own).success
    version, seen = own.table("log", "plain").version(), observations(own, "log", "plain")
    own.amend("log", follow={**FOLLOW, "for": "4s"})
    assert materialize(own).success
    assert own.table("log", "plain").version() <= version + 1  # as a sync that finds nothing
    assert observations(own, "log", "plain") == seen


def test_a_run_ends_after_a_window_of_a_backlog_and_the_next_one_goes_on(
    own: Project, file: LoggedFile
) -> None:
    connect(own, file, {**DEDUP, "destination_sync_mode": "append"})
    assert materialize(own).success
    for number in range(4):
        file.execute(f"INSERT INTO plain VALUES ({number}, 'a', {number})")
    own.reconfigure("log", window_rows=1)
    own.amend("log", follow={"for": "0.1s", "every": "0.1s"})  # over before the source has started
    for count in (1, 2, 3, 4):
        result = materialize(own)
        assert result.success
        assert count_rows(own) == count
        assert ("`for` be longer" in read_log(own, result)) == (count < 4)
    assert_equal(own, file)


def test_a_column_that_comes_during_a_run_is_there_from_its_first_row_on(
    own: Project, file: LoggedFile
) -> None:
    connect(own, file, {**DEDUP, "on_undeclared": "add"})

    def work() -> None:
        file.execute("INSERT INTO plain VALUES (1, 'a', 1)")
        wait_for(lambda: count_rows(own) == 1)
        file.execute("ALTER TABLE plain ADD COLUMN extra TEXT")
        file.log_tables()
        time.sleep(0.5)
        file.execute("INSERT INTO plain VALUES (2, 'b', 2, 'new')")
        wait_for(partial(has_rows, own, 2))

    follow_while(own, work)
    rows = {row["id"]: row for row in own.rows("log", "plain")}
    assert {number: row["extra"] for number, row in rows.items()} == {1: None, 2: "new"}


def test_a_stream_that_fails_ends_the_run_at_once(own: Project, file: LoggedFile) -> None:
    connect(own, file, follow={**FOLLOW, "for": "5m"})

    def work() -> None:
        file.execute("INSERT INTO wide VALUES (1, 'a', '')")
        wait_for(lambda: count_rows(own, "wide") == 1)
        file.execute(
            "INSERT INTO log VALUES (NULL, 0, 'plain', 'insert', NULL, '{\"name\": \"x\"}')"
        )

    with meanwhile(work):
        result = materialize(own)
    assert "rows of plain without the columns id of the key" in failure_of(result)
    assert_equal(own, file, "wide")


def test_an_interrupted_run_has_reported_its_windows(own: Project, file: LoggedFile) -> None:
    connect(own, file)

    def work() -> None:
        file.execute("INSERT INTO plain VALUES (1, 'a', 1)")
        wait_for(lambda: count_rows(own) == 1)
        time.sleep(0.5)

    assert not follow_while(own, work).success
    assert list_materializations(own, "plain")[-1]["dagster/row_count"] == 1
    file.execute("UPDATE plain SET amount = 2")
    own.amend("log", follow=None)
    result = materialize(own)
    assert result.success
    assert "no event" not in read_log(own, result)  # nothing was owed
    assert_equal(own, file)


def test_small_files_are_combined_during_a_run(
    own: Project, file: LoggedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "_COMMITS", 4)
    connect(own, file, {**DEDUP, "destination_sync_mode": "append"})

    def work() -> None:
        for number in range(10):
            file.execute(f"INSERT INTO plain VALUES ({number}, 'a', 0)")
            wait_for(partial(has_rows, own, number + 1))

    follow_while(own, work)
    assert_equal(own, file)
    assert len(own.table("log", "plain").file_uris()) <= 5


def test_a_schedule_waits_while_a_run_is_in_progress(own: Project, file: LoggedFile) -> None:
    connect(own, file, schedule="* * * * *")
    assert materialize(own).success
    tick = dt.datetime(2026, 1, 9, 2, tzinfo=dt.timezone.utc)
    requests: list[int] = []

    def evaluate() -> None:
        requests.append(len(evaluate_schedule(own, "log_schedule", tick)))

    follow_while(own, evaluate)
    evaluate()
    assert requests == [0, 1]


def test_elt_sync_follows_only_if_it_is_asked_to(own: Project, file: LoggedFile, elt: Elt) -> None:
    connect(own, file, follow={"for": "1h", "every": "0.2s"})
    file.execute("INSERT INTO plain VALUES (1, 'a', 1)")
    elt("sync", "log")
    assert count_rows(own) == 1
    own.amend("log", follow=None)
    work = partial(file.execute, "INSERT INTO plain VALUES (2, 'b', 2)")
    with meanwhile(work, delay=1):
        elt("sync", "log", "--follow", "--for", "20s", "--every", "0.2s")
    assert_equal(own, file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "1h"], "add --follow"),
        (["--follow", "--refresh", "truncate"], "--refresh"),
        (["--follow", "--partition", "x"], "--partition"),
        (["--follow", "--for", "soon"], "--for 30m"),
        (["--follow", "--for", "2d"], "24h"),
        (["--follow", "--for", "5s", "--every", "10s"], "longer"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    own: Project, file: LoggedFile, elt: Elt, words: list[str], message: str
) -> None:
    connect(own, file)
    error = elt.refuse("sync", "log", *words)
    assert message in f"{error['message']} {error['guidance']}"


def test_a_run_cannot_follow_and_refresh(own: Project, file: LoggedFile) -> None:
    connect(own, file, follow=FOLLOW)
    result = materialize(own, op="log", follow=True, refresh="truncate")
    assert "cannot be combined" in failure_of(result)
    own.amend("log", follow=None)
    result = materialize(own, op="log", follow=True)
    assert "follow: {for: 55m" in failure_of(result)


def test_a_refresh_reads_up_to_the_present_end(own: Project, file: LoggedFile) -> None:
    connect(own, file, follow={**FOLLOW, "for": "1h"})
    file.execute("INSERT INTO plain VALUES (1, 'a', 1)")
    assert materialize(own, op="log", refresh="truncate").success
    assert_equal(own, file)


CURSOR = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"read_together": False}, "write `read_together: true`"),
        ({"destination": {"command": ["other"]}}, "another `destination`"),
        ({"streams": [{"name": "plain", **CURSOR}]}, "not read from a log: plain"),
        ({"source": {"package": "airbyte-source-faker==7.2.1"}}, "`source.package` cannot follow"),
        ({"follow": {"for": "5s", "every": "10s"}}, "`every` is longer than `for`"),
        ({"follow": {"for": "25h"}}, "longer than a day"),
        ({"follow": {"evry": "1s"}}, "did you mean 'every'"),
    ],
)
def test_a_connection_that_cannot_follow_is_refused(
    own: Project, file: LoggedFile, elt: Elt, change: dict[str, Any], message: str
) -> None:
    connect(own, file, **{"follow": {}, **change})
    (answer,) = elt.json("validate", "log", code=1)["connections"]
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("schedule", "length", "started", "end"),
    [
        (None, "55m", 20, 55 * 60 + 20),
        ("* * * * *", "55m", 20, 55 * 60 - 8),  # the tick at :55 starts the next run
        ("* * * * *", "30s", 20, 50),  # no tick is in the second half of the time
        ("0 * * * *", "55m", 20, 55 * 60 + 20),
        ("0 * * * *", "62m", 20, 60 * 60 - 8),
    ],
)
def test_a_run_ends_before_the_tick_that_starts_the_next_one(
    own: Project, schedule: str | None, length: str, started: int, end: int
) -> None:
    own.connection("log", source={"connector": "faker"}, streams=[{"name": "x"}], schedule=schedule)
    connection = load_connection(own.root / "defs" / "log")
    midnight = dt.datetime(2026, 1, 9, tzinfo=dt.timezone.utc).timestamp()
    follow = Follow.model_validate({"for": length})
    assert find_end(connection, follow, midnight + started) == midnight + end


def test_streams_take_turns_by_what_has_changed() -> None:
    clock = [0.0]
    busy, idle = StreamId("busy"), StreamId("idle")
    turns = Turns([busy, idle], Follow.model_validate({"report": "60s"}), clock=lambda: clock[0])

    def commit(stream: StreamId, records: int) -> bool:
        committed = Committed(1, 1, 1, records, rejected=0, changed=0)
        return turns.note(Acknowledged(stream, None, committed, completes=False))

    due: dict[float, list[StreamId]] = {}
    for clock[0] in range(0, 1201, 30):
        assert commit(busy, 5)
        assert not commit(idle, 0)  # a state alone
        if streams := turns.take_due():
            due[clock[0]] = streams
    assert [time for time, streams in due.items() if busy in streams] == list(range(60, 1201, 60))
    assert [time for time, streams in due.items() if idle in streams] == [600, 1200]
    assert turns.take_changed() == []
    assert turns.take_fragmented() == []
