"""The rows that a downstream asset returns, in each supported type, are stored as by Spark."""

from __future__ import annotations

import datetime as dt
import json
import stat
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.orchestration.days import DAILY, DAYS, FIRST, SECOND, THIRD
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize

READINGS = 'key:"weather/readings"'
INSTANT = dt.datetime(2026, 1, 1, 12, 0, 0, 1, dt.timezone.utc)


@pytest.fixture(autouse=True)
def weather(own: Project) -> None:
    """Give the project a connection, whose stream has partitions."""
    windowed(own, partitions=DAILY)


def source(name: str, rows: Any, **how: Any) -> Any:
    """Return an asset without inputs that returns `rows`."""

    def make_rows() -> Any:
        return rows

    return dg.asset(name=name, io_manager_key="io_manager", **how)(make_rows)


def store(project: Project, *frames: Any, **how: Any) -> str | None:
    """Store frames as the table `result`, one after the other; return the message of the first failure."""
    for frame in frames:
        asset = source("result", frame, **how)
        result = materialize(project, 'key:"result"', [asset])
        if not result.success:
            return failure_of(result)
    return None


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize("any_umask", [0], indirect=True)
def test_a_lake_that_begins_with_an_asset_of_the_project_is_private(own: Project) -> None:
    assert store(own, pa.table({"id": [1]})) is None
    assert stat.S_IMODE((own.home / "lake").stat().st_mode) == 0o700


def column_types(project: Project, *path: str) -> dict[str, str]:
    """Return the types of a table's columns, as an independent reader has them."""
    columns = json.loads(project.table(*path).schema().to_json())["fields"]
    return {
        column["name"]: column["type"]
        if isinstance(column["type"], str)
        else json.dumps(column["type"])
        for column in columns
    }


def rows_by_library() -> Mapping[str, Any]:
    """Return frames of the same rows, in which the libraries have types of their own."""
    values = {"id": [1, None], "name": ["a", None], "at": [INSTANT, None]}
    polars = pl.DataFrame(values).with_columns(pl.col("name").cast(pl.Categorical))
    arrow = pa.table(values)
    return {
        "polars": polars,
        "lazy": polars.lazy(),
        "arrow": arrow.set_column(1, "name", arrow.column(1).dictionary_encode()),
        "pandas": pd.DataFrame({**values, "id": pd.array(values["id"], "Int64")}),
        "duckdb": duckdb.from_arrow(arrow),
    }


def test_each_library_gives_the_table_that_spark_gives(own: Project, spark: SparkSession) -> None:
    from_spark = spark.createDataFrame(
        [(1, "a", INSTANT), (None, None, None)], "id bigint, name string, at timestamp"
    )
    assets = [source("spark", from_spark)]
    assets += [source(name, rows) for name, rows in rows_by_library().items()]
    selection = " or ".join(f'key:"{name}"' for name in ("spark", *rows_by_library()))
    assert materialize(own, selection, assets).success
    expected = {"id": "long", "name": "string", "at": "timestamp"}
    for name in ("spark", *rows_by_library()):
        assert column_types(own, name) == expected, name
        assert own.rows(name) == own.rows("spark"), name
        assert own.metadata(name)["dagster/row_count"] == 2


