"""The rows that a downstream asset returns: of Spark, or Arrow data of another library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.table import Table
from elt_assets.lake.frames.arrow_types import complete_types, spark_schema
from elt_assets.lake.schema.metadata_columns import PARTITION, PARTITION_FIELD
from elt_assets.lake.spark.expressions import value_at
from elt_assets.lake.spark.foreign_types import conform
from elt_assets.lake.spark.partitioned_files import open_writer
from elt_assets.lake.spark.task_io import discard_on_error


class FrameRows(Protocol):
    """The rows of a downstream asset, which can be written to a table."""

    @property
    def schema(self) -> t.StructType:
        """The columns, in the types of a table."""

    def session(self) -> SparkSession:
        """Return the session of the lake; it is started if there is none."""

    def complete(self, table_schema: t.StructType) -> FrameRows:
        """Return the rows with the table's types for columns without a type (see `complete_types`)."""

    def put_partition(self, partition: str) -> FrameRows:
        """Return the rows with one partition as the value of the column `_elt_partition`."""

    def select_partition(self, partition: str) -> FrameRows:
        """Return the rows of one partition."""

    def find_other(self, partitions: Sequence[str]) -> tuple[str | None] | None:
        """Return the partition of a row that has none of these; None if there is no such row."""

    def hold(self) -> contextlib.AbstractContextManager[FrameRows]:
        """Return the rows, which are computed once for all uses in the block."""

    def write(self, table: Table) -> list[DataFile]:
        """Write the rows to new files, which are invisible to readers until they are committed."""


@dataclass(frozen=True)
class SparkRows:
    """The rows of a DataFrame."""

    rows: DataFrame
    # Returns the session of the lake. The DataFrame may be of another one, of the team's.
    provide: Callable[[], SparkSession]

    @property
    def schema(self) -> t.StructType:
        return self.rows.schema

    def session(self) -> SparkSession:
        return self.provide()

    def complete(self, table_schema: t.StructType) -> SparkRows:
        """Return the rows with nullable columns: a count or a literal is NOT NULL, but the next DataFrame may
        have nulls there."""
        columns = complete_types(self.rows.schema, table_schema)
        _refuse_empty(columns)
        return replace(self, rows=self.rows.to(columns))

    def put_partition(self, partition: str) -> SparkRows:
        value = f.lit(partition).cast(PARTITION_FIELD.dataType)
        return replace(self, rows=self.rows.withColumn(PARTITION, value))

    def select_partition(self, partition: str) -> SparkRows:
        return replace(self, rows=self.rows.where(value_at([PARTITION]) == partition))

    def find_other(self, partitions: Sequence[str]) -> tuple[str | None] | None:
        is_wanted = f.coalesce(value_at([PARTITION]).isin(*partitions), f.lit(False))
        other = self.rows.where(~is_wanted).select(value_at([PARTITION])).first()
        return None if other is None else (other[0],)

    @contextlib.contextmanager
    def hold(self) -> Iterator[SparkRows]:
        level = self.rows.storageLevel
        if level.useMemory or level.useDisk:  # the asset holds them itself, perhaps for longer
            yield self
            return
        cached_rows = self.rows.persist()
        try:
            yield replace(self, rows=cached_rows)
        finally:
            cached_rows.unpersist()

    def write(self, table: Table) -> list[DataFile]:
        is_foreign = self.rows.sparkSession is not self.provide()
        return table.write_files(self.rows, in_tasks=is_foreign)


@dataclass(frozen=True)
class ArrowRows:
    """The rows of an Arrow table, which are written in this process."""

    rows: pa.Table
    schema: t.StructType  # the columns, in the types of a table
    provide: Callable[[], SparkSession]  # returns the Spark session

    @classmethod
    def read(cls, rows: pa.Table, provide: Callable[[], SparkSession]) -> ArrowRows:
        """Return the rows of an Arrow table.

        Raises:
            ConfigError: a table cannot have its columns (see `spark_schema`).
        """
        return cls(rows, spark_schema(rows.schema), provide)

    def session(self) -> SparkSession:
        return self.provide()

    def complete(self, table_schema: t.StructType) -> ArrowRows:
        """Return the rows as they are stored.

        Raises:
            ConfigError: a value does not fit into the type of its column.
        """
        columns = complete_types(self.schema, table_schema)
        _refuse_empty(columns)
        rows, schema = self.rows.select(columns.names), arrow_columns(columns)
        batches = [_conform_batch(batch, schema) for batch in rows.to_batches()]
        return ArrowRows(pa.Table.from_batches(batches, schema), columns, self.provide)

    def put_partition(self, partition: str) -> ArrowRows:
        values = pa.repeat(pa.scalar(partition), len(self.rows))
        if PARTITION in self.rows.column_names:
            place = self.rows.column_names.index(PARTITION)
            rows = self.rows.set_column(place, PARTITION, values)
        else:
            rows = self.rows.append_column(PARTITION, values)
        return ArrowRows.read(rows, self.provide)

    def select_partition(self, partition: str) -> ArrowRows:
        is_partition = pc.equal(self._partitions(), pa.scalar(partition))
        return ArrowRows(self.rows.filter(is_partition), self.schema, self.provide)

    def find_other(self, partitions: Sequence[str]) -> tuple[str | None] | None:
        values = self._partitions()
        is_other = pc.invert(pc.is_in(values, value_set=pa.array(partitions, pa.string())))
        others = values.filter(is_other)
        return (others[0].as_py(),) if len(others) else None

    def _partitions(self) -> pa.ChunkedArray:
        return conform(self.rows.column(PARTITION), pa.string(), PARTITION)

    @contextlib.contextmanager
    def hold(self) -> Iterator[ArrowRows]:
        yield self

    def write(self, table: Table) -> list[DataFile]:
        output = table.output()
        writer = open_writer(output)
        try:
            with discard_on_error(writer):
                for batch in self.rows.to_batches():
                    writer.write(batch)
                writer.close()
        except BaseException:
            table.storage.discard_folder(output.folder)
            raise
        reach(Failpoint.FILES_WRITTEN)
        return [DataFile(*file) for file in writer.files]


def _conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        columns = [
            conform(values, field.type, field.name)
            for values, field in zip(batch.columns, schema, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"a value of the result cannot be stored: {error}",
            guidance="cast the column to a type that has all its values; round times to microseconds",
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _refuse_empty(columns: t.StructType) -> None:
    if not set(columns.names) - {PARTITION}:
        raise ConfigError(
            "the result has no column with a type, so that there is no table to store",
            guidance="return at least one column; cast it if all its values are null",
        )
