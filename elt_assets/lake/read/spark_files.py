"""Files of a table as tasks of the data source read them (`spark_source`, `spark_stream`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.read.lake_reference import LakeReference
from elt_assets.lake.read.scans import FileGroup, RowFilter
from elt_assets.storage.location import Location


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """Files of a table that one task reads."""

    files: Sequence[str]  # their paths below the root of the table


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, as they travel to tasks: without a credential."""

    reference: LakeReference
    uri: str  # of the table
    schema: t.StructType  # the columns to read
    partitions: Sequence[str] | None = None  # those whose rows are read; None for all

    @property
    def location(self) -> Location:
        """The root of the table, with the options of the lake."""
        return replace(self.reference.open(), uri=self.uri)

    @cached_property
    def storage(self) -> TableStorage:
        return TableStorage(self.location)

    def read(self, file: str, schema: t.StructType | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in the Arrow types that Spark expects of their columns.

        Args:
            schema: the columns to read; default: those of this object.

        Raises:
            OSError: the file is missing or damaged; the error names it.
        """
        pa.set_cpu_count(1)  # Spark counts a core for each task
        columns = self.schema if schema is None else schema
        types = to_spark_types(columns)
        for batch in self._group.read(f"{self.storage.root}/{file}", arrow_columns(columns)):
            yield conform_to(batch, types)

    @property
    def _group(self) -> FileGroup:
        filters = []
        if self.partitions is not None:
            values = pa.array(sorted(self.partitions), pa.string())
            filters.append(RowFilter(PARTITION, values))
        return FileGroup(self.storage.system, (), filters)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "storage"}


def to_spark_types(schema: t.StructType) -> pa.Schema:
    """Return the Arrow types in which Spark takes columns from a data source."""
    # Spark 4.0 has another argument, whose default is UTC.
    names = inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in names else {}
    return to_arrow_schema(schema, **zone)


def conform_to(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in types that differ in the names of their parts only."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
