"""Runs of a team's own Spark assets before, after and downstream of a stream, in one process."""

# No `from __future__ import annotations`: Dagster inspects the annotations of assets.

import datetime as dt
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from elt_assets import SparkResource, read_table
from elt_assets.lake.session import REQUIRED
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import materialize

SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.shuffle.partitions": "3",
}
SCHEMA = {
    "id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
}
MIDNIGHT = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)

pytestmark = pytest.mark.usefixtures("spark_provider")


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    for name in SETTINGS:
        SparkSession.builder.getOrCreate().conf.unset(name)


def make_asset(name: str, resource: PySparkResource | LazyPySparkResource) -> dg.AssetsDefinition:
    """An asset whose results depend on each of the settings."""

    @dg.asset(name=name, required_resource_keys={"team"})
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        spark = context.resources.team.spark_session
        assert spark is SparkSession.builder.getOrCreate()
        if name == "after":  # before, the fixture has started Spark in another thread
            assert SparkSession.getActiveSession() is spark
        rows = spark.createDataFrame([(1, 2)], "Key int, value int").groupBy("KEY").count()
        results = [
            spark.sql("select date_format(timestamp'2026-01-01 00:00:00Z', 'HH')").collect(),
            spark.sql("select cast('a' as int)").collect(),
            rows.collect(),
        ]
        settings = {key: spark.conf.get(key) for key in {**SETTINGS, **REQUIRED}}
        return dg.MaterializeResult(
            metadata={"found": str(results), "settings": dg.MetadataValue.json(settings)}
        )

    (bound,) = dg.with_resources([asset], {"team": resource})
    return bound


def read_metadata(result: dg.ExecuteInProcessResult, name: str) -> Mapping[str, Any]:
    (event,) = (
        e for e in result.get_asset_materialization_events() if e.asset_key == dg.AssetKey(name)
    )
    return {key: value.value for key, value in event.materialization.metadata.items()}


@pytest.mark.parametrize("kind", [PySparkResource, LazyPySparkResource])
def test_assets_of_others_compute_the_same_before_and_after_a_stream(
    own: Project, kind: type[PySparkResource | LazyPySparkResource]
) -> None:
    script(own, [record(id=1, at="2026-01-01T00:00:00Z"), state(1)], schema=SCHEMA)
    resource = kind(spark_config=SETTINGS)
    before, after = make_asset("before", resource), make_asset("after", resource)
    first = materialize(own, 'key:"before"', [before])
    assert materialize(own, 'key:"scripted/things"', [before]).success
    second = materialize(own, 'key:"after"', [after])
    assert read_metadata(first, "before") == read_metadata(second, "after")
    assert "='19')" in read_metadata(first, "before")["found"]  # of New York
    assert own.rows("scripted", "things") == [{"id": 1, "at": MIDNIGHT}]


def test_an_asset_downstream_computes_with_the_settings_of_elt_spark(own: Project) -> None:
    """And with its own session's, which `read_table` reads in; both write the same values."""
    script(own, [record(id=1, at="2026-01-01T00:00:00Z"), state(1)], schema=SCHEMA)

    @dg.asset(ins={"things": dg.AssetIn(["scripted", "things"])}, io_manager_key="elt_io_manager")
    def load(
        context: dg.AssetExecutionContext, elt_spark: SparkResource, things: DataFrame
    ) -> DataFrame:
        assert things.sparkSession is elt_spark.spark_session
        other = elt_spark.spark_session.range(1, 2).withColumn("text", f.lit("7 "))
        return things.join(other, "id").select(
            "id", "at", f.hour("at").alias("hour"), f.col("text").cast("int").alias("number")
        )

    @dg.asset(
        deps=[["scripted", "things"]],
        io_manager_key="elt_io_manager",
    )
    def read() -> DataFrame:
        spark = SparkSession.builder.config(map=SETTINGS).getOrCreate()
        read_table(spark, "scripted/things").createOrReplaceTempView("things")
        return spark.sql("select ID as id, at, hour(at) as hour from THINGS")

    assert materialize(own, "*", [load, read]).success
    assert own.rows("load") == [{"id": 1, "at": MIDNIGHT, "hour": 0, "number": 7}]
    assert own.rows("read") == [{"id": 1, "at": MIDNIGHT, "hour": 19}]


def test_the_collector_of_the_process_is_as_before(own: Project) -> None:
    script(own, [record(id=1), state(1)], destination_sync_mode="append")
    left_out, before = gc.get_freeze_count(), (gc.isenabled(), gc.get_threshold())
    assert materialize(own, 'key:"scripted/things"').success
    assert (gc.isenabled(), gc.get_threshold()) == before
    assert gc.get_freeze_count() <= left_out  # what others left out may have ended since
