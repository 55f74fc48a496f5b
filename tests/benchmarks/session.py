"""For the parts that measure the lake in a process of their own: its Spark session, and a clock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from elt_assets.orchestration.resources import SparkResource
from tests.benchmarks.measure import environment

T = TypeVar("T")


@contextlib.contextmanager
def session(home: Path) -> Iterator[SparkSession]:
    """The session that a sync would have, without the caller's own settings: with an empty home."""
    kept = environment()
    os.environ.clear()
    os.environ.update(kept | {"DAGSTER_HOME": str(home)})
    spark = SparkResource().provider.get()
    try:
        yield spark
    finally:
        spark.stop()


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and its seconds. What was written before is on disk when they begin."""
    os.sync()
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start
