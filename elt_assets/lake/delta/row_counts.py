"""Reconciliation of row counts: a rewrite must write as many rows as it reads.

Used by all that rewrites rows: `lake.merge`, `write.rewrite` and `admin.maintenance`.

A rewrite that reads a stale file listing, or skips a missing file, loses rows without an error. So every
rewrite makes two comparisons before it commits: the rows that it read with the count in the log, and the
rows that it wrote with the count in the new files. The counts come from the log, from footers, and from
the job that moves the rows, so no additional pass over the data is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.storage import VISIBLE, DataFile
from elt_assets.lake.delta.table import Table


class RowCounter:
    """A counter of the rows of one DataFrame; it counts while a job writes them."""

    def __init__(self) -> None:
        self._observation = Observation()

    def count(self, rows: DataFrame) -> DataFrame:
        """Return the same rows; they are counted when they are written."""
        return rows.observe(self._observation, f.count(f.lit(1)).alias("rows"))

    @property
    def rows(self) -> int:
        """The number of rows. Waits until the job has ended."""
        return int(self._observation.get["rows"])


def row_count(table: Table, files: Sequence[DataFile]) -> int:
    """Return the number of rows of files: from the log, or, where it has no count, from their footers."""
    unknown = [file.path for file in files if not file.records]
    counted = [*files, *table.storage.describe(unknown)]
    return sum(file.records for file in counted)


def verify_or_discard(
    table: Table, expected: int, counted: int, what: str, files: Sequence[DataFile] = ()
) -> None:
    """Compare two counts of rows.

    Args:
        what: the name of the rows for the error message, such as "rows read by a merge".
        files: files to remove if the counts differ.

    Raises:
        SystemFailure: the counts differ.
    """
    if expected == counted:
        return
    table.storage.discard(files)
    raise SystemFailure(
        f"table {table.uri}: {what}: expected {expected}, found {counted}",
        guidance="nothing was committed; run it again; if it fails again, look for missing or damaged "
        "files",
    )


def write_all(table: Table, rows: DataFrame, kind: str = VISIBLE) -> list[DataFile]:
    """Write rows as `Table.write_files` does, and check that the files contain all of them.

    Raises:
        SystemFailure: they contain another number of rows.
    """
    counter = RowCounter()
    files = table.write_files(counter.count(rows), kind)
    verify_or_discard(table, counter.rows, row_count(table, files), "rows written", files)
    return files
