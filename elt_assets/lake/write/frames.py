"""Tables of downstream assets: a frame's rows replace a table, or some partitions; for the IO manager.

First the rows, of Spark or as Arrow data of another library (`FrameRows`); then the two replacements,
`replace_table` and `replace_partitions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns.arrow_types import complete_types, spark_schema
from elt_assets.lake.columns.metadata_columns import PARTITION, PARTITION_FIELD
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.merge import partition_files
from elt_assets.lake.session import value_at
from elt_assets.lake.worker.foreign_types import conform
from elt_assets.lake.worker.parquet import discard_on_error, open_writer
from elt_assets.lake.write.companions import app_id, refuse_foreign
from elt_assets.storage.location import Location


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


@dataclass(frozen=True)
class Target:
    """A table to replace: its root, the key of the asset that owns it, and the id of the run that writes."""

    place: str | Location
    key: Sequence[str]
    run_id: str

    @property
    def asset(self) -> str:
        return "/".join(self.key)

    def opened(self, partition: str | None = None) -> Table:
        """Open the table for writing. Each partition is a separate writer: runs of several partitions can
        write at the same time.

        Raises:
            ConfigError: another asset owns the table; the asset's partitions were added or removed; or
                another engine gave the table a rule that this project does not keep.
        """
        own = app_id(self.key)
        table = Table(self.place, own if partition is None else f"{own}|{partition}")
        refuse_foreign(
            table,
            f"{self.asset} as it is now",
            "give the asset another key, because the key names the table; or, if its partitions were added "
            "or removed, move the table away",
            partitions_of=None if partition is None else own,
        )
        if partition is not None:  # else all columns are replaced, with their rules
            table.refuse_unwritable()
        return table


@dataclass(frozen=True)
class Stored:
    """The table after the write, and the number of rows that were written."""

    table: Table
    rows: int


def replace_table(target: Target, rows: FrameRows) -> Stored:
    """Replace all rows of a table, and its columns, in one commit.

    Raises:
        ConfigError: another asset owns the table.
    """
    table = target.opened()
    rows = rows.complete(table.schema)
    if not table.exists:
        table.prepare(rows.schema)
    files = rows.write(table)
    _commit(target, table, TableChange(files, table.files), files, rows.schema)
    return Stored(table, _records(files))


def replace_partitions(target: Target, rows: FrameRows, partitions: Sequence[str]) -> Stored:
    """Replace partitions of a table, each in one commit; the rows of other partitions stay.

    Args:
        rows: the rows of one partition, or rows with their partition in the column `_elt_partition`.

    Raises:
        ConfigError: another asset owns the table; rows have no partition, or one that is not in `partitions`;
            a column has another type than in the table.
    """
    if len(partitions) == 1:
        return _replace_partition(target, rows.put_partition(partitions[0]), partitions[0])
    _refuse_unnamed(target, rows, partitions)
    with rows.hold() as rows_once:
        _refuse_others(target, rows_once, partitions)
        done = [
            _replace_partition(target, rows_once.select_partition(partition), partition)
            for partition in partitions
        ]
    return Stored(done[-1].table, sum(replaced.rows for replaced in done))


def _replace_partition(target: Target, rows: FrameRows, partition: str) -> Stored:
    table = target.opened(partition)
    rows = rows.complete(table.schema)
    _refuse_other_types(table, rows.schema)
    table.prepare(rows.schema)
    files = rows.write(table)
    others = partition_files.plan_removal(rows.session, table, partition, table.schema)
    _commit(target, table, TableChange([*files, *others.add], others.remove), files)
    return Stored(table, _records(files))


def _commit(
    target: Target,
    table: Table,
    change: TableChange,
    files: Iterable[DataFile],
    schema: t.StructType | None = None,
) -> None:
    metadata = CommitMetadata(
        table.metadata.sequence + 1, table.metadata.generation + 1, None, target.run_id
    )
    with discard_if_unpublished(table, change.add):
        table.commit(change, metadata, _records(files), schema)


def _records(files: Iterable[DataFile]) -> int:
    return sum(file.records for file in files)


def _refuse_unnamed(target: Target, rows: FrameRows, partitions: Sequence[str]) -> None:
    if PARTITION not in rows.schema.names:
        raise ConfigError(
            f"{target.asset} returned the rows of {len(partitions)} partitions in one run, without the "
            "partition of each row",
            guidance=f"return the partition's key in a column `{PARTITION}`, or give the asset "
            "`backfill_policy=BackfillPolicy.multi_run(1)`, so that each partition has a separate run",
        )


def _refuse_others(target: Target, rows: FrameRows, partitions: Sequence[str]) -> None:
    other = rows.find_other(partitions)
    if other is not None:
        raise ConfigError(
            f"{target.asset} returned rows of the partition {other[0]!r}, which is not one of this run's "
            f"({partitions[0]} to {partitions[-1]})",
            guidance=f"return only rows whose `{PARTITION}` is one of the run's partitions",
        )


def _refuse_other_types(table: Table, schema: t.StructType) -> None:
    """Check that no column has another type than in the table, which the other partitions keep."""
    type_names = {column.name: column.dataType.simpleString() for column in table.schema}
    for column in schema:
        type_name = column.dataType.simpleString()
        if type_names.get(column.name, type_name) != type_name:
            raise ConfigError(
                f"the column {column.name!r} of the table {table.uri} has the type "
                f"{type_names[column.name]}, but {type_name} in the result",
                guidance="cast it, or move the table away and materialise all partitions again",
            )
