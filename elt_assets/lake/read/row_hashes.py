"""The rows of a stream's table, or of its history, in a comparison with the source: sums by ranges, and keys.

`pipeline.comparison` compares them. All rows are those of one snapshot of a table. Tasks hash them
(`lake.worker.row_hashes`), so only sums move, and the keys of ranges that differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import group_by_size, run_tasks
from elt_assets.lake.merge.history import IS_CURRENT, VALID_TO
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.row_hashes import (
    HashedColumn,
    HashJob,
    Listing,
    make_key_list,
    make_listing,
    make_sums,
)

KeyValues = tuple[Any, ...]
"""The values of a key, in types of Python."""


@dataclass(frozen=True)
class RowText:
    """What the hash of a row is made of, and what is said of a row besides."""

    key: Sequence[HashedColumn]
    columns: Sequence[HashedColumn]
    cursor: str | None = None  # the column of the cursor
    # Rows are not counted for which one of these comparisons of the cursor with `bound` holds (functions of
    # `pyarrow.compute`): the source does not count them either.
    left_out: Sequence[str] = ()
    bound: Any = None
    ceiling: Any = None  # the greatest value that the cursor can have; None if that is not known


@dataclass(frozen=True)
class StoredRow:
    """A row of the table in a range that differs."""

    hashes: frozenset[int]  # those that the source may have for its values
    cursor: Any
    is_changed: bool  # a value of it did not fit its column, or was changed by the source
    is_deleted: bool = False  # a tombstone


@dataclass
class HashedRows:
    """The present rows of a stream's table, or of its history, at one snapshot."""

    spark: SparkProvider
    table: Table
    text: RowText
    is_history: bool = False
    files: Sequence[DataFile] = field(init=False)

    def __post_init__(self) -> None:
        closed = self.table.paths_lacking_nulls([VALID_TO]) if self.is_history else ()
        self.files = [file for file in self.table.files if file.path not in closed]

    @property
    def keeps_deleted(self) -> bool:
        """Return whether the table has rows that count as deleted."""
        return metadata_columns.find_deleted_at(self.table.schema) is not None

    def add_up(self, untils: Sequence[KeyValues]) -> dict[int, tuple[int, int]]:
        """Return the number of rows in each range, and the sum of their hashes, by the range's number."""
        text = self.text
        job = self._make_job(self.files, untils, [text.cursor] if text.cursor else [])
        if text.cursor is not None:
            left_out = [(text.cursor, function, text.bound) for function in text.left_out]
            ceiling = None if text.ceiling is None else (text.cursor, text.ceiling)
            job = replace(job, left_out=left_out, ceiling=ceiling)
        sums: dict[int, tuple[int, int]] = {}
        if job.groups:
            for result in run_tasks(self.spark.get(), len(job.groups), make_sums, job):
                for number, rows, hashes in result:
                    before = sums.get(number, (0, 0))
                    sums[number] = (before[0] + rows, (before[1] + hashes) % (1 << 64))
        return sums

    def list_rows(
        self, untils: Sequence[KeyValues], ranges: Sequence[int]
    ) -> dict[KeyValues, list[StoredRow]]:
        """Return the rows of some ranges by their keys; of a table, deleted ones too."""
        bounds = self._find_bounds()
        files = [
            file
            for file in self.files
            if _overlaps(bounds.get(file.path, (None, None)), untils, ranges)
        ]
        rows = self._list(files, untils, ranges, self.table.schema)
        metadata = self.table.metadata
        if metadata.tombstones and not self.is_history:
            version = metadata.columns_at
            schema = self.table.schema if version is None else self.table.schema_at(version)
            ends = self._list(metadata.tombstones, untils, ranges, schema, are_deleted=True)
            for key, deleted in ends.items():
                rows.setdefault(key, []).extend(deleted)
        return rows

    def _list(
        self,
        files: Sequence[DataFile],
        untils: Sequence[KeyValues],
        ranges: Sequence[int],
        schema: t.StructType,
        *,
        are_deleted: bool = False,
    ) -> dict[KeyValues, list[StoredRow]]:
        names = {field.name for field in schema.fields}
        cursor = self.text.cursor if self.text.cursor in names else None
        more = [metadata_columns.META, *([cursor] if cursor else [])]
        job = self._make_job(files, untils, more, schema, only_keys=are_deleted)
        listing = Listing(list(ranges), cursor, metadata_columns.META, self._emptied)
        rows: dict[KeyValues, list[StoredRow]] = {}
        if not job.groups:
            return rows
        for result in run_tasks(self.spark.get(), len(job.groups), make_listing, job, listing):
            for key, own, other, value, is_changed in result:
                row = StoredRow(frozenset({own, other}), value, is_changed, are_deleted)
                rows.setdefault(tuple(key), []).append(row)
        return rows

    @property
    def _emptied(self) -> frozenset[str]:
        kinds = {f.name: f.dataType for f in self.table.schema.fields}
        names = {name for name, _ in (*self.text.key, *self.text.columns)}
        texts = {n for n in self.table.partition_by if isinstance(kinds.get(n), t.StringType)}
        return frozenset(names & texts)

    def _find_bounds(self) -> Mapping[str, tuple[Any, Any]]:
        """Return the bounds of the first part of the key in each file that has them, by the file's path."""
        name, kind = self.text.key[0]
        # The order of texts in Python is not that of their bytes.
        return self.table.bounds([name], only_logged=True) if kind == "int64" else {}

    def _make_job(
        self,
        files: Sequence[DataFile],
        untils: Sequence[KeyValues],
        more: Sequence[str],
        schema: t.StructType | None = None,
        *,
        only_keys: bool = False,
    ) -> HashJob:
        """Return a job over some files. `more`: columns to read besides those of the text."""
        columns = () if only_keys else self.text.columns
        names = dict.fromkeys([name for name, _ in (*self.text.key, *columns)])
        schema = schema or self.table.schema
        deleted_at = metadata_columns.find_deleted_at(schema)
        names |= dict.fromkeys([*more, *([IS_CURRENT] if self.is_history else [])])
        names |= dict.fromkeys([deleted_at] if deleted_at else [])
        storage, values = self.table.storage, {}
        located = []
        for file in files:
            path = storage.locate(file)
            located.append((path, file.size))
            values[path] = dict(file.partition)
        groups = [[(path, values[path]) for path in group] for group in group_by_size(located)]
        read_columns = arrow_columns(t.StructType([schema[name] for name in names]))
        return HashJob(
            storage.system,
            groups,
            read_columns,
            list(self.text.key),
            list(columns),
            list(untils),
            IS_CURRENT if self.is_history else None,
            deleted_at,
        )


def _overlaps(bounds: tuple[Any, Any], untils: Sequence[KeyValues], ranges: Sequence[int]) -> bool:
    """Return whether a file with these bounds of the first part of the key may have rows of some ranges."""
    least, most = bounds
    if least is None or most is None:
        return True
    for number in ranges:
        after = untils[number - 1][0] if number else least
        until = untils[number][0] if number < len(untils) else most
        if after <= most and least <= until:
            return True
    return False


def list_some_keys(
    spark: SparkProvider, table: Table, names: Sequence[str], every: int
) -> list[KeyValues]:
    """Return keys of a table: of each file, one of so many rows, and at least one. `names`: their columns."""
    storage = table.storage
    located = [(storage.locate(file), file.size) for file in table.files]
    groups = group_by_size(located)
    schema = arrow_columns(t.StructType([table.schema[name] for name in names]))
    if not groups:
        return []
    results = run_tasks(
        spark.get(), len(groups), make_key_list, storage.system, groups, schema, every
    )
    return [tuple(key) for keys in results for key in keys]
