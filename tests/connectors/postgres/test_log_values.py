"""Values of all types in the log, compared with those of a snapshot."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.postgres.dialect import quote_text
from elt_assets.errors import ConfigError
from tests.connectors.postgres.decoding import Event, open_log
from tests.connectors.postgres.support import FULL, Database
from tests.connectors.postgres.values import COLUMNS, TYPES, VALUES, make_table

pytestmark = pytest.mark.external

INVALID = "SOURCE_SERIALIZATION_ERROR"


def sort_by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    decoded = msgspec.json.decode(msgspec.json.encode(rows), type=list[dict[str, Any]])
    return sorted(decoded, key=lambda row: row["id"])


def assert_same_as_a_snapshot(database: Database, name: str, events: list[Event]) -> None:
    reader = database.reader(name, FULL)
    rows = sort_by_id(reader.read())
    by_id = {event.values["id"]: event for event in events}
    assert len(by_id) == len(events) == len(rows)
    wrong = [
        (case, row[column], by_id[row["id"]].values[column])
        for row in rows
        for column, case in zip(COLUMNS, VALUES, strict=True)
        if repr(row[column]) != repr(by_id[row["id"]].values[column])
    ]
    assert not wrong
    recorded = [(name, INVALID) for event in events for name in event.nulled]
    assert sorted(recorded) == sorted((c["field"], c["reason"]) for c in reader.changes)


def test_inserted_values_are_those_of_a_snapshot(database: Database, tmp_path: Path) -> None:
    database.execute(TYPES)
    definition, insert = make_table("t").split(";INSERT", 1)
    database.execute(definition)
    with open_log(database, "TABLE t") as log:
        database.execute(f"INSERT{insert}")
        assert_same_as_a_snapshot(database, "t", log.decode(tmp_path)["t"])


def test_values_before_a_change_are_those_of_a_snapshot(database: Database, tmp_path: Path) -> None:
    """A deleted row of the replica identity FULL has all its values, the large ones too."""
    database.execute(TYPES + make_table("t") + "ALTER TABLE t REPLICA IDENTITY FULL")
    reader = database.reader("t", FULL)
    before = sort_by_id(reader.read())
    with open_log(database, "TABLE t") as log:
        database.execute("DELETE FROM t")
        events = log.decode(tmp_path)["t"]
    assert all(event.is_delete for event in events)
    assert repr(sort_by_id([event.values for event in events])) == repr(before)


def test_texts_with_the_signs_of_arrays_and_literals(database: Database, tmp_path: Path) -> None:
    """The server converts the texts of arrays and composites, many in one query."""
    chance = random.Random(5)
    signs = [*"'\"\\{}(),$%E ", "\n", "\t", "\r", "NULL", "é", "😀", "\\'", "x" * 50]
    texts = ["".join(chance.choices(signs, k=chance.randrange(9))) for _ in range(2500)]
    rows = ", ".join(f"({n}, {quote_text(text)})" for n, text in enumerate(texts))
    database.execute(
        "CREATE TABLE given (id int, v text);"
        f"INSERT INTO given VALUES {rows};"
        "CREATE TYPE pair AS (a text, b text[]);"
        "CREATE TABLE t (id int PRIMARY KEY, v text, a text[], p pair, j json, d pair[])"
    )
    with open_log(database, "TABLE t") as log:
        database.execute(
            "INSERT INTO t SELECT id, v, ARRAY[v, NULL, v], ROW(v, ARRAY[v])::pair, to_json(v), "
            "ARRAY[ROW(v, NULL)::pair] FROM given"
        )
        events = log.decode(tmp_path)["t"]
    rows_read = sort_by_id([event.values for event in events])
    assert rows_read == sort_by_id(database.reader("t", FULL).read())
    assert [row["v"] for row in rows_read] == texts


CHANGED_TYPES = [
    ("text", "'abc'", "int", "length(v)"),
    ("text", "'true'", "boolean", "v::boolean"),
    ("text", "'abc'", "bytea", "v::bytea"),
    ("text", "'zz'", "bytea", "v::bytea"),
    ("text", "'soon'", "date", "now()"),
    ("text", "'soon'", "timestamptz", "now()"),
    ("timestamp", "now()", "date", "v::date"),
    ("timestamp", "now()", "timestamptz", "v"),
    ("timestamptz", "now()", "timestamp", "v"),
    ("text", "'abc'", "int[]", "ARRAY[1]"),
    ("text", "'abc'", "float8", "1"),
    ("numeric(12,4)", "1.2345", "numeric(12,2)", "v"),
    ("text", "'abc'", "numeric(12,2)", "1"),
    ("numeric(30,0)", "1e29", "bigint", "1"),
    ("text", "'abc'", "jsonb", "to_jsonb(v)"),
    ("text", "'0x1F'", "bigint", "31"),
    ("numeric", str(2**128 + 5), "numeric(12,2)", "5"),
]
"""Types of a column, before and after: the log has a value that is none of the later type."""


@pytest.mark.parametrize(("before", "value", "after", "using"), CHANGED_TYPES)
def test_a_value_of_another_type_is_an_error(
    database: Database, tmp_path: Path, before: str, value: str, after: str, using: str
) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {before})")
    with open_log(database, "TABLE t") as log:
        database.execute(f"INSERT INTO t VALUES (1, {value})")
        database.execute(f"ALTER TABLE t ALTER v TYPE {after} USING {using}")
        with pytest.raises(ConfigError, match=r"column 'v' of .* is not of its type") as raised:
            log.decode(tmp_path)
        assert "abc" not in str(raised.value)


@pytest.mark.parametrize(
    ("before", "value", "after", "expected"),
    [
        ("int", "7", "bigint", 7),
        ("int", "7", "text", "7"),
        ("text", "'7'", "int", 7),
        ("int", "7", "float8", 7.0),
        ("varchar(3)", "'abc'", "text", "abc"),
        ("text", '\'{"b":1,  "a": 2}\'', "jsonb", {"a": 2, "b": 1}),
        ("date", "'2024-02-29'", "timestamp", "2024-02-29T00:00:00.000000"),
    ],
)
def test_values_of_a_type_that_is_wider_now(
    database: Database, tmp_path: Path, before: str, value: str, after: str, expected: Any
) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {before})")
    with open_log(database, "TABLE t") as log:
        database.execute(f"INSERT INTO t VALUES (1, {value})")
        database.execute(f"ALTER TABLE t ALTER v TYPE {after} USING v::{after}")
        (event,) = log.decode(tmp_path)["t"]
    assert event.values["v"] == expected


class _Latin(Database):
    """A schema of a database whose encoding is not UTF-8."""

    def execute(self, sql: str) -> str:
        return self.server.execute(
            f"SET client_encoding = 'UTF8'; SET search_path = {self.schema}; {sql}", "latin1"
        )

    def config(self, **more: Any) -> dict[str, Any]:
        return super().config(**{**more, "database": "latin1"})


def test_another_encoding_of_the_database(database: Database, tmp_path: Path) -> None:
    database.server.execute(
        "CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    latin = _Latin(database.server, database.schema)
    latin.execute(
        f'CREATE SCHEMA {latin.schema}; CREATE TABLE t (id int PRIMARY KEY, "é" text, a text[])'
    )
    with open_log(latin, "TABLE t") as log:
        latin.execute("INSERT INTO t VALUES (1, U&'\\00e9', ARRAY[U&'\\00fc'])")
        (event,) = log.decode(tmp_path)["t"]
    assert sort_by_id([event.values]) == sort_by_id(latin.reader("t", FULL).read())
    assert event.values["é"] == "é"
