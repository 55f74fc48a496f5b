"""The data source `elt` of Spark: `spark.read.format("elt").load("shop/users")`.

Spark finds it by the name of this module, and `elt_assets.register` hands it to a session with the place of a
project's lake. It runs in Python workers of Spark: on the driver or the Spark Connect server, which plan a
read, and on the executors, which read. Each of them needs elt-assets.

Spark imports this module to look for data sources, also those of others: so it imports nothing large, and
cannot fail. `register` sends its code to workers by value: one that lacks elt-assets says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The tables of a lake. `elt_assets.lake.read.spark_source` does the work."""

    lake: Mapping[str, Any] | None = None
    """What `register` says about the lake; None: the setting `lake` of the worker, or the option `lake`."""
    version: int | None = None
    """The version that is read: the one whose columns Spark got."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "elt"

    def schema(self) -> StructType:
        """Return the columns."""
        source = self._open()
        self.version = source.table.version
        schema: StructType = source.schema
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the version that `schema` has opened."""
        reader: DataSourceReader = self._open().make_reader(schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads the changes of the table."""
        reader: DataSourceStreamReader = self._open().make_stream_reader(schema)
        return reader

    def _open(self) -> Any:
        try:
            # Workers need it, and not whoever imports this module.
            from elt_assets.lake.read.spark_source import TableSource  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                f"the Python of Spark cannot import elt-assets ({error}): install it for the driver (with "
                "Spark Connect, on the server) and for each executor; spark.pyspark.python names their Python"
            ) from error
        return TableSource.open(self.lake, dict(self.options), self.version)
