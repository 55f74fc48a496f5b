"""Reconciliation of row counts: what a rewrite takes in must come out of it.

A rewrite that reads a stale listing, or a file that is gone, loses rows without an error. So every one
compares what it read with what the log says, and what it wrote with what the files hold, before anything
is committed. The counts cost no pass of their own: they come from the log, from footers, and from the
job that moves the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.files import VISIBLE, DataFile
from elt_assets.lake.delta.table import Table


class RowCounter:
    """Counts the rows of one DataFrame while a job moves them."""

    def __init__(self) -> None:
        self._seen = Observation()

    def over(self, rows: DataFrame) -> DataFrame:
        """The same rows, counted when they are written."""
        return rows.observe(self._seen, f.count(f.lit(1)).alias("rows"))

    @property
    def rows(self) -> int:
        """How many they were; waits for the job."""
        return int(self._seen.get["rows"])


def row_count(table: Table, files: Sequence[DataFile]) -> int:
    """Rows of some files: as the log says, or, of files whose log entry does not, their footers."""
    unknown = [file.path for file in files if not file.records]
    known = [*files, *table.storage.describe(unknown)]
    return sum(file.records for file in known)


def require_all(
    table: Table, expected: int, found: int, what: str, written: Sequence[DataFile] = ()
) -> None:
    """Compare two counts of rows.

    Args:
        what: names the rows in the error, as in "rows read by a merge".
        written: removed where the counts differ.

    Raises:
        SystemFailure: they differ.
    """
    if expected == found:
        return
    table.discard_files(written)
    raise SystemFailure(
        f"table {table.uri}: {what}: expected {expected}, found {found}",
        guidance="nothing was committed; run it again, and look for files that are missing or damaged "
        "if it fails again",
    )


def write_all(table: Table, rows: DataFrame, kind: str = VISIBLE) -> list[DataFile]:
    """Write rows as `Table.write_files` does, and look whether the files hold them all.

    Raises:
        SystemFailure: they do not.
    """
    counter = RowCounter()
    files = table.write_files(counter.over(rows), kind)
    require_all(table, counter.rows, row_count(table, files), "rows written", files)
    return files
