"""Changed rows of a table (see `changes`) as a DataFrame of Spark, or as Arrow data without Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.admin.changes import RowSelection, TableChanges
from elt_assets.lake.admin.snapshots import select_columns
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.frames.arrow_scan import ArrowScan, FileGroup, RowFilter, TableScan
from elt_assets.lake.merge.file_splitting import Key, key_value
from elt_assets.lake.schema.logical_types import SOURCE
from elt_assets.lake.schema.metadata_columns import PARTITION, PARTITION_FIELD, RAW_ID
from elt_assets.lake.spark.expressions import make_empty, value_at
from elt_assets.lake.spark.task_io import column_at

_KEY = "_elt_key"
_ID = t.StructType([t.StructField(RAW_ID, t.StringType())])


@dataclass(frozen=True)
class ChangeReader:
    """Reads the rows of a table's changes."""

    changes: TableChanges
    columns: t.StructType  # the columns to return
    key: Key  # the columns of the key; empty if the rows have none

    @classmethod
    def create(
        cls, changes: TableChanges, columns: Sequence[str] | None, key_fields: Key
    ) -> ChangeReader:
        """Return a reader.

        Args:
            columns: the names of the columns to read; None for all.
            key_fields: the paths in the source of the fields by which rows are told apart.

        Raises:
            ConfigError: there is no such column.
        """
        table = changes.table
        return cls(changes, select_columns(table, columns), _find_key(table.schema, key_fields))

    def scan_rows(self) -> ArrowScan:
        """Return the new and updated rows as a scan."""
        return _scan(self.changes.rows, self.columns)

    def scan_deleted(self) -> TableScan:
        """Return the removed rows whose keys are not among those of the new rows, as a scan."""
        former = _scan(self.changes.removed, self._columns_and_key).to_table()
        if self.key and len(former):
            updated = set(
                _read_keys(_scan(self.changes.rows, self._key_columns).to_table(), self.key)
            )
            is_deleted = [value not in updated for value in _read_keys(former, self.key)]
            former = former.filter(pa.array(is_deleted, pa.bool_()))
        return TableScan(former.select(self.columns.names))

    def select_rows(self, spark: SparkSession) -> DataFrame:
        """Return the new and updated rows as a DataFrame."""
        return _select_all(spark, self.changes.rows, self.columns)

    def select_deleted(self, spark: SparkSession) -> DataFrame:
        """Return the same rows as `scan_deleted`, as a DataFrame."""
        former = _select_all(spark, self.changes.removed, self._columns_and_key)
        if self.key:
            updated = _select_all(spark, self.changes.rows, self._key_columns)
            updated = updated.select(key_value(self.key).alias(_KEY))
            is_same = key_value(self.key).eqNullSafe(f.col(_KEY))
            former = former.join(updated, is_same, "left_anti")
        return former.select(*(value_at([name]) for name in self.columns.names))

    @property
    def _key_columns(self) -> t.StructType:
        names = dict.fromkeys(path[0] for path in self.key)
        return t.StructType([self.changes.table.schema[name] for name in names])

    @property
    def _columns_and_key(self) -> t.StructType:
        more = [field for field in self._key_columns if field.name not in self.columns.names]
        return t.StructType([*self.columns.fields, *more])


def _scan(selections: Sequence[RowSelection], schema: t.StructType) -> ArrowScan:
    return ArrowScan(arrow_columns(schema), [_group(selection) for selection in selections])


def _group(selection: RowSelection) -> FileGroup:
    table, filters = selection.table, list[RowFilter]()
    if selection.partitions is not None:
        filters.append(_filter_partitions(selection.partitions))
    if selection.other_partitions:
        filters.append(_filter_partitions(selection.other_partitions, is_excluding=True))
    if selection.excluded and selection.files:
        excluded = RowSelection(table, selection.excluded)
        ids = _scan([excluded], _ID).to_table().column(RAW_ID)
        filters.append(RowFilter(RAW_ID, ids.combine_chunks(), is_excluding=True))
    paths = [table.storage.locate(file) for file in selection.files]
    return FileGroup(table.storage.system, paths, filters)


def _filter_partitions(partitions: Collection[str], *, is_excluding: bool = False) -> RowFilter:
    return RowFilter(PARTITION, pa.array(sorted(partitions), pa.string()), is_excluding)


def _find_key(schema: t.StructType, fields: Key) -> list[list[str]]:
    """Return the columns of fields of the source, and that of the partition; empty if one is missing."""
    paths = [_find_column(schema, field) for field in fields]
    if not paths or not all(paths):
        return []
    return [*paths, [PARTITION]] if PARTITION in schema.names else paths


def _find_column(schema: t.StructType, path: Sequence[str]) -> list[str]:
    kind: t.DataType = schema
    names: list[str] = []
    for part in path:
        fields = kind.fields if isinstance(kind, t.StructType) else []
        sources = {field.metadata.get(SOURCE, field.name): field for field in fields}
        same_case = {name.casefold(): field for name, field in sources.items()}
        field = sources.get(part) or same_case.get(part.casefold())
        if field is None:
            return []
        names.append(field.name)
        kind = field.dataType
    return names


def _read_keys(rows: pa.Table, key: Key) -> list[tuple[object, ...]]:
    """Return the key of each row. A value that is a structure has its text."""
    columns = [column_at(rows, path, len(rows)) for path in key]
    values = [
        map(repr, column.to_pylist()) if pa.types.is_nested(column.type) else column.to_pylist()
        for column in columns
    ]
    return list(zip(*values, strict=True))


def _select_all(
    spark: SparkSession, selections: Sequence[RowSelection], schema: t.StructType
) -> DataFrame:
    nothing = make_empty(spark, schema)
    return reduce(
        DataFrame.union, (_select(spark, selection, schema) for selection in selections), nothing
    )


def _select(spark: SparkSession, selection: RowSelection, schema: t.StructType) -> DataFrame:
    table, fields = selection.table, list(schema.fields)
    own = [field for field in (*_ID.fields, PARTITION_FIELD) if field.name in table.schema.names]
    fields += [field for field in own if field.name not in schema.names]
    rows = table.read_files(spark, selection.files, t.StructType(fields))
    partition = value_at([PARTITION])
    if selection.partitions is not None:
        rows = rows.where(partition.isin(*selection.partitions))
    if selection.other_partitions:
        is_other = f.coalesce(partition.isin(*selection.other_partitions), f.lit(False))
        rows = rows.where(~is_other)
    if selection.excluded:
        rows = rows.join(table.read_files(spark, selection.excluded, _ID), RAW_ID, "left_anti")
    return rows.select(*(value_at([name]) for name in schema.names))
