"""Files of a table with partition columns: all rows of a file have the same values in these columns.

The columns stay in the files, so whatever reads files needs no rule for partitions. The footer has the values
in the form of Delta's log, under the key `VALUES`, so a file describes itself.

Delta has no empty text as the value of a partition; in these columns it is stored as null.

The module is sent to the workers by value: a worker needs pyarrow, but not this project.

Spec: Delta Transaction Log Protocol, Partition Value Serialization
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.task_io import VALUES, FileWriter, Output

_MAX_OPEN = 64
"""Maximum number of files that stay open between two groups of rows."""
Values = tuple[str | None, ...]


class PartitionedWriter(FileWriter):
    """Writes rows as `FileWriter` does, those of each combination of values to files of their own.

    Rows wait until they make one row group; each file then gets its part of them. So few values make few
    files, and the memory does not depend on the number of values. Rows without one of the partition columns
    have a null there.

    Args:
        settings: as for `FileWriter`.
    """

    def __init__(self, output: Output, **settings: Any):
        super().__init__(output, **settings)
        self._settings = settings
        self._rows_waiting: list[pa.RecordBatch] = []
        self._bytes_waiting = 0
        self._open_files: dict[Values, FileWriter] = {}
        self._all_files: list[FileWriter] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        batch = batch.replace_schema_metadata(None)
        if self._rows_waiting and self._rows_waiting[0].schema != batch.schema:
            self._write_waiting()
        self._rows_waiting.append(batch)
        self._bytes_waiting += batch.nbytes
        if self._bytes_waiting >= self._group_bytes:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        for writer in self._open_files.values():
            writer.close()
        self._open_files = {}
        self.files = [file for writer in self._all_files for file in writer.files]

    def discard(self) -> None:
        for writer in self._all_files:
            writer.discard()
        self._open_files, self.files = {}, []

    def _write_waiting(self) -> None:
        if not self._rows_waiting:
            return
        rows = pa.Table.from_batches(self._rows_waiting).combine_chunks()
        self._rows_waiting, self._bytes_waiting = [], 0
        for values, part in split_by_values(rows, self._output.partition_by):
            writer = self._open_files.get(values) or self._open_file(values)
            for batch in part.to_batches():
                writer.write(batch)
            writer.flush()
        while len(self._open_files) > _MAX_OPEN:
            self._open_files.pop(next(iter(self._open_files))).close()

    def _open_file(self, values: Values) -> FileWriter:
        texts = dict(zip(self._output.partition_by, values, strict=True))
        output = replace(self._output, partition_by=())
        writer = FileWriter(output, **self._settings, key_values={VALUES: json.dumps(texts)})
        self._open_files[values] = writer
        self._all_files.append(writer)
        return writer


def open_writer(output: Output, **settings: Any) -> FileWriter:
    """Return a writer of files, for a table with partition columns or without."""
    writer = PartitionedWriter if output.partition_by else FileWriter
    return writer(output, **settings)


def split_by_values(
    rows: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[Values, pa.Table]]:
    """Yield the rows of each combination of values, in their order."""
    names = [name for name in partition_by if name in rows.column_names]
    for name in names:
        kind = rows[name].type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = pc.if_else(pc.equal(rows[name], ""), pa.scalar(None, kind), rows[name])
            rows = rows.set_column(rows.column_names.index(name), name, text)
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows[name].combine_chunks()
        indices = pc.dictionary_encode(column, null_encoding="encode").indices.to_numpy()
        _, codes = np.unique(codes * (len(rows) + 1) + indices, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rows = rows.take(pa.array(order)) if len(starts) > 1 else rows
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        part = rows.slice(start, end - start)
        yield (
            tuple(
                serialize(part[name][0].as_py()) if name in names else None for name in partition_by
            ),
            part,
        )


def serialize(value: Any) -> str | None:
    """Return a value in the form of Delta's log."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return None if value is None or value == "" else str(value)
