"""Hashes of a table's rows, and their sums by ranges of a key, as a source has them in a comparison.

`lake.read.row_hashes` runs the tasks. A task reads files of one version of a table, or of its history, and
returns sums; for ranges that differ it returns keys. The hash of a row is that of `protocol.row_hash`.

A row belongs to the range that begins before its key and ends with it or after it. Numbers, dates and times
have the order of their values, texts that of their bytes in UTF-8.
Test: `tests/lake/test_row_hashes.py::test_sums_are_those_of_a_model`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.file_tasks import read_rows
from elt_assets.protocol.row_hash import hash_rows

HashedColumn = tuple[str, str]
"""A column of the table, and the type of it in the source, which decides the text of its values."""


@dataclass(frozen=True)
class HashJob:
    """Files whose rows are hashed."""

    system: Any  # pyarrow's file system
    # Each task's files: the path in the file system, and the values of its partition columns, as Delta's log
    # has them, which readers see.
    groups: Sequence[Sequence[tuple[str, Mapping[str, str | None]]]]
    schema: pa.Schema  # the columns to read, in the table's types
    key: Sequence[HashedColumn]
    columns: Sequence[HashedColumn]
    untils: Sequence[
        Sequence[Any]
    ]  # the keys with which ranges end, in their order; not of the last range
    current: str | None = None  # a column of booleans: only rows where it is true count
    deleted_at: str | None = None  # a column of times: only rows where it is null count
    # Comparisons of a column (functions of `pyarrow.compute`) with a value: rows for which one holds do not
    # count.
    left_out: Sequence[tuple[str, str, Any]] = ()
    # A column and the greatest value that it can have: a row with a greater one is damaged, and gets another
    # hash.
    ceiling: tuple[str, Any] | None = None


@dataclass(frozen=True)
class Listing:
    """The ranges of a job whose rows are listed, and what is said of each row."""

    ranges: Sequence[int]  # the numbers of the ranges
    cursor: str | None = None  # a column whose value comes back
    changes: str | None = None  # the column with the recorded changes of a row's values
    # Columns of texts in which an empty text is stored as null, as Delta demands of partition columns.
    emptied: frozenset[str] = frozenset()


RangeSum = tuple[int, int, int]
"""The number of a range, its rows, and the sum of their hashes modulo 2^64."""
ListedRow = tuple[Sequence[Any], int, int, Any, bool]
"""The key of a row, its hash, its hash with empty texts in place of the nulls of `Listing.emptied`, its
cursor, and whether a value of it was changed when it was stored."""


def make_sums(job: HashJob) -> Callable[[int], list[RangeSum]]:
    """Return the function that sums the hashes of the rows in the files of a number, by ranges."""

    def sum_files(number: int) -> list[RangeSum]:
        rows = np.zeros(len(job.untils) + 1, np.int64)
        sums = np.zeros(len(job.untils) + 1, np.uint64)
        for path, values in job.groups[number]:
            batches = [
                (_select_key(job, batch), _hash(job, batch)) for batch in _read(job, path, values)
            ]
            if batches:
                ranges = find_ranges(pa.Table.from_batches([b[0] for b in batches]), job.untils)
                _add_sums(rows, sums, ranges, np.concatenate([b[1] for b in batches]))
        present = np.flatnonzero(rows)
        return [(int(n), int(rows[n]), int(sums[n])) for n in present]

    return sum_files


def make_listing(job: HashJob, listing: Listing) -> Callable[[int], list[ListedRow]]:
    """Return the function that lists the rows in the files of a number that are in some ranges."""

    def list_files(number: int) -> list[ListedRow]:
        listed: list[ListedRow] = []
        for path, values in job.groups[number]:
            for batch in _read(job, path, values):
                keys = pa.Table.from_batches([_select_key(job, batch)])
                is_listed = np.isin(find_ranges(keys, job.untils), listing.ranges)
                if is_listed.any():
                    listed += _list_rows(job, listing, batch.filter(pa.array(is_listed)))
        return listed

    return list_files


def make_key_list(
    system: Any, groups: Sequence[Sequence[str]], schema: pa.Schema, every: int
) -> Callable[[int], list[Sequence[Any]]]:
    """Return the function that lists keys in the files of a number: one of each so many rows of a file."""

    def list_keys(number: int) -> list[Sequence[Any]]:
        keys: list[Sequence[Any]] = []
        for path in groups[number]:
            for batch in read_rows(system, path, schema):
                places = pa.array(range(0, len(batch), every), pa.int64())
                keys += zip(*(c.to_pylist() for c in batch.take(places).columns), strict=True)
        return keys

    return list_keys


def _list_rows(job: HashJob, listing: Listing, batch: pa.RecordBatch) -> list[ListedRow]:
    keys = [column.to_pylist() for column in _select_key(job, batch).columns]
    hashes = _hash(job, batch).tolist()
    others = _hash(job, batch, listing.emptied).tolist() if listing.emptied else hashes
    nothing = [None] * len(batch)
    cursors = nothing if listing.cursor is None else batch.column(listing.cursor).to_pylist()
    metas = nothing if listing.changes is None else batch.column(listing.changes).to_pylist()
    names = {name for name, _ in (*job.key, *job.columns)}
    rows = zip(zip(*keys, strict=True), hashes, others, cursors, metas, strict=True)
    return [
        (list(key), own, other, cursor, _has_changed(meta, names))
        for key, own, other, cursor, meta in rows
    ]


def _has_changed(meta: Mapping[str, Any] | None, names: set[str]) -> bool:
    changes = (meta or {}).get("changes") or ()
    return any(change["field"] in names for change in changes)


def _select_key(job: HashJob, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name, _ in job.key])


def _read(job: HashJob, path: str, values: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that count, with the values of partition columns that readers see."""
    for batch in read_rows(job.system, path, job.schema):
        columns = dict(zip(job.schema.names, batch.columns, strict=True))
        for name in values.keys() & columns.keys():
            value = pa.scalar(values[name], pa.string()).cast(columns[name].type)
            columns[name] = pa.repeat(value, len(batch))
        rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=job.schema)
        if job.current is not None:
            rows = rows.filter(pc.fill_null(rows.column(job.current), False))
        if job.deleted_at is not None:
            rows = rows.filter(rows.column(job.deleted_at).is_null())
        for comparison in job.left_out:
            rows = rows.filter(pa.array(~_compare(rows, *comparison)))
        if len(rows):
            yield rows


