"""The rules of the order of a key's rows, for whole columns: the latest row of each key, and its versions.

`merge_task` calls `merge_rows` in Spark's workers.

`lake.merge.key_order` states the rules of the latest row, and `lake.merge.history` those of versions. All
rows of a key must be together. Rows have all columns of the table, and `ARRIVAL`.

Test: `tests/lake/test_row_order.py` compares them with a sequential model, and `tests/lake/test_key_merge.py`
with windows of Spark, for each type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.comparison import (
    find_repeats,
    sort_columns,
    sort_indices,
    to_numpy,
    whole,
)
from elt_assets.lake.worker.parquet import column_at
from elt_assets.lake.worker.soft_deletes import SoftDeleteColumns, mark_deleted

ARRIVAL = "_elt_arrival"
"""Column: 0 for a present row, 1 for one of the batch; 0 for all rows of a replay. In what is left of rows,
`UNCHANGED` for a present row in place of one of the batch with the same content (`Rules.content`)."""
UNCHANGED = 2
_ERA, _BEGINS = "_elt_era", "_elt_begins"
"""Columns that rows have only if one of them is a delete without a cursor value: the number of such deletes
that arrived up to the row, and whether the row is one."""
_EPOCH, _IS_OPEN = "_elt_since", "_elt_open"
"""Columns that rows of a history have only if a refresh changed one: the epoch of the row, and whether it is
no end that a refresh made."""
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
    """The columns of a history that its merge reads and sets."""

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
class Rules:
    """What the order of rows depends on."""

    key: Sequence[Sequence[str]]  # column paths
    record_key: Sequence[Sequence[str]]  # those of them that come from the record
    cursor: Sequence[str]  # a column path, or empty
    raw_id: str  # the column of the row's id
    markers: Markers  # the sign that the row ends its key
    validity: Validity | None = None  # of a history; None for the latest row of each key
    # Column paths: a row of the batch gives way to the present row of its key if it would replace it with
    # the same values in these. Empty: no row does.
    content: Sequence[Sequence[str]] = ()
    # If the latest of a key is a delete, its latest row stays with these columns; None: no row stays.
    soft_deletes: SoftDeleteColumns | None = None


MergedRows = tuple[Sequence[pa.Table], Sequence[pa.Table], Sequence[pa.Table]]
"""The rows that readers see, the closed versions among them if they are apart, and the ends of keys."""


def merge_rows(rows: pa.Table, rules: Rules) -> MergedRows | None:
    """Return what is left of rows: of each key the latest, or all its versions.

    Rows without a key stay in a table; a history has none.

    Returns:
        None if rows are missing, see `Validity.is_partial`.
    """
    rows, keyless = separate_keyless(rows, rules)
    validity = rules.validity
    if validity is None:
        rows = latest_rows(rows, rules)
        ends, latest = _separate(rows, _is_end(rows, rules))
        if rules.soft_deletes is not None:
            latest = _keep_deleted(rows, rules, rules.soft_deletes)
        return [keyless, latest], [], [ends]
    rows, past = _separate(rows, _is_merged(rows, validity))
    rows = _add_eras(_add_epochs(rows, rules, validity), rules)
    merged = _versions(rows, rules, validity)
    if not _is_continued(rows, merged, rules, validity):
        return None
    ends, versions = _separate(merged, _is_end(merged, rules))
    if not validity.apart:
        return [past, versions], [], [ends]
    current, closed = _separate(versions, versions[validity.current])
    return [current], [past, closed], [ends]


def separate_keyless(rows: pa.Table, rules: Rules) -> tuple[pa.Table, pa.Table]:
    """Return the rows with a key, and those without: all its parts that come from the record are null."""
    parts = [pc.is_valid(_column(rows, path)) for path in rules.record_key]
    return _separate(rows, reduce(pc.or_, parts))


def _separate(rows: pa.Table, flags: Any) -> tuple[pa.Table, pa.Table]:
    """Return the rows whose flag is true, and the others."""
    is_true = to_numpy(flags)
    if is_true.all():
        return rows, rows.slice(0, 0)
    if not is_true.any():
        return rows.slice(0, 0), rows
    return rows.filter(pa.array(is_true)), rows.filter(pa.array(~is_true))


def _keep_deleted(rows: pa.Table, rules: Rules, columns: SoftDeleteColumns) -> pa.Table:
    """Return the rows of those that `latest_rows` has left; those of deleted keys say so.

    The first of a key is its latest.
    """
    if not len(rows):
        return rows
    is_end = to_numpy(_is_end(rows, rules))
    latest = _starts(~to_numpy(find_repeats(_keys(rows, rules))))
    is_deleted = ~is_end & is_end[latest]
    if not is_deleted.any():
        return rows.filter(pa.array(~is_end))
    deletes = rows.take(pa.array(latest[is_deleted]))
    deleted_rows = mark_deleted(rows.filter(pa.array(is_deleted)), deletes, columns)
    return pa.concat_tables([rows.filter(pa.array(~is_end & ~is_deleted)), deleted_rows])


def last_key(rows: pa.Table, rules: Rules) -> int:
    """Return where the rows of the last key begin, of rows that are sorted by key."""
    return int(np.flatnonzero(~to_numpy(find_repeats(_keys(rows, rules))))[-1])


# --- the rules --------------------------------------------------------------------------------------


def _is_end(rows: pa.Table, rules: Rules) -> Any:
    """Return whether each row ends its key: it is a delete, or a refresh did not have the key."""
    is_delete = _is_delete(rows, rules)
    if rules.validity is None:
        return is_delete
    return pc.or_(is_delete, pc.is_valid(_column(rows, [rules.validity.closed])))


def _is_delete(rows: pa.Table, rules: Rules) -> Any:
    """Return whether each row is a delete, see `Markers`. One that has stayed after its delete is none."""
    markers = rules.markers
    if not markers.names:
        return pa.repeat(False, len(rows))
    marked = [pc.is_valid(_column(rows, [name])) for name in markers.names]
    is_marked = reduce(pc.or_, [*marked, _has_nulled_marker(rows, markers)])
    if rules.soft_deletes is None:
        return is_marked
    return pc.and_not(is_marked, pc.is_valid(_column(rows, [rules.soft_deletes.deleted_at])))


def _has_nulled_marker(rows: pa.Table, markers: Markers) -> Any:
    changes = _column(rows, [markers.meta, "changes"])
    entries = pc.list_flatten(changes)
    if not len(entries):
        return pa.repeat(False, len(rows))
    field, change, reason = (pc.struct_field(entries, n) for n in ("field", "change", "reason"))
    is_marker = pc.is_in(field, value_set=pa.array(markers.names, field.type))
    is_nulled = pc.and_(pc.equal(change, markers.change), pc.starts_with(reason, markers.reason))
    entry_rows = np.repeat(np.arange(len(rows)), to_numpy(pc.list_value_length(changes)))
    has_marker = np.zeros(len(rows), bool)
    has_marker[entry_rows[to_numpy(pc.and_(is_marker, is_nulled))]] = True
    return pa.array(has_marker)


def _add_eras(rows: pa.Table, rules: Rules) -> pa.Table:
    """Return rows with their eras, if a row begins one (see `lake.merge.key_order`)."""
    if not rules.cursor:
        return rows
    has_cursor = pc.is_valid(_column(rows, rules.cursor))
    begins = pc.and_not(_is_delete(rows, rules), has_cursor)
    if rules.validity is not None:
        begins = pc.and_not(begins, pc.is_valid(_column(rows, [rules.validity.closed])))
    if not pc.any(begins, min_count=0).as_py():
        return rows
    # Counted over all keys, not in each: only the order of the eras of one key matters.
    arrivals = sort_indices([*_keys(rows, rules), rows[ARRIVAL], rows[rules.raw_id]])
    era = np.empty(len(rows), np.int64)
    era[arrivals] = np.cumsum(to_numpy(begins)[arrivals])
    return rows.append_column(_ERA, pa.array(era)).append_column(_BEGINS, begins)


def _add_epochs(rows: pa.Table, rules: Rules, columns: Validity) -> pa.Table:
    """Return rows with their epochs, if a refresh changed one. A row without one is of its key's last."""
    epochs = _column(rows, [columns.epoch])
    is_open = pc.is_null(_column(rows, [columns.closed]))
    if not to_numpy(epochs).any() and to_numpy(is_open).all():
        return rows
    order = sort_indices(_keys(rows, rules))
    is_first = ~to_numpy(find_repeats([key.take(order) for key in _keys(rows, rules)]))
    starts = np.flatnonzero(is_first)
    last = np.maximum.reduceat(to_numpy(epochs)[order], starts)
    since = np.empty(len(rows), np.int64)
    since[order] = np.repeat(last, np.diff(starts, append=len(rows)))
    epochs = pc.coalesce(epochs, pa.array(since))
    return rows.append_column(_EPOCH, epochs).append_column(_IS_OPEN, is_open)


