"""Rows of a batch that their table has already, with the same values: they rewrite no file.

Used by `key_order`, whose merge lets such a row give way to the present row of its key in the files that it
rewrites (`lake.worker.row_order`, `Rules.content`). Here, the files that it need not rewrite at all are found
before they are split: if all rows of a file with a key of the batch come again unchanged, these rows of the
batch are left out.

Few batches have such rows. So some files are tried first: if each has a row that changes, the others are not
looked at. A file is compared up to the first row that changes.

Why a row that gives way is as good as one that is stored: it has the cursor of the present row, so each other
record is before both or after both by cursor; and of equal cursors, by arrival, unless it arrived between
them. Records that arrived and are not merged yet are those of the dead letter, which may be accepted later
(`admin.replay`); so no row gives way while there are any (`write.commit`).
`tests/lake/test_unchanged.py::test_any_history_with_skips_equals_one_without`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.storage import HIDDEN, DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_tasks
from elt_assets.lake.merge.file_splitting import Batch, Key, find_matching_files, is_nested
from elt_assets.lake.worker.unchanged import UnchangedJob, make_find, make_leave_out

TRIED = 2
"""Files that are compared before it is decided whether the others are."""
MAX_ROWS, MAX_BYTES = 1_000_000, 128 << 20
"""The size of the largest batch: each task has all of it in memory."""


def content_of(schema: t.StructType) -> list[list[str]]:
    """Return the columns that make a row another one: all but its id, its time and its sync."""
    own = (metadata_columns.RAW_ID, metadata_columns.EXTRACTED_AT, metadata_columns.META)
    return [
        *([name] for name in schema.names if name not in own),
        [metadata_columns.META, "changes"],
    ]


@dataclass(frozen=True)
class Reduced:
    """A batch without the rows that its table has already."""

    batch: Batch
    temporary: Sequence[DataFile] = ()  # files of it that the caller must remove after the merge
    rows: int = 0  # the number of those that were left out


def leave_out_unchanged(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    batch: Batch,
    key: Key,
    schema: t.StructType,
) -> Reduced:
    """Leave the rows out of a batch that files of its table have, if the merge need not rewrite these files.

    Args:
        files: those that readers see.
        schema: the columns that are merged.
    """
    if (
        batch.records > MAX_ROWS
        or batch.size > MAX_BYTES
        or any(is_nested(schema, part) for part in key)
    ):
        return Reduced(batch)
    candidates = find_matching_files(table, files, batch.files, key)
    job = UnchangedJob(
        [file.path for file in candidates],
        [file.path for file in batch.files],
        key,
        content_of(schema),
        table.arrow_schema(schema),
        table.output(HIDDEN),
    )
    counts = np.zeros(batch.records, np.int64)
    for first, last in ((0, TRIED), (TRIED, len(candidates))):
        part = replace(job, files=job.files[first:last])
        results = run_tasks(spark, len(part.files), make_find, part) if part.files else ()
        for bits in results:
            if bits is not None:
                counts += np.unpackbits(np.frombuffer(bits, np.uint8), count=len(counts))
        if not counts.any():
            return Reduced(batch)
    is_present = counts == 1  # a row that is there twice is merged
    rows = int(is_present.sum())
    if rows == len(is_present):
        return Reduced(Batch(batch.table, ()), (), rows)
    starts = [0, *accumulate(file.records for file in batch.files)][: len(batch.files)]
    results = run_tasks(
        spark, len(starts), make_leave_out, job, starts, np.packbits(is_present).tobytes()
    )
    new = [DataFile(*file) for of_file in results for file in of_file]
    return Reduced(Batch(batch.table, new), new, rows)
