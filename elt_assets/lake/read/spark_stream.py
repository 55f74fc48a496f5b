"""The changes of a table as a stream of Spark (`spark.readStream.format("elt")`).

An offset is a version of the table and the name of its commit: another table may have the same version. A
batch is the difference of two versions, whatever came between: the rows of the newer one that are not in the
older one, and, if they are asked for, the rows of the older one that are not in the newer one.

Why a query misses no row and repeats none:

- The rows of a batch depend on its two offsets alone. Spark writes these to the checkpoint before it asks for
  the rows. So a query that was killed gets the same rows again, and its sink tells them from others by the
  number of the batch. `tests/lake/test_spark_source.py::test_a_query_that_is_killed_continues`
- Files that both versions have are not read. Of the others, a row that a merge or a compaction has moved is
  known by its `_airbyte_raw_id`, and is in no batch. A table whose rows have no such ids has all rows of
  these files in the batch, the former ones as deleted: the sum is the same.
  `tests/lake/test_stream_model.py`
- Where this cannot be known (the table is another one, was restored, has other types, or a vacuum has removed
  files of either version), the batch is an error that says what to do, and nothing of it is read.

First what is done with deleted rows; then the partitions of a batch, and how one is read; then the stream.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.columns.metadata_columns import RAW_ID
from elt_assets.lake.delta.opening import find_retyped
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.changes import Comparison, Position, identifies_rows, read_commit_name
from elt_assets.lake.read.snapshots import open_snapshot
from elt_assets.lake.read.spark_files import TableFiles

CHANGE = "_change_type"
"""The column that says of each row of a stream whether it was inserted or deleted."""
INSERT, DELETE = "insert", "delete"
_IDS = t.StructType([t.StructField(RAW_ID, t.StringType())])
_NEW_CHECKPOINT = (
    "start the query with a new checkpoint, and remove what it has written: it then reads all rows"
)


class Deletes(enum.Enum):
    """What a stream does with rows that were updated or deleted since the last batch."""

    FAIL = "fail"
    IGNORE = "ignore"  # the stream has the new and updated rows alone
    ROWS = "rows"  # the stream has the former rows too, and the column `CHANGE`


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """A file that one task reads."""

    file: str  # its path below the root of the table
    change: str  # what happened to its rows: `INSERT` or `DELETE`
    excluded: Sequence[str] = ()  # files whose rows are left out, by their ids
    refusal: str | None = None  # the error if a row is left; no row is returned then


@dataclass(frozen=True)
class TableStream(DataSourceStreamReader):
    """Reads the changes of a table."""

    rows: TableFiles
    writer: str  # the writer of the table
    deletes: Deletes

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before all rows."""
        return {"version": -1, "commit": ""}

    # Spark 4.2 may also give a start and a limit; this form is known to all versions.
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - Spark's name
        """Return the offset of the version that readers get."""
        table = open_snapshot(self.rows.location, self.writer)
        return {"version": table.version, "commit": read_commit_name(table, table.version)}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the files that tasks read for a batch.

        Raises:
            ConfigError: the changes between the two offsets cannot be read.
        """
        if start == end:
            return []
        table = self._open(end)
        if start["version"] < 0:
            partitions = [ChangePartition(file.path, INSERT) for file in table.files]
        else:
            since = Position(int(start["version"]), str(start["commit"]))
            partitions = self._compare(Comparison(table, since, None), table)
        self._refuse_lost(partitions, int(end["version"]))
        return list[InputPartition](partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangePartition)
        keeps = self._select_rows(partition) if partition.excluded else None
        if partition.refusal is not None:
            if keeps is None or pc.any(keeps).as_py():
                raise ConfigError(partition.refusal)
            return
        first = 0
        for batch in self.rows.read(partition.file):
            mask = None if keeps is None else keeps.slice(first, len(batch))
            first += len(batch)
            selected = batch if mask is None else batch.filter(mask)
            if len(selected):
                yield self._add_change(selected, partition.change)

    def _open(self, offset: Mapping[str, Any]) -> Table:
        """Open the table at an offset."""
        version = int(offset["version"])
        try:
            table = open_snapshot(self.rows.location, self.writer, version=version)
        except EltError as error:
            raise ConfigError(
                f"version {version} of the table {self.rows.uri} cannot be opened: {error.message}",
                guidance=_NEW_CHECKPOINT,
            ) from error
        if read_commit_name(table, version) != offset["commit"]:
            raise ConfigError(
                f"version {version} of the table {self.rows.uri} is not the one of the checkpoint: the table "
                "was moved away, or restored from a backup",
                guidance=_NEW_CHECKPOINT,
            )
        common = [column for column in table.schema if column.name in self.rows.schema.names]
        retyped = find_retyped(self.rows.schema, t.StructType(common))
        if retyped:
            raise ConfigError(
                f"columns of the table {self.rows.uri} have other types than when the query was started: "
                f"{', '.join(retyped)}",
                guidance="start the query again; if the error stays, with a new checkpoint",
            )
        return table

    def _compare(self, comparison: Comparison, table: Table) -> list[ChangePartition]:
        """Return the files that differ between two versions."""
        obstacle = comparison.find_break()
        if obstacle is None and comparison.removed and not self._skips_removed(comparison):
            obstacle = comparison.find_loss()
        if obstacle is not None:
            raise ConfigError(
                f"the changes of the table {table.uri} cannot be read: {obstacle}",
                guidance=_NEW_CHECKPOINT,
            )
        # In a replaced table, all ids are others.
        has_ids = identifies_rows(table) and not comparison.is_replaced
        added, removed = _paths(comparison.added), _paths(comparison.removed)
        partitions = [ChangePartition(path, INSERT, removed if has_ids else ()) for path in added]
        former = added if has_ids else ()
        if self.deletes is Deletes.ROWS:
            partitions += [ChangePartition(path, DELETE, former) for path in removed]
        elif removed and (self.deletes is Deletes.FAIL or not identifies_rows(table)):
            refusal = self._describe_deletes(comparison, table)
            partitions += [ChangePartition(path, DELETE, former, refusal) for path in removed]
        return partitions

    def _skips_removed(self, comparison: Comparison) -> bool:
        """Return whether the removed files need not be read: neither their rows nor their ids."""
        return self.deletes is Deletes.IGNORE and comparison.is_replaced

    def _describe_deletes(self, comparison: Comparison, table: Table) -> str:
        reason = "rows were updated or deleted"
        if not identifies_rows(table):
            reason = "files were written again, and the rows have no ids that tell which are new"
        elif comparison.is_replaced:
            reason = "all rows were replaced"
        choices = (
            'option("deletes", "rows") for a stream with the former rows and the column ' + CHANGE
        )
        if identifies_rows(table):
            choices += ', or option("deletes", "ignore") for the new and updated rows alone'
        return (
            f"the stream of the table {table.uri} can only have new rows, and {reason} since the last batch\n"
            f"write {choices}"
        )

    def _refuse_lost(self, partitions: Sequence[ChangePartition], version: int) -> None:
        """Refuse a batch of which a file is missing, before a task reads any."""
        storage = self.rows.storage
        paths = sorted({partition.file for partition in partitions})
        infos = storage.system.get_file_info([f"{storage.root}/{path}" for path in paths])
        if any(info.type == pafs.FileType.NotFound for info in infos):
            raise ConfigError(
                f"a vacuum has removed files of version {version} of the table {self.rows.uri}",
                guidance=_NEW_CHECKPOINT,
            )

    def _select_rows(self, partition: ChangePartition) -> pa.Array:
        """Return which rows of a file are in no excluded file. The ids of one of these at a time are in
        memory, beside those of the file."""
        ids = self._read_ids(partition.file)
        keeps = pa.array([True] * len(ids))
        for path in partition.excluded:
            is_same = pc.is_in(ids, value_set=self._read_ids(path), skip_nulls=True)
            keeps = pc.and_not(keeps, is_same)
        return keeps

    def _read_ids(self, file: str) -> pa.Array:
        batches = [batch.column(0) for batch in self.rows.read(file, _IDS)]
        return pa.concat_arrays(batches) if batches else pa.array([], pa.string())

    def _add_change(self, batch: pa.RecordBatch, change: str) -> pa.RecordBatch:
        if self.deletes is not Deletes.ROWS:
            return batch
        return batch.append_column(
            pa.field(CHANGE, pa.string()), pa.array([change] * len(batch), pa.string())
        )


def _paths(files: Sequence[DataFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files)
