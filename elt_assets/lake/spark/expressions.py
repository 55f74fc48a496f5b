"""Expressions and rows of Spark that several modules need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t


def value_at(parts: Sequence[str]) -> Expression:
    """Return a column of the table, or a field nested in one. Names may contain dots and backticks."""
    first, *rest = parts
    column = f.col("`" + first.replace("`", "``") + "`")
    return reduce(lambda value, name: value.getField(name), rest, column)


def make_empty(spark: SparkSession, schema: t.StructType) -> DataFrame:
    """Return no rows. `createDataFrame` would make the session active in the thread, for others too."""
    columns = (f.lit(None).cast(field.dataType).alias(field.name) for field in schema)
    return spark.range(0).select(*columns)
