"""Tests of the rows of a table, each one text in Spark SQL; for `pipeline.rules` and `orchestration.checks`.

Values of rows are in no result; examples are the columns that the caller names, such as the key.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.columns.logical_types import LogicalType, column_of
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.session import SparkProvider, value_at

Scope = Literal["new", "table"]
ColumnPath = Sequence[str]
TABLE = "{table}"
"""Placeholder of the rows in a query."""
_MAX_EXAMPLES = 5
_MAX_LENGTH = 200
"""Maximum length of a value in an example."""


@dataclass(frozen=True)
class TestedRows:
    """The rows of a table that tests look at, at one snapshot."""

    table: Table
    files: Sequence[DataFile]
    """The files of the run's commits; all files if there was no run."""
    partitions: Collection[str] | None
    """The partitions of the run; None without partitions, or without a run."""
    spark: SparkProvider

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
class RowTest:
    """What fails in the rows of a table, as a text in Spark SQL."""

    sql: str
    """A condition that a row fails the test, or a query that reads from `TABLE` alone and returns a row for
    each failure, with the columns of examples by their names.

    What a query may do is decided where it is loaded (`connection.read_only_query`), without Spark: some read
    files or start programs while Spark analyses them, and a remote session shows no plan."""
    is_query: bool = False
    may_fail: bool = False
    """Whether an error of Spark is an outcome, as for a text that people write; otherwise it is raised."""


@dataclass(frozen=True)
class Failures:
    """The rows that fail a test, or the values that several rows have."""

    count: int
    examples: Sequence[Mapping[str, str]] = ()
    error: str | None = None
    """Why the query could not be run; None if it was."""


def run_tests(
    rows: TestedRows, scope: Scope, tests: Mapping[str, RowTest], keys: Sequence[ColumnPath]
) -> dict[str, Failures]:
    """Run tests, and return the failures by the name of the test. All conditions are counted in one pass.

    Args:
        keys: the columns that identify a row in an example.
    """
    checked, examples = rows.read(scope), [value_at(key).alias(".".join(key)) for key in keys]
    conditions = {name: test.sql for name, test in tests.items() if not test.is_query}
    counts = [f.expr(f"count_if({sql})") for sql in conditions.values()]
    (counted,) = checked.agg(*counts).collect() if counts else [()]
    failures = {
        name: Failures(n, _list_rows(checked.where(sql).select(*examples)) if n else ())
        for (name, sql), n in zip(conditions.items(), counted, strict=True)
    }
    names = [".".join(key) for key in keys]
    queries = {name: test for name, test in tests.items() if test.is_query}
    return failures | {name: _run_query(checked, test, names) for name, test in queries.items()}


def find_kind(table: Table, column: ColumnPath) -> LogicalType:
    """Return the logical type of a column of a table."""
    kind: t.DataType = table.schema
    for name in column:
        assert isinstance(kind, t.StructType)
        kind = kind[name].dataType
    return column_of(t.StructField(column[-1], kind)).kind


def _run_query(checked: DataFrame, test: RowTest, names: Sequence[str]) -> Failures:
    """Run a query on rows. `names`: the columns of its result that are shown in examples, if it has them."""
    spark, view = checked.sparkSession, f"elt_rows_{uuid.uuid4().hex}"
    checked.createOrReplaceTempView(view)
    try:
        failed = spark.sql(f"SELECT * FROM (\n{test.sql.replace(TABLE, view)}\n)")  # noqa: S608 - checked
        count = failed.count()
        is_shown = count and set(names) <= set(failed.columns)
        return Failures(
            count, _list_rows(failed.select(*(value_at([n]) for n in names))) if is_shown else ()
        )
    except PySparkException as error:
        if not test.may_fail:
            raise
        text = error.getCondition() or type(error).__name__  # a message may have values of rows
        if isinstance(error, AnalysisException):
            text = str(error).strip().splitlines()[0].replace(view, TABLE)
        return Failures(0, error=text)
    finally:
        spark.catalog.dropTempView(view)


def _list_rows(rows: DataFrame) -> list[Mapping[str, str]]:
    return [
        {name: str(value)[:_MAX_LENGTH] for name, value in row.asDict().items()}
        for row in rows.limit(_MAX_EXAMPLES).collect()
    ]
