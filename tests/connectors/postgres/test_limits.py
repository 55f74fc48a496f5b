"""What a server sees of the limits of reads: connections, rows a second, statements, hours."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Slice
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import (
    DEDUP,
    FULL,
    Database,
    Reader,
    use_cursor,
)
from tests.connectors.postgres.test_comparison import ask
from tests.connectors.row_hashes import list_ranges
from tests.connectors.sql.limits import INSIDE, OUTSIDE, sample, write_hours
from tests.support.project import REPOSITORY

pytestmark = pytest.mark.external

READING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%wide%' AND state <> 'idle'"
WIDE = (
    "CREATE TABLE wide (id int PRIMARY KEY, v text); "
    "ALTER TABLE wide ALTER v SET STORAGE PLAIN; "
    "INSERT INTO wide SELECT n, repeat('x', 1000) FROM generate_series(1, 6000) n; ANALYZE wide"
)
PAUSE = (
    "CREATE VIEW slow AS SELECT n AS id, pg_sleep(0.002)::text AS s FROM generate_series(1, 800) n"
)


def run_reader(database: Database, folder: Path, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Read the table `wide` in a process of its own."""
    reader = database.reader("wide", FULL)
    for name, content in (
        ("config", config),
        ("catalog", {"streams": [json.loads(reader.text)]}),
    ):
        (folder / name).write_text(json.dumps(content))
    command = [sys.executable, "-m", "connectors.postgres", "read"]
    command += ["--config", str(folder / "config"), "--catalog", str(folder / "catalog")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)


def test_processes_and_tasks_together_have_so_many_connections_and_rows(
    database: Database, tmp_path: Path
) -> None:
    database.execute(WIDE)
    limits = {"connections": 2, "rows_per_second": 4000}
    options: dict[str, Any] = {"slice_megabytes": 1, "limits": limits}
    reader = database.reader("wide", FULL, **options)
    parts = iter(reader.stream.slices(reader.configured, None))
    slices = [part for part in (next(parts) for _ in range(8)) if hasattr(part, "data")]
    assert len(slices) >= 6
    counts: list[int] = []

    def read(part: Any) -> None:
        counts.append(len(reader.read_slice(part)))

    threads = [threading.Thread(target=read, args=(part,)) for part in slices]
    begin = time.monotonic()
    with sample(lambda: int(database.execute(READING))) as numbers:
        process = run_reader(database, tmp_path, database.config(**options))
        for thread in threads:
            thread.start()
        output, _ = process.communicate()
        for thread in threads:
            thread.join()
    rows = sum(counts) + output.count(b'"RECORD"')
    assert rows >= 11_000 and process.returncode == 0
    assert max(numbers) == 2
    # The last second of each connection may be short.
    assert time.monotonic() - begin >= rows / 4000 - 1


def test_without_limits_slices_are_read_side_by_side(database: Database) -> None:
    """The count of the test above sees more connections, if there are more."""
    database.execute(WIDE)
    reader = database.reader("wide", FULL, slice_megabytes=1)
    parts = iter(reader.stream.slices(reader.configured, None))
    slices = [part for part in (next(parts) for _ in range(5)) if hasattr(part, "data")]
    batches = [iter(reader.stream.read_slice(part.data)) for part in slices]
    with sample(lambda: int(database.execute(READING))) as numbers:
        for batch in batches:
            next(batch)
        time.sleep(0.3)
    assert max(numbers) == len(slices) >= 4


def test_the_server_ends_a_query_that_takes_too_long(database: Database) -> None:
    database.execute(PAUSE)
    with pytest.raises(ConfigError, match=r"slow: .*limits\.statement_seconds` \(1 s\)") as error:
        database.reader("slow", FULL, limits={"statement_seconds": 1}).read()
    assert "raise `limits.statement_seconds`" in (error.value.guidance or "")
    assert len(database.reader("slow", FULL, limits={"statement_seconds": 20}).read()) == 800


def test_a_query_that_somebody_ends_is_no_limit(database: Database) -> None:
    database.execute(PAUSE.replace("800", "3000"))
    end = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%slow%'"

    def cancel() -> None:
        while "t" not in database.execute(end):
            time.sleep(0.1)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(TransientError, match="slow"):
        database.reader("slow", FULL, limits={"statement_seconds": 60}).read()
    thread.join()


