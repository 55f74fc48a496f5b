"""Tables of MariaDB that are compared by ranges of their key, and read by keys and columns."""

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

from connectors.mysql.source import MySql
from connectors.sdk import ConfigError
from tests.connectors.mysql import exact_types
from tests.connectors.row_hashes import (
    Json,
    call,
    check_comparison,
    configure,
    list_keys,
    list_ranges,
)
from tests.support.mariadb import MariaDb

MANY = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXTS = st.text(st.sampled_from("aAbB \té😀"), max_size=4)


def quote(value: Any) -> str:
    return f"X'{value.hex()}'" if isinstance(value, bytes) else f"'{value}'"


def ask(
    server: MariaDb, folder: Path, verb: str = "compare", state: Json | None = None, **more: Any
) -> list[Json]:
    config = server.config(**more.pop("config", {}))
    source, name = MySql(), more.pop("name", "t")
    stream = next(s for s in source.open(dict(config)) if s.name == name)
    messages = call(MySql(), config, folder, verb, configure(stream, **more), state)
    return [m for m in messages if m["type"] not in ("LOG", "TRACE")]


def records(messages: list[Json]) -> list[Json]:
    return [m["record"]["data"] for m in messages if m["type"] == "RECORD"]


def test_the_server_hashes_each_value_as_it_is_read(shop: MariaDb, tmp_path: Path) -> None:
    exact_types.create(shop)
    comparison = check_comparison(MySql(), shop.config(), tmp_path, "exact", [1, 2, 7])
    kinds = {exact_types.column(n): kind for n, (kind, _) in enumerate(exact_types.CASES)}
    left_out = {kinds[name].partition("(")[0].partition(" ")[0] for name in comparison["left_out"]}
    assert left_out == {"double", "float", "json"}


@MANY
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            TEXTS,
            st.datetimes(),
            st.dates(),
            st.decimals(-(10**9), 10**9, places=3, allow_nan=False),
            st.binary(max_size=3),
        ),
        unique_by=lambda row: row[0],
        max_size=9,
    ),
    st.sampled_from(["id", "name, id", "id, name", "at, id", "d, name", "n, id", "b, id"]),
)
def test_ranges_are_in_the_order_of_any_key(
    shop: MariaDb, tmp_path: Path, rows: list[Any], key: str
) -> None:
    values = ", ".join(f"({', '.join(map(quote, row))})" for row in rows)
    shop.execute(
        "DROP TABLE IF EXISTS t; CREATE TABLE t (id bigint unsigned, name varchar(9) CHARACTER SET utf8mb4, "
        "at datetime(6), d date, n decimal(14, 3), b varbinary(5), "
        f"PRIMARY KEY ({key}));" + (f"INSERT IGNORE INTO t VALUES {values};" if rows else "")
    )
    check_comparison(MySql(), shop.config(), tmp_path, "t", [2, 5])


@pytest.mark.parametrize(
    ("kind", "literals"),
    [
        ("uuid", ["'ffffffff-0000-1000-8000-000000000000'", "'00000000-0000-1000-8000-00000000000a'"]),
        ("char(5)", ["'b'", "'a'", "'aé'"]),
        ("varchar(5) character set latin1", ["'ÿ'", "'a'"]),
        ("enum('z', 'a')", ["'z'", "'a'"]),
        ("bit(1)", ["b'1'", "b'0'"]),
        ("bit(64)", ["0xffffffffffffffff", "1"]),
        ("int(8) zerofill", ["42", "7"]),
        ("decimal(10,2) unsigned zerofill", ["1.5", "0"]),
        ("time(3)", ["'-12:34:56.789'", "'100:00:00'"]),
        ("year", ["1901", "2155"]),
        ("binary(4)", ["0x00ff", "0x61626364"]),
        ("timestamp(6)", ["'2024-02-29 23:59:59.999999'", "'1970-01-01 00:00:01'"]),
    ],
)  # fmt: skip
def test_keys_of_all_types_are_ordered_and_found(
    shop: MariaDb, tmp_path: Path, kind: str, literals: list[str]
) -> None:
    rows = ", ".join(f"({literal})" for literal in literals)
    shop.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY); INSERT INTO t VALUES {rows}")
    check_comparison(MySql(), shop.config(), tmp_path, "t", [1, 2])
    keys = [key for key, _, _ in list_keys(ask(shop, tmp_path, compare={"ranges": [{}]}))]
    for key in keys:
        assert len(records(ask(shop, tmp_path, "read", keys=[key]))) == 1
    assert len(records(ask(shop, tmp_path, "read", keys=keys))) == len(literals)


