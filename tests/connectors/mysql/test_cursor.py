"""Incremental reads by a cursor column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.mysql.source import MySql
from tests.connectors.mysql.reads import make_configured_stream, messages, open_stream, states
from tests.connectors.support import errors, records
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

CURSORS = {
    "c int unsigned": "{}",
    "c bigint unsigned": "18446744073709551000 + {}",
    "c decimal(30,3)": "{} / 4",
    "c double": "{} / 7e0",
    "c date": "'2024-02-20' + INTERVAL {} DAY",
    "c datetime": "'2024-02-29 23:59:50' + INTERVAL {} SECOND",
    "c timestamp(6) null": "'2024-03-31 02:30:00.5' + INTERVAL {} MICROSECOND",
    "c varchar(20) collate utf8mb4_general_ci": "CONCAT('Row ', LPAD({}, 5, '0'))",
    "c year": "1950 + {}",
}


def insert(server: MariaDb, expression: str, first: int, last: int) -> None:
    value = expression.format("seq")
    server.execute(f"INSERT INTO log (id, c) SELECT 1000 - seq, {value} FROM seq_{first}_to_{last}")


def read(
    server: MariaDb, folder: Path, state: Any = None, **config: Any
) -> tuple[list[int], list[Any]]:
    """The numbers of the rows, and the states."""
    output = messages(server, folder, "log", cursor="c", state=state, **config)
    assert not errors(output), errors(output)
    return [1000 - row["id"] for row in records(output)], states(output)


@pytest.mark.parametrize("index", [", INDEX (c)", ""])
def test_each_read_has_what_is_new(shop: MariaDb, tmp_path: Path, index: str) -> None:
    for declared, expression in CURSORS.items():
        shop.execute(
            f"DROP TABLE IF EXISTS log; CREATE TABLE log (id int PRIMARY KEY, {declared}{index})"
        )
        rows, (empty,) = read(shop, tmp_path)
        assert rows == [] and empty == {"cursor": "c", "value": None, "rows": None}
        insert(shop, expression, 1, 20)
        shop.execute("INSERT INTO log VALUES (0, NULL)")
        rows, saved = read(shop, tmp_path, slice_rows=8)
        assert sorted(rows) == [*range(1, 21), 1000] and len(saved) == 3, declared
        # A read that is interrupted goes on where it was, with the same upper bound.
        insert(shop, expression, 21, 40)
        rest, _ = read(shop, tmp_path, saved[1], slice_rows=8)
        assert rest == rows[16:], declared
        more, later = read(shop, tmp_path, saved[-1], slice_rows=8)
        assert sorted(more) == [*range(21, 41)], declared
        if index:
            rest, _ = read(shop, tmp_path, later[0], slice_rows=8)
            assert rest == more[8:], declared
        assert read(shop, tmp_path, later[-1]) == ([], [later[-1]])
        # A row that has the value of the bound, and is committed later.
        shop.execute(f"INSERT INTO log VALUES (1, {expression.format(40)})")
        rows, (last,) = read(shop, tmp_path, later[-1])
        assert sorted(rows) == [40, 999] and read(shop, tmp_path, last) == ([], [last]), declared


def test_a_cursor_that_is_a_key_is_read_without_an_overlap(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE log (c int PRIMARY KEY AUTO_INCREMENT, id int)")
    insert(shop, "{}", 1, 5)
    rows, saved = read(shop, tmp_path)
    assert rows == [1, 2, 3, 4, 5]
    stream = open_stream(shop, "log")
    configured = make_configured_stream(stream, "c")
    assert stream.has_new_data(configured, saved[-1]) is False
    assert read(shop, tmp_path, saved[-1]) == ([], saved[-1:])
    insert(shop, "{}", 6, 7)
    assert stream.has_new_data(configured, saved[-1]) is True
    assert read(shop, tmp_path, saved[-1])[0] == [6, 7]


@pytest.mark.parametrize(
    ("declared", "expression", "lookback"),
    [
        ("c timestamp null", "'2024-03-31 02:30:00' + INTERVAL {} MINUTE", 180),
        ("c date", "'2024-03-31' + INTERVAL {} DAY", 3 * 86400),
        ("c int unsigned", "{}", 3),
    ],
)
def test_a_lookback_reads_late_rows(
    shop: MariaDb, tmp_path: Path, declared: str, expression: str, lookback: int
) -> None:
    shop.execute(f"CREATE TABLE log (id int PRIMARY KEY, {declared}, INDEX (c))")
    insert(shop, expression, 1, 2)
    _, saved = read(shop, tmp_path, lookback=lookback)
    assert read(shop, tmp_path, saved[-1])[0] == []
    assert sorted(read(shop, tmp_path, saved[-1], lookback=lookback)[0]) == [1, 2]
    insert(shop, expression, 3, 10)
    late = expression.format("8")
    _, saved = read(shop, tmp_path, saved[-1], lookback=lookback)
    shop.execute(f"INSERT INTO log VALUES (1, {late})")
    assert 999 not in read(shop, tmp_path, saved[-1])[0]
    assert sorted(read(shop, tmp_path, saved[-1], lookback=lookback)[0]) == [7, 8, 9, 10, 999]


@pytest.mark.parametrize(
    ("declared", "ahead"), [("timestamp", 0), ("datetime", -14), ("datetime", 14), ("date", 14)]
)
def test_a_value_of_the_present_time_is_read_again(
    shop: MariaDb, tmp_path: Path, declared: str, ahead: int
) -> None:
    """A row that changes within the same second keeps its value, and the number of rows is the same."""
    shop.execute(
        f"CREATE TABLE log (id int PRIMARY KEY, c {declared}, INDEX (c));"
        f"SET time_zone = '+00:00'; INSERT INTO log VALUES (1, NOW() + INTERVAL {ahead} HOUR)"
    )
    _, (state,) = read(shop, tmp_path)
    assert state["rows"] is None
    assert read(shop, tmp_path, state)[0] == [999]


def test_cursors_that_cannot_be_used(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE log (id int PRIMARY KEY, c json, d date)")
    shop.execute("CREATE TABLE plain (t text)")
    for cursor, problem in (("c", "'c' cannot be its cursor"), ("gone", "'gone' cannot be")):
        (error,) = errors(messages(shop, tmp_path, "log", cursor=cursor))
        assert error["failure_type"] == "config_error" and problem in error["message"]
        assert "of: id, d" in error["message"]
    (error,) = errors(messages(shop, tmp_path, "plain", cursor="t"))
    assert "cannot be read incrementally" in error["message"]
    state = {"cursor": "d", "value": "2024-01-01"}
    (error,) = errors(messages(shop, tmp_path, "log", cursor="id", state=state))
    assert "the state is that of the cursor 'd', and not of 'id'" in error["message"]
    (error,) = errors(
        messages(shop, tmp_path, "log", cursor="id", state={"cursor": "id", "value": "x' OR 1"})
    )
    assert "the type of the column has changed" in error["message"]
    assert open_stream(shop, "plain").describe().supported_sync_modes == ["full_refresh"]
    assert MySql().specification()["properties"]["password"]["airbyte_secret"] is True
