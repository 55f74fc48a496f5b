"""A program that reads tables of the project, and runs an asset, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake, write_deltalake

from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY

TIME = 4  # microseconds since 1970
DOCUMENT = (REPOSITORY / "docs" / "downstream.md").read_text()
PROGRAM = """
import contextlib
import io
import os
import sys

import dagster as dg
import duckdb
import elt_assets
import pandas
import polars
import pyarrow
from elt_assets import read_table
from elt_assets.errors import ConfigError
from pyspark import SparkContext

READS = {
    "lazy": lambda: len(read_table("shop/users", form=polars.LazyFrame).collect()),
    "polars": lambda: len(read_table("shop/users", form=polars.DataFrame)),
    "arrow": lambda: len(read_table(["shop", "users"], form=pyarrow.Table)),
    "pandas": lambda: len(read_table("shop/users", form=pandas.DataFrame)),
    "duckdb": lambda: len(read_table("shop/users", form=duckdb.DuckDBPyRelation)),
    "document": lambda: exec(sys.argv[2], globals()) or len(users),
}
for name in READS:
    for _ in range(int(sys.argv[1])):
        child = os.fork()  # before anything was read: no library has started its threads
        if not child:
            assert READS[name]() == 5_000
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0, name

times = read_table("int96", form=polars.LazyFrame).filter(polars.col("at").is_not_null()).collect()
assert times.schema == {"at": polars.Datetime("us")} and times["at"][0].microsecond == 4
assert read_table("single", form=polars.DataFrame, columns=["name"], version=1).shape == (2_000, 1)
for wrong in (
    lambda: read_table("shop/nobody", form=polars.DataFrame),
    lambda: read_table("shop/users", form=polars.DataFrame, columns=["nothing"]),
    lambda: read_table("shop/users", form=polars.DataFrame, partition="a"),
    lambda: read_table("shop/users", form=polars.DataFrame, version=99),
    lambda: read_table("shop/users", form=dict),
    lambda: read_table(),
):
    try:
        wrong()
    except ConfigError as error:
        print(error.message)


@dg.asset(ins={"users": dg.AssetIn(["shop", "users"])}, io_manager_key="elt_io_manager")
def names(users: polars.LazyFrame) -> polars.LazyFrame:
    return users.select("name").unique()


users_spec = dg.AssetSpec(["shop", "users"]).with_io_manager_key("elt_io_manager")
with contextlib.redirect_stderr(io.StringIO()):
    assert dg.materialize([users_spec, names], resources=elt_assets.resources()).success
assert read_table("names", form=polars.DataFrame)["name"].to_list() == ["somebody"]
assert SparkContext._active_spark_context is None
"""


@pytest.fixture
def lake(own: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make two tables of several files in the lake of the project."""
    folder = tmp_path / "another lake"
    rows = pa.table({"id": range(1_000), "name": ["somebody"] * 1_000})
    for _ in range(5):
        for name in ("shop/users", "single"):
            write_deltalake(str(folder / name), rows, mode="append")
    # Timestamps as Spark and Databricks may store them: ion-elgreco/polars-deltalake#21
    times = pa.table({"at": pa.array([TIME], pa.timestamp("us"))})
    (folder / "int96").mkdir()
    pq.write_table(times, folder / "int96" / "a.parquet", use_deprecated_int96_timestamps=True)
    convert_to_deltalake(str(folder / "int96"))
    monkeypatch.setenv("ELT_LAKE", str(folder))
    return folder


def document() -> str:
    """Return the program that the document shows."""
    [program] = [block for block in code_blocks(DOCUMENT, "python") if "import read_table" in block]
    return program


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_reads_tables_without_spark_and_ends_without_an_error(lake: Path) -> None:
    messages = run(PROGRAM, "1", document()).splitlines()
    assert [message.replace(str(lake), "LAKE") for message in messages] == [
        "there is no table LAKE/shop/nobody yet",
        "the table LAKE/shop/users has no column 'nothing'",
        "the table LAKE/shop/users has no partitions",
        messages[3].replace(str(lake), "LAKE"),
        "the argument `form` of read_table is of the type builtins.dict, in which no table can be read",
        "read_table needs the key of an asset",
    ]
    assert "version 99" in messages[3]


@pytest.mark.long
def test_programs_that_read_tables_end_without_an_error_under_load(lake: Path) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        run(PROGRAM, "100", document())
    finally:
        for program in busy:
            program.kill()
            program.wait()