def test_a_collation_neither_orders_nor_finds_keys(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute(
        "CREATE TABLE t (k varchar(9) PRIMARY KEY); INSERT INTO t VALUES ('b'), ('A'), ('C')"
    )
    ends = [until for _, until, _, _ in list_ranges(ask(shop, tmp_path, compare={"rows": 1}))]
    assert ends == [["A"], ["C"], ["b"], None]
    assert not records(ask(shop, tmp_path, "read", keys=[["a"], ["A "], ["B"]]))


@pytest.mark.parametrize(
    ("table", "more", "text"),
    [
        ("(a int)", {}, "it has no key"),
        (
            "(a int); INSERT INTO t VALUES (1), (1)",
            {"primary_key": [["a"]]},
            "several rows have one key",
        ),
        (
            "(a int); INSERT INTO t VALUES (NULL)",
            {"primary_key": [["a"]]},
            "rows without a value of it",
        ),
        ("(a double PRIMARY KEY)", {}, "'a' of its key has the type double"),
    ],
)
def test_what_cannot_be_compared_is_said_by_name(
    shop: MariaDb, tmp_path: Path, table: str, more: Json, text: str
) -> None:
    shop.execute(f"CREATE TABLE t {table}")
    with pytest.raises(ConfigError, match=text):
        ask(shop, tmp_path, **more)


@pytest.mark.parametrize("size", [700_000, 4_000_000])
def test_rows_that_are_too_large_for_the_server_are_said(
    shop: MariaDb, tmp_path: Path, size: int
) -> None:
    shop.execute(
        "CREATE TABLE t (a int PRIMARY KEY, b longblob, c longtext); INSERT INTO t VALUES "
        f"(1, REPEAT('x', {size}), REPEAT('y', 100)), (2, 'x', REPEAT('z', {size})), (3, NULL, NULL)"
    )
    whole = ask(shop, tmp_path)[1]["range"]
    check_comparison(MySql(), shop.config(), tmp_path, "t", [1])
    (before,) = shop.texts("SELECT @@max_allowed_packet")
    try:
        shop.execute("SET GLOBAL max_allowed_packet = 1048576")
        with pytest.raises(ConfigError, match="larger than the server's max_allowed_packet"):
            ask(shop, tmp_path)
        assert ask(shop, tmp_path, compare={"columns": []})[1]["range"]["rows"] == 3
    finally:
        shop.execute(f"SET GLOBAL max_allowed_packet = {before[0]}")
    assert whole["rows"] == 3


def test_a_state_leaves_out_what_it_does_not_cover(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, u datetime);"
        "INSERT INTO t VALUES (1, '2020-01-01'), (2, '2020-01-02'), (3, NULL)"
    )
    more: Json = {"sync_mode": "incremental", "cursor_field": ["u"]}
    *_, last = ask(shop, tmp_path, "read", **more)
    state = last["state"]["stream"]["stream_state"]
    head, ranges = ask(shop, tmp_path, state=state, **more)
    assert head["comparison"]["until"] == {"datetime": "2020-01-02 00:00:00"}
    assert (head["comparison"]["cursor"], ranges["range"]["rows"]) == ("u", 3)
    shop.execute("INSERT INTO t VALUES (4, '2020-01-03'), (6, '2020-01-02')")
    head, ranges = ask(shop, tmp_path, state=state, **more)
    assert (head["comparison"]["is_open"], ranges["range"]["rows"]) == (True, 2)
    keys = list_keys(ask(shop, tmp_path, state=state, compare={"ranges": [{}]}, **more))
    assert [(key, value) for [key], _, value in keys if key > 3] == [
        (4, {"datetime": "2020-01-03 00:00:00"}),
        (6, {"datetime": "2020-01-02 00:00:00"}),
    ]


