"""The rows of a table's files as Arrow data, read in this process, without Spark.

pyarrow reads through its own file systems. Its threads run no Python code, so that none of them can abort a
program that ends (docs/downstream.md, "Programs that end").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.foreign_types import conform
from elt_assets.lake.spark.task_io import open_parquet, read_batches

_READERS = 8
"""Files that are read at the same time: each may be several requests to an object store."""


@dataclass(frozen=True)
class RowFilter:
    """A condition on a column of text: its value is one of `values`, or, if `is_excluding`, none of them. A
    null is none of them."""

    column: str
    values: pa.Array
    is_excluding: bool = False

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that meet the condition."""
        is_among = pc.is_in(batch.column(self.column), value_set=self.values, skip_nulls=True)
        return batch.filter(pc.invert(is_among) if self.is_excluding else is_among)


@dataclass(frozen=True)
class FileGroup:
    """Files, and the conditions on their rows."""

    system: Any  # pyarrow's file system
    paths: Sequence[str]  # the paths of the files in it
    # Conditions that all must be met; their columns need not be among those that are read.
    filters: Sequence[RowFilter] = ()

    def read(self, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the files. A column that the file lacks is null.

        Raises:
            OSError: the file is missing or damaged, or cannot be read in these types; the error names it.
        """
        with open_parquet(self.system, path, pre_buffer=True) as file:
            more = {condition.column for condition in self.filters}.difference(schema.names)
            fields = [*schema, *(pa.field(name, pa.string()) for name in more)]
            names = [field.name for field in fields if field.name in file.schema_arrow.names]
            for batch in read_batches(file, names):
                columns = [_read_column(batch, field) for field in fields]
                rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
                for condition in self.filters:
                    rows = condition.apply(rows)
                if len(rows):
                    yield rows.select(schema.names)


class RowScan(Protocol):
    """Rows that are read when they are needed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def select(self, columns: Sequence[str]) -> RowScan:
        """Return a scan of some of the columns, in their order."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches that fit in memory."""

    def to_table(self) -> pa.Table:
        """Return all rows."""


@dataclass(frozen=True)
class ArrowScan:
    """The rows of files."""

    schema: pa.Schema  # the columns to read, in the types of the table
    groups: Sequence[FileGroup]

    def select(self, columns: Sequence[str]) -> ArrowScan:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        for group in self.groups:
            for path in group.paths:
                yield from group.read(path, self.schema)

    def to_table(self) -> pa.Table:
        files = [(group, path) for group in self.groups for path in group.paths]
        with ThreadPoolExecutor(_READERS) as pool:
            read = list(pool.map(lambda file: list(file[0].read(file[1], self.schema)), files))
        return pa.Table.from_batches([batch for rows in read for batch in rows], self.schema)


@dataclass(frozen=True)
class TableScan:
    """The rows of a table in memory."""

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def select(self, columns: Sequence[str]) -> TableScan:
        return TableScan(self.rows.select(columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches()

    def to_table(self) -> pa.Table:
        return self.rows


def _read_column(batch: pa.RecordBatch, field: pa.Field) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(len(batch), field.type)
    return conform(batch.column(field.name), field.type, field.name)
