"""The rows of tables as Arrow data, read when they are needed.

`snapshots` and `changes` return rows as scans; `frames` makes data frames of them, and `query` runs queries
over them.

pyarrow reads through its own file systems, in this process. Its threads run no Python code, so that none of
them can abort a program that ends (docs/downstream.md, "Programs that end").

First the rows of files, and what selects some of them (`FileGroup`); then the rows of a table (`RowScan`);
then these as a dataset, of which a reader takes the columns and rows that it needs (`open_dataset`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.foreign_types import conform
from elt_assets.lake.worker.parquet import open_parquet, read_batches

_DATASET = "pyarrow.dataset"
"""It is imported when a reader needs it: it imports pandas, for which a project waits as long as for half of
Dagster."""
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

    def read(
        self, path: str, schema: pa.Schema, condition: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the files. A column that the file lacks is null.

        Args:
            condition: on columns of `schema`, which all rows meet. Row groups in which no row meets it, by
                their statistics, are not read.

        Raises:
            OSError: the file is missing or damaged, or cannot be read in these types; the error names it.
        """
        with open_parquet(self.system, path, pre_buffer=True) as file:
            more = {filter_.column for filter_ in self.filters}.difference(schema.names)
            fields = [*schema, *(pa.field(name, pa.string()) for name in more)]
            names = [field.name for field in fields if field.name in file.schema_arrow.names]
            groups = None
            if condition is not None:
                groups = self._select_groups(path, file.schema_arrow, schema, condition)
            for batch in read_batches(file, names, groups):
                columns = [_read_column(batch, field) for field in fields]
                rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
                for filter_ in self.filters:
                    rows = filter_.apply(rows)
                if condition is not None:
                    rows = rows.filter(condition)
                if len(rows):
                    yield rows.select(schema.names)

    def _select_groups(
        self, path: str, stored: pa.Schema, schema: pa.Schema, condition: pc.Expression
    ) -> Sequence[int] | None:
        """Return the row groups of a file that may have rows that meet a condition; None for all.

        The statistics of a column count only where the file has it in the type of the table.
        """
        if any(
            field.name in stored.names and stored.field(field.name).type != field.type
            for field in schema
        ):
            return None
        dataset = importlib.import_module(_DATASET)
        fragment = dataset.ParquetFileFormat().make_fragment(path, self.system)
        parts = fragment.split_by_row_group(condition, schema)
        return [group.id for part in parts for group in part.row_groups]


class RowScan(Protocol):
    """Rows that are read when they are needed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def select(self, columns: Sequence[str]) -> RowScan:
        """Return a scan of some of the columns, in their order."""

    def batches(self, condition: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, or those that meet a condition on their columns, in batches that fit in memory."""

    def to_table(self) -> pa.Table:
        """Return all rows."""


@dataclass(frozen=True)
class ArrowScan:
    """The rows of files."""

    schema: pa.Schema  # the columns to read, in the types of the table
    groups: Sequence[FileGroup]

    def select(self, columns: Sequence[str]) -> ArrowScan:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def batches(self, condition: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        for group in self.groups:
            for path in group.paths:
                yield from group.read(path, self.schema, condition)

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

    def batches(self, condition: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        rows = self.rows if condition is None else self.rows.filter(condition)
        yield from rows.to_batches()

    def to_table(self) -> pa.Table:
        return self.rows


def open_dataset(scan: RowScan) -> Any:
    """Return the rows of a scan as a dataset of pyarrow: a reader gets the columns and rows that it asks for.

    DuckDB asks a dataset for the columns and conditions of a query (`scanner`). pyarrow's own scanner would
    run the code of the scan in threads that may outlive the program, and abort it. This one is read in the
    threads of the reader, while the reader waits.
    """
    return _make_dataset_type()(scan)


@cache
def _make_dataset_type() -> Callable[[RowScan], Any]:
    class ScanDataset(importlib.import_module(_DATASET).Dataset):  # type: ignore[misc]
        def __init__(self, scan: RowScan):
            # Not that of the superclass, which has rows in files only.
            self._scan = scan

        @property
        def schema(self) -> pa.Schema:
            return self._scan.schema

        def scanner(
            self,
            columns: Sequence[str] | None = None,
            filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
            **_: Any,
        ) -> ScanReader:
            return ScanReader(self._scan, columns, filter)

    return ScanDataset


@dataclass(frozen=True)
class ScanReader:
    """A read of some columns of a scan, and of the rows that meet a condition."""

    scan: RowScan
    columns: Sequence[str] | None
    condition: pc.Expression | None

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are returned."""
        return self.scan.schema if self.columns is None else self.scan.select(self.columns).schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        names = self.projected_schema.names
        # The text of a condition has the names of its columns as they are, and perhaps those of others.
        text = str(self.condition)
        more = [] if self.condition is None else [n for n in self.scan.schema.names if n in text]
        for batch in self.scan.select(list(dict.fromkeys([*names, *more]))).batches(self.condition):
            yield batch.select(names)


def _read_column(batch: pa.RecordBatch, field: pa.Field) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(len(batch), field.type)
    return conform(batch.column(field.name), field.type, field.name)