def test_a_change_after_the_snapshot_has_a_greater_number(logged: MariaDb, tmp_path: Path) -> None:
    logged.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    more: Json = {"sync_mode": "incremental", "config": {"incremental": "log"}}
    first = ask(logged, tmp_path, "read", **more)
    state = [m["state"]["global"] for m in first if m["type"] == "STATE"][-1]
    own = state["stream_states"][0]["stream_state"]
    logged.execute("UPDATE t SET a = 'before' WHERE id = 1; INSERT INTO t VALUES (3, 'c')")
    head, ranges = ask(logged, tmp_path, state=own, **more)
    assert head["comparison"]["cursor"] == "_ab_cdc_cursor"
    assert ranges["range"]["rows"] == 3
    (row,) = records(ask(logged, tmp_path, "read", state=own, keys=[[3], [9]], **more))
    assert (row["id"], row["_ab_cdc_cursor"]) == (3, head["comparison"]["position"])
    alone = records(ask(logged, tmp_path, "read", columns=["a"], **more))
    assert alone == [{"id": 1, "a": "before"}, {"id": 2, "a": "b"}, {"id": 3, "a": "c"}]
    with pytest.raises(ConfigError, match="without its state"):
        ask(logged, tmp_path, "read", keys=[[1]], **more)
    logged.execute("UPDATE t SET a = 'after' WHERE id = 2")
    files: Json = {"config": logged.config(incremental="log")}
    stream = next(s for s in MySql().open(files["config"]) if s.name == "t")
    files["catalog"] = {"streams": [configure(stream, sync_mode="incremental")]}
    files["state"] = [{"type": "GLOBAL", "global": state}]
    arguments = []
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
        arguments += [f"--{name}", str(tmp_path / name)]
    program = [sys.executable, "-m", "connectors.mysql", "read", *arguments]
    output = subprocess.run(program, capture_output=True, check=True).stdout
    rows = records([json.loads(line) for line in output.splitlines()])
    numbers = {row["id"]: row["_ab_cdc_cursor"] for row in rows}
    assert max(numbers[1], numbers[3]) == head["comparison"]["position"] < numbers[2]


def test_a_comparison_ends_on_the_server_when_its_process_is_killed(
    shop: MariaDb, tmp_path: Path
) -> None:
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT seq, REPEAT('x', 99) FROM "
        "seq_1_to_300000"
    )
    body = configure(next(s for s in MySql().open(shop.config()) if s.name == "t"))
    (tmp_path / "catalog").write_text(json.dumps({"streams": [body]}))
    (tmp_path / "config").write_text(json.dumps(shop.config()))
    arguments = ["--catalog", str(tmp_path / "catalog"), "--config", str(tmp_path / "config")]
    program = [sys.executable, "-m", "connectors.mysql", "compare", *arguments]
    running = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%CONV(%' "
        "AND ID <> CONNECTION_ID()"
    )
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as process:
        _wait(lambda: shop.texts(running) == [["1"]])
        process.kill()
    _wait(lambda: shop.texts(running) == [["0"]])


def _wait(is_true: Any) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_columns_of_other_collations_and_many_of_them_are_compared(
    shop: MariaDb, tmp_path: Path
) -> None:
    """percona/percona-toolkit#228, datafold/data-diff#397: collations that cannot be mixed; many columns."""
    collations = ("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_nopad_bin")
    columns = [f"c{n} varchar(9) COLLATE {name}" for n, name in enumerate(collations)]
    columns += [f"n{n} tinyint" for n in range(900)]
    shop.execute(
        f"CREATE TABLE t (id varchar(36) COLLATE utf8mb4_german2_ci PRIMARY KEY, {', '.join(columns)});"
        "INSERT INTO t (id, c0, c1, c2, c3, n899) VALUES ('b', 'ß', 'Ä', NULL, '', 1), "
        "('B2', '', NULL, 'x', 'y', 2)"
    )
    check_comparison(MySql(), shop.config(), tmp_path, "t", [1])
