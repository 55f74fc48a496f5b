"""The merge of a batch's rows with the present rows of its keys, in tasks in Python workers of Spark.

`merge.key_order` runs them, also for `merge.history`. The rules are those of `row_order`, for any number of
rows: few are read and merged by one task alone (`make_merge`). Of more, Spark makes ranges of keys, sorts
each, and gives it to a task, which merges it block by block (`make_merge_of_range`).

A block has all rows of its keys. The last key of a block may go on in the next one, so its rows wait. Where
only the latest row of a key is kept, those that wait are merged at once: the rows of a key come in the order
of their arrival, so a delete that begins an era comes after all that it ends, and the latest row of a part
and its last such delete stand for the part. So a task needs memory for a block, however many rows a key has.
The versions of a key depend on each other in both directions of time: all versions of one key are in memory
at once, about 600 bytes for each of a narrow table. Those that are closed are seldom read again (`history`).
`tests/lake/test_row_order.py::test_any_split_into_batches_gives_the_rows_of_the_model`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.file_tasks import read_rows
from elt_assets.lake.worker.foreign_types import conform_columns
from elt_assets.lake.worker.parquet import (
    ArrowFunction,
    FileWriter,
    Output,
    WrittenFile,
    discard_on_error,
    open_writer,
)
from elt_assets.lake.worker.row_order import (
    ARRIVAL,
    UNCHANGED,
    Rules,
    last_key,
    latest_rows,
    merge_rows,
    separate_keyless,
)

_MAX_BYTES = 176 << 20
"""Maximum bytes of the rows that one task reads and merges alone. At its peak it needs up to four times that:
1,000,000 rows of a narrow table take 0.5 GB in all, and as versions of a history 0.65 GB."""
_BLOCK_BYTES = 32 << 20
"""Bytes of the rows that are merged at a time, where Spark sorts them."""
TOO_LARGE, NOT_CONTINUED = "too large", "not continued"
"""Results of a task that wrote nothing: the rows are too many for it, or it needs the closed versions of a
key (see `row_order.Validity.is_partial`)."""


@dataclass(frozen=True)
class MergeJob:
    """The description of a merge of rows by key."""

    # Paths in the file system, each with `row_order.ARRIVAL` of its rows.
    files: Sequence[tuple[str, int]]
    schema: pa.Schema  # the columns to read
    rules: Rules
    visible: Output  # gets the rows
    visible_columns: Sequence[str]
    hidden: Output  # gets the ends of keys
    hidden_columns: Sequence[str]


MergedFiles = tuple[Sequence[WrittenFile], Sequence[WrittenFile], int, int, int, int]
"""The files that readers see, hidden files, and the number of rows that were read and written, and of these
the number of those of the batch, and of present rows in place of one (see `row_order.Rules.content`)."""


def make_merge(job: MergeJob) -> Callable[[int], MergedFiles | str]:
    """Return the function that reads and merges all rows."""

    def merge(_: int) -> MergedFiles | str:
        parts = _read(job)
        if parts is None:
            return TOO_LARGE
        merge = _Merge(job)
        merge.read = sum(map(len, parts))
        with discard_on_error(*merge.writers):
            merge.add(parts)
            return merge.finish()

    return merge


def make_merge_of_range(job: MergeJob) -> ArrowFunction:
    """Return the function for `mapInArrow` that merges rows; it returns the result as JSON.

    The rows are sorted by key, and those of a key in the order of their arrival. Each row has `ARRIVAL`.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        merge, rules = _Merge(job), job.rules
        rest: list[pa.Table] = []
        with discard_on_error(*merge.writers):
            for block in _blocks(job, batches):
                merge.read += len(block)
                rows, keyless = separate_keyless(block, rules)
                merge.add([keyless])
                done, rest = _separate_last_key(rest, rows, rules)
                merge.add(done)
                if rest and rules.validity is None:
                    # The present row does not stand for one of the batch yet: others may follow.
                    first = replace(rules, content=())
                    rest = [latest_rows(pa.concat_tables(rest).combine_chunks(), first)]
            merge.add(rest)
            result = json.dumps(merge.finish())
        yield pa.RecordBatch.from_arrays([pa.array([result])], names=["result"])

    return work


def _separate_last_key(
    waiting: list[pa.Table], block: pa.Table, rules: Rules
) -> tuple[list[pa.Table], list[pa.Table]]:
    """Return the rows of all keys but the last, and those of the last.

    Args:
        waiting: the rows of one key, from before the block.
    """
    if not len(block):
        return [], waiting
    before = [table.slice(len(table) - 1) for table in waiting[-1:]]
    place = last_key(pa.concat_tables([*before, block]), rules)
    if before and not place:
        return [], [*waiting, block]
    place -= len(before)
    return [*waiting, block.slice(0, place)], [block.slice(place)]


class _Merge:
    """Merges rows, and writes what is left of them."""

    def __init__(self, job: MergeJob):
        self.read = 0  # the number of rows that were read
        self._rules = job.rules
        visible, hidden = job.visible_columns, job.hidden_columns
        # The rows that readers see, closed versions, and ends of keys.
        self._outputs = [
            (open_writer(job.visible), visible),
            (open_writer(job.visible), visible),
            (open_writer(job.hidden), hidden),
        ]
        self._rows_written = self._of_batch = self._unchanged = 0
        self._is_continued = True

    @property
    def writers(self) -> Sequence[FileWriter]:
        return [writer for writer, _ in self._outputs]

    def add(self, parts: list[pa.Table]) -> None:
        """Merge rows: all rows of their keys. The list is empty then, so that their memory is free."""
        if not self._is_continued or not any(map(len, parts)):
            return
        parts[:] = [pa.concat_tables(parts).combine_chunks()]
        merged = merge_rows(parts.pop(), self._rules)
        if merged is None:
            self._is_continued = False
            return
        for (writer, columns), tables in zip(self._outputs, merged, strict=True):
            for rows in tables:
                self._rows_written += len(rows)
                self._of_batch += pc.sum(pc.equal(rows[ARRIVAL], 1)).as_py() or 0
                self._unchanged += pc.sum(pc.equal(rows[ARRIVAL], UNCHANGED)).as_py() or 0
                for batch in rows.select(columns).to_batches():
                    writer.write(batch)

    def finish(self) -> MergedFiles | str:
        """Return what was written; it is removed if closed versions are missing."""
        if not self._is_continued:
            for writer in self.writers:
                writer.discard()
            return NOT_CONTINUED
        for writer in self.writers:
            writer.close()
        current, closed, ends = (writer.files for writer in self.writers)
        counts = self.read, self._rows_written, self._of_batch, self._unchanged
        return [*current, *closed], ends, *counts


def _read(job: MergeJob) -> list[pa.Table] | None:
    """Return all rows with `ARRIVAL`; None if they are too large."""
    system, _ = job.visible.root
    parts: list[pa.Table] = []
    size = 0
    for path, arrival in job.files:
        for batch in read_rows(system, path, job.schema):
            size += batch.nbytes
            if size > _MAX_BYTES:
                return None
            arrivals = pa.repeat(pa.scalar(arrival, pa.int32()), len(batch))
            parts.append(pa.Table.from_batches([batch]).append_column(ARRIVAL, arrivals))
    return parts


def _blocks(job: MergeJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in the table's types, of about `_BLOCK_BYTES` each."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(conform_columns(batch, job.schema))
        size += batch.nbytes
        if size >= _BLOCK_BYTES:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()
