"""The merge of a batch's rows with the present rows of its keys, in one task in a Python worker of Spark.

`merge.key_order` runs it, also for `merge.history`.

It follows the rules of `lake.merge.key_order`, which states the order of a key's rows, and of
`lake.merge.history`, and gives the same rows. What it cannot compare exactly as Spark does, it leaves to
Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.foreign_types import conform_columns
from elt_assets.lake.worker.parquet import (
    Output,
    WrittenFile,
    column_at,
    discard_on_error,
    open_parquet,
    open_writer,
    read_batches,
)

_MAX_BYTES = 128 << 20
"""Maximum bytes of all rows in memory."""
_ARRIVAL = "_elt_arrival"
_ERA, _BEGINS = "_elt_era", "_elt_begins"
"""Columns that rows have only if one of them is a delete without a cursor value: the number of such deletes
that arrived up to the row, and whether the row is one."""
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Markers:
    """The sign of a delete: a value in one of the columns `names`, or the record that there was one."""

    names: Sequence[str]
    meta: str  # the column with the changes of a row's values
    # `change`, `reason`: those of a value that did not fit its column; the start of the reason is enough.
    change: str
    reason: str


@dataclass(frozen=True)
class Validity:
    """The columns of a history that its merge sets, and those whose values it cannot merge."""

    # `start`, `end`, `current`: the validity of a version.
    start: str
    end: str
    current: str
    # `closed`, `epoch`: the columns of a refresh.
    closed: str
    epoch: str
    extracted: str  # the time of extraction
    content: Sequence[str]  # the columns that make a version another one
    # The delete markers whose type is a time, which ends a version if there is no cursor value.
    deleted_at: Sequence[str]
    apart: bool = False  # closed versions are written to files of their own
    # Present rows may lack closed versions. Then all rows of the batch must follow the current version of
    # their key; `apart` must be set.
    is_partial: bool = False


@dataclass(frozen=True)
class MergeJob:
    """The description of a merge of rows by key."""

    batch_files: Sequence[str]  # paths, in the file system, of the files of the batch
    table_files: Sequence[
        str
    ]  # files with present rows of its keys, relative to the root of `visible`
    key: Sequence[Sequence[str]]  # column paths
    cursor: Sequence[str]  # a column path, or empty
    raw_id: str  # the column of the row's id
    markers: Markers  # the sign that the row ends its key
    visible: Output  # gets the rows
    visible_columns: Sequence[str]
    hidden: Output  # gets the ends of keys
    hidden_columns: Sequence[str]
    schema: pa.Schema  # of the table
    validity: Validity | None = None  # of a history; None for the latest row of each key


MergedFiles = tuple[Sequence[WrittenFile], Sequence[WrittenFile], int, int]
"""The files that readers see, hidden files, and the number of rows that were read and written."""


def make_merge(job: MergeJob) -> Callable[[int], MergedFiles | None]:
    """Return the function that merges the rows; it returns None if they are left to Spark."""
    return lambda _: _merge(job)


def _merge(job: MergeJob) -> MergedFiles | None:
    rows = _read(job)
    if rows is None or not _is_fit(rows, job):
        return None
    read = len(rows)
    past, rows = _set_aside(rows, job.validity)
    rows = _add_eras(rows, job)
    merged = _latest(rows, job) if job.validity is None else _versions(rows, job, job.validity)
    if not _is_continued(rows, merged, job):
        return None
    is_end = _is_end(merged, job.markers)
    visible: list[WrittenFile] = []
    for parts in _group_by_file(past, merged.filter(pc.invert(is_end)), job.validity):
        visible += _write(job.visible, job.visible_columns, parts)
    hidden = _write(job.hidden, job.hidden_columns, [merged.filter(is_end)])
    return visible, hidden, read, len(past) + len(merged)


def _group_by_file(
    past: pa.Table, rows: pa.Table, columns: Validity | None
) -> Sequence[Sequence[pa.Table]]:
    """Return the rows that readers see, by the file that they are written to."""
    if columns is None or not columns.apart:
        return [[past, rows]]
    is_current = rows[columns.current]
    return [[rows.filter(is_current)], [past, rows.filter(pc.invert(is_current))]]


def _write(
    output: Output, columns: Sequence[str], parts: Sequence[pa.Table]
) -> Sequence[WrittenFile]:
    writer = open_writer(output)
    with discard_on_error(writer):
        for rows in parts:
            names = [name for name in columns if name in rows.column_names]
            for batch in rows.select(names).to_batches():
                writer.write(batch)
        writer.close()
    return writer.files


# --- reading ----------------------------------------------------------------------------------------


def _read(job: MergeJob) -> pa.Table | None:
    """Return all rows with `_ARRIVAL`; None if they are too large, or if a column has more than one type."""
    system, root = job.visible.root
    sources = [
        *((path, 1) for path in job.batch_files),
        *((f"{root}/{path}", 0) for path in job.table_files),
    ]
    tables: list[pa.Table] = []
    size = 0
    for path, arrival in sources:
        with open_parquet(system, path) as file:
            # The columns of a file count also if it has no rows: another file may lack them.
            empty = pa.RecordBatch.from_pylist([], file.schema_arrow)
            parts = []
            for batch in chain([empty], read_batches(file)):
                part = conform_columns(batch, job.schema)
                parts.append(pa.Table.from_batches([part]))
                size += part.nbytes
                if size > _MAX_BYTES:
                    return None
        table = pa.concat_tables(parts)
        tables.append(table.append_column(_ARRIVAL, pa.repeat(arrival, len(table))))
    try:
        return pa.concat_tables(tables, promote_options="default").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def _is_fit(rows: pa.Table, job: MergeJob) -> bool:
    """Return whether these rows are compared here exactly as Spark compares them."""
    keys = [column_at(rows, path, len(rows)) for path in job.key]
    if not all(_is_ordered(key.type) for key in keys) or _lacks_a_key(keys):
        return False
    if job.cursor and not _is_ordered(column_at(rows, job.cursor, len(rows)).type):
        return False
    return job.validity is None or _is_fit_history(rows, job.validity)


def _lacks_a_key(keys: Sequence[Any]) -> bool:
    """Return whether a row has no key: all its parts are null."""
    if not all(key.null_count for key in keys):
        return False
    return bool(pc.any(reduce(pc.and_, map(pc.is_null, keys))).as_py())


def _is_ordered(kind: pa.DataType) -> bool:
    """Return whether Arrow sorts the values of a type as Spark does; it sorts floats differently."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32)
    return kind in (pa.timestamp("us"), _INSTANT) or any(test(kind) for test in plain)


