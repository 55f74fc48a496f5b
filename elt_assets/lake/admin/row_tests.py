"""Tests of the rows of a table: conditions on columns, unique values, and queries.

Values of rows are in no result; examples are the columns that the caller names, such as the key.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.schema.logical_types import LogicalType, column_of
from elt_assets.lake.spark.expressions import value_at
from elt_assets.lake.spark.session import SparkProvider

Scope = Literal["new", "table"]
ColumnPath = Sequence[str]
TABLE = "{table}"
"""Placeholder of the rows in a query."""
_MAX_EXAMPLES = 5
_MAX_LENGTH = 200
"""Maximum length of a value in an example."""


@dataclass(frozen=True)
class TestedRows:
    """The rows of a table that tests look at, at one snapshot.

    Attributes:
        files: the files of the run's commits; all files if there was no run.
        partitions: the partitions of the run; None without partitions, or without a run.
        example: the columns that identify a row in an example.
    """

    table: Table
    files: Sequence[DataFile]
    partitions: Collection[str] | None
    spark: SparkProvider
    example: Sequence[ColumnPath]

    def read(self, scope: Scope) -> DataFrame:
        """Return the rows of a scope."""
        spark = self.spark.get()
        if scope == "table":
            return self.table.dataframe(spark)
        if self.partitions is not None:
            return partition_files.read(spark, self.table, self.partitions)
        return self.table.read_files(spark, self.files)

    def count(self, scope: Scope) -> int:
        """Return the number of rows of a scope. Spark is used only if the log does not suffice."""
        if scope == "table":
            return self.table.records
        if self.partitions is not None:
            counts = (partition_files.count(self.spark, self.table, p) for p in self.partitions)
            return sum(counts)
        return sum(file.records for file in self.files)


@dataclass(frozen=True)
class ColumnTest:
    """A condition on the values of one column. Other values than null are compared as the column's type.

    Attributes:
        refuses_null: a null breaks the condition; otherwise it does not.
        accepted: the values that the column may have; None for any.
        least, most: the bounds of the values; NaN is within none.
    """

    name: str
    column: ColumnPath
    refuses_null: bool = False
    accepted: Sequence[str] | None = None
    least: str | None = None
    most: str | None = None

    def violation(self, schema: t.StructType) -> Expression:
        """Return the condition that a row fails the test; null counts as false."""
        value, kind = value_at(self.column), _type_at(schema, self.column)
        conditions = [value.isNull()] if self.refuses_null else []
        if self.accepted is not None:
            conditions.append(~value.isin(*(f.lit(text).cast(kind) for text in self.accepted)))
        if self.least is not None:
            conditions.append(value < f.lit(self.least).cast(kind))
        if self.most is not None:
            conditions.append(value > f.lit(self.most).cast(kind))
        has_bounds = self.least is not None or self.most is not None
        if has_bounds and isinstance(kind, t.DoubleType | t.FloatType):
            conditions.append(f.isnan(value))
        return reduce(Expression.__or__, conditions)


@dataclass(frozen=True)
class Failures:
    """The rows that fail a test, or the values that several rows have.

    `error`: why the test could not be made; None if it was.
    """

    count: int
    examples: Sequence[Mapping[str, str]] = field(default_factory=tuple)
    error: str | None = None


def run_column_tests(
    rows: TestedRows, scope: Scope, tests: Sequence[ColumnTest]
) -> dict[str, Failures]:
    """Run tests of columns in one pass over the rows, and return the failures by the name of the test."""
    schema = rows.table.schema
    conditions = {test.name: test.violation(schema) for test in tests}
    counts = [f.count(f.when(test, True)).alias(name) for name, test in conditions.items()]
    (counted,) = rows.read(scope).agg(*counts).collect()
    return {
        name: _describe_rows(rows, rows.read(scope).where(condition), counted[name])
        for name, condition in conditions.items()
    }


def find_repeated_values(rows: TestedRows, scope: Scope, columns: Sequence[ColumnPath]) -> Failures:
    """Return the combinations of values that several rows have; rows with a null among them do not count."""
    values = [value_at(path) for path in columns]
    is_whole = reduce(Expression.__and__, (value.isNotNull() for value in values))
    keys = [f.first(value_at(path)).alias(f"key_{n}") for n, path in enumerate(rows.example)]
    groups = (
        rows.read(scope)
        .where(is_whole)
        .groupBy(*(value.alias(f"value_{n}") for n, value in enumerate(values)))
        .agg(f.count("*").alias("rows"), *keys)
    )
    repeated = groups.where(f.col("rows") > 1)
    count = repeated.count()
    examples = repeated.select(*(f"key_{n}" for n in range(len(keys))))
    return Failures(count, _collect(rows, examples) if count else ())


def run_query(rows: TestedRows, scope: Scope, query: str) -> Failures:
    """Run a query that reads from `TABLE` alone.

    What it may do is decided where it is loaded (`elt_assets.connection.read_only_query`), without Spark:
    some queries read files or start programs while Spark analyses them, and a remote session shows no plan.
    """
    checked, view = rows.read(scope), f"elt_rows_{uuid.uuid4().hex}"
    spark = checked.sparkSession
    checked.createOrReplaceTempView(view)
    text = query.replace(TABLE, view)
    try:
        result = spark.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608 - the project's own text
        count = result.count()
        has_key = all(len(path) == 1 and path[0] in result.columns for path in rows.example)
        return _describe_rows(rows, result, count) if has_key else Failures(count)
    except PySparkException as error:
        return Failures(0, error=_describe_error(error).replace(view, TABLE))
    finally:
        spark.catalog.dropTempView(view)


def find_kind(table: Table, column: ColumnPath) -> LogicalType:
    """Return the logical type of a column of a table."""
    return column_of(t.StructField(column[-1], _type_at(table.schema, column))).kind


def _type_at(schema: t.StructType, column: ColumnPath) -> t.DataType:
    kind: t.DataType = schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return kind


def _describe_rows(rows: TestedRows, failed: DataFrame, count: int) -> Failures:
    if not count:
        return Failures(0)
    columns = (value_at(path).alias(f"key_{n}") for n, path in enumerate(rows.example))
    return Failures(count, _collect(rows, failed.select(*columns)))


def _collect(rows: TestedRows, keys: DataFrame) -> list[Mapping[str, str]]:
    names = [".".join(path) for path in rows.example]
    return [
        {name: str(value)[:_MAX_LENGTH] for name, value in zip(names, row, strict=True)}
        for row in keys.limit(_MAX_EXAMPLES).collect()
    ]


def _describe_error(error: PySparkException) -> str:
    """Return the message of an error in a query; of an error in the data its name, without values."""
    if isinstance(error, AnalysisException):
        return str(error).strip().splitlines()[0]
    return error.getCondition() or type(error).__name__
