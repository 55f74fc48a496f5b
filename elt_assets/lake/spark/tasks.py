"""Tasks on Spark: a function that is sent to the workers, and called there with the number of each task.

It returns a plain value, in types of Python's own: a worker cannot return objects of classes that were sent
to it. An RDD needs no plan, which saves a seventh of the CPU time of a short sync. A session of Spark Connect
has no RDDs: its tasks get their numbers as batches of a DataFrame, and return JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from elt_assets.lake.spark.worker_code import RESULT, send_for_batches, send_for_numbers

Make = Callable[..., Callable[[int], Any]]
"""Makes the function of tasks of some arguments. It is called in the workers, and is of one of the modules
that `worker_code` sends."""
Results = dict[int, Any]


def run_tasks(spark: SparkSession, count: int, make: Make, *arguments: Any) -> Sequence[Any]:
    """Return the results of tasks, in the order of their numbers."""
    if is_remote():
        return list(_iterate_batches(spark, count, make, *arguments))
    numbers = spark.sparkContext.parallelize(range(count), count)
    return list(numbers.mapPartitions(send_for_numbers(make, *arguments)).collect())


def run_tasks_in_part(
    spark: SparkSession, count: int, make: Make, *arguments: Any
) -> tuple[Sequence[Any], Exception | None]:
    """Return the results of tasks; if Spark fails, those of the first tasks that are done, and its error."""
    if is_remote():
        return _take_while_good(_iterate_batches(spark, count, make, *arguments))
    finished = spark.sparkContext.accumulator({}, _FinishedTasks())
    numbers = spark.sparkContext.parallelize(range(count), count)
    error: Exception | None = None
    try:
        numbers.mapPartitions(send_for_numbers(make, *arguments, finished=finished)).count()
    except Exception as failure:  # noqa: BLE001 - the caller raises it
        error = failure
    done = dict(finished.value)
    finished.value.clear()  # Spark keeps accumulators until the session ends
    first = next(number for number in range(count + 1) if number not in done)
    return [done[number] for number in range(first)], error


class _FinishedTasks(AccumulatorParam[Results]):
    """Collects the results of tasks when they are done, so that they are known if a later task fails."""

    def zero(self, value: Results) -> Results:
        del value
        return {}

    def addInPlace(self, value1: Results, value2: Results) -> Results:  # noqa: N802 - Spark's name
        value1.update(value2)
        return value1


def _iterate_batches(spark: SparkSession, count: int, make: Make, *arguments: Any) -> Iterator[Any]:
    """Yield the results of tasks in their order, each as soon as those before it are done."""
    numbers = spark.range(0, count, 1, count)
    frame = numbers.mapInArrow(send_for_batches(make, *arguments), RESULT)
    return (json.loads(row["result"]) for row in frame.toLocalIterator())


def _take_while_good(results: Iterator[Any]) -> tuple[Sequence[Any], Exception | None]:
    taken: list[Any] = []
    try:
        taken.extend(results)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return taken, error
    return taken, None
