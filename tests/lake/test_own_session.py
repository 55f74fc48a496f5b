"""Beside others in one Spark: what they set is not felt by the lake, and what the lake sets not by them."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from elt_assets.lake.read.snapshots import snapshot
from elt_assets.lake.session import REQUIRED, SESSION_DEFAULTS
from elt_assets.lake.write.frames import SparkRows, Target, replace_partitions, replace_table
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE
from tests.lake.harness import Lake
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, stream

SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
"""Settings of a team's, each other than the lake's."""
TIME = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
FIELDS = {"id": INTEGER, "name": STRING, "at": TIME, "day": {"type": "string", "format": "date"}}
OLD = dt.date(1500, 1, 1)
"""A day that differs in the calendar of Spark's legacy modes."""


@pytest.fixture
def team(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of others, with settings, a view and a function of their own, active in this thread."""
    session = SparkSession.builder.getOrCreate()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    session.createDataFrame([(1,)], "mine int").createOrReplaceTempView("users")
    session.udf.register("answer", lambda: 42, "int")
    yield session
    for name in SETTINGS:
        session.conf.unset(name)
    session.catalog.dropTempView("users")
    session.sql("drop temporary function answer")


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"{number}", "at": "2026-01-01T00:00:00Z", "day": str(OLD)}


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows, with times as the instants that they are, whatever the session's time zone is."""
    micros = f.expr("unix_micros(cast(at as timestamp_ltz))").alias("micros")
    return sorted(tuple(row) for row in frame.select("id", "name", micros, "day").collect())


EXPECTED = [(n, f"{n}", 1_767_225_600_000_000, OLD) for n in (1, 2)]


def test_others_get_a_session_without_the_settings_of_the_lake(spark: SparkSession) -> None:
    shared = SparkSession.builder.getOrCreate()
    assert shared is not spark and shared.sparkContext is spark.sparkContext
    assert not set(shared.conf.getAll) & {*SESSION_DEFAULTS, *REQUIRED, "fs.file.impl"}
    assert {name: spark.conf.get(name) for name in REQUIRED} == REQUIRED


@pytest.mark.parametrize("policy", [APPEND, OVERWRITE, APPEND_DEDUP])
def test_the_settings_of_others_change_no_table(
    lake: Lake, team: SparkSession, policy: str
) -> None:
    lake.history = policy == APPEND_DEDUP
    configured = stream(FIELDS, policy, key=["id"] if lake.history else [], cursor=["at"])
    lake.sync(configured, _record(1), _record(2))
    assert _rows(lake.table.dataframe(lake.spark)) == EXPECTED
    files = [pq.ParquetFile(path) for path in lake.folder.rglob("users/data/**/*.parquet")]
    assert files
    for file in files:
        (column,) = (c for c in file.schema if c.name == "at")
        assert column.physical_type == "INT64"
    names = {path.name for path in lake.folder.rglob("*")}
    assert not [name for name in names if name.endswith(".crc") or name == "_SUCCESS"]
    assert {name: team.conf.get(name) for name in SETTINGS} == SETTINGS
    assert SparkSession.getActiveSession() is team
    assert [row.mine for row in team.table("users").collect()] == [1]
    assert team.sql("select answer()").first() == (42,)
    assert not lake.spark.catalog.functionExists("answer")
    assert not lake.spark.catalog.tableExists("users")


def test_a_table_is_the_same_in_the_session_of_others(lake: Lake, team: SparkSession) -> None:
    lake.sync(stream(FIELDS, APPEND), _record(1), _record(2))
    columns = ["id", "at", "day"]
    rows = snapshot(team, lake.uri, APP, columns=columns)
    assert rows.sparkSession is team
    assert sorted(map(tuple, rows.select("id", "day").collect())) == [(1, OLD), (2, OLD)]
    text = {row[0] for row in rows.select(f.col("at").cast("string")).collect()}
    assert text == {"2025-12-31 19:00:00"}
    lake.writer(stream(FIELDS, OVERWRITE, generation=2)).commit(checkpoint(final=True))
    empty = snapshot(team, lake.uri, APP, columns=columns)
    assert (empty.count(), empty.columns) == (0, columns)


def test_a_frame_of_others_is_stored_as_one_of_the_lake(lake: Lake, team: SparkSession) -> None:
    """Their session computes it; what is written does not depend on their settings."""
    frames = [
        session.createDataFrame([(1, OLD)], "id int, day date")
        .withColumn("at", f.timestamp_micros(f.lit(EXPECTED[0][2])).cast("timestamp_ltz"))
        .withColumn("local", f.date_format("at", "HH:mm"))
        for session in (lake.spark, team)
    ]
    tables = []
    for name, frame in zip(("ours", "theirs"), frames, strict=True):
        target = Target(str(lake.folder / name), [name], "run")
        stored = replace_table(target, SparkRows(frame, lambda: lake.spark))
        tables.append(stored.table)
        (file,) = stored.table.files
        assert "INT96" not in str(pq.ParquetFile(lake.folder / name / file.path).schema)
    assert tables[0].schema == tables[1].schema
    rows = [table.dataframe(lake.spark).drop("local").collect() for table in tables]
    assert rows[0] == rows[1] and rows[0][0].day == OLD
    local = [table.dataframe(lake.spark).select("local").collect() for table in tables]
    assert local == [[("00:00",)], [("19:00",)]]


def test_rows_that_an_asset_holds_itself_stay_held(lake: Lake, team: SparkSession) -> None:
    frame = team.createDataFrame([(1, "a"), (2, "b")], "id int, _elt_partition string").persist()
    target = Target(str(lake.folder / "held"), ["held"], "run")
    stored = replace_partitions(target, SparkRows(frame, lambda: lake.spark), ["a", "b"])
    assert stored.table.records == 2
    assert frame.storageLevel.useMemory
    frame.unpersist()


THEIRS_FIRST = """
import os
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession
from elt_assets import SparkResource
from elt_assets.lake.session import REQUIRED
from elt_assets.orchestration.resources import spark_provider

team = {"spark.master": "local[1]", "spark.sql.session.timeZone": "Asia/Tokyo", "spark.ui.enabled": "false",
        "spark.sql.ansi.enabled": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
theirs = SparkSession.builder.config(map=team).getOrCreate()
before = dict(theirs.conf.getAll)
resource = SparkResource(spark_config={"spark.driver.memory": "3g", "spark.sql.files.maxRecordsPerFile": 7})
own = resource.spark_session
assert own.sparkContext is theirs.sparkContext
assert {name: own.conf.get(name) for name in REQUIRED} == REQUIRED
assert own.conf.get("spark.sql.files.maxRecordsPerFile") == "7"
assert resource.model_copy().spark_session is own, "resources with the same settings share a session"
lazy = LazyPySparkResource(spark_config={"spark.sql.shuffle.partitions": 5})
adopted = spark_provider(lazy).get()
assert lazy.spark_session is theirs and adopted.conf.get("spark.sql.shuffle.partitions") == "5"
theirs.conf.unset("spark.sql.shuffle.partitions")  # what their own resource has set
assert dict(theirs.conf.getAll) == before
assert SparkSession.builder.getOrCreate() is theirs
assert "PYSPARK_PYTHON" not in os.environ

theirs.stop()  # an asset may end with it
static = {"spark.sql.extensions": "", "spark.sql.warehouse.dir": "/tmp/elt-none", "spark.master": "local[1]"}
again = SparkResource(spark_config=static).spark_session
assert again.conf.get("spark.sql.warehouse.dir").endswith("elt-none"), "it is taken at the start of Spark"
later = SparkSession.builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
assert later is not again and again.conf.get("spark.sql.session.timeZone") == "UTC"
assert not set(later.conf.getAll) & (set(REQUIRED) - set(team)), "the JVM keeps what it was started with"
assert resource.spark_session.range(3).count() == 3, "a provider notices the end of its Spark"
print("done")
"""


@pytest.mark.spark
def test_the_lake_joins_a_spark_that_runs_already(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", THEIRS_FIRST],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["done"], done.stderr
    assert "these settings of elt have no effect: spark.driver.memory;" in done.stderr
