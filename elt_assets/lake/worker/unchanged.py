"""Tasks that find the rows of a batch which a table has already, file by file, and leave them out.

`lake.merge.unchanged` runs them in Spark's workers, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.comparison import compare_values, to_numpy, whole
from elt_assets.lake.worker.file_tasks import encode_keys, read_rows, write_without
from elt_assets.lake.worker.parquet import (
    Output,
    WrittenFile,
    column_at,
    read_all_keys,
    read_keys,
)


@dataclass(frozen=True)
class UnchangedJob:
    """Files of a table, and a batch whose rows are compared with theirs."""

    files: Sequence[str]  # the path of each task's file below the root of `output`
    batch: Sequence[str]  # the paths of its files below the same root
    key: Sequence[Sequence[str]]  # column paths
    content: Sequence[Sequence[str]]  # paths of the columns that are compared
    schema: pa.Schema  # the columns to read
    output: Output  # gets rows of the batch


def make_find(job: UnchangedJob) -> Callable[[int], bytes | None]:
    """Return the function that compares the rows of the file of a number with those of the batch.

    It returns a bit for each row of the batch: whether the file has this row. None if the file has another
    row with a key of the batch: it looks no further then, because a merge rewrites such a file anyway.
    """

    def find(number: int) -> bytes | None:
        system, root = job.output.root
        path = f"{root}/{job.files[number]}"
        paths = [f"{root}/{name}" for name in job.batch]
        batch_keys = read_all_keys(system, paths, job.key, job.schema)
        batch = _Lazy(system, paths, job.schema)
        # Most batches have only rows that change: that shows at the start of a file.
        for rows in islice(read_rows(system, path, job.schema), 1):
            keys = [column_at(pa.Table.from_batches([rows]), part, len(rows)) for part in job.key]
            if not _has_rows(job, [rows], _find_places(keys, batch_keys), batch):
                return None
        places = _find_places(read_keys(system, path, job.key, job.schema), batch_keys)
        if not _has_rows(job, read_rows(system, path, job.schema), places, batch):
            return None
        matches = places[places >= 0]
        is_found = np.bincount(matches, minlength=len(batch_keys[0])) > 0
        if is_found.sum() < len(matches):  # a row is there twice
            return None
        return np.packbits(is_found).tobytes()

    return find


class _Lazy:
    """The rows of a batch, which are read when the first of them is compared."""

    def __init__(self, system: Any, paths: Sequence[str], schema: pa.Schema):
        self._files = (system, paths, schema)
        self._rows: pa.Table | None = None

    def take(self, places: np.ndarray) -> pa.Table:
        """Return the rows at some places."""
        if self._rows is None:
            system, paths, schema = self._files
            batches = [rows for path in paths for rows in read_rows(system, path, schema)]
            self._rows = pa.Table.from_batches(batches, schema).combine_chunks()
        return self._rows.take(pa.array(places))


_NONE, _SEVERAL = -1, -2
"""Places of rows whose key is that of no row of the batch, or of several."""


def _find_places(keys: Any, batch_keys: Any) -> np.ndarray:
    """Return for each row of a file the place of the row of the batch with the same key."""
    codes, batch_codes = encode_keys(keys, batch_keys)
    of_batch = to_numpy(batch_codes)
    places = np.full(int(of_batch.max()) + 1, _NONE)
    places[of_batch] = np.arange(len(of_batch))
    places[np.flatnonzero(np.bincount(of_batch) > 1)] = _SEVERAL
    return np.where(to_numpy(pc.is_valid(codes)), places[to_numpy(codes)], _NONE)


def _has_rows(
    job: UnchangedJob, blocks: Iterable[pa.RecordBatch], places: np.ndarray, batch: _Lazy
) -> bool:
    """Return whether all rows with a key of the batch are those of the batch."""
    if (places == _SEVERAL).any():
        return False
    offset = 0
    for rows in blocks if (places >= 0).any() else ():
        part = places[offset : offset + len(rows)]
        offset += len(rows)
        is_matching = part >= 0
        if not is_matching.any():
            continue
        present = pa.Table.from_batches([rows.filter(pa.array(is_matching))])
        again = batch.take(part[is_matching])
        for column in job.content:
            left, right = (whole(column_at(side, column, len(side))) for side in (present, again))
            if not pc.all(compare_values(left, right, is_exact=True)).as_py():
                return False
    return True


def make_leave_out(
    job: UnchangedJob, starts: Sequence[int], is_left_out: bytes
) -> Callable[[int], Sequence[WrittenFile]]:
    """Return the function that writes the file of the batch of a number again, without some of its rows.

    Args:
        starts: the number of the rows of the batch before each of its files.
        is_left_out: a bit for each row of the batch.
    """

    def leave_out(number: int) -> Sequence[WrittenFile]:
        rows = np.unpackbits(np.frombuffer(is_left_out, np.uint8)) == 1
        path = f"{job.output.root[1]}/{job.batch[number]}"
        return write_without(job.output, path, pa.array(rows).slice(starts[number]))

    return leave_out
