"""Sources on `SqlSource` for real databases: types as the database writes them, the kit, and the lake."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from connectors.sdk import Slice, Source
from connectors.sdk.arrow_records import page_of
from connectors.sdk.slices import SlicedStream, SliceReader
from connectors.testing import Kit, KitOptions
from tests.connectors.pages import write_source
from tests.connectors.sql.sources import DuckDb, Postgres, Sqlite
from tests.connectors.sql.test_reads import configure
from tests.connectors.support import call, records
from tests.support.postgres import Postgres as Server
from tests.support.postgres import run_postgres
from tests.support.project import Project
from tests.support.runs import materialize

Json = dict[str, Any]
DUCKDB = {
    "tinyint": "-128",
    "smallint": "32767",
    "integer": "-2147483648",
    "bigint": "9223372036854775807",
    "utinyint": "255",
    "uinteger": "4294967295",
    "ubigint": "18446744073709551615",
    "hugeint": "-99999999999999999999999999999999999999",
    "decimal(4,2)": "-0.01",
    "decimal(18,9)": "123456789.123456789",
    "decimal(38,9)": "12345678901234567890123456789.123456789",
    "decimal(38,38)": "0.12345678901234567890123456789012345678",
    "double": "0.1",
    "real": "0.1",
    "boolean": "true",
    "varchar": "é😀\n\"'",
    "date": "0001-01-01",
    "timestamp": "2024-02-29 23:59:59.999999",
    "timestamp_s": "2024-02-29 23:59:59.000000",
    "time": "23:59:59.999999",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""A value of each type."""
