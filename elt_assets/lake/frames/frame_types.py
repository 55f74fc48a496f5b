"""The data frames of other libraries in which tables are read, and which are stored as tables.

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
from elt_assets.lake.frames.arrow_scan import ArrowScan

SPARK_FRAME = "pyspark.sql.DataFrame"


@dataclass(frozen=True)
class FrameType:
    """A type of data frames.

    Attributes:
        library, name: the package, and the name of the type in it.
        load: returns the rows of a scan as such a frame.
    """

    library: str
    name: str
    load: Callable[[ArrowScan], Any]

    @property
    def full_name(self) -> str:
        return f"{self.library}.{self.name}"

    @property
    def python_type(self) -> type | None:
        """The type; None if its library is not loaded."""
        loaded = sys.modules.get(self.library)
        return None if loaded is None else getattr(loaded, self.name, None)


def _load_polars(scan: ArrowScan) -> Any:
    return importlib.import_module("polars").from_arrow(scan.to_table(), rechunk=False)


def _scan_polars(scan: ArrowScan) -> Any:
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


def _load_pandas(scan: ArrowScan) -> Any:
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


def _load_duckdb(scan: ArrowScan) -> Any:
    """Return a relation of DuckDB's default connection, which can be joined with others of it."""
    return importlib.import_module("duckdb").from_arrow(scan.to_table())


FRAME_TYPES = (
    FrameType("polars", "LazyFrame", _scan_polars),
    FrameType("polars", "DataFrame", _load_polars),
    FrameType("pyarrow", "Table", ArrowScan.to_table),
    FrameType("pandas", "DataFrame", _load_pandas),
    FrameType("duckdb", "DuckDBPyRelation", _load_duckdb),
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
    name = getattr(python_type, "__qualname__", None)
    module = getattr(python_type, "__module__", "")
    type_name = f"{module}.{name}" if isinstance(python_type, type) and name else str(python_type)
    raise ConfigError(
        f"{user} is of the type {type_name}, in which no table can be read",
        guidance=f"write one of these types: {FRAME_NAMES}",
    )
