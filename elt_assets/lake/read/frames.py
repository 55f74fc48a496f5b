"""The rows of tables for other libraries than Spark: as Arrow data, or as frames of pandas, Polars, DuckDB.

`snapshots` and `changes` read tables with it; the IO manager (`orchestration.io_manager`) stores frames.

pyarrow reads through its own file systems, in this process. Its threads run no Python code, so that none of
them can abort a program that ends (docs/downstream.md, "Programs that end").

First the rows of a table's files as Arrow data (`RowScan`); then the types of data frames in which tables are
read, and which are stored as tables (`FRAME_TYPES`). A library is imported when one of its types is asked
for: it is loaded then. So a project needs only the libraries that it uses.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from elt_assets.errors import ConfigError
from elt_assets.lake.worker.foreign_types import conform
from elt_assets.lake.worker.parquet import open_parquet, read_batches

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


SPARK_FRAME = "pyspark.sql.DataFrame"


@dataclass(frozen=True)
class FrameType:
    """A type of data frames."""

    # `library`, `name`: the package, and the name of the type in it.
    library: str
    name: str
    load: Callable[[RowScan], Any]  # returns the rows of a scan as such a frame
    convert: Callable[[Any], pa.Table]  # returns the rows of such a frame as Arrow data

    @property
    def full_name(self) -> str:
        return f"{self.library}.{self.name}"

    @property
    def python_type(self) -> type | None:
        """The type; None if its library is not loaded."""
        loaded = sys.modules.get(self.library)
        return None if loaded is None else getattr(loaded, self.name, None)


def _load_polars(scan: RowScan) -> Any:
    return importlib.import_module("polars").from_arrow(scan.to_table(), rechunk=False)


def _scan_polars(scan: RowScan) -> Any:
    """Return a LazyFrame that reads only the columns and rows that its query needs."""
    polars = importlib.import_module("polars")
    schema = polars.from_arrow(scan.schema.empty_table()).schema

    def read(
        columns: Sequence[str] | None, predicate: Any, limit: int | None, _batch_size: int | None
    ) -> Iterator[Any]:
        rows_left = limit
        for batch in (scan if columns is None else scan.select(columns)).batches():
            frame = polars.from_arrow(batch)
            if rows_left is not None:
                frame = frame.head(rows_left)
                rows_left -= len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if rows_left == 0:
                return

    plugins = importlib.import_module("polars.io.plugins")
    return plugins.register_io_source(read, schema=schema)


def _load_pandas(scan: RowScan) -> Any:
    """Return a frame whose integers and booleans may be null: NumPy's types would change their values."""
    pandas = importlib.import_module("pandas")
    types = {
        pa.int8(): pandas.Int8Dtype(),
        pa.int16(): pandas.Int16Dtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    return scan.to_table().to_pandas(types_mapper=types.get, maps_as_pydicts="strict")


def _load_duckdb(scan: RowScan) -> Any:
    """Return a relation of DuckDB's default connection, which can be joined with others of it."""
    return importlib.import_module("duckdb").from_arrow(scan.to_table())


def _convert_polars(frame: Any) -> pa.Table:
    polars = importlib.import_module("polars")
    objects = [name for name, kind in frame.schema.items() if kind == polars.Object]
    if objects:  # Polars would give the addresses of the objects
        raise TypeError(f"the column {objects[0]!r} has Python objects")
    try:
        return frame.to_arrow()
    except pa.ArrowInvalid as error:
        types = ", ".join(f"{name!r}: {kind}" for name, kind in frame.schema.items())
        raise TypeError(f"{error}; its columns are {types}") from error


def _convert_pandas(frame: Any) -> pa.Table:
    """Return the rows of a frame; the levels of its index that have names become columns."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    others = [name for name in frame.columns if not isinstance(name, str)]
    if others:
        raise TypeError(f"the name of the column {others[0]!r} is no text")
    return pa.Table.from_pandas(frame, preserve_index=False)


FRAME_TYPES = (
    FrameType("polars", "LazyFrame", _scan_polars, lambda frame: _convert_polars(frame.collect())),
    FrameType("polars", "DataFrame", _load_polars, _convert_polars),
    FrameType("pyarrow", "Table", lambda scan: scan.to_table(), lambda table: table),
    FrameType("pandas", "DataFrame", _load_pandas, _convert_pandas),
    FrameType("duckdb", "DuckDBPyRelation", _load_duckdb, lambda rows: rows.to_arrow_table()),
)
"""The types beside Spark's DataFrame."""
FRAME_NAMES = ", ".join([SPARK_FRAME, *(kind.full_name for kind in FRAME_TYPES)])


def is_spark_frame(python_type: object) -> bool:
    """Return whether a type is Spark's DataFrame, or that of a Spark Connect session."""
    return isinstance(python_type, type) and issubclass(python_type, DataFrame)


def find_frame_type(python_type: object, user: str) -> FrameType | None:
    """Return the frame type of a Python type; None for Spark's DataFrame.

    Args:
        user: what asks for the type, for the error.

    Raises:
        ConfigError: rows cannot be read in this type.
    """
    if is_spark_frame(python_type):
        return None
    for kind in FRAME_TYPES:
        if python_type is kind.python_type:
            return kind
    raise ConfigError(
        f"{user} is of the type {_name_of(python_type)}, in which no table can be read",
        guidance=f"write one of these types: {FRAME_NAMES}",
    )


def convert_to_arrow(frame: object, user: str) -> pa.Table:
    """Return the rows of a frame of one of `FRAME_TYPES`.

    Args:
        user: what the frame comes from, for the error.

    Raises:
        ConfigError: it is of another type, or has values that Arrow has no type for.
    """
    for kind in FRAME_TYPES:
        python_type = kind.python_type
        if python_type is not None and isinstance(frame, python_type):
            try:
                return kind.convert(frame)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise ConfigError(
                    f"{user} cannot be stored: {' '.join(map(str, error.args))}",
                    guidance="cast or rename the columns that the message is about",
                ) from error
    raise ConfigError(
        f"{user} is a {_name_of(type(frame))}, which cannot be stored as a table",
        guidance=f"return one of these types: {FRAME_NAMES}",
    )


def _name_of(python_type: object) -> str:
    if not isinstance(python_type, type):
        return str(python_type)
    return f"{python_type.__module__}.{python_type.__qualname__}"