def _compare(rows: pa.RecordBatch, name: str, function: str, value: Any) -> Any:
    """Return for each row whether a comparison of a column holds; it does not for a null."""
    column = rows.column(name)
    result = pc.call_function(function, [column, _make_array([value], column.type)[0]])
    return np.asarray(pc.fill_null(result, False))


def _add_sums(rows: Any, sums: Any, ranges: Any, hashes: Any) -> None:
    """Add the numbers of rows and the sums of their hashes, by their ranges."""
    order = np.argsort(ranges, kind="stable")
    sorted_ranges = ranges[order]
    starts = np.flatnonzero(np.diff(sorted_ranges, prepend=-1))
    # Numbers of 64 bits without a sign are added modulo 2^64.
    sums[sorted_ranges[starts]] += np.add.reduceat(hashes[order], starts)
    rows += np.bincount(ranges, minlength=len(rows))


# Ranges


def find_ranges(keys: pa.Table, untils: Sequence[Sequence[Any]]) -> Any:
    """Return the number of the range of each row, in the order of the key.

    Args:
        keys: the columns of the key.
        untils: the keys with which ranges end, as values of Python.
    """
    columns = [column.combine_chunks() for column in keys.columns]
    ends = [
        _make_array([until[n] for until in untils], column.type) for n, column in enumerate(columns)
    ]
    if len(columns) == 1 and pa.types.is_int64(columns[0].type) and not columns[0].null_count:
        return np.searchsorted(ends[0].to_numpy(), columns[0].to_numpy(), side="left")
    # Rows and ends are sorted together; an end comes after the rows with its key.
    parts = [
        pa.concat_arrays([_make_comparable(column), _make_comparable(end)])
        for column, end in zip(columns, ends, strict=True)
    ]
    is_end = np.arange(len(keys) + len(untils)) >= len(keys)
    names = [str(number) for number in range(len(parts))]
    table = pa.table([*parts, pa.array(is_end.astype(np.int8))], names=[*names, "end"])
    order = pc.sort_indices(
        table, sort_keys=[(name, "ascending") for name in table.column_names]
    ).to_numpy()
    ranges = np.empty(len(order), np.int64)
    ranges[order] = np.cumsum(is_end[order])
    return ranges[: len(keys)]


def _make_comparable(column: pa.Array) -> pa.Array:
    """Return a column whose order in Arrow is that of the key."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    return column.cast(pa.large_binary()) if pa.types.is_string(kind) else column


def _make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of a key or of a cursor in the type of their column."""
    convert = Decimal if pa.types.is_decimal(kind) else int if pa.types.is_integer(kind) else None
    return pa.array(values if convert is None else map(convert, values), kind)


# Hashes


def _hash(job: HashJob, batch: pa.RecordBatch, emptied: frozenset[str] = frozenset()) -> Any:
    """Return the hash of each row. `emptied`: columns of texts whose nulls count as empty texts."""
    names, kinds = zip(*job.key, *job.columns, strict=True)
    columns, misfits = [], []
    for name, kind in zip(names, kinds, strict=True):
        values = batch.column(name)
        column, is_misfit = fit_values(values.fill_null("") if name in emptied else values, kind)
        columns.append(column)
        if is_misfit is not None:
            misfits.append(is_misfit)
    hashes = hash_rows(columns, kinds)
    if job.ceiling is not None:
        name, greatest = job.ceiling
        misfits.append(_compare(batch, name, "greater", greatest))
    for is_misfit in misfits:
        hashes = np.where(is_misfit, ~hashes, hashes)
    return hashes


def fit_values(column: pa.Array, kind: str) -> tuple[pa.Array, Any]:
    """Return numbers in the type of the source's column, and which of them it cannot have; None for no one.

    Such a number is null there. Only a damaged table has one, and its row must not get the hash of a row with
    a null.
    """
    if not kind.startswith(("int64", "decimal")):
        return column, None
    places = 0 if kind == "int64" else int(kind[:-1].rpartition(",")[2])
    target = pa.int64() if kind == "int64" else pa.decimal128(38, places)
    try:
        return column.cast(target), None
    except pa.ArrowInvalid:
        fitted = pa.array([_fit_value(value, target) for value in column.to_pylist()], target)
        return fitted, np.asarray(pc.and_(fitted.is_null(), column.is_valid()))


def _fit_value(value: Any, target: pa.DataType) -> Any:
    try:
        return None if value is None else pa.scalar(Decimal(value)).cast(target).as_py()
    except pa.ArrowInvalid:
        return None
