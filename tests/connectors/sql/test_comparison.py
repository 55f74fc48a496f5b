"""Tables of SQLite and DuckDB that are compared by ranges of their key, and read by keys and columns."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sdk import ConfigError, Source, Stream
from connectors.sdk.columns.types import ColumnType
from connectors.sql import SqlDialect, SqliteDialect
from tests.connectors.row_hashes import (
    call,
    configure,
    hash_row,
    list_keys,
    list_ranges,
    order,
    sum_ranges,
)
from tests.connectors.sql.sources import DuckDb, Sqlite

Json = dict[str, Any]
TABLE = "CREATE TABLE t (id INTEGER NOT NULL, name TEXT NOT NULL, n INTEGER, d REAL, b BLOB, PRIMARY KEY {})"
KINDS = {"id": "int64", "name": "string", "n": "int64", "d": "double", "b": "binary"}
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        TEXTS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        # SQLite keeps no sign of zero.
        st.none() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
        st.none() | st.binary(max_size=4),
    ),
    unique_by=lambda row: row[0],
    max_size=12,
)
MANY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def make(path: Path, table: str, rows: list[Any] = [], name: str = "t") -> None:  # noqa: B006
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(table)
        if rows:
            connection.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows
            )
    connection.close()


def ask(
    source: Source, path: Path, *, verb: str = "compare", state: Json | None = None, **more: Any
) -> Any:
    config = {"path": str(path)}
    stream = next(s for s in source.open(config) if s.name == "t")
    return call(source, config, path.parent, verb, configure(stream, **more), state)


@MANY
@given(ROWS, st.integers(1, 5), st.sampled_from([["id"], ["name", "id"], ["id", "name"]]))
def test_ranges_have_the_sums_of_their_rows_in_the_order_of_the_key(
    tmp_path: Path, rows: list[Any], size: int, key: list[str]
) -> None:
    path = tmp_path / "x.db"
    make(path, TABLE.format(f"({', '.join(key)})"), rows)
    messages = ask(Sqlite(), path, compare={"rows": size})
    head = messages[0]["comparison"]
    assert (head["key"], head["key_types"]) == (key, [KINDS[name] for name in key])
    others = {column["name"]: column["type"] for column in head["columns"]}
    assert others == {name: kind for name, kind in KINDS.items() if name not in key}
    names = [*key, *others]
    by_name = sorted(
        (dict(zip(KINDS, row, strict=True)) for row in rows),
        key=lambda row: order([row[name] for name in key]),
    )
    keys = [[row[name] for name in key] for row in by_name]
    kinds = [KINDS[name] for name in names]
    hashes = [hash_row([row[name] for name in names], kinds) for row in by_name]
    assert list(list_ranges(messages)) == sum_ranges(keys, hashes, size)
    bounds = [{"after": a, "until": u} for a, u, _, _ in sum_ranges(keys, hashes, size)]
    listed = list_keys(ask(Sqlite(), path, compare={"ranges": bounds[1:]}))
    assert listed == [(k, h, None) for k, h in zip(keys, hashes, strict=True)][size:]


def test_keys_are_those_of_the_ranges_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "CREATE TABLE t (id INTEGER PRIMARY KEY NOT NULL)", [(n,) for n in range(10)])
    ranges = [{"until": [1]}, {"after": [3], "until": [5]}, {"after": [8]}]
    messages = ask(Sqlite(), path, compare={"ranges": ranges})
    listed = [[key for [key], _, _ in m["range"]["keys"]] for m in messages if m["type"] == "RANGE"]
    assert listed == [[0, 1], [4, 5], [9]]


def test_a_state_leaves_out_the_rows_that_it_does_not_cover(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(
        path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, u INTEGER)",
        [(1, 5), (2, 7), (3, 9), (4, None)],
    )
    more: Json = {"sync_mode": "incremental", "cursor_field": ["u"]}
    closed = {"cursor": "u", "value": 7, "rows": 1}
    head, ranges = ask(Sqlite(), path, state=closed, **more)
    assert (head["comparison"]["until"], head["comparison"].get("is_open")) == (7, None)
    assert head["comparison"]["cursor"] == "u"
    assert ranges["range"]["rows"] == 3
    head, ranges = ask(Sqlite(), path, state={**closed, "rows": 2}, **more)
    assert (head["comparison"]["until"], head["comparison"]["is_open"]) == (7, True)
    assert ranges["range"]["rows"] == 2
    _, keys = ask(Sqlite(), path, state=closed, compare={"ranges": [{}]}, **more)
    assert keys["range"]["rows"] == 3
    assert [(key, cursor) for key, _, cursor in keys["range"]["keys"]] == [
        ([1], 5), ([2], 7), ([3], 9), ([4], None),
    ]  # fmt: skip
    assert ask(Sqlite(), path, **more)[1]["range"]["rows"] == 4
    within = {"cursor": "u", "low": None, "high": 7, "rows": 1, "is_closed": False, "after": [1]}
    with pytest.raises(ConfigError, match="its first read is not complete"):
        ask(Sqlite(), path, state=within, **more)


def test_rows_of_the_last_seconds_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    rows = [(1, "2001-01-01 00:00:00"), (2, "2999-01-01 00:00:00")]
    make(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, u TIMESTAMP)", rows)
    more: Json = {"sync_mode": "incremental", "cursor_field": ["u"]}
    head, ranges = ask(Sqlite(), path, compare={"settled": 60}, **more)
    assert list(head["comparison"]["until"]) == ["datetime"]
    assert ranges["range"]["rows"] == 1


@pytest.mark.parametrize(
    ("table", "rows", "more", "text"),
    [
        ("CREATE TABLE t (a INTEGER)", [], {}, "it has no key"),
        ("CREATE TABLE t (a REAL PRIMARY KEY)", [], {}, "'a' of its key has the type double"),
        ("CREATE TABLE t (a INTEGER)", [(1,), (1,)], {"primary_key": [["a"]]}, "several rows have the key"),
        ("CREATE TABLE t (a INTEGER)", [(None,)], {"primary_key": [["a"]]}, "rows without a value of it"),
        ("CREATE TABLE t (a INTEGER)", [], {"primary_key": [["z"]]}, "the table has no column 'z'"),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY)", [], {"compare": {"columns": ["z"]}}, "compared by z"),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY)", [], {"compare": {"row": 1}}, "is not of its form"),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY)", [], {"compare": {"rows": 0}}, "ranges of 0 rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_by_name(
    tmp_path: Path, table: str, rows: list[Any], more: Json, text: str
) -> None:
    path = tmp_path / "x.db"
    make(path, table, rows)
    with pytest.raises(ConfigError, match=text):
        ask(Sqlite(), path, **more)


def test_a_collation_of_a_column_does_not_order_its_key(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(
        path,
        "CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)",
        [("b",), ("A",), ("C",)],
    )
    messages = ask(Sqlite(), path, compare={"rows": 1})
    assert [until for _, until, _, _ in list_ranges(messages)] == [["A"], ["C"], ["b"], None]


class CollatedDialect(SqliteDialect):
    """A dialect that has not said how its database orders texts."""

    def order_key(self, name: str, column_type: ColumnType) -> str | None:
        return SqlDialect.order_key(self, name, column_type)


class Collated(Sqlite):
    dialect = CollatedDialect()


def test_a_database_that_orders_texts_by_a_collation_is_refused_or_right(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)", [("b",), ("C",)])
    with pytest.raises(ConfigError, match="by other rules than by bytes"):
        ask(Collated(), path)
    make(
        path,
        "CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)",
        [("b",), ("A",), ("c",)],
    )
    assert list(list_ranges(ask(Collated(), path))) == list(list_ranges(ask(Sqlite(), path)))
    bounds: Json = {"compare": {"ranges": [{"after": ["A"], "until": ["b"]}, {"after": ["b"]}]}}
    listed = list_keys(ask(Collated(), path, **bounds))
    assert [key for key, _, _ in listed] == [["b"], ["c"]]
    assert listed == list_keys(ask(Sqlite(), path, **bounds))


def test_columns_without_a_text_are_left_out_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "CREATE TABLE t (a INTEGER PRIMARY KEY, j JSON, f REAL)")
    head = ask(Sqlite(), path)[0]["comparison"]
    assert list(head["left_out"]) == ["j"]
    assert [column["name"] for column in head["columns"]] == ["f"]
    keys_alone = ask(Sqlite(), path, compare={"columns": []})[0]["comparison"]
    assert keys_alone["columns"] == []


def test_a_table_of_duckdb_is_compared_by_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (a VARCHAR PRIMARY KEY, n DECIMAL(10, 2))")
        connection.execute("INSERT INTO t VALUES ('b', 1.5), ('a', NULL), ('Z', -0.25)")
    messages = ask(DuckDb(), path, compare={"rows": 2})
    kinds = ["string", "decimal128(10, 2)"]
    hashes = [hash_row(row, kinds) for row in [("Z", "-0.25"), ("a", None), ("b", "1.5")]]
    assert list(list_ranges(messages)) == sum_ranges([["Z"], ["a"], ["b"]], hashes, 2)


@MANY
@given(ROWS, st.data())
def test_a_read_by_keys_gives_their_rows_alone_and_no_state(
    tmp_path: Path, rows: list[Any], data: st.DataObject
) -> None:
    path = tmp_path / "x.db"
    make(path, TABLE.format("(name, id)"), rows)
    keys = [[row[1], row[0]] for row in rows if data.draw(st.booleans())]
    absent = [["absent", 1], ["a" * 9, 2]]
    messages = ask(Sqlite(), path, verb="read", keys=[*absent, *keys])
    records = [m["record"]["data"] for m in messages if m["type"] == "RECORD"]
    assert sorted([r["name"], r["id"]] for r in records) == sorted(keys)
    assert not any(m["type"] == "STATE" for m in messages)


def test_a_read_by_keys_compares_texts_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, n INT)", [("b", 1)])
    for key, count in (("B", 0), ("b", 1)):
        messages = ask(Sqlite(), path, verb="read", keys=[[key]])
        assert sum(m["type"] == "RECORD" for m in messages) == count


def test_a_read_by_columns_has_the_key_and_these_and_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    rows = [(n, n, str(n), n) for n in range(1, 8)]
    make(path, "CREATE TABLE t (id INTEGER PRIMARY KEY NOT NULL, u INT, a TEXT, b INT)", rows)
    more: Json = {"sync_mode": "incremental", "cursor_field": ["u"], "columns": ["b"]}
    messages = ask(
        Sqlite(), path, verb="read", state={"cursor": "u", "value": 7, "rows": 1}, **more
    )
    records = [m["record"]["data"] for m in messages if m["type"] == "RECORD"]
    assert records == [{"id": n, "b": n} for n in range(1, 8)]
    assert not any(m["type"] == "STATE" for m in messages)


@pytest.mark.parametrize(
    ("table", "more", "text"),
    [
        ("(a INTEGER)", {"keys": [[1]]}, "cannot be compared or read by keys: it has no key"),
        ("(a INTEGER PRIMARY KEY)", {"keys": [[1, 2]]}, "keys that are not of its 1 columns"),
        ("(a INTEGER PRIMARY KEY)", {"keys": [1]}, "is not of its form"),
        ("(a DATE PRIMARY KEY)", {"keys": [["x"]]}, "'a' of its key has values of several forms"),
        ("(a INTEGER PRIMARY KEY)", {"columns": ["z"]}, "has no columns z"),
    ],
)
def test_a_narrowed_read_that_cannot_be_is_an_error(
    tmp_path: Path, table: str, more: Json, text: str
) -> None:
    path = tmp_path / "x.db"
    make(path, f"CREATE TABLE t {table}")
    with pytest.raises(ConfigError, match=text):
        ask(Sqlite(), path, verb="read", **more)


class PlainStream(Stream):
    name = "t"
    primary_key = ("id",)
    json_schema: Any = {"type": "object", "properties": {"id": {"type": "integer"}}}  # noqa: RUF012

    def records(self, window: Any) -> Any:
        yield {"id": 1}


class Plain(Source):
    """A source whose stream has no ranges of keys."""

    name = "plain"

    def streams(self, config: Any) -> list[Stream]:
        return [PlainStream()]


@pytest.mark.parametrize(
    ("verb", "more", "text"),
    [
        ("compare", {}, "stream 't' cannot be compared with its source"),
        ("read", {"keys": [[1]]}, "'t' cannot be read by keys or columns alone"),
        ("read", {"columns": ["a"]}, "'t' cannot be read by keys or columns alone"),
    ],
)
def test_a_stream_without_ranges_is_never_read_as_a_whole(
    tmp_path: Path, verb: str, more: Json, text: str
) -> None:
    stream = configure(Plain().streams({})[0], **more)
    assert call(Plain(), {}, tmp_path, "read", {**stream, "keys": None, "columns": None})
    with pytest.raises(ConfigError, match=text):
        call(Plain(), {}, tmp_path, verb, stream)