def use_limits(reader: Reader, database: Database, **config: Any) -> None:
    """Let the tasks of a reader have another config."""
    reader.config = json.dumps(database.config(**config)).encode()


def test_a_read_ends_at_a_state_when_the_hours_end(database: Database) -> None:
    database.execute(WIDE)
    inside, outside = ({"hours": write_hours(*hours)} for hours in (INSIDE, OUTSIDE))
    reader = database.reader("wide", DEDUP, slice_megabytes=1, limits=inside)

    def end_hours(number: int) -> None:
        if number == 3:
            use_limits(reader, database, slice_megabytes=1, limits=outside)

    rows: list[Any] = []
    original = reader.read_slice

    def read_slice(part: Slice) -> list[Any]:
        rows.extend(original(part))
        return []

    reader.read_slice = read_slice  # type: ignore[method-assign]
    with pytest.raises(TransientError, match=r"only within `limits\.hours`"):
        reader.read(end_hours)
    assert reader.state is not None and not reader.state["complete"] and 0 < len(rows) < 6000
    later = database.reader("wide", DEDUP, slice_megabytes=1, limits=outside)
    later.state = reader.state
    with pytest.raises(TransientError, match=r"`limits\.hours`") as error:
        later.read()
    assert "goes on from its last state" in (error.value.guidance or "")
    use_limits(reader, database, slice_megabytes=1, limits=inside)
    reader.read()
    assert sorted(row["id"] for row in rows) == list(range(1, 6001))


def test_new_rows_are_read_at_any_hour_but_not_by_a_read_of_the_whole_table(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
    outside = {"hours": write_hours(*OUTSIDE)}
    for mode, cursor in (("cursor", "id"), ("xmin", None)):
        first = database.reader("t", use_cursor(cursor), incremental=mode)
        first.read()
        later = database.reader("t", use_cursor(cursor), incremental=mode, limits=outside)
        later.state = first.state
        database.execute(f"INSERT INTO t SELECT max(id) + 1, '{mode}' FROM t")
        if mode == "cursor":
            assert [row["v"] for row in later.read()] == ["cursor"]
        else:
            with pytest.raises(TransientError, match=r"`limits\.hours`"):
                later.read()
    with pytest.raises(TransientError, match=r"t: .*`limits\.hours`"):
        ask(database, tmp_path, config={"limits": outside})
    inside = {"hours": write_hours(*INSIDE), "connections": 1, "statement_seconds": 30}
    assert list(list_ranges(ask(database, tmp_path, config={"limits": inside})))


def test_the_log_is_read_at_any_hour(database: Database) -> None:
    name = f"hours_{database.schema}"
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); "
        f"INSERT INTO a VALUES (1); CREATE PUBLICATION {name} FOR TABLE a, b"
    )
    config = database.config(incremental="log", slot=name, publication=name)
    lake = Lake(database, {**config, "limits": {"hours": write_hours(*INSIDE)}}, ["a"])
    try:
        lake.sync()
        database.execute("INSERT INTO a VALUES (2); INSERT INTO b VALUES (1)")
        lake.names = ["a", "b"]
        lake.config = {**config, "limits": {"hours": write_hours(*OUTSIDE)}}
        with pytest.raises(TransientError, match=r"\.b: .*`limits\.hours`"):
            lake.sync()
        assert lake.rows("a") == [{"id": 1}, {"id": 2}] and not lake.rows("b")
        lake.config = {**config, "limits": {"hours": write_hours(*INSIDE)}}
        lake.sync()
        lake.assert_equal()
    finally:
        lake.reset_all()


@pytest.mark.long
def test_the_server_ends_a_comparison_when_the_hours_end(
    database: Database, tmp_path: Path
) -> None:
    """It takes up to a minute: hours have no seconds."""
    database.execute(PAUSE.replace("800", "100000"))
    now = dt.datetime.now(dt.timezone.utc)
    time.sleep((50 - now.second) % 60)
    now = dt.datetime.now(dt.timezone.utc)
    hours = f"{now:%H:%M}-{now + dt.timedelta(minutes=1):%H:%M}"
    limits = {"hours": hours, "statement_seconds": 600}
    begin = time.monotonic()
    with pytest.raises(TransientError, match=r"`limits\.hours`"):
        ask(database, tmp_path, name="slow", primary_key=[["id"]], config={"limits": limits})
    assert time.monotonic() - begin < 30
