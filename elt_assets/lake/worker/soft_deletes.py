"""Rows that stay in their table after the source has deleted them (`deletes: keep`), as readers see them.

`row_order` finds these rows: where the latest of a key is a delete, its latest row stays, with the time of
the delete in a column of this project. So what stays depends on the records alone, and not on the commits
that they came in, as for each other row. The delete is kept in hidden files as it is without `deletes: keep`:
what is the latest of a key does not depend on the setting.

In each later merge, such a row stands for the row that it was, at the same place in the order:

- It has the values of that row, the cursor among them. A delete that has the key alone takes no value away.
- Its id is that of the row and the time of the delete after it. So it sorts right after the row, before each
  id that is greater; and readers of changes, who know rows by their ids, see an update.
- Its time of extraction, its sync and its delete markers are those of the delete.

A delete that comes again with the same time gives the same row. A row that comes after the delete takes the
place of both. A delete of a key without a row leaves no row, as long as no older row of the key comes.
Test: `tests/lake/test_row_order.py::test_any_split_into_batches_gives_the_rows_of_the_model`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.comparison import whole
from elt_assets.lake.worker.parquet import column_at
from elt_assets.lake.worker.values import BecomesNull, read_instant

_TIME = pa.timestamp("us", "UTC")
_SEPARATOR = "+"
"""Between the id of a row and the time of its delete: it is in no id."""


@dataclass(frozen=True)
class SoftDeleteColumns:
    """The columns of a row that stays which are not those of the row that it was."""

    deleted_at: str  # the time of the delete; null in all other rows
    raw_id: str
    extracted: str
    meta: str
    sync_id: str  # the field of `meta`
    markers: Sequence[str]  # the delete markers


def mark_deleted(rows: pa.Table, deletes: pa.Table, columns: SoftDeleteColumns) -> pa.Table:
    """Return rows as they stay in their table.

    Args:
        rows: the latest row of each key, which may have stayed already.
        deletes: the delete of each of these keys.
    """
    times = _find_times(deletes, columns)
    ids = pc.replace_substring_regex(whole(rows[columns.raw_id]), r"\+.*", "")
    suffixes = times.cast(pa.int64()).cast(pa.string())
    values = {
        columns.deleted_at: times,
        columns.raw_id: pc.binary_join_element_wise(ids, suffixes, _SEPARATOR),
        columns.meta: _join_meta(rows, deletes, columns),
        **{name: whole(deletes[name]) for name in (columns.extracted, *columns.markers)},
    }
    for name, column in values.items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, column.cast(rows.schema.field(name).type))
    return rows


def _find_times(deletes: pa.Table, columns: SoftDeleteColumns) -> Any:
    """Return the times of deletes: those in their markers, or else those of their extraction."""
    times = [_as_times(whole(deletes[name])) for name in (*columns.markers, columns.extracted)]
    return pc.coalesce(*times)


def _as_times(values: Any) -> Any:
    """Return the values of a marker that are times; null for all others."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).view(_TIME)
    if not pa.types.is_string(values.type):
        return pa.nulls(len(values), _TIME)
    texts = pc.unique(values)
    times = pa.array(map(_read_time, texts.to_pylist()), pa.int64()).view(_TIME)
    return times.take(pc.index_in(values, value_set=texts))


def _read_time(text: str | None) -> int | None:
    try:
        return None if text is None else read_instant(text, lambda *_: None)
    except BecomesNull:
        return None


def _join_meta(rows: pa.Table, deletes: pa.Table, columns: SoftDeleteColumns) -> Any:
    """Return the sync of each delete, and what is said of the values of its row."""
    kind = rows.schema.field(columns.meta).type
    parts = [
        whole(column_at(side, [columns.meta, name], len(rows)))
        for name in (field.name for field in kind)
        for side in (deletes if name == columns.sync_id else rows,)
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