POSTGRES = {
    "smallint": "-32768",
    "integer": "2147483647",
    "bigint": "-9223372036854775808",
    "numeric(12,2)": "-0.01",
    "numeric(38,9)": "12345678901234567890123456789.123456789",
    "numeric": "123456789012345678901234567890.1234567890",
    "double precision": "0.1",
    "real": "0.1",
    "boolean": "true",
    "text": "é😀\n\"'",
    "varchar(9)": "ab ",
    "date": "9999-12-31",
    "timestamp": "2024-02-29 23:59:59.999999",
    "timestamptz": "2024-02-29 23:59:59.999999+00",
    "time": "23:59:59.999999",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "jsonb": '{"a": 1.5, "b": [12345678901234567890]}',
}
NULLED = {"numeric(9,1)": "NaN", "double precision": "Infinity"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_postgres() as running:
        yield running


def read(source: Source, config: Json, name: str) -> tuple[Json, set[str]]:
    """The row of a table as tasks read it, and the fields that are null with a change."""
    stream = next(s for s in source.open(config) if s.name == name)
    assert isinstance(stream, SlicedStream)
    configured = configure(stream, None)
    reader = SliceReader("a program", msgspec.json.encode(config), configured.to_json())
    (reader._stream,) = (s for s in type(source)().open(config) if s.id == stream.id)  # type: ignore[assignment]
    rows: list[Json] = []
    changed: set[str] = set()
    for item in stream.slices(configured, None):
        if isinstance(item, Slice):
            for batch in reader.read(msgspec.json.encode(item.data)):
                page = page_of(batch, stream.json_schema)
                rows += page.records
                changed |= {change["field"] for part in page.changes.values() for change in part}
    (row,) = rows
    return msgspec.json.decode(msgspec.json.encode(row)), changed


def text_of(value: Any) -> str:
    """A value of a record, as databases write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).replace("T", " ").replace("Z", "+00").replace("+00:00", "+00")


def test_types_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(DUCKDB))
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t ({columns}, l integer[], b blob, s struct(a integer))")
        marks = ", ".join("?" * len(DUCKDB))
        connection.execute(
            f"INSERT INTO t VALUES ({marks}, [1, 2], '\\xff'::blob, {{'a': 1}})",
            list(DUCKDB.values()),
        )
    row, changed = read(DuckDb(), {"path": str(path)}, "t")
    assert not changed
    values = [text_of(row[f"c{n}"]) for n in range(len(DUCKDB))]
    assert values == list(DUCKDB.values())
    assert (row["l"], row["s"], row["b"]) == ("[1,2]", '{"a":1}', "/w==")


def test_types_of_postgres_by_psycopg2(server: Server) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate([*POSTGRES, *NULLED]))
    literals = ", ".join(
        "'{}'".format(value.replace("'", "''")) for value in [*POSTGRES.values(), *NULLED.values()]
    )
    server.execute(
        f"CREATE SCHEMA typed; CREATE TABLE typed.t ({columns}, b bytea, a int[]); "
        f"INSERT INTO typed.t VALUES ({literals}, '\\xff', '{{1,2}}')"
    )
    config = {"host": "127.0.0.1", "port": server.port, "user": "elt", "database": "postgres"}
    row, changed = read(Postgres(), {**config, "schema_name": "typed"}, "t")
    assert changed == {f"c{len(POSTGRES) + n}" for n in range(len(NULLED))}
    values = [text_of(row[f"c{n}"]) for n in range(len(POSTGRES))]
    assert values == list(POSTGRES.values())
    assert row["b"] == "/w=="


def test_a_table_of_postgres_is_read_by_ranges(server: Server, tmp_path: Path) -> None:
    server.execute(
        'CREATE SCHEMA many; CREATE TABLE many."T%" (a text, "b%s" int, PRIMARY KEY (a, "b%s")); '
        'INSERT INTO many."T%" SELECT chr(65 + i % 5), i FROM generate_series(1, 50) i'
    )
    config = {"host": "127.0.0.1", "port": server.port, "user": "elt", "database": "postgres"}
    config["schema_name"] = "many"
    source = Postgres()
    source.check(source.parse(config))
    (stream,) = source.open(config)
    configured = msgspec.json.decode(configure(stream, None).to_json())  # type: ignore[arg-type]
    _, messages = call(
        Postgres(), tmp_path, "read", config=config, catalog={"streams": [configured]}
    )
    assert sorted(row["b%s"] for row in records(messages)) == list(range(1, 51))
    assert sum(message["type"] == "STATE" for message in messages) == 8


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, price DECIMAL(9,2), t TEXT, at TIMESTAMP NOT NULL);"
            "INSERT INTO orders WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 50) "
            "SELECT n, n * 1.25, 'é' || n, '2024-01-01 10:' || (n + 9) || ':00' FROM s;"
            "CREATE TABLE plain (b BLOB, n INT); INSERT INTO plain VALUES (x'00ff', 'none'), (NULL, NULL);"
        )
    connection.close()
    return path


def find_program(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Write the source of the page, and return the name of its module."""
    module = write_source("sql-sources.md", "sqlite_source", folder, monkeypatch)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
    return module


def test_the_source_of_the_page_conforms(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = find_program(monkeypatch, tmp_path)
    options = KitOptions(cursors={"orders": "at"})
    report = Kit([sys.executable, "-m", module], {"path": str(shop)}, options).report()
    assert report.passed, "\n".join(report.lines())
    source = importlib.import_module(module).Sqlite()
    assert [stream.name for stream in source.open({"path": str(shop)})] == ["orders", "plain"]


@pytest.mark.usefixtures("spark")
def test_tasks_of_spark_read_a_table_and_what_is_new(shop: Path, own: Project) -> None:
    config = {"path": str(shop), "slice_rows": 20}
    command = [
        sys.executable,
        "-c",
        (
            "import sys; from connectors.sdk import run; "
            "from tests.connectors.sql.sources import Sqlite; sys.exit(run(Sqlite(), sys.argv[1:]))"
        ),
    ]
    stream = {"name": "orders", "sync_mode": "incremental", "cursor_field": ["at"]}
    stream["destination_sync_mode"] = "append_dedup"
    source = {"command": command, "config": config}
    folder = own.connection("lite", source=source, streams=[stream])
    catalog = [msgspec.json.decode(s.describe().to_json()) for s in Sqlite().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": catalog}))
    counts = []
    for sql in (
        "SELECT 1",
        "UPDATE orders SET price = -0.01, at = '2024-02-01 00:00' WHERE id % 2",
    ):
        with sqlite3.connect(shop) as connection:
            connection.execute(sql)
        connection.close()
        assert materialize(own).success
        counts.append(own.metadata("lite", "orders")["elt/records_read"])
    assert counts == [50, 25]
    rows = own.table("lite", "orders").to_pyarrow_table().to_pylist()
    values = {row["id"]: str(row["price"]) for row in rows}
    assert values == {n: "-0.010000000" if n % 2 else f"{n * 1.25:.9f}" for n in range(1, 51)}