def test_types_are_stored_exactly(own: Project, spark: SparkSession) -> None:
    berlin, values = (
        pa.timestamp("ns", "Europe/Berlin"),
        pa.array([INSTANT], pa.timestamp("us", "UTC")),
    )
    columns = {
        "uint64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)"),
        "uint32": (pa.array([2**32 - 1], pa.uint32()), "bigint"),
        "int8": (pa.array([-1], pa.int8()), "tinyint"),
        "half": (pa.array([0.5], pa.float16()), "float"),
        "amount": (pa.array([Decimal("1.50")], pa.decimal128(38, 9)), "decimal(38,9)"),
        "at": (values.cast(berlin), "timestamp"),
        "local": (values.cast(pa.timestamp("us")), "timestamp_ntz"),
        "day": (pa.array([dt.date(1, 1, 1)]), "date"),
        "blob": (pa.array([b"\x00"], pa.binary(1)), "binary"),
        "word": (pa.array(["a"]).dictionary_encode(), "string"),
        "tags": (pa.array([["a", None]], pa.large_list(pa.large_string())), "array<string>"),
        "pair": (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "array<int>"),
        "place": (pa.array([{"zip": 1, "unknown": None}]), "struct<zip:bigint>"),
        "map": (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "map<string,bigint>"),
    }
    nulls = {"nothing": pa.nulls(1), "nothings": pa.array([[]], pa.list_(pa.null()))}
    frame = pa.table({**{name: array for name, (array, _) in columns.items()}, **nulls})
    assert store(own, frame) is None
    schema = spark.read.parquet(*own.table("result").file_uris()).schema
    assert {field.name: field.dataType.simpleString() for field in schema} == {
        name: kind for name, (_, kind) in columns.items()
    }
    [row] = own.rows("result")
    assert row["uint64"] == 2**64 - 1 and row["at"] == INSTANT and row["amount"] == Decimal("1.50")
    assert (
        row["map"] == [("a", 1)] and row["tags"] == ["a", None] and row["day"] == dt.date(1, 1, 1)
    )


def test_a_column_of_nulls_has_the_type_that_the_table_has(
    own: Project, spark: SparkSession
) -> None:
    nulls = pl.DataFrame({"id": [1], "note": [None], "place": [{"zip": None, "city": "x"}]})
    typed = pl.DataFrame(
        {"id": [1], "note": [dt.date(2026, 1, 1)], "place": [{"zip": 1, "city": "x"}]}
    )
    assert store(own, nulls) is None
    assert set(column_types(own, "result")) == {"id", "place"}
    assert store(own, typed, nulls) is None
    assert column_types(own, "result")["note"] == "date"
    assert own.rows("result") == [{"id": 1, "note": None, "place": {"zip": None, "city": "x"}}]
    assert store(own, spark.sql("SELECT 2 AS id, null AS note, null AS unknown")) is None
    assert column_types(own, "result") == {"id": "integer", "note": "date"}
    assert store(own, typed.clear()) is None
    assert own.rows("result") == [] and "note" in column_types(own, "result")


def test_a_named_index_of_pandas_is_stored(own: Project) -> None:
    frame = pd.DataFrame({"station": ["a", "a", "b"], "value": [1, 2, 3]})
    assert store(own, frame.groupby("station").sum()) is None
    assert own.rows("result") == [{"station": "a", "value": 3}, {"station": "b", "value": 3}]
    assert store(own, frame[frame.value > 2]) is None
    assert own.rows("result") == [{"station": "b", "value": 3}]


