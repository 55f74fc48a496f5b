"""The rows of a table's files as Arrow data, read in this process, without Spark.

pyarrow reads through its own file systems. Its threads run no Python code, so that none of them can abort a
program that ends (docs/downstream.md, "Programs that end").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.foreign_types import conform
from elt_assets.lake.spark.task_io import open_parquet, read_batches

_READERS = 8
"""Files that are read at the same time: each may be several requests to an object store."""


@dataclass(frozen=True)
class RowFilter:
    """A condition on one column of text: the rows whose value is among `values`, or is not among them."""

    column: str
    values: Collection[str]
    is_excluding: bool = False

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that meet the condition."""
        is_among = pc.is_in(batch.column(self.column), value_set=pa.array(self.values, pa.string()))
        return batch.filter(pc.invert(is_among) if self.is_excluding else is_among)


@dataclass(frozen=True)
class ArrowScan:
    """The rows of files, which are read when they are needed.

    Attributes:
        system: pyarrow's file system.
        paths: the paths of the files in it.
        schema: the columns to read, in the types of the table. A column that a file lacks is null.
        row_filter: a condition on the rows; its column is text, and need not be in `schema`.
    """

    system: Any
    paths: Sequence[str]
    schema: pa.Schema
    row_filter: RowFilter | None = None

    def select(self, columns: Sequence[str]) -> ArrowScan:
        """Return a scan of some of the columns, in their order."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches that fit in memory.

        Raises:
            OSError: a file is missing or damaged, or cannot be read in the table's types; the error names it.
        """
        for path in self.paths:
            yield from self._read_file(path)

    def to_table(self) -> pa.Table:
        """Return all rows.

        Raises:
            OSError: as `batches`.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            files = list(pool.map(lambda path: list(self._read_file(path)), self.paths))
        return pa.Table.from_batches([batch for file in files for batch in file], self.schema)

    def _read_file(self, path: str) -> Iterator[pa.RecordBatch]:
        with open_parquet(self.system, path, pre_buffer=True) as file:
            fields = list(self.schema)
            if self.row_filter is not None and self.row_filter.column not in self.schema.names:
                fields.append(pa.field(self.row_filter.column, pa.string()))
            names = [field.name for field in fields if field.name in file.schema_arrow.names]
            for batch in read_batches(file, names):
                columns = [_read_column(batch, field) for field in fields]
                rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
                if self.row_filter is not None:
                    rows = self.row_filter.apply(rows).select(self.schema.names)
                if len(rows):
                    yield rows


def _read_column(batch: pa.RecordBatch, field: pa.Field) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(len(batch), field.type)
    return conform(batch.column(field.name), field.type, field.name)
