"""Files of lines as DataFrames where the JVM has no file system for their store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pyspark.sql import DataFrame, SparkSession

from elt_assets.lake.spark import file_tasks
from elt_assets.lake.spark.worker_code import with_code
from elt_assets.storage.location import Location

_TASK_BYTES = 32 << 20
"""Bytes of the lines that one task reads."""


def read(spark: SparkSession, place: Location, copy: Path) -> DataFrame:
    """Return the lines of a file in an object store, in the one column `line` (binary), without newlines.

    Args:
        copy: the same file on this machine, where its lines are divided among tasks.
    """
    ranges = list(_ranges(copy))
    system, path = place.file_system()
    job = file_tasks.Lines(system, path, ranges)
    numbers = spark.range(0, len(ranges), 1, max(len(ranges), 1))
    return numbers.mapInArrow(with_code(file_tasks.read_lines, job), file_tasks.LINE)


def _ranges(file: Path) -> Iterator[tuple[int, int]]:
    """Yield the offset and the bytes of ranges of whole lines."""
    with file.open("rb") as lines:
        start = 0
        while end := _end_of_range(lines, start):
            yield start, end - start
            start = end


def _end_of_range(lines: IO[bytes], start: int) -> int:
    """Return the offset after a range; 0 if the file ends at `start`."""
    lines.seek(start)
    if not lines.read(1):
        return 0
    lines.seek(0, 2)
    end = lines.tell()
    if end - start <= _TASK_BYTES:
        return end
    lines.seek(start + _TASK_BYTES)
    lines.readline()
    return lines.tell()