REFUSED: Mapping[str, tuple[Callable[[], Any], str]] = {
    "a time": (lambda: pl.DataFrame({"t": [dt.time(1)]}), "column 't' has the type time64[ns]"),
    "a duration": (lambda: pl.DataFrame({"t": [dt.timedelta(1)]}), "has the type duration[us]"),
    "an object": (lambda: pl.DataFrame({"o": [object()]}), "column 'o' has Python objects"),
    "a large integer": (lambda: pl.DataFrame({"i": pl.Series([1], dtype=pl.Int128)}), "Int128"),
    "nanoseconds": (lambda: pd.DataFrame({"t": [pd.Timestamp(1)]}), "round times to microseconds"),
    "mixed values": (lambda: pd.DataFrame({"m": [1, "a"]}), "failed for column m"),
    "a period": (lambda: pd.DataFrame({"p": pd.period_range("2026", periods=1)}), "column 'p'"),
    "equal names": (lambda: pa.table({"id": [1], "ID": [2]}), "the columns 'id' and 'ID'"),
    "the same name": (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
    "a number as name": (lambda: pd.DataFrame([[1]]), "the name of the column 0 is no text"),
    "no column": (pl.DataFrame, "no column with a type"),
    "a list": (lambda: [1], "is a builtins.list, which cannot be stored as a table"),
    "digits": (lambda: pa.table({"d": pa.array([1], pa.decimal256(50, 0))}), "at most 38 digits"),
}


def test_what_cannot_be_stored_is_refused_and_nothing_is_written(own: Project) -> None:
    texts = {name: store(own, make()) or "" for name, (make, _) in REFUSED.items()}
    assert {name: text for name, text in texts.items() if REFUSED[name][1] not in text} == {}
    assert not (own.home / "lake" / "result").exists()


@dg.asset(
    ins={
        "readings": dg.AssetIn(["weather", "readings"], metadata={"columns": ["station", "value"]})
    },
    partitions_def=DAYS,
    io_manager_key="io_manager",
)
def totals(readings: pl.LazyFrame) -> pl.LazyFrame:
    return readings.group_by("station").agg(pl.col("value").sum().alias("total"))


@dg.asset(
    name="totals",
    ins={"readings": dg.AssetIn(["weather", "readings"])},
    partitions_def=DAYS,
    io_manager_key="io_manager",
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def totals_of_a_range(readings: pl.DataFrame) -> pl.DataFrame:
    by = ("_elt_partition", "station")
    return readings.group_by(by).agg(pl.col("value").sum().alias("total"))


@dg.asset(
    name="totals",
    ins={"readings": dg.AssetIn(["weather", "readings"])},
    partitions_def=DAYS,
    io_manager_key="io_manager",
)
def totals_of_spark(readings: Any) -> Any:
    return readings.groupBy("station").agg(f.sum("value").alias("total"))


def total_of(project: Project) -> dict[str, int]:
    """The stations' totals by partition; both stations measure the same."""
    rows = project.rows("totals")
    totals_by_day = {row["_elt_partition"]: row["total"] for row in rows}
    assert len(rows) == 2 * len(totals_by_day)
    return totals_by_day


def test_a_polars_asset_replaces_its_partitions_as_an_asset_of_spark_does(
    own: Project, spark: SparkSession
) -> None:
    assert materialize(own, f'{READINGS} or key:"totals"', [totals], partition=FIRST).success
    assert total_of(own) == {FIRST: 276}
    assert column_types(own, "totals") == {
        "station": "string",
        "total": "long",
        "_elt_partition": "string",
    }
    assert materialize(own, READINGS, partition=SECOND, through=THIRD).success
    assert materialize(own, 'key:"totals"', [totals_of_spark], partition=SECOND).success
    own.reconfigure("weather", factor=10)
    assert materialize(own, f'{READINGS} or key:"totals"', [totals], partition=FIRST).success
    assert total_of(own) == {FIRST: 2760, SECOND: 276}
    assert fetch_materializations(own, "totals")[FIRST]["dagster/row_count"] == 2
    text = failure_of(materialize(own, 'key:"totals"', [totals], partition=FIRST, through=THIRD))
    assert "multi_run(1)" in text
    own.table("totals").optimize.compact()  # both days are in one file
    assert materialize(
        own, 'key:"totals"', [totals_of_a_range], partition=FIRST, through=THIRD
    ).success
    assert total_of(own) == {FIRST: 2760, SECOND: 276, THIRD: 276}

    other = source("totals", pl.DataFrame({"total": ["many"]}), partitions_def=DAYS)
    text = failure_of(materialize(own, 'key:"totals"', [other], partition=FIRST))
    assert "has the type bigint, but string in the result" in text
    stray = pl.DataFrame({"total": [1], "_elt_partition": ["2026-02-01"]})
    single = dg.BackfillPolicy.single_run()
    other = source("totals", stray, partitions_def=DAYS, backfill_policy=single)
    text = failure_of(materialize(own, 'key:"totals"', [other], partition=FIRST, through=THIRD))
    assert "rows of the partition '2026-02-01'" in text
    assert total_of(own) == {FIRST: 2760, SECOND: 276, THIRD: 276}
