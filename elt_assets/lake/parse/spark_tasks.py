"""Tasks on Spark that are known by their numbers, and return plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from elt_assets.lake.spark.parsing.slices import FinishedTasks
from elt_assets.lake.spark.parsing.task import RESULT
from elt_assets.lake.spark.worker_code import make_sendable

Makers = tuple[Callable[..., Any], Callable[..., Any]]
"""Functions that make the function of tasks from a job, for numbers and for batches of numbers.

An RDD needs no plan, which saves a sixth of the CPU time of a short sync. A session of Spark Connect has no
RDDs: its tasks get the numbers as batches of a DataFrame."""


def run_tasks(
    spark: SparkSession, count: int, makers: Makers, *job: Any
) -> Sequence[Sequence[Any]]:
    """Return the results of tasks."""
    make, make_for_batches = makers
    if is_remote():
        return list(_iterate_batches(spark, count, make_for_batches, *job))
    numbers = spark.sparkContext.parallelize(range(count), count)
    return list(numbers.mapPartitions(make_sendable(make, *job)).collect())


def run_tasks_in_part(
    spark: SparkSession, count: int, makers: Makers, *job: Any
) -> tuple[Sequence[Sequence[Any]], Exception | None]:
    """Return the results of tasks; if Spark fails, those of the first tasks that are done, and its error.

    Args:
        makers: the first one also takes an accumulator `finished`, which gets the results.
    """
    if is_remote():
        return _take_while_good(_iterate_batches(spark, count, makers[1], *job))
    finished = spark.sparkContext.accumulator({}, FinishedTasks())
    try:
        return run_tasks(spark, count, makers, *job, finished), None
    except Exception as error:  # noqa: BLE001 - the caller raises it
        done = dict(finished.value)
        first = next(number for number in range(count + 1) if number not in done)
        return [done[number] for number in range(first)], error
    finally:
        finished.value.clear()  # Spark keeps accumulators until the session ends


def _iterate_batches(
    spark: SparkSession, count: int, make: Callable[..., Any], *job: Any
) -> Iterator[Sequence[Any]]:
    """Yield the results of tasks in their order, each as soon as those before it are done."""
    numbers = spark.range(0, count, 1, count)
    frame = numbers.mapInArrow(make_sendable(make, *job), RESULT)
    return (json.loads(row["result"]) for row in frame.toLocalIterator())


def _take_while_good(
    results: Iterator[Sequence[Any]],
) -> tuple[Sequence[Sequence[Any]], Exception | None]:
    taken: list[Sequence[Any]] = []
    try:
        taken.extend(results)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return taken, error
    return taken, None