def latest_rows(rows: pa.Table, rules: Rules) -> pa.Table:
    """Return the latest of each key, and its last delete without a cursor value. Where the latest is a delete
    and rows of deleted keys stay, also the latest row of the key."""
    with_eras = _add_eras(rows, rules)
    order = _order(with_eras, rules, "descending", "at_end")  # the latest row of a key is its first
    is_first = ~to_numpy(find_repeats([key.take(order) for key in _keys(rows, rules)]))
    is_kept = is_first
    if rules.soft_deletes is not None:
        is_kept = is_first | _find_rows(rows, rules, order, is_first)
    if _ERA in with_eras.column_names:
        era, begins = (to_numpy(whole(with_eras[name]).take(order)) for name in (_ERA, _BEGINS))
        is_kept = is_kept | (begins & (era == era[_starts(is_first)]))
    if not rules.content:
        return rows.take(order.filter(pa.array(is_kept)))
    present, is_unchanged = _find_unchanged(rows, rules, order, is_first)
    latest = rows.take(
        order.take(pa.array(np.where(is_unchanged, present, np.arange(len(rows)))[is_kept]))
    )
    arrivals = np.where(is_unchanged[is_kept], np.int32(UNCHANGED), to_numpy(latest[ARRIVAL]))
    return latest.set_column(
        latest.column_names.index(ARRIVAL), ARRIVAL, pa.array(arrivals, pa.int32())
    )


