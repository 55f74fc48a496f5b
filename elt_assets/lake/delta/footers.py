"""Statistics of files that have none in the log, from their footers.

The log has only the number of rows of a file with a column that has no true bound (`statistics`: NaN, an
infinity). Which partition such a file contains, and whether its versions are closed, is in its footer: it is
read once in the life of a `Table`, and only for such files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.delta.files import DataFile, TableStorage

_KEYS = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}


class FooterStatistics:
    """The footers of one table's files that have been read."""

    def __init__(self, storage: TableStorage):
        self._storage = storage
        self._statistics: dict[str, Mapping[str, Any]] = {}

    def complete(
        self, actions: pa.Table, logged: pa.ChunkedArray, kind: str, column: Sequence[str]
    ) -> pa.ChunkedArray:
        """Return a statistic of each file, with those of the footers where the log has none of the file.

        Args:
            actions: the files, as `commits.add_actions` returns them.
            logged: the statistic of each file in the log.
            kind: `min`, `max` or `null_count`.
            column: the column, whose bounds are taken from footers only if they are texts or integers.
        """
        paths = _list_bare(actions)
        if not paths or not bool(
            pa.types.is_null(logged.type)
            or pa.types.is_integer(logged.type)
            or pa.types.is_string(logged.type)
            or pa.types.is_large_string(logged.type)
        ):
            return logged
        for file in self._storage.describe(path for path in paths if path not in self._statistics):
            self._statistics[file.path] = json.loads(file.stats or "{}")
        from_footers = {
            path: _find(self._statistics.get(path), (_KEYS[kind], *column)) for path in paths
        }
        values = logged.to_pylist()
        for row, path in enumerate(actions.column("path").to_pylist()):
            if type(from_footers.get(path)) in (str, int):
                values[row] = from_footers[path]
        type_ = None if pa.types.is_null(logged.type) else logged.type
        return pa.chunked_array([pa.array(values, type_)])


def _list_bare(actions: pa.Table) -> list[str]:
    """Return the paths of this project's files that have no statistics of columns in the log."""
    names = [name for name in actions.schema.names if name.startswith("null_count.")]
    paths = actions.column("path")
    if names:
        has_counts = reduce(pc.or_, (pc.is_valid(actions.column(name)) for name in names))
        paths = paths.filter(pc.invert(has_counts))
    return [path for path in paths.to_pylist() if DataFile(path, 0, 0).is_own]


def _find(statistics: Any, path: Sequence[str]) -> Any:
    for name in path:
        statistics = statistics.get(name) if isinstance(statistics, Mapping) else None
    return statistics
