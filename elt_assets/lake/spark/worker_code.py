"""Functions for Spark's Python workers, sent with their code: a worker has pyarrow, and not this project."""

from __future__ import annotations

import functools
import gc
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from elt_assets.lake.spark.task_io import ArrowFunction, FileWriter
from elt_assets.protocol import wire

RESULT = "result string"
"""Schema of the results of the function of `send_for_batches`: each is JSON."""
_FROZEN = "frozen_by_elt_assets"
_RECURSION = 4_000
"""The decoder of JSON counts a level of nesting as a level of Python's stack, which has 1,000 by default."""
_PACKAGE = sys.modules[FileWriter.__module__.rpartition(".")[0]]  # of all modules of tasks
for _module in (_PACKAGE, wire, sys.modules[__name__]):
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
        pa.set_cpu_count(1)  # Spark counts a core for each task
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
