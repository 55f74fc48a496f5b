"""The form of a task's results: rows of roles and names, which Spark collects from a worker.

The module is sent to the workers by value: a worker needs pyarrow, but not this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
RESULT = "task int, role string, name string"
"""Schema of the results: each row has the number of its task."""


def make_arrow_function(do: Callable[[int], Iterable[tuple[str, str]]]) -> ArrowFunction:
    """Return the function for `mapInArrow` over a DataFrame of task numbers.

    Args:
        do: does one task; returns the roles and names of its result.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                results = list(do(task))
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([task] * len(results), pa.int32()),
                        pa.array([role for role, _ in results], pa.string()),
                        pa.array([name for _, name in results], pa.string()),
                    ],
                    names=["task", "role", "name"],
                )

    return work
