"""Parquet files as DataFrames where the JVM has no file system for their store.

Python tasks read and write the files, so Spark needs no library of the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from elt_assets.lake.spark import file_tasks
from elt_assets.lake.spark.task_io import Output, WrittenFile
from elt_assets.lake.spark.worker_code import send

_TASK_BYTES = 64 << 20
"""Bytes of the files that one task reads; a larger file is read by one task."""
_OPEN_BYTES = 4 << 20
"""The cost of opening a file, as the bytes that are read in the same time."""


def jvm_supports(spark: SparkSession, scheme: str) -> bool:
    """Return whether the session's settings name a file system of the JVM for a scheme."""
    return bool(spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", ""))


def read(
    spark: SparkSession,
    system: Any,
    files: Sequence[tuple[str, int]],
    schema: t.StructType,
    arrow_schema: pa.Schema,
    path_column: str | None = None,
) -> DataFrame:
    """Return the rows of files. A missing or damaged file is an error of the job.

    Args:
        system: pyarrow's file system; it is sent to the tasks.
        files: path and size in bytes of each file.
        schema: the columns to read; a column that a file lacks is null.
        arrow_schema: the same columns in Arrow's types.
        path_column: the name of a further column, with the path of a row's file.
    """
    if path_column is not None:
        schema = t.StructType([*schema.fields, t.StructField(path_column, t.StringType())])
        arrow_schema = arrow_schema.append(pa.field(path_column, pa.string()))
    groups = _group_by_size(files)
    job = file_tasks.ReadJob(system, groups, arrow_schema, path_column)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(send(file_tasks.read, job), schema)


def write(rows: DataFrame, output: Output, schema: pa.Schema | None = None) -> list[WrittenFile]:
    """Write rows to new files; return them. The folder may contain others, of attempts that failed.

    Args:
        schema: the columns in the types to write, which do not depend on the settings of the rows' session;
            None: as the session gives them.
    """
    results = rows.mapInArrow(send(file_tasks.write, output, schema), file_tasks.FILE).collect()
    return sorted(json.loads(row.file) for row in results)


def _group_by_size(files: Sequence[tuple[str, int]]) -> list[list[str]]:
    """Return the paths of files in groups that take about the same time to read."""
    groups: list[list[str]] = []
    left = 0
    for path, size in files:
        if left <= 0:
            groups.append([])
            left = _TASK_BYTES
        groups[-1].append(path)
        left -= size + _OPEN_BYTES
    return groups
