"""The types of data frames in which tables are read, and which are stored as tables (`FRAME_TYPES`).

The IO manager (`orchestration.io_manager`) and `orchestration.table_reading` load and store frames with it.

A library is imported when one of its types is asked for: it is loaded then. So a project needs only the
libraries that it uses.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from elt_assets.errors import ConfigError
from elt_assets.lake.read.scans import RowScan, open_dataset

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
    """Return a relation of DuckDB's default connection, which can be joined with others of it. It reads only
    the columns and rows that its query needs."""
    return importlib.import_module("duckdb").from_arrow(open_dataset(scan))


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
