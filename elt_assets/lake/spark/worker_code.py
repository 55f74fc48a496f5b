"""Functions for Spark's Python workers, sent with their code: a worker has pyarrow, and not this project."""

from __future__ import annotations

import functools
import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import cloudpickle

from elt_assets.lake.spark import (
    file_tasks,
    foreign_types,
    merge_tasks,
    parsing,
    partitioned_files,
    split_tasks,
    statistics,
    task_io,
    types,
    widening_tasks,
    wider_values,
)
from elt_assets.protocol.airbyte.recovery import texts

_FROZEN = "frozen_by_elt_assets"
_OWN = (
    *(file_tasks, foreign_types, merge_tasks, parsing, partitioned_files),
    *(split_tasks, statistics, task_io, types, wider_values, widening_tasks),
)
for _module in (*_OWN, texts, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


def make_sendable(
    make: Callable[..., Callable[[Any], Iterator[Any]]], *arguments: Any
) -> Callable[[Any], Iterator[Any]]:
    """Return a function for workers that does what the function `make(*arguments)` does.

    The code of `make` is pickled once. That takes up to 30 ms, because all loaded modules are
    searched for those that it uses; the arguments take 1 ms.

    Args:
        make: of one of the modules of tasks in this package; it is called in the worker.
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


@functools.cache
def _pickle(make: Callable[..., Any]) -> bytes:
    return cloudpickle.dumps(make)  # type: ignore[no-any-return,no-untyped-call]
