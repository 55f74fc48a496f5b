"""Tables of PostgreSQL that are compared by ranges of their key, and read by keys and columns."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.postgres import Postgres as Source
from connectors.sdk import ConfigError
from tests.connectors.postgres.support import Database, end_transaction, start_transaction
from tests.connectors.postgres.values import TYPES, VALUES, make_table
from tests.connectors.row_hashes import (
    Json,
    call,
    check_comparison,
    configure,
    list_keys,
    list_ranges,
)

MANY = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
LOG = {"incremental": "log", "slot": "compared", "publication": "compared"}
ASK = st.sampled_from(["id", "name, id", "id, name", "at, id", "d, name", "n, id", "b, id"])


def quote(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return "'{}'".format(str(value).replace("'", "''"))


def ask(
    database: Database, folder: Path, verb: str = "compare", state: Json | None = None, **more: Any
) -> list[Json]:
    config = database.config(**more.pop("config", {}))
    name = more.pop("name", "t")
    stream = next(s for s in Source().open(dict(config)) if s.name == name)
    messages = call(Source(), config, folder, verb, configure(stream, **more), state)
    return [m for m in messages if m["type"] not in ("LOG", "TRACE")]


def records(messages: list[Json]) -> list[Json]:
    return [m["record"]["data"] for m in messages if m["type"] == "RECORD"]


def test_the_server_hashes_each_value_as_it_is_read(database: Database, tmp_path: Path) -> None:
    database.execute(TYPES + make_table("t"))
    comparison = check_comparison(Source(), database.config(), tmp_path, "t", [1, 2, 3, 4])
    hashed = {column["name"] for column in comparison["columns"]}
    left_out = set(comparison["left_out"])
    kinds = {f"c{number}": kind for number, (kind, _) in enumerate(VALUES)}
    assert hashed | left_out == set(kinds)
    assert {kinds[name].rstrip("[]") for name in left_out} >= {"json", "jsonb", "int", "pair"}
    assert all(
        kinds[name] not in ("text", "numeric", "float8", "uuid", "money") for name in left_out
    )


@MANY
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            TEXTS,
            st.datetimes(),
            st.dates(),
            st.decimals(-(10**9), 10**9, places=3, allow_nan=False),
            st.binary(max_size=3),
            st.none() | st.floats(),
        ),
        unique_by=lambda row: row[0],
        max_size=9,
    ),
    ASK,
)
def test_ranges_are_in_the_order_of_any_key(
    database: Database, tmp_path: Path, rows: list[Any], key: str
) -> None:
    values = ", ".join(f"({', '.join(map(quote, row))})" for row in rows)
    database.execute(
        'DROP TABLE IF EXISTS t; CREATE TABLE t (id bigint, name text COLLATE "en-x-icu", at timestamptz, '
        f"d date, n numeric(14, 3), b bytea, f float8, u varchar(9), PRIMARY KEY ({key}));"
        + (f"INSERT INTO t VALUES {values} ON CONFLICT DO NOTHING;" if rows else "")
    )
    check_comparison(Source(), database.config(), tmp_path, "t", [2, 5])


@pytest.mark.parametrize(
    ("kind", "literals"),
    [
        (
            "uuid",
            ["'ffffffff-0000-0000-0000-000000000000'", "'00000000-0000-0000-0000-00000000000a'"],
        ),
        ("char(5)", ["'b'", "'a'", "'aé'", "'A'"]),
        ("mood", ["'sad'", "'ok'"]),
        ("boolean", ["true", "false"]),
        ("oid", ["7", "4294967295"]),
        ("deeper", ["1.5", "-2"]),
        ("inet", ["'10.0.0.1'", "'9.0.0.1'"]),
        ("timestamp", ["'0001-01-01'", "'9999-12-31 23:59:59.999999'"]),
        ("varchar(3)", ["'b'", "'B'"]),
    ],
)
def test_keys_of_all_types_are_ordered_and_found(
    database: Database, tmp_path: Path, kind: str, literals: list[str]
) -> None:
    rows = ", ".join(f"({literal})" for literal in literals)
    database.execute(f"{TYPES} CREATE TABLE t (k {kind} PRIMARY KEY); INSERT INTO t VALUES {rows}")
    check_comparison(Source(), database.config(), tmp_path, "t", [1, 2])
    keys = [key for key, _, _ in list_keys(ask(database, tmp_path, compare={"ranges": [{}]}))]
    for key in keys:
        assert len(records(ask(database, tmp_path, "read", keys=[key]))) == 1
    assert len(records(ask(database, tmp_path, "read", keys=keys))) == len(literals)


def test_a_partitioned_table_and_a_view_are_compared(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (id int, a text, g int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id))"
        " PARTITION BY RANGE (id);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (5);"
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (5) TO (99);"
        "INSERT INTO t SELECT n, n FROM generate_series(0, 9) n; CREATE VIEW v AS SELECT * FROM t;"
        "CREATE VIEW w AS SELECT 1 AS id FROM t"
    )
    comparison = check_comparison(Source(), database.config(), tmp_path, "t", [3, 5])
    assert [column["name"] for column in comparison["columns"]] == ["a", "g"]
    whole = list(list_ranges(ask(database, tmp_path, compare={"rows": 3})))
    more: Json = {"name": "v", "primary_key": [["id"]]}
    assert list(list_ranges(ask(database, tmp_path, compare={"rows": 3}, **more))) == whole
    with pytest.raises(ConfigError, match="several rows have one key"):
        ask(database, tmp_path, name="w", primary_key=[["id"]])
    with pytest.raises(ConfigError, match="it has no key"):
        ask(database, tmp_path, name="w")


def test_a_key_that_the_lake_does_not_store_is_refused(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (d date PRIMARY KEY); INSERT INTO t VALUES ('infinity')")
    with pytest.raises(ConfigError, match="rows without a value of it that the lake stores"):
        ask(database, tmp_path)


def test_columns_that_the_user_may_not_read_are_no_part(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text, secret text); DROP ROLE IF EXISTS narrow;"
        f"CREATE ROLE narrow LOGIN; GRANT USAGE ON SCHEMA {database.schema} TO narrow;"
        "GRANT SELECT (id, a) ON t TO narrow; INSERT INTO t VALUES (1, 'x', 'y')"
    )
    config: Json = {"config": {"user": "narrow"}}
    head, ranges = ask(database, tmp_path, **config)
    assert [column["name"] for column in head["comparison"]["columns"]] == ["a"]
    assert ranges["range"]["rows"] == 1
    with pytest.raises(ConfigError, match="cannot be compared by secret"):
        ask(database, tmp_path, compare={"columns": ["secret"]}, **config)
    database.execute("DROP OWNED BY narrow; DROP ROLE narrow")


def test_a_state_leaves_out_what_it_does_not_cover(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, u timestamptz);"
        "INSERT INTO t VALUES (1, '2020-01-01'), (2, '2020-01-02'), (3, NULL)"
    )
    more: Json = {"sync_mode": "incremental", "cursor_field": ["u"]}
    *_, last = ask(database, tmp_path, "read", **more)
    state = last["state"]["stream"]["stream_state"]
    head, ranges = ask(database, tmp_path, state=state, **more)
    assert head["comparison"]["until"] == {"datetime": "2020-01-02 00:00:00+00:00"}
    assert (head["comparison"]["cursor"], ranges["range"]["rows"]) == ("u", 3)
    database.execute("INSERT INTO t VALUES (4, '2020-01-03'), (5, 'infinity')")
    head, ranges = ask(database, tmp_path, state=state, **more)
    assert (head["comparison"].get("is_open"), ranges["range"]["rows"]) == (None, 4)
    database.execute("INSERT INTO t VALUES (6, '2020-01-02')")
    head, ranges = ask(database, tmp_path, state=state, **more)
    assert (head["comparison"]["is_open"], ranges["range"]["rows"]) == (True, 3)
    keys = list_keys(ask(database, tmp_path, state=state, compare={"ranges": [{}]}, **more))
    assert [(key, value) for [key], _, value in keys if key > 3] == [
        (4, {"datetime": "2020-01-03 00:00:00+00:00"}),
        (5, None),
        (6, {"datetime": "2020-01-02 00:00:00+00:00"}),
    ]
    settled = ask(database, tmp_path, compare={"settled": 60}, **more)
    assert settled[0]["comparison"]["is_open"] and settled[1]["range"]["rows"] == 6


@pytest.fixture
def logged(database: Database) -> Any:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT n, n FROM generate_series(1, 5) n;"
        "CREATE PUBLICATION compared FOR TABLE t"
    )
    yield database
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'compared';"
        "DROP PUBLICATION compared"
    )


def test_a_change_after_the_snapshot_has_a_greater_number(logged: Database, tmp_path: Path) -> None:
    more: Json = {"sync_mode": "incremental", "config": LOG}
    first = ask(logged, tmp_path, "read", **more)
    state = [m["state"]["global"] for m in first if m["type"] == "STATE"][-1]
    writer = start_transaction(logged, "UPDATE t SET a = 'open' WHERE id = 1;")
    logged.execute("UPDATE t SET a = 'before' WHERE id = 2")
    head, *_ = ask(logged, tmp_path, **more)
    comparison = head["comparison"]
    assert comparison["cursor"] == "_ab_cdc_lsn"
    assert [column["name"] for column in comparison["columns"]] == ["a"]
    end_transaction(writer, "COMMIT")
    logged.execute("UPDATE t SET a = 'after' WHERE id = 3")
    numbers = {}
    config = logged.config(**LOG)
    stream = next(s for s in Source().open(dict(config)) if s.name == "t")
    files: Json = {"config": config, "state": [{"type": "GLOBAL", "global": state}]}
    files["catalog"] = {"streams": [configure(stream, sync_mode="incremental")]}
    arguments = []
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
        arguments += [f"--{name}", str(tmp_path / name)]
    done = subprocess.run(
        [sys.executable, "-m", "connectors.postgres", "read", *arguments],
        capture_output=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["type"] == "RECORD":
            data = message["record"]["data"]
            numbers[data["id"]] = data["_ab_cdc_lsn"]
    assert numbers[2] <= comparison["position"] < min(numbers[1], numbers[3])


def test_rows_by_keys_have_the_position_of_their_snapshot(logged: Database, tmp_path: Path) -> None:
    more: Json = {"sync_mode": "incremental", "config": LOG}
    ask(logged, tmp_path, "read", **more)
    position = ask(logged, tmp_path, **more)[0]["comparison"]["position"]
    rows = records(ask(logged, tmp_path, "read", keys=[[2], [9]], **more))
    assert [(row["id"], row["a"], row["_ab_cdc_deleted_at"]) for row in rows] == [(2, "2", None)]
    assert rows[0]["_ab_cdc_lsn"] >= position and rows[0]["_ab_cdc_updated_at"]
    alone = records(ask(logged, tmp_path, "read", columns=["a"], **more))
    assert alone == [{"id": n, "a": str(n)} for n in range(1, 6)]
    stamped = records(ask(logged, tmp_path, "read", columns=["a", "_ab_cdc_lsn"], **more))
    assert all(row["_ab_cdc_lsn"] >= position for row in stamped) and len(stamped) == 5


def test_a_comparison_ends_on_the_server_when_its_process_is_killed(
    database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE slow (id int); INSERT INTO slow SELECT generate_series(1, 100);"
        "CREATE FUNCTION wait() RETURNS text LANGUAGE sql AS $$ SELECT pg_sleep(1)::text $$;"
        "CREATE VIEW t AS SELECT id, wait() AS a FROM slow"
    )
    stream = next(s for s in Source().open(database.config()) if s.name == "t")
    body = configure(stream, primary_key=[["id"]])
    (tmp_path / "catalog").write_text(json.dumps({"streams": [body]}))
    (tmp_path / "config").write_text(json.dumps(database.config()))
    arguments = ["--catalog", str(tmp_path / "catalog"), "--config", str(tmp_path / "config")]
    program = [sys.executable, "-m", "connectors.postgres", "compare", *arguments]
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%row_number()%' AND state = 'active' "
        "AND pid <> pg_backend_pid()"
    )
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as process:
        _wait(lambda: database.execute(running).strip() == "1")
        process.kill()
    _wait(lambda: database.execute(running).strip() == "0")


def _wait(is_true: Any) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_table_of_as_many_columns_as_there_can_be_is_compared(
    database: Database, tmp_path: Path
) -> None:
    """datafold/data-diff#397: a function takes at most 100 arguments."""
    columns = ", ".join(f"c{n} text" for n in range(1500))
    database.execute(
        f"CREATE TABLE t (id uuid PRIMARY KEY, {columns}); INSERT INTO t (id, c0, c1499) VALUES "
        "('ABCDABCD-0000-0000-0000-000000000000', 'a,b', 'c'), "
        "('abcdabcd-0000-0000-0000-00000000000f', 'a', 'b,c')"
    )
    check_comparison(Source(), database.config(), tmp_path, "t", [1])


def test_values_that_meet_at_another_place_are_different(
    database: Database, tmp_path: Path
) -> None:
    """thoughtworks/recce#66: `abc`, `def` had the hash of `ab`, `cdef`; and a null is no empty text."""
    rows = (
        "(1, 'abc', 'def'), (2, 'ab', 'cdef'), (3, 'abc,3:d', 'ef'), (4, NULL, ''), (5, '', NULL)"
    )
    database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, a text, b text); INSERT INTO t VALUES {rows}"
    )
    check_comparison(Source(), database.config(), tmp_path, "t", [2])
    database.execute("CREATE VIEW v AS SELECT 1 AS id, a, b FROM t")
    more: Json = {"name": "v", "primary_key": [["id"]], "compare": {"ranges": [{}]}}
    hashes = {row_hash for _, row_hash, _ in list_keys(ask(database, tmp_path, **more))}
    assert len(hashes) == 5
