"""`elt sql`: queries over the tables of a project, by name."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import BIN, Project

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "Name": ["Ann", None, 'B"o,b\n'],
        "price": [Decimal("1.10"), None, Decimal("99999999999999999.99")],
        "tags": [["a", "b"], [], None],
        "at": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
        "x": [1.5, float("nan"), None],
    }
)


@pytest.fixture
def shop(own: Project) -> Project:
    """A project with tables of assets that were not made by a sync, and a stream without a table."""
    lake = own.home / "lake"
    for name in ("shop/users", "shop/Orders", "shop/orders", "totals", "eu/public/order items"):
        write_deltalake(str(lake / name), ROWS)
    streams = [{"name": "users"}, {"name": "bills"}]
    own.connection("shop", source={"command": ["none"]}, streams=streams)
    return own


@pytest.mark.usefixtures("spark")
def test_a_stream_its_history_and_its_dead_letter_are_queried_by_name(
    own: Project, elt: Elt
) -> None:
    dedup: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    for name in ("a", "b"):
        lines = [record(id=1, name=name), record(id=None, name="no key"), state(1)]
        script(own, lines, history=True, table="my_things", **dedup)
        elt("sync", "scripted")
    own.amend("scripted", namespace="elsewhere")
    (own.home / "lake" / "scripted").rename(own.home / "lake" / "elsewhere")
    query = """
        select t.name, h._is_current, (select count(*) from Scripted."THINGS_dead_letter") rejected
        from scripted.things t join scripted.things_history h using (id) order by all
    """
    answer = elt.json("sql", query)
    assert {"name": "b", "_is_current": True, "rejected": 2} in answer["rows"]
    assert [column["name"] for column in answer["columns"]] == ["name", "_is_current", "rejected"]


def test_names_are_found_in_any_case_and_with_any_character(shop: Project, elt: Elt) -> None:
    for name in (
        *("shop.users", "SHOP.Users", 'shop."users"', "totals", "Totals"),
        *('shop."Orders"', "shop.orders", 'eu.public."order items"', 'EU.PUBLIC."Order Items"'),
    ):
        assert elt.json("sql", f"select count(*) as n from {name} as x")["rows"] == [{"n": 3}]
    joined = 'select count(*) n from shop.users join eu.public."order items" using (id), totals'
    assert elt.json("sql", joined)["rows"] == [{"n": 9}]
    assert elt.json("sql", "with totals as (select 1 as a) from totals")["rows"] == [{"a": 1}]


def test_a_name_without_a_table_is_refused_with_near_names(shop: Project, elt: Elt) -> None:
    for name, message, guidance in (
        ("shop.usrs", "there is no table shop.usrs", "near names: shop.users"),
        ("users", "there is no table users", "near names: shop.users"),
        ("shop.bills", "there is no table shop.bills yet", "run `elt sync shop` first"),
        ("zzz", "there is no table zzz", "`elt list` and `elt list CONNECTION` show the names"),
        ("'/etc/passwd'", "there is no table /etc/passwd", "`elt list`"),
        (
            "SHOP.ORDERS",
            "shop.Orders and shop.orders differ from it in case only",
            "write the name",
        ),
        ("a.b.c.d", "the name a.b.c.d has 4 levels", "elt_assets.read_table"),
    ):
        error = elt.refuse("sql", f"select * from {name}")
        assert message in error["message"] and guidance in error["guidance"], error


def test_only_tables_that_a_query_names_are_opened(shop: Project, elt: Elt) -> None:
    (shop.home / "lake" / "totals" / "_delta_log" / f"{0:020}.json").write_text("damaged")
    for name in ("broken", "other"):
        shop.connection(name, source={"connector": "faker"}, streams=[{"name": "a", "nothing": 1}])
    assert elt.json("sql", "select count(*) n from shop.users")["rows"] == [{"n": 3}]
    assert "near names: shop.users" in elt.refuse("sql", "from shop.user")["guidance"]
    assert "totals" in elt.refuse("sql", "from totals")["message"]


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('{file}')",
        "select * from read_text('{file}')",
        "from '{file}'",
        "select * from glob('/*')",
        "from read_parquet('https://127.0.0.1:1/x')",
        "copy (select 1) to '{file}.copy'",
        "attach '{file}.db' as x",
        "export database '{file}.d'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "explain from shop.users",
        "pragma threads = 3",
        "create table t as select 1",
        "insert into shop.users select * from shop.users",
        "delete from shop.users",
        "drop view shop.users",
        "call pragma_version()",
        "select 1; select 2",
        "select getenv('HOME')",
        "select * from ROWS",
        "",
        "selec",
        "select nothing from shop.users",
        "pivot shop.users on id using count(*)",
    ],
)
def test_a_query_reads_the_tables_and_nothing_else(shop: Project, elt: Elt, query: str) -> None:
    file = shop.root / "file.csv"
    file.write_text("secret\n")
    error = elt.refuse("sql", query.format(file=file))
    print(error)
    assert error["failure_type"] == "config_error" and error["guidance"]
    assert "secret" not in str(error)
    assert [path.name for path in shop.root.glob("file*")] == ["file.csv"]


def test_remedies_of_refused_queries_work(shop: Project, elt: Elt) -> None:
    assert (
        "name the values" in elt.refuse("sql", "pivot shop.users on id using count(*)")["guidance"]
    )
    assert elt("sql", "pivot (select id from shop.users) on id in (1, 2) using count(*)")
    assert (
        "CAST"
        in elt.refuse(
            "sql", "select interval 1 month as i", "--output", str(shop.root / "a.parquet")
        )["guidance"]
    )
    elt(
        "sql",
        "select cast(interval 1 month as varchar) as i",
        "--output",
        str(shop.root / "a.parquet"),
    )
    same = "select a.id, b.id from shop.users a join shop.users b using (id)"
    assert "two columns of the result have the name 'id'" in elt.refuse("sql", same)["message"]
    assert elt("sql", same) and elt("sql", same.replace("b.id", "b.id as b_id"), "--format", "json")
    for text in (
        "describe shop.users",
        "summarize shop.users",
        "values (1)",
    ):
        assert elt("sql", text)


def test_each_format_has_the_rows(shop: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "select * from shop.users order by id"
    assert elt("sql", query, "--format", "csv") == (
        '"id","Name","price","tags","at","x"\n'
        '1,"Ann",1.10,"[""a"",""b""]",1970-01-01 00:00:00.000000Z,1.5\n'
        '2,,,"[]",1970-01-01 00:00:00.000001Z,nan\n'
        '3,"B""o,b\n",99999999999999999.99,,,\n'
    )
    rows = json.loads(elt("sql", query, "--format", "json"))
    assert rows == elt.json("sql", query)["rows"]
    assert rows[0] == {
        "id": 1,
        "Name": "Ann",
        "price": "1.10",
        "tags": ["a", "b"],
        "at": "1970-01-01T00:00:00Z",
        "x": 1.5,
    }
    assert rows[1]["x"] is None and rows[2]["price"] == "99999999999999999.99"
    assert json.loads(elt("sql", query + " limit 0", "--format", "json")) == []
    for name in ("rows.parquet", "rows.CSV", "rows.json"):
        file = shop.root / name
        assert f"wrote {file}: 3 rows" in elt("sql", query, "--output", str(file))
    assert pq.read_table(shop.root / "rows.parquet").drop_columns("x").to_pylist() == (
        ROWS.drop_columns("x").to_pylist()
    )
    assert json.loads((shop.root / "rows.json").read_text()) == rows
    assert len(list(csv.reader(io.StringIO((shop.root / "rows.CSV").read_text())))) == 4
    monkeypatch.setattr(sys, "stdin", io.StringIO(query))
    table = elt("sql", "-", "-n", "2")
    assert "Ann" in table and "NULL" in table and "99999" not in table


def test_a_table_shows_the_first_rows_and_says_so(shop: Project, elt: Elt) -> None:
    assert elt.json("sql", "from shop.users", "-n", "2")["is_complete"] is False
    answer = elt.json("sql", "from shop.users", "-n", "3")
    assert answer["is_complete"] is True and len(answer["rows"]) == 3
    assert "id" in elt("sql", "select id from shop.users where id > 5")


def test_wrong_options_are_refused(shop: Project, elt: Elt) -> None:
    for words, text in (
        (("--output", "rows.txt"), "write --format with one of csv, json, parquet"),
        (("--format", "csv"), "leave one of the two out"),
        (("--memory", "much"), "no size such as 500MB"),
        (("--output", str(shop.root / "none" / "a.csv")), "a folder that you can write"),
    ):
        error = elt.refuse("sql", "from shop.users", *words)
        assert text in f"{error['message']} {error['guidance']}"
    assert "write --output FILE" in elt("sql", "from shop.users", "--format", "parquet", code=2)
    assert not list(shop.root.glob("**/.a.csv*"))


def test_a_file_is_written_whole_or_not_at_all(shop: Project, elt: Elt) -> None:
    file = shop.root / "rows.csv"
    file.write_text("before")
    file.chmod(0o640)
    query = 'select id, cast("Name" as int) from shop.users'
    assert "Could not convert" in elt.refuse("sql", query, "--output", str(file))["message"]
    assert file.read_text() == "before"
    elt("sql", "select id from shop.users", "--output", str(file))
    assert file.read_text() == '"id"\n1\n2\n3\n' and file.stat().st_mode & 0o777 == 0o640
    for data in (shop.home / "lake" / "shop" / "users").glob("*.parquet"):
        data.unlink()
    error = elt.refuse("sql", "from shop.users", "--output", str(file), code=1)
    assert "cannot be read" in error["message"] and file.read_text() == '"id"\n1\n2\n3\n'
    assert sorted(path.name for path in shop.root.glob("*rows*")) == ["rows.csv"]


BIG = """
import resource, sys
from elt_assets.cli import main
query, output, most = sys.argv[1:]
assert main(["sql", "select 1"]) == 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert main(["sql", query, "--output", output, "--memory", "400MB"]) == 0
used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
assert used < int(most), used
"""


def test_large_results_and_large_sorts_have_bounded_memory(own: Project, tmp_path: Path) -> None:
    rows = pa.table({"id": range(100_000), "text": [f"{n:0>800}" for n in range(100_000)]})
    for _ in range(10):  # 800 MB
        write_deltalake(str(own.home / "lake" / "big"), rows, mode="append")
    for query in ("from big", "from big order by text desc"):
        done = subprocess.run(
            [sys.executable, "-c", BIG, query, str(tmp_path / "big.parquet"), "800"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and "nanobind" not in done.stderr, done.stderr
        assert pq.read_metadata(tmp_path / "big.parquet").num_rows == 1_000_000
    command = ["sql", "from big order by text desc", "--output", str(tmp_path / "big.parquet")]
    done = subprocess.run(
        [BIN / "elt", *command, "--memory", "10MB"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "needs more memory" in done.stderr and "--memory" in done.stderr
    assert "SET " not in done.stderr


def test_a_reader_that_ends_early_is_no_error(shop: Project) -> None:
    query = "select a.id from shop.users a, range(200000)"
    command = f"{BIN / 'elt'} sql '{query}' --format csv | head -2"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '"id"\n1\n', "")


NUMBERS = st.integers(-3, 12)
CONDITIONS = st.recursive(
    st.one_of(
        st.builds("id {} {}".format, st.sampled_from(["=", "<>", "<", ">="]), NUMBERS),
        st.builds("id in ({}, {})".format, NUMBERS, NUMBERS),
        st.builds("x {} {}".format, st.sampled_from(["=", "<", ">="]), NUMBERS),
        st.builds('"a b""c" {} \'{}\''.format, st.sampled_from(["=", "<>", ">"]), NUMBERS),
        st.builds("\"at\" > timestamptz '1970-01-01 00:00:0{}+00'".format, st.integers(0, 9)),
        st.sampled_from(
            [
                '"a b""c" is null',
                "later is null",
                "later = 'x'",
                "nested.n > 4",
                "day < date '1970-01-05'",
            ]
        ),
    ),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def stored() -> pa.Table:
    count = 10
    return pa.table(
        {
            "id": pa.array([None if n == 7 else n for n in range(count)], pa.int64()),
            'a b"c': [None if n % 4 == 0 else str(n) for n in range(count)],
            "x": [float("nan") if n == 3 else None if n == 5 else float(n) for n in range(count)],
            "at": pa.array([n * 1_000_000 for n in range(count)], pa.timestamp("us", "UTC")),
            "day": pa.array(range(count), pa.date32()),
            "nested": [None if n == 6 else {"n": n} for n in range(count)],
        }
    )


@given(condition=CONDITIONS, columns=st.sampled_from(["count(*)", "*", "id, later", '"a b""c"']))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_conditions_select_the_rows_that_duckdb_selects(
    own: Project, elt: Elt, stored: pa.Table, condition: str, columns: str
) -> None:
    """Also with files of several row groups, of a column that one lacks, and of narrower types."""
    table = own.home / "lake" / "things"
    if not table.exists():
        for part in (stored.slice(0, 4), stored.slice(4)):
            write_deltalake(str(table), part, mode="append")
        later = stored.slice(0, 1).append_column("later", pa.array(["x"]))
        write_deltalake(str(table), later, mode="append", schema_mode="merge")
    every = pa.concat_tables(
        [stored, stored.slice(0, 1).append_column("later", pa.array(["x"]))],
        promote_options="default",
    )
    with duckdb.connect() as connection:
        connection.register("rows", every)
        connection.sql("create table things as from rows")
        expected = connection.sql(
            f"select {columns} from things where {condition}"
        ).to_arrow_table()
    answer = elt.json("sql", f"select {columns} from things where {condition}")
    rows = [{name: str(value) for name, value in row.items()} for row in answer["rows"]]
    assert len(rows) == expected.num_rows
    ids = [row.get("id") for row in answer["rows"]]
    if "id" in expected.column_names:
        assert sorted(map(str, ids)) == sorted(map(str, expected["id"].to_pylist()))
    if columns == "count(*)":
        assert rows == [{"count_star()": str(expected[0][0].as_py())}]
