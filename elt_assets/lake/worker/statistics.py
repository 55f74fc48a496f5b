"""Delta's statistics of a Parquet file, from its footer.

`parquet` makes them in each task that writes a file; `delta.storage` makes those that a file lacks, and
`delta.table` takes the length of texts.

A bound is never narrower than the values, so a reader that leaves a file out by its bounds loses no row:

1. A column has the bounds of the footer. Two things are not in it, and `Measure` adds them while the file is
   written: whether a double is NaN, which is beyond all bounds, and the bounds of texts of more than 4 KiB.
2. A text is cut to a prefix, of which the upper one is raised; a time is rounded outwards.
3. There are bounds of every indexed column, or of none. Readers by delta-rs take a column whose bounds are
   missing as one whose bounds are null, and find no row of the file by it. So a file with a column that has
   no true bound in JSON (NaN, an infinity, a time that Python lacks) has the number of its rows alone in the
   log. Inside of this project its other statistics are used (`select_logged` leaves them out).

Test of each step and reader: `tests/lake/test_statistics.py`
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""The number of leading columns with statistics in a commit, as is Delta's convention: fields of structures
count, a list or a map is one. The partition column always has bounds: they show which files contain which
partition."""
MAX_BOUND_CHARS = 256
"""Maximum characters of a bound."""
_PARTITION = "_elt_partition"
_PARTIAL = '{"partial":true,'
"""The beginning of statistics in which an indexed column has no bounds."""
_MEASURED = "elt.bounds"
"""The key in the footer of what `Measure` has found, as JSON."""
_FOOTER_BYTES = 4096
"""The size of a text above which pyarrow writes no bounds."""
_LAST, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


class Measure:
    """Measures, while a file is written, what its footer does not say of its columns."""

    def __init__(self) -> None:
        self._unbounded: set[str] = set()
        self._texts: dict[str, tuple[str, str]] = {}

    def add(self, rows: pa.Table) -> None:
        """Measure the rows of a row group."""
        for _, path, type_ in _list_indexed(rows.schema):
            name = ".".join(path)
            if name in self._unbounded:
                continue
            if pa.types.is_floating(type_):
                if pc.any(pc.is_nan(_column_at(rows, path))).as_py():
                    self._unbounded.add(name)
            elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
                self._measure_texts(name, _column_at(rows, path))

    def key_values(self) -> dict[str, str]:
        """Return what is added to the footer."""
        return {_MEASURED: json.dumps({"unbounded": sorted(self._unbounded), "texts": self._texts})}

    def _measure_texts(self, name: str, texts: pa.ChunkedArray) -> None:
        if (pc.max(pc.binary_length(texts)).as_py() or 0) <= _FOOTER_BYTES:
            return
        bounds = pc.min_max(texts).as_py()
        least, most = self._texts.get(name, (bounds["min"], bounds["max"]))
        upper = _raise_text(max(most, bounds["max"]))
        if upper is None:
            self._unbounded.add(name)
        else:
            self._texts[name] = min(least, bounds["min"])[:MAX_BOUND_CHARS], upper