def _is_fit_history(rows: pa.Table, columns: Validity) -> bool:
    """Return whether the rows are of no refresh, and all of their content can be compared."""
    names = set(rows.column_names)
    if columns.closed in names and rows[columns.closed].null_count < len(rows):
        return False
    if columns.epoch in names and pc.any(pc.not_equal(rows[columns.epoch], 0)).as_py():
        return False
    if rows[columns.extracted].type != _INSTANT:
        return False
    return all(_is_comparable(rows[name].type) for name in columns.content if name in names)


def _is_comparable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_comparable(field.type) for field in kind)
    more = (pa.types.is_boolean, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128)
    return _is_ordered(kind) or any(test(kind) for test in more)


# --- the rules --------------------------------------------------------------------------------------


def _is_end(rows: pa.Table, markers: Markers) -> Any:
    """Return whether each row is a delete, see `Markers`."""
    names = [name for name in markers.names if name in rows.column_names]
    if not names:
        return pa.repeat(False, len(rows))
    marked = [_whole(pc.is_valid(rows[name])) for name in names]
    return reduce(pc.or_, [*marked, _has_nulled_marker(rows, markers)])


def _has_nulled_marker(rows: pa.Table, markers: Markers) -> Any:
    changes = pc.struct_field(_whole(rows[markers.meta]), "changes")
    entries = pc.list_flatten(changes)
    if not len(entries):
        return pa.repeat(False, len(rows))
    field, change, reason = (pc.struct_field(entries, n) for n in ("field", "change", "reason"))
    is_marker = pc.is_in(field, value_set=pa.array(markers.names, field.type))
    is_nulled = pc.and_(pc.equal(change, markers.change), pc.starts_with(reason, markers.reason))
    entry_rows = np.repeat(np.arange(len(rows)), _numbers(pc.list_value_length(changes)))
    has_marker = np.zeros(len(rows), bool)
    has_marker[entry_rows[_flags(pc.and_(is_marker, is_nulled))]] = True
    return pa.array(has_marker)


def _add_eras(rows: pa.Table, job: MergeJob) -> pa.Table:
    """Return rows with their eras, if a row begins one (see `lake.merge.key_order`)."""
    if not job.cursor:
        return rows
    has_cursor = _whole(pc.is_valid(column_at(rows, job.cursor, len(rows))))
    begins = pc.and_not(_is_end(rows, job.markers), has_cursor)
    if not pc.any(begins, min_count=0).as_py():
        return rows
    # Counted over all keys, not in each: only the order of the eras of one key matters.
    arrivals = _sort_indices([*_keys(rows, job), rows[_ARRIVAL], rows[job.raw_id]])
    era = np.empty(len(rows), np.int64)
    era[arrivals] = np.cumsum(_flags(begins)[arrivals])
    return rows.append_column(_ERA, pa.array(era)).append_column(_BEGINS, begins)