def _find_rows(rows: pa.Table, rules: Rules, order: Any, is_first: np.ndarray) -> np.ndarray:
    """Return, in the order, which rows a table keeps: those that are the latest of their key and no end. If
    rows of deleted keys stay, those that are the latest but for ends.

    Args:
        is_first: the latest of each key.
    """
    is_row: np.ndarray = ~to_numpy(whole(_is_end(rows, rules)).take(order))
    if rules.soft_deletes is None:
        is_row &= is_first
        return is_row
    keys, places = np.cumsum(is_first), np.flatnonzero(is_row)
    _, firsts = np.unique(keys[places], return_index=True)
    is_latest = np.zeros(len(keys), bool)
    is_latest[places[firsts]] = True
    return is_latest


def _find_unchanged(
    rows: pa.Table, rules: Rules, order: Any, is_first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the latest rows would replace a present row with the same content, and the places of
    these present rows.

    In the order, the rows of a key with the same content as its latest row follow it, unless another content
    came between; the present row has arrived first, so it is the last of them.
    """
    columns = [*_keys(rows, rules), *(_column(rows, path) for path in rules.content)]
    columns.append(whole(_is_end(rows, rules)))
    is_other = ~to_numpy(find_repeats([column.take(order) for column in columns], is_exact=True))
    last_of_run = np.append(np.flatnonzero(is_other)[1:], len(rows)) - 1
    present = last_of_run[np.cumsum(is_other) - 1]
    arrival = to_numpy(whole(rows[ARRIVAL]).take(order))
    is_row = _find_rows(rows, rules, order, is_first)
    return present, is_row & (arrival == 1) & (arrival[present] == 0)


def _versions(rows: pa.Table, rules: Rules, columns: Validity) -> pa.Table:
    """Return each key's versions and ends, with their validity."""
    rows = rows.take(_order(rows, rules, "ascending", "at_start")).combine_chunks()
    content = [*_optional(rows, _IS_OPEN), *(rows[name] for name in columns.content)]
    content.append(_is_delete(rows, rules))
    is_repeat = find_repeats([*_keys(rows, rules), *content])
    # First the repeats: else a version with the cursor and start of its own repeat would give way to it.
    rows, _ = _separate(rows, pc.invert(_and(is_repeat, *_optional(rows, _IS_OPEN))))
    if rules.cursor:
        rows, _ = _separate(rows, pc.invert(_has_later_of_same_start(rows, rules, columns)))
    is_later = find_repeats(_keys(rows, rules))
    start = _not_before_era(_start(rows, rules, columns), rows, rules)
    start = _least_onward(start, is_later)
    next_start = pc.if_else(_shift_back(is_later), _next(start, 1), pa.scalar(None, pa.int64()))
    epochs = _optional(rows, _EPOCH) or [pa.repeat(pa.scalar(0, pa.int64()), len(rows))]
    for name, values in (
        (columns.start, start.view(_INSTANT)),
        (columns.end, next_start.view(_INSTANT)),
        (columns.current, pc.is_null(next_start)),
        (columns.epoch, epochs[0]),
    ):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


def _has_later_of_same_start(rows: pa.Table, rules: Rules, columns: Validity) -> Any:
    """Return whether the next row is a version with the same cursor and start.

    An end that a refresh made stays, as does a delete that begins an era.
    """
    order = [*_epochs_and_eras(rows), _column(rows, rules.cursor), _start(rows, rules, columns)]
    is_followed = _shift_back(find_repeats([*_keys(rows, rules), *order]))
    is_followed = _and(is_followed, *_optional(rows, _IS_OPEN))
    return _and(is_followed, *map(pc.invert, _optional(rows, _BEGINS)))


def _is_merged(rows: pa.Table, columns: Validity) -> Any:
    """Return which rows a merge compares; it leaves the others as they are.

    Between the closed versions of a key, others may be missing; so no rule may compare them.
    """
    if not columns.is_partial:
        return pa.repeat(True, len(rows))
    return pc.or_(pc.fill_null(rows[columns.current], False), pc.equal(rows[ARRIVAL], 1))


def _is_continued(rows: pa.Table, merged: pa.Table, rules: Rules, columns: Validity) -> bool:
    """Return whether the present versions are still the first of their keys, with the same start.

    Only then, the closed versions before them stay as they are. This matters only if some may be missing.
    """
    if not columns.is_partial:
        return True
    is_present = pc.equal(merged[ARRIVAL], 0)
    before = rows.filter(pc.equal(rows[ARRIVAL], 0))
    before = before.take(_order(before, rules, "ascending", "at_start"))
    after = merged.filter(is_present)
    if len(before) != len(after):
        return False
    is_later = pc.and_(is_present, find_repeats(_keys(merged, rules)))
    is_same = pc.equal(before[columns.start], after[columns.start])
    return not pc.any(is_later).as_py() and bool(pc.all(is_same, skip_nulls=False).as_py())


# --- columns of rows --------------------------------------------------------------------------------


def _column(rows: pa.Table, path: Sequence[str]) -> Any:
    return whole(column_at(rows, path, len(rows)))


def _keys(rows: pa.Table, rules: Rules) -> list[Any]:
    return [column for path in rules.key for column in sort_columns(_column(rows, path))]


def _optional(rows: pa.Table, name: str) -> list[Any]:
    """Return a column that rows may have."""
    return [whole(rows[name])] if name in rows.column_names else []


def _epochs_and_eras(rows: pa.Table) -> list[Any]:
    # An end that a refresh made closes the versions from before it.
    return [column for name in (_EPOCH, _IS_OPEN, _ERA) for column in _optional(rows, name)]


def _and(*flags: Any) -> Any:
    return reduce(pc.and_, flags)


def _order(rows: pa.Table, rules: Rules, order: str, nulls: str) -> Any:
    """Return the positions of rows by key, and of each key in the order of epoch, era, cursor and arrival."""
    by: list[tuple[Any, str]] = [(key, "ascending") for key in _keys(rows, rules)]
    by += [(column, order) for column in _epochs_and_eras(rows)]
    if rules.cursor:
        by += [(column, order) for column in sort_columns(_column(rows, rules.cursor))]
    by += [(rows[ARRIVAL], order), (rows[rules.raw_id], order)]
    columns, orders = zip(*by, strict=True)
    return sort_indices(columns, orders, nulls)


def _shift_back(flags: Any) -> Any:
    """Return for each row the flag of the row after it; False for the last."""
    return pc.coalesce(_next(flags, 1), False)


def _next(values: Any, step: int) -> Any:
    """Return for each row the value of the row `step` after it; null if there is none."""
    step = min(step, len(values))
    return pa.concat_arrays([values.slice(step), pa.nulls(step, values.type)])


def _start(rows: pa.Table, rules: Rules, columns: Validity) -> Any:
    """Return the start of each version in microseconds, before it is limited by other versions."""
    extracted = start = _micros(rows[columns.extracted])
    nothing = pa.scalar(None, pa.int64())
    epochs = [pc.if_else(pc.greater(epoch, 0), epoch, nothing) for epoch in _optional(rows, _EPOCH)]
    if rules.cursor and _is_time(cursor := _column(rows, rules.cursor)):
        deleted_at = (_micros(rows[name]) for name in columns.deleted_at)
        start = pc.coalesce(_micros(cursor), *deleted_at, extracted)
    for epoch in epochs:  # in an epoch, an earlier time only orders
        start = pc.if_else(pc.fill_null(pc.less(start, epoch), False), extracted, start)
        start = pc.coalesce(_micros(rows[columns.closed]), pc.max_element_wise(start, epoch))
    return start


def _micros(times: Any) -> Any:
    times = whole(times)
    if pa.types.is_date32(times.type):
        times = times.cast(pa.timestamp("us"))
    return times.view(pa.int64())


def _is_time(values: Any) -> bool:
    return bool(pa.types.is_timestamp(values.type) or pa.types.is_date32(values.type))


def _not_before_era(start: Any, rows: pa.Table, rules: Rules) -> Any:
    """Return the starts of versions, none before the delete that began the version's era.

    A refresh takes effect at its commit, also if a delete before it is said to be later.
    """
    if _BEGINS not in rows.column_names:
        return start
    # The last delete up to a row is of another key or epoch if it stands before the first row of its own.
    positions = np.arange(len(rows))
    delete = np.maximum.accumulate(np.where(to_numpy(rows[_BEGINS]), positions, -1))
    is_first = ~to_numpy(find_repeats([*_keys(rows, rules), *_optional(rows, _EPOCH)]))
    has_delete = delete >= _starts(is_first)
    floor = start.take(pa.array(np.where(has_delete, delete, positions)))
    return pc.max_element_wise(start, floor)


def _starts(is_first: np.ndarray) -> np.ndarray:
    """Return for each row the position of the first row of its key."""
    starts: np.ndarray = np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))
    return starts


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