def statistics(footer: pq.FileMetaData) -> str:
    """Return Delta's statistics from a file's footer, as JSON; see `select_logged`.

    A list or a map has no statistics: delta-rs does not open a table whose log has those of a map.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    is_partial = False
    measured = json.loads((footer.metadata or {}).get(_MEASURED.encode(), "null"))
    for index, path, type_ in _list_indexed(footer.schema.to_arrow_schema()):
        groups = [
            footer.row_group(number).column(index).statistics
            for number in range(footer.num_row_groups)
        ]
        count = _null_count(groups)
        if count is not None:
            _put(nulls, path, count)
        if count == footer.num_rows or (count is not None and pa.types.is_binary(type_)):
            continue
        bounds, name = None, ".".join(path)
        if (
            name not in measured["unbounded"]
            if measured
            else not (
                pa.types.is_floating(type_) and (not footer.created_by.startswith("parquet-mr"))
            )
        ):
            bounds = _bounds_or_none(groups, measured and measured["texts"].get(name))
        if count is None or bounds is None:
            is_partial = True
        else:
            _put(least, path, bounds[0])
            _put(most, path, bounds[1])
    values = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most}
    text = msgspec.json.encode({**values, "nullCount": nulls}).decode()
    return f"{_PARTIAL}{text[1:]}" if is_partial else text


def select_logged(stats: str, rows: int) -> str:
    """Return the statistics of a file as the log has them: all of them, or the number of rows alone."""
    return stats if stats and not stats.startswith(_PARTIAL) else json.dumps({"numRecords": rows})


def _list_indexed(schema: pa.Schema) -> Iterator[tuple[int, list[str], pa.DataType]]:
    """Yield the columns with statistics: their numbers in the file, paths and types."""
    index = 0
    for position, (path, type_, width) in enumerate(_leaves([], schema)):
        if width == 1 and (position < INDEXED_COLUMNS or path == [_PARTITION]):
            yield index, path, type_
        index += abs(width)


def _leaves(
    path: Sequence[str], fields: Iterator[pa.Field] | pa.Schema | pa.StructType
) -> Iterator[tuple[list[str], pa.DataType, int]]:
    """Yield the columns of Delta: path, type, and the number of columns of Parquet, below zero if it is a
    list or a map."""
    for field in fields:
        inner = [*path, field.name]
        if pa.types.is_struct(field.type):
            yield from _leaves(inner, field.type)
        elif pa.types.is_nested(field.type):
            yield inner, field.type, -_count_columns(field.type)
        else:
            yield inner, field.type, 1


def _count_columns(type_: pa.DataType) -> int:
    if not pa.types.is_nested(type_):
        return 1
    return sum(_count_columns(type_.field(number).type) for number in range(type_.num_fields))


def _null_count(groups: Sequence[Any]) -> int | None:
    if not all(group is not None and group.has_null_count for group in groups):
        return None
    return int(sum(group.null_count for group in groups))


def _bounds_or_none(groups: Sequence[Any], texts: Sequence[str] | None) -> tuple[Any, Any] | None:
    """Return `_bounds`; None if Python cannot represent a time (the year 10000, after rounding up)."""
    try:
        return _bounds(groups, texts)
    except (OverflowError, ValueError):
        return None


def _bounds(groups: Sequence[Any], texts: Sequence[str] | None) -> tuple[Any, Any] | None:
    """Return the bounds of a column from the statistics of its row groups; None if they are not known.

    Args:
        texts: the measured bounds of the row groups whose texts are too long for the footer.
    """
    least, most = [], []
    for group in groups:
        if group.num_values and group.has_min_max:
            least.append(group.min)
            most.append(group.max)
        elif group.num_values and texts is None:
            return None
    low, high = ([*values, *(texts or ())] for values in (least, most))
    bounds = _format_bound(min(low), up=False), _format_bound(max(high), up=True)
    return None if None in bounds else bounds


def _format_bound(value: Any, *, up: bool) -> Any:
    """Return a value in the form of Delta's statistics; None if it cannot be a bound.

    Times have milliseconds there. A lower bound is rounded down, an upper bound up.
    """
    if isinstance(value, str):
        return _raise_text(value) if up else value[:MAX_BOUND_CHARS]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):  # with all digits, and without an exponent
        return msgspec.Raw(format(value, "f").encode())
    if isinstance(value, bool | int):
        return value
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


def _raise_text(text: str) -> str | None:
    """Return a text of limited length that is not less than `text`; None if there is none."""
    if len(text) <= MAX_BOUND_CHARS:
        return text
    cut = text[:MAX_BOUND_CHARS].rstrip(chr(_LAST))
    if not cut:
        return None
    following = ord(cut[-1]) + 1
    return cut[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _column_at(rows: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column
