"""Delta's statistics of a Parquet file, from its footer."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""The number of leading columns with bounds in a commit, as is Delta's convention. The partition column
always has bounds: they show which files contain which partition."""
MAX_BOUND_CHARS = 256
"""Maximum characters of a bound. A longer string is left out: a cut one would have to be rounded up."""
_PARTITION = "_elt_partition"


def statistics(footer: pq.FileMetaData) -> str:
    """Return Delta's statistics from a file's footer, as JSON. A column has exact bounds or none.

    A list or a map has no statistics: delta-rs does not open a table whose log has those of a map.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        path = column.path.split(".")
        is_indexed = index < INDEXED_COLUMNS or path == [_PARTITION]
        if column.max_repetition_level or not is_indexed:
            continue
        groups = [
            footer.row_group(number).column(index).statistics
            for number in range(footer.num_row_groups)
        ]
        if all(group is not None and group.has_null_count for group in groups):
            _put(nulls, path, sum(group.null_count for group in groups))
        bounds = _bounds_or_none([group for group in groups if group is None or group.num_values])
        if bounds is not None:
            _put(least, path, bounds[0])
            _put(most, path, bounds[1])
    columns = {"minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps({"numRecords": footer.num_rows, **columns})


def _bounds_or_none(groups: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return `_bounds`; None if Python cannot represent a time (the year 10000, after rounding up)."""
    try:
        return _bounds(groups)
    except (OverflowError, ValueError):
        return None


def _bounds(groups: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the bounds of a column from the statistics of its row groups; None if they are not known."""
    if not groups or not all(group is not None and group.has_min_max for group in groups):
        return None
    least = _format_bound(min(group.min for group in groups), up=False)
    most = _format_bound(max(group.max for group in groups), up=True)
    return None if least is None or most is None else (least, most)


def _format_bound(value: Any, *, up: bool) -> Any:
    """Return a value in the form of Delta's statistics; None if it cannot be a bound.

    Times have milliseconds there. A lower bound is rounded down, an upper bound up.
    """
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        return value if len(value) <= MAX_BOUND_CHARS else None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        # Statistics do not show the sign of a zero, so a zero is not a bound either.
        return value if math.isfinite(value) and value else None
    if isinstance(value, dt.datetime):
        excess = value.microsecond % 1000
        value += dt.timedelta(microseconds=(1000 - excess) % 1000 if up else -excess)
        zone = "" if value.tzinfo is None else "Z"
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    return value.isoformat() if isinstance(value, dt.date) else None


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
