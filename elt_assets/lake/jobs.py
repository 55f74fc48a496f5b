"""Tasks on Spark, sent to its Python workers with their code; and Parquet files that tasks read and write.

`write.parsing`, `write.rewrite` and `lake.merge` run tasks; `delta.table` reads and writes files. A task is a
function that is called with a number.

A worker has pyarrow, and not this project, so the code of `lake.worker` is sent by value. A task returns a
plain value, in types of Python's own: a worker cannot return objects of classes that were sent to it. An RDD
needs no plan, which saves a seventh of the CPU time of a short sync. A session of Spark Connect has no RDDs:
its tasks get their numbers as batches of a DataFrame, and return JSON.

First the functions that are sent; then `run_tasks` and its kin, which return the results of tasks; then
Parquet files as DataFrames where the JVM has no file system for their store. Tasks read and write these, so
Spark needs no library of the store.
"""

from __future__ import annotations

import functools
import gc
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.utils import is_remote

from elt_assets.lake.worker import file_tasks
from elt_assets.lake.worker.parquet import ArrowFunction, FileWriter, Output, WrittenFile
from elt_assets.protocol import row_hash, wire

RESULT = "result string"
"""Schema of the results of functions for `mapInArrow`: each is JSON."""
_FROZEN = "frozen_by_elt_assets"
_RECURSION = 4_000
"""The decoder of JSON counts a level of nesting as a level of Python's stack, which has 1,000 by default."""
_PACKAGE = sys.modules[FileWriter.__module__.rpartition(".")[0]]
# Workers do not have this project. What is not registered here is pickled by name, and fails there: so these
# are all modules of tasks, the repair of texts and the hashes of rows that they use, and this module, whose
# functions call them.
for _module in (_PACKAGE, wire, row_hash, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


def send(
    make: Callable[..., Callable[[Any], Iterator[Any]]], *arguments: Any
) -> Callable[[Any], Iterator[Any]]:
    """Return a function for workers that does what the function `make(*arguments)` does.

    The code of `make` is pickled once. That takes up to 30 ms, because all loaded modules are
    searched for those that it uses; the arguments take 1 ms.

    Args:
        make: of one of the modules that are registered here; it is called in the worker.
        arguments: values that can be pickled.
    """
    code = _pickle(make)

    def work(items: Any) -> Iterator[Any]:
        pa.set_cpu_count(1)  # Spark counts a core for each task
        yield from pickle.loads(code)(*arguments)(items)  # noqa: S301
        if not hasattr(gc, _FROZEN):
            # A worker searches for cycles after each task: in its modules, that takes 40 ms, and finds none.
            # `gc.get_freeze_count` walks through all that is frozen: a mark costs nothing.
            setattr(gc, _FROZEN, True)
            gc.freeze()

    return work


def send_for_numbers(
    make: Callable[..., Callable[[int], Any]], *arguments: Any, finished: Any = None
) -> Callable[[Iterable[int]], Iterator[Any]]:
    """Return a function for workers that yields what `make(*arguments)` returns for each of some numbers.

    Args:
        finished: an accumulator that also gets the results, by their numbers.
    """
    return send(_make_worker, _pickle(make), arguments, finished)


def send_for_batches(make: Callable[..., Callable[[int], Any]], *arguments: Any) -> ArrowFunction:
    """Return the function of `send_for_numbers` for `mapInArrow` over a DataFrame of numbers."""
    return send(_make_batch_worker, _pickle(make), arguments)


def _make_worker(
    code: bytes, arguments: Any, finished: Any
) -> Callable[[Iterable[int]], Iterator[Any]]:
    def work(numbers: Iterable[int]) -> Iterator[Any]:
        sys.setrecursionlimit(max(_RECURSION, sys.getrecursionlimit()))
        do = pickle.loads(code)(*arguments)  # noqa: S301
        for number in numbers:
            result = do(number)
            if finished is not None:
                finished.add({number: result})
            yield result

    return work


def _make_batch_worker(code: bytes, arguments: Any) -> ArrowFunction:
    work = _make_worker(code, arguments, None)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = work(batch.column(0).to_pylist())
            texts_of_results = [json.dumps(result, default=list) for result in results]
            yield pa.RecordBatch.from_arrays([pa.array(texts_of_results)], names=["result"])

    return run


@functools.cache
def _pickle(make: Callable[..., Any]) -> bytes:
    return cloudpickle.dumps(make)  # type: ignore[no-any-return,no-untyped-call]


Make = Callable[..., Callable[[int], Any]]
"""Makes the function of tasks of some arguments. It is called in the workers, and is of one of the modules
whose code is sent."""
Results = dict[int, Any]


def run_tasks(spark: SparkSession, count: int, make: Make, *arguments: Any) -> Sequence[Any]:
    """Return the results of tasks, in the order of their numbers."""
    if is_remote():
        return list(_iterate_batches(spark, count, make, *arguments))
    numbers = spark.sparkContext.parallelize(range(count), count)
    return list(numbers.mapPartitions(send_for_numbers(make, *arguments)).collect())


def run_on_rows(rows: DataFrame, make: Callable[..., ArrowFunction], *arguments: Any) -> list[Any]:
    """Return the results of tasks, one for each partition of some rows.

    Args:
        make: as for `run_tasks`; the function that it returns yields results of the schema `RESULT`.
    """
    results = rows.mapInArrow(send(make, *arguments), RESULT).collect()
    return [json.loads(row["result"]) for row in results]


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


_TASK_BYTES = 64 << 20
"""Bytes of the files that one task reads; a larger file is read by one task."""
_OPEN_BYTES = 4 << 20
"""The cost of opening a file, as the bytes that are read in the same time."""


def jvm_supports(spark: SparkSession, scheme: str) -> bool:
    """Return whether the session's settings name a file system of the JVM for a scheme."""
    return bool(spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", ""))


def read_parquet(
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
    groups = group_by_size(files)
    job = file_tasks.ReadJob(system, groups, arrow_schema, path_column)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(send(file_tasks.read, job), schema)


def write_parquet(
    rows: DataFrame, output: Output, schema: pa.Schema | None = None
) -> list[WrittenFile]:
    """Write rows to new files; return them. The folder may contain others, of attempts that failed.

    Args:
        schema: the columns in the types to write, which do not depend on the settings of the rows' session;
            None: as the session gives them.
    """
    results = rows.mapInArrow(send(file_tasks.write, output, schema), file_tasks.FILE).collect()
    return sorted(json.loads(row.file) for row in results)


def group_by_size(files: Sequence[tuple[str, int]]) -> list[list[str]]:
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