def _eras(rows: pa.Table) -> list[Any]:
    return [rows[_ERA]] if _ERA in rows.column_names else []


def _latest(rows: pa.Table, job: MergeJob) -> pa.Table:
    """Return the latest row of each key, and its last delete without a cursor value."""
    rows = _sort(rows, job, "descending", "at_end")  # the latest row of a key is its first
    is_kept = pc.invert(_repeats(_keys(rows, job)))
    if _ERA in rows.column_names:
        era = _numbers(rows[_ERA])
        is_of_last_era = pa.array(era == era[_starts(_flags(is_kept))])
        is_kept = pc.or_(is_kept, pc.and_(_whole(rows[_BEGINS]), is_of_last_era))
    return rows.filter(is_kept)


def _versions(rows: pa.Table, job: MergeJob, columns: Validity) -> pa.Table:
    """Return each key's versions and ends, with their validity."""
    rows = _sort(rows, job, "ascending", "at_start")
    content = [rows[name] for name in columns.content if name in rows.column_names]
    content.append(_is_end(rows, job.markers))
    # First the repeats: else a version with the cursor and start of its own repeat would give way to it.
    rows = rows.filter(pc.invert(_repeats([*_keys(rows, job), *content])))
    if job.cursor:
        rows = rows.filter(pc.invert(_has_later_of_same_start(rows, job, columns)))
    is_later = _repeats(_keys(rows, job))
    start = _not_before_era(_start(rows, job, columns), rows, is_later)
    start = _least_onward(start, is_later)
    next_start = pc.if_else(_shift_back(is_later), _next(start, 1), pa.scalar(None, pa.int64()))
    for name, values in (
        (columns.start, start.view(_INSTANT)),
        (columns.end, next_start.view(_INSTANT)),
        (columns.current, pc.is_null(next_start)),
        (columns.closed, pa.nulls(len(rows), _INSTANT)),
        (columns.epoch, pa.repeat(pa.scalar(0, pa.int64()), len(rows))),
    ):
        if name in rows.column_names:
            rows = rows.drop_columns(name)
        rows = rows.append_column(name, values)
    return rows


def _has_later_of_same_start(rows: pa.Table, job: MergeJob, columns: Validity) -> Any:
    """Return whether the next row is a version with the same cursor and start.

    A delete that begins an era stays.
    """
    order = [*_eras(rows), column_at(rows, job.cursor, len(rows)), _start(rows, job, columns)]
    is_followed = _shift_back(_repeats([*_keys(rows, job), *order]))
    if _BEGINS not in rows.column_names:
        return is_followed
    return pc.and_not(is_followed, _whole(rows[_BEGINS]))


