"""Tables of downstream assets: the rows of a frame replace the whole table, or some of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.files import DataFile, TableChange
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.merge import partition_files
from elt_assets.lake.schema.metadata_columns import PARTITION
from elt_assets.lake.write.frame_rows import FrameRows
from elt_assets.lake.write.stream_tables import app_id
from elt_assets.lake.write.table_ownership import refuse_foreign
from elt_assets.storage.location import Location


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
