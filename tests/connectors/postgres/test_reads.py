"""Reads while the database changes: what is read, what comes later, and what is missed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.support import (
    DEDUP,
    FULL,
    Database,
    Interrupted,
    Json,
    end_transaction,
    start_transaction,
    use_cursor,
)

pytestmark = pytest.mark.external

SMALL: Json = {"slice_megabytes": 1}
LARGE = """
CREATE TABLE t (id int PRIMARY KEY, v int, pad text DEFAULT repeat('x', 900)) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT g, 0 FROM generate_series(1, 4000) g;
"""


def ids(rows: Iterable[Json]) -> list[int]:
    return sorted(row["id"] for row in rows)


def last_versions(rows: Iterable[Json]) -> dict[int, int]:
    return {row["id"]: row["v"] for row in rows}


def query_versions(database: Database) -> dict[int, int]:
    lines = database.lines("SELECT id, v FROM t")
    return {int(i): int(v) for i, v in (line.split("|") for line in lines)}


def test_slices_see_one_state_of_a_table_that_changes(database: Database) -> None:
    database.execute(LARGE)

    def change(number: int) -> None:
        database.execute("UPDATE t SET v = v + 1; DELETE FROM t WHERE id % 10 = 0")
        database.execute(f"INSERT INTO t VALUES ({9000 + number}, 1)")
        with pytest.raises(AssertionError, match="lock timeout"):
            database.execute("SET lock_timeout = 10; TRUNCATE t")

    reader = database.reader("t", FULL, **SMALL)
    rows = reader.read(change)
    assert len(reader.slices) >= 4
    assert ids(rows) == [*range(1, 4001)] and {row["v"] for row in rows} == {0}
    assert reader.state is None
    database.execute("TRUNCATE t")
    assert reader.records() == []


def test_partitions_children_and_foreign_tables_are_read_once(database: Database) -> None:
    database.execute(
        "CREATE EXTENSION IF NOT EXISTS file_fdw WITH SCHEMA pg_catalog;"
        f"CREATE SERVER {database.schema}_files FOREIGN DATA WRAPPER file_fdw;"
        "CREATE TABLE t (id int, a text) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100) PARTITION BY LIST (a);"
        "CREATE TABLE low_x (a text, dropped int, id int); ALTER TABLE low_x DROP dropped;"
        "ALTER TABLE low ATTACH PARTITION low_x FOR VALUES IN ('x');"
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (200);"
        "CREATE FOREIGN TABLE far PARTITION OF t FOR VALUES FROM (200) TO (300) "
        f"SERVER {database.schema}_files "
        "OPTIONS (program 'echo 200,z', format 'csv');"
        "INSERT INTO t SELECT g, 'x' FROM generate_series(90, 110) g WHERE g < 100 OR g > 105;"
        "CREATE TABLE parent (id int); CREATE TABLE child (more int) INHERITS (parent);"
        "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 0);"
    )
    reader = database.reader("t", FULL)
    assert ids(reader.read()) == [*range(90, 100), *range(106, 111), 200]
    assert len(reader.slices) == 3
    assert ids(database.reader("parent", FULL).read()) == [1, 2]
    assert ids(database.reader("child", FULL).read()) == [2]
    assert (
        ids(database.reader("far", FULL).read()) == [200] if "far" in database.streams() else True
    )
    user = f"{database.schema}_user"
    database.execute(
        f"CREATE ROLE {user} LOGIN; GRANT SELECT ON t TO {user};"
        f"GRANT USAGE ON SCHEMA {database.schema} TO {user}; GRANT pg_execute_server_program TO {user}"
    )
    whole = database.reader("t", FULL, user=user)
    assert ids(whole.read()) == [*range(90, 100), *range(106, 111), 200]
    assert len(whole.slices) == 1 and "GRANT SELECT ON" in whole.warnings[0]
    database.execute(
        f"DROP OWNED BY {user}; DROP ROLE {user}; DROP SERVER {database.schema}_files CASCADE"
    )


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 11))]
)
@pytest.mark.parametrize("mode", [DEDUP, use_cursor(None, "append_dedup")], ids=["full", "xmin"])
def test_an_interrupted_read_goes_on_and_misses_nothing(
    database: Database, seed: int, mode: Json
) -> None:
    database.execute(LARGE)
    incremental = {"incremental": "xmin"} if mode["sync_mode"] == "incremental" else {}
    reader = database.reader("t", mode, **SMALL, **incremental)
    rng = random.Random(seed)
    rows: list[Json] = []
    gone: set[int] = set()

    for stop in (rng.randrange(1, 4), rng.randrange(1, 4), 10**6):

        def change(number: int, stop: int = stop) -> None:
            if number == stop:
                raise Interrupted
            _change_rows(database, rng, gone)

        # Rows move to pages that were read, since VACUUM makes room there.
        for _ in range(2):
            _change_rows(database, rng, gone)
            database.execute(rng.choice(["VACUUM t", "VACUUM FREEZE t", "SELECT 1"]))
            _change_rows(database, rng, gone)
        truth = query_versions(database)
        rows += reader.read(change)
    assert_complete(rows, truth, gone)
    assert reader.state is not None and reader.state["complete"]
    if not incremental:
        assert reader.read() == [] and len(reader.slices) == 0
        return
    rows += reader.read()
    assert_complete(rows, query_versions(database), gone)
    assert reader.read() == []


def assert_complete(rows: list[Json], truth: dict[int, int], gone: set[int]) -> None:
    versions = last_versions(rows)
    assert {key: versions.get(key) for key in truth} == truth
    assert versions.keys() - truth.keys() <= gone


def _change_rows(database: Database, rng: random.Random, gone: set[int]) -> None:
    first = rng.randrange(1, 4000)
    statements = [
        f"UPDATE t SET v = v + 1 WHERE id BETWEEN {first} AND {first + 300}",
        f"DELETE FROM t WHERE id BETWEEN {first} AND {first + 50}",
        f"INSERT INTO t SELECT g, 7 FROM generate_series({first}, {first + 99}) g ON CONFLICT DO NOTHING",
        f"UPDATE t SET id = id + 10000, v = 5 WHERE id = {first}",
        f"BEGIN; SAVEPOINT a; UPDATE t SET v = v + 3 WHERE id % 97 = {first % 97}; COMMIT",
    ]
    gone |= {*range(first, first + 51), first + 10000}
    for statement in rng.sample(statements, 3):
        database.execute(statement)
    if rng.random() < 0.1 and not _is_locked(database):
        database.execute("VACUUM FULL t")


def _is_locked(database: Database) -> bool:
    """Whether a read holds the table, so that VACUUM FULL would wait."""
    return (
        database.execute("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass").strip()
        != "0"
    )


def test_a_read_without_a_key_starts_again(database: Database) -> None:
    database.execute(LARGE + "ALTER TABLE t DROP CONSTRAINT t_pkey")
    reader = database.reader("t", DEDUP, **SMALL)
    assert not reader.stream.is_resumable

    def stop(number: int) -> None:
        if number == 2:
            raise Interrupted

    assert reader.read(stop) == [] and reader.state is None
    assert ids(reader.read()) == [*range(1, 4001)]


CURSOR = (
    "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, v int DEFAULT 0); CREATE INDEX ON t (at);"
)


def test_a_cursor_reads_what_is_new_and_each_row_once(database: Database) -> None:
    database.execute(CURSOR)
    reader = database.reader("t", use_cursor("at"))
    assert reader.read() == []
    database.execute(
        "INSERT INTO t VALUES (1, '2024-01-01'), (2, '2024-01-02'), (3, NULL), "
        "(4, 'infinity'), (5, '-infinity')"
    )
    assert ids(reader.read()) == [1, 2, 3, 4, 5]
    assert reader.read() == []
    database.execute(
        "INSERT INTO t VALUES (6, '2024-01-02'), (7, '2024-01-03'), (8, NULL), "
        "(9, 'infinity'), (10, '2023-01-01')"
    )
    assert ids(reader.read()) == [6, 7, 8, 9]  # 10 is below the cursor
    assert reader.read() == []
    database.execute("DELETE FROM t WHERE id = 7")
    assert reader.read() == []
    database.execute("INSERT INTO t VALUES (11, '2024-01-02 12:00')")
    assert ids(reader.read()) == [11]
    database.execute("TRUNCATE t; INSERT INTO t VALUES (1, '2020-01-01')")
    assert ids(reader.read()) == [1]
    database.execute("VACUUM FULL t")
    assert reader.read() == []


@pytest.mark.parametrize(
    ("config", "late"),
    [({}, []), ({"lookback": "1 hour"}, [2, 4]), ({"incremental": "xmin"}, [2, 4, 5])],
    ids=["cursor", "lookback", "xmin"],
)
def test_a_late_commit(database: Database, config: Json, late: list[int]) -> None:
    """A transaction takes its time when it begins, and is committed after a read."""
    database.execute(CURSOR + "INSERT INTO t VALUES (1, '2024-01-01 12:00')")
    reader = database.reader("t", use_cursor("at"), **config)
    transaction = start_transaction(
        database,
        "INSERT INTO t VALUES (2, '2024-01-01 11:30'); SAVEPOINT a;"
        "INSERT INTO t VALUES (4, '2024-01-01 11:40'), (5, '2023-01-01');",
    )
    database.execute("INSERT INTO t VALUES (3, '2024-01-01 12:30')")
    assert ids(reader.read()) == [1, 3]
    end_transaction(transaction, "COMMIT")
    assert [n for n in ids(reader.read()) if n in (2, 4, 5)] == late
    reader.read()
    assert reader.read() == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", ["-5", "3", "10"]),
        ("numeric", ["-5.5", "3", "1e40"]),
        ("numeric(10,2)", ["-5.5", "3", "10.25"]),
        ("float8", ["-0.1", "0.30000000000000004", "1e300"]),
        ("real", ["0.1", "0.2", "3e30"]),
        ("date", ["2020-01-01", "2024-02-29", "9999-01-01"]),
        ("timestamp", ["2020-01-01", "2024-02-29 01:02:03.000001", "2024-02-29 01:02:03.000002"]),
        ("text", ["'", "Z\\'", "é"]),
        ("varchar(9)", ["1", "2", "3"]),
        ("bigint", ["1", "9007199254740993", "9007199254740994"]),
    ],
)
def test_cursors_of_each_type(database: Database, kind: str, values: list[str]) -> None:
    database.execute(f"CREATE TABLE t (id int, c {kind}); CREATE VIEW seen AS SELECT * FROM t")
    quoted = [value.replace("'", "''") for value in values]
    database.execute(f"INSERT INTO t VALUES (1, '{quoted[0]}'), (2, '{quoted[1]}')")
    readers = [database.reader(name, use_cursor("c")) for name in ("t", "seen")]
    assert [ids(reader.read()) for reader in readers] == [[1, 2], [1, 2]]
    database.execute(f"INSERT INTO t VALUES (3, '{quoted[2]}')")
    assert ids(readers[0].read()) == [3]
    assert ids(readers[1].read()) == [
        2,
        3,
    ]  # a view tells no transaction: the last value is read again
    lookback = {"date": "3 days", "timestamp": "1 hour"}.get(kind, "1")
    if kind not in ("text", "varchar(9)"):
        database.reader("t", use_cursor("c"), lookback=lookback).read()
        again = database.reader("t", use_cursor("c"), lookback=lookback)
        again.state = readers[0].state
        assert again.read() == []


def test_a_partition_that_is_attached_later_is_read_in_full(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at int) PARTITION BY RANGE (id);"
        "CREATE TABLE a PARTITION OF t FOR VALUES FROM (0) TO (10); INSERT INTO t VALUES (1, 100);"
        "CREATE TABLE b (id int NOT NULL, at int); INSERT INTO b VALUES (11, 5), (12, 200)"
    )
    readers = [
        database.reader("t", use_cursor("at")),
        database.reader("t", use_cursor(None), incremental="xmin"),
    ]
    for reader in readers:
        assert ids(reader.read()) == [1]
    database.execute("ALTER TABLE t ATTACH PARTITION b FOR VALUES FROM (10) TO (20)")
    for reader in readers:
        assert ids(reader.read()) == [11, 12] and "new since" in reader.warnings[0]
        assert reader.read() == []


def test_columns_that_are_not_selected_are_not_read(database: Database) -> None:
    database.execute("CREATE TABLE t (id int, big text); INSERT INTO t VALUES (1, 'x')")
    reader = database.reader("t", FULL)
    del reader.configured.stream.json_schema["properties"]["big"]
    assert reader.read() == [{"id": 1}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xmin": 1 << 40}, "the server is older than the state"),
        ({"system": "12345"}, "the state is of the server 12345"),
        ({"form": 9}, "not of this source"),
        ({"complete": False, "pages": {}}, "interrupted read"),
    ],
)
def test_a_state_of_another_time_or_server(database: Database, change: Json, message: str) -> None:
    database.execute(CURSOR)
    reader = database.reader("t", use_cursor("at"))
    reader.read()
    reader.state = {**(reader.state or {}), **change}
    with pytest.raises(ConfigError, match=message):
        reader.read()


@pytest.mark.parametrize("name", ["tags", "nope", ""])
def test_a_column_that_cannot_be_a_cursor(database: Database, name: str) -> None:
    database.execute("CREATE TABLE t (id int, tags text[])")
    with pytest.raises(ConfigError, match="a column that grows, of: id"):
        database.reader("t", use_cursor(name) if name else use_cursor(None)).read()


def test_a_wrong_lookback(database: Database) -> None:
    database.execute(CURSOR + "INSERT INTO t VALUES (1, now())")
    reader = database.reader("t", use_cursor("at"), lookback="3 parsecs")
    reader.read()
    with pytest.raises(ConfigError, match="correct `lookback`"):
        reader.read()


def test_a_session_that_ends(database: Database) -> None:
    """The one that keeps the snapshot, and one in the middle of a slice."""
    database.execute(LARGE)
    end = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'elt' AND pid <> pg_backend_pid()"
    )
    reader = database.reader("t", DEDUP, **SMALL)
    with pytest.raises(TransientError, match="the session that keeps the snapshot has ended"):
        reader.read(lambda number: number == 2 and database.execute(end))
    database.execute(
        "CREATE VIEW slow AS SELECT g AS id, repeat('x', 9000), pg_sleep(0.001)::text AS s FROM "
        "generate_series(1, 20000) g"
    )
    slow = database.reader("slow", FULL)
    parts = iter(slow.stream.slices(slow.configured, None))
    batches: Any = slow.stream.read_slice(next(parts).data)  # type: ignore[union-attr]
    next(batches)
    database.execute(end)
    with pytest.raises(TransientError):
        list(batches)
    parts.close()  # type: ignore[attr-defined]


def test_a_table_that_is_changed_or_gone_during_the_list_of_slices(database: Database) -> None:
    database.execute(LARGE)
    reader = database.reader("t", FULL, **SMALL)
    database.execute("DROP TABLE t")
    with pytest.raises(ConfigError, match="the table is gone"):
        reader.read()


def test_large_values_come_in_small_batches(database: Database) -> None:
    database.execute(
        "CREATE TABLE t AS SELECT g AS id, repeat('x', 5000000) AS v FROM generate_series(1, 8) g"
    )
    reader = database.reader("t", FULL)
    parts = iter(reader.stream.slices(reader.configured, None))
    part: Any = next(part for part in parts if hasattr(part, "data"))
    sizes = [batch.nbytes for batch in reader.stream.read_slice(part.data)]
    assert sum(sizes) > 40_000_000 and max(sizes) < 20_000_000
    parts.close()  # type: ignore[attr-defined]


def test_a_lock_is_waited_for(database: Database) -> None:
    database.execute(LARGE)
    reader = database.reader("t", FULL, wait_seconds=1)
    transaction = start_transaction(database, "LOCK TABLE t;")
    begin = time.monotonic()
    with pytest.raises(TransientError, match="lock timeout"):
        reader.read()
    assert time.monotonic() - begin < 20
    end_transaction(transaction, "COMMIT")
    assert len(reader.read()) == 4000


def test_a_process_that_is_killed_is_continued_from_its_last_state(
    database: Database, tmp_path: Path
) -> None:
    database.execute(LARGE)
    reader = database.reader("t", DEDUP, **SMALL)
    (tmp_path / "config").write_bytes(reader.config)
    (tmp_path / "catalog").write_text(f'{{"streams": [{reader.text.decode()}]}}')
    files = ["--config", str(tmp_path / "config"), "--catalog", str(tmp_path / "catalog")]
    command = [sys.executable, "-m", "connectors.postgres", "read", *files]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    rows: list[Json] = []
    for line in process.stdout:
        message = json.loads(line)
        if message["type"] == "RECORD":
            rows.append(message["record"]["data"])
        if message["type"] == "STATE":
            reader.state = message["state"]["stream"]["stream_state"]
            if len(rows) > 1500:
                process.kill()
                break
    process.wait()
    process.stdout.close()
    assert len(rows) < 4000
    database.execute("DELETE FROM t WHERE id = 4000; UPDATE t SET v = 1 WHERE id <= 3")
    resumed = reader.read()
    assert ids(row for row in resumed if row["v"]) == [1, 2, 3]
    assert len(resumed) < 4000 and last_versions(rows + resumed).keys() == {*range(1, 4000)}
