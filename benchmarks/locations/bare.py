"""An asset that starts Spark, reads one line of JSON and writes it as Parquet: the cost of any job of Spark.

$BENCH_LINE is the file with the line, $BENCH_OUT the folder of the result.
"""

from __future__ import annotations

import os

import dagster as dg
from pyspark.sql import SparkSession


@dg.asset
def bare() -> None:
    """Run one job with a session as PySpark has it by default."""
    spark = SparkSession.builder.master("local[*]").getOrCreate()
    spark.read.json(os.environ["BENCH_LINE"]).write.parquet(os.environ["BENCH_OUT"])