def _set_aside(rows: pa.Table, columns: Validity | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows that a merge leaves as they are, and the others.

    Between the closed versions of a key, others may be missing; so no rule may compare them.
    """
    if columns is None or not columns.is_partial or columns.current not in rows.column_names:
        return rows.slice(0, 0), rows
    is_open = pc.fill_null(rows[columns.current], False)
    is_merged = pc.or_(is_open, pc.equal(rows[_ARRIVAL], 1))
    return rows.filter(pc.invert(is_merged)), rows.filter(is_merged)


def _is_continued(rows: pa.Table, merged: pa.Table, job: MergeJob) -> bool:
    """Return whether the present versions are still the first of their keys, with the same start.

    Only then, the closed versions before them stay as they are. This matters only if some may be missing.
    """
    columns = job.validity
    if columns is None or not columns.is_partial or columns.start not in rows.column_names:
        return True
    is_present = pc.equal(merged[_ARRIVAL], 0)
    before = _sort(rows.filter(pc.equal(rows[_ARRIVAL], 0)), job, "ascending", "at_start")
    after = merged.filter(is_present)
    if len(before) != len(after):
        return False
    is_later = _whole(pc.and_(is_present, _repeats(_keys(merged, job))))
    is_same = pc.equal(before[columns.start], after[columns.start])
    return not pc.any(is_later).as_py() and bool(pc.all(is_same, skip_nulls=False).as_py())


def _keys(rows: pa.Table, job: MergeJob) -> list[Any]:
    return [column_at(rows, path, len(rows)) for path in job.key]


def _sort(rows: pa.Table, job: MergeJob, order: str, nulls: str) -> pa.Table:
    """Return the rows by key, and of each key in the order of era, cursor, arrival and id."""
    by: list[tuple[Any, str]] = [(key, "ascending") for key in _keys(rows, job)]
    by += [(era, order) for era in _eras(rows)]
    if job.cursor:
        by.append((column_at(rows, job.cursor, len(rows)), order))
    by += [(rows[_ARRIVAL], order), (rows[job.raw_id], order)]
    columns, orders = zip(*by, strict=True)
    return rows.take(_sort_indices(columns, orders, nulls)).combine_chunks()


def _sort_indices(
    columns: Sequence[Any], orders: Sequence[str] = (), nulls: str = "at_start"
) -> Any:
    """Return the positions of the rows in the order of some columns; default: each ascending."""
    names = [str(number) for number in range(len(columns))]
    keys = list(zip(names, orders or ["ascending"] * len(names), strict=True))
    with (
        warnings.catch_warnings()
    ):  # newer versions of pyarrow want it for each key, which 25 cannot
        warnings.simplefilter("ignore", FutureWarning)
        return pc.sort_indices(
            pa.table(list(columns), names=names), sort_keys=keys, null_placement=nulls
        )


def _repeats(columns: Sequence[Any]) -> Any:
    """Return for each row whether it has the same values as the row before; nulls are the same."""
    rows = len(columns[0])
    if not rows:
        return pa.array([], pa.bool_())
    pairs = ((_whole(column).slice(0, rows - 1), _whole(column).slice(1)) for column in columns)
    repeats = reduce(pc.and_, (_is_same(before, after) for before, after in pairs))
    return pa.concat_arrays([pa.array([False]), repeats])


def _whole(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _is_same(left: Any, right: Any) -> Any:
    """Return whether values are equal; nulls are, and NaN are."""
    if pa.types.is_struct(left.type):
        fields = range(left.type.num_fields)
        parts = (_is_same(pc.struct_field(left, n), pc.struct_field(right, n)) for n in fields)
        return reduce(pc.and_, parts, pc.equal(pc.is_valid(left), pc.is_valid(right)))
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if not left.null_count and not right.null_count:
        return equal
    return pc.coalesce(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _shift_back(flags: Any) -> Any:
    """Return for each row the flag of the row after it; False for the last."""
    return pc.coalesce(_next(flags, 1), False)


def _next(values: Any, step: int) -> Any:
    """Return for each row the value of the row `step` after it; null if there is none."""
    step = min(step, len(values))
    return pa.concat_arrays([values.slice(step), pa.nulls(step, values.type)])


def _start(rows: pa.Table, job: MergeJob, columns: Validity) -> Any:
    """Return the start of each version in microseconds, before it is limited by other versions."""
    start = _micros(rows[columns.extracted])
    if not job.cursor or not _is_time(column_at(rows, job.cursor, len(rows))):
        return start
    deleted_at = [_micros(rows[n]) for n in columns.deleted_at if n in rows.column_names]
    return pc.coalesce(_micros(column_at(rows, job.cursor, len(rows))), *deleted_at, start)


def _micros(times: Any) -> Any:
    times = _whole(times)
    if pa.types.is_date32(times.type):
        times = times.cast(pa.timestamp("us"))
    return times.view(pa.int64())


def _not_before_era(start: Any, rows: pa.Table, is_later: Any) -> Any:
    """Return the starts of versions, none before the delete that began the version's era."""
    if _BEGINS not in rows.column_names:
        return start
    # The last delete up to a row is of another key if it stands before the first row of the row's own key.
    positions = np.arange(len(rows))
    delete = np.maximum.accumulate(np.where(_flags(rows[_BEGINS]), positions, -1))
    has_delete = delete >= _starts(~_flags(is_later))
    floor = start.take(pa.array(np.where(has_delete, delete, positions)))
    return pc.max_element_wise(start, floor)


def _starts(is_first: np.ndarray) -> np.ndarray:
    """Return for each row the position of the first row of its key."""
    starts: np.ndarray = np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))
    return starts


def _flags(values: Any) -> np.ndarray:
    """Return booleans as numpy's; a null is False."""
    return _numbers(pc.fill_null(values, False))


def _numbers(values: Any) -> np.ndarray:
    """Return values as numpy's; a null is 0."""
    values = _whole(values)
    numbers: np.ndarray = pc.fill_null(values, pa.scalar(0).cast(values.type)).to_numpy(
        zero_copy_only=False
    )
    return numbers


def _is_time(values: Any) -> bool:
    return bool(pa.types.is_timestamp(values.type) or pa.types.is_date32(values.type))


def _least_onward(values: Any, is_later: Any) -> Any:
    """Return the least value of each row and the rows after it that have the same key."""
    # Before a pass, a row has the least of `step` rows from it on; the pass takes that of the next `step`
    # rows too. So there are as many passes as the logarithm of the longest key's rows, each vectorised.
    key = pc.cumulative_sum(pc.invert(is_later).cast(pa.int64()))
    step = 1
    while step < len(values):
        same = pc.coalesce(pc.equal(_next(key, step), key), False)
        if not pc.any(same).as_py():
            break
        least = pc.min_element_wise(values, _next(values, step))
        values = pc.if_else(same, least, values)
        step *= 2
    return values
