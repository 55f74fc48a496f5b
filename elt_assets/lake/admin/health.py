"""The health of a stream's tables: what the next maintenance would do to them, as far as their logs show.

`orchestration.health` asks after each sync and after each maintenance.

A measure counts only what `admin.maintenance` would change, by the same functions. So what it warns of has a
remedy, after which it is 0, or what maintenance leaves (`CHECKPOINT_ENTRIES`). Test:
`tests/lake/test_health.py::test_maintenance_remedies_what_is_measured`

A measure reads the log alone: no file of rows is opened, and no folder is listed. No commit says what a
vacuum has removed, so a vacuum leaves a mark (`VacuumMark`): only versions after it are looked at. What they
removed from the table is in their entries. Of many entries a sample is read: each is a request to a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from elt_assets.lake.admin.maintenance import (
    ColumnPath,
    count_unsorted,
    group_small_files,
    list_sorted,
)
from elt_assets.lake.admin.vacuum_mark import VacuumMark
from elt_assets.lake.delta import log
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import count_small
from elt_assets.lake.write.companions import DEAD_LETTER, StreamTables

FREE_BYTES = 1 << 30
"""Bytes that are no debt: what a gigabyte costs is not worth a warning."""
_SAMPLE = 200
"""Entries of the log of which the removed bytes are read: in a store they take 0.4 s."""
_READERS = 16


@dataclass(frozen=True)
class Measure:
    """A measure of a stream's tables."""

    value: float
    """That of the table that is the furthest from what maintenance would make of it."""
    text: str
    """What there is, for people."""
    remedy: str
    """What maintenance does about it."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The number of each table, by its name."""


def measure_small_files(
    tables: StreamTables, cluster_by: Sequence[ColumnPath] = (), limit: float = 0
) -> Measure:
    """Count the files that maintenance would combine with others.

    Args:
        limit: a table with at most so many small files is not looked at closer: all of them are counted.
    """
    numbers: dict[str, float] = {}
    for kind, table in _list_existing(tables):
        small = count_small(table)
        if small > limit:
            leave = list_sorted(table, cluster_by if kind is None else ())
            if kind == DEAD_LETTER:
                leave |= tables.main.dead_letter_files_of_refreshes()
            small = sum(map(len, group_small_files(table, leave, only_logged=True)))
        numbers[_get_name(table)] = small
    most = max(numbers.values(), default=0)
    return Measure(
        most, f"{most:,} small files", "combines them into files of about 64 MB", numbers
    )


def measure_unsorted(tables: StreamTables, cluster_by: Sequence[ColumnPath]) -> Measure:
    """Return the share of the rows of the stream's table that maintenance would sort."""
    table, share = tables.main, 0.0
    if table.exists and table.records:
        share = count_unsorted(table, cluster_by) / table.records
    fields = ", ".join(".".join(path) for path in cluster_by)
    text = f"{share:.0%} of the rows are in files that are not sorted by {fields}"
    return Measure(share, text, "sorts the rows", {_get_name(table): share})


def measure_vacuum_debt(tables: StreamTables, free_bytes: int = FREE_BYTES) -> Measure:
    """Return how many bytes no version within the retention needs, for each byte that the table has.

    Args:
        free_bytes: a table with fewer of them has no debt.
    """
    numbers, shares, about = dict[str, float](), [0.0], ""
    for _, table in _list_existing(tables):
        size, is_estimate = _find_debt(table)
        numbers[_get_name(table)] = size
        about = "about " if is_estimate else about
        if size and size >= free_bytes:
            sizes, _ = table.file_sizes
            shares.append(size / max(pc.sum(sizes).as_py() or 0, 1))
    megabytes = sum(numbers.values()) / 1e6
    text = f"{about}{megabytes:,.1f} MB of files that no version within the retention needs"
    return Measure(max(shares), text, "removes them", numbers)


def _find_debt(table: Table) -> tuple[int, bool]:
    """Return the size of what versions after the last vacuum removed before the retention, and whether it is
    an estimate."""
    mark = VacuumMark.read(table.storage)
    versions = range(mark.version + 1, mark.find_due_version(table) + 1)
    if not versions:
        return 0, False
    step = -(-len(versions) // _SAMPLE)
    sample = versions[::-step]
    with ThreadPoolExecutor(_READERS) as pool:
        sizes = pool.map(partial(_sum_removed_bytes, table.storage), sample)
        return round(sum(sizes) * len(versions) / len(sample)), step > 1


def _sum_removed_bytes(storage: TableStorage, version: int) -> int:
    entry = log.read(storage, version)
    actions = () if entry is None else entry.actions()
    return sum(int(action["remove"].get("size") or 0) for action in actions if "remove" in action)


def measure_log_length(tables: StreamTables) -> Measure:
    """Count the entries of the log after its newest checkpoint: each opening of the table reads them."""
    numbers: dict[str, float] = {
        _get_name(table): table.log_length for _, table in _list_existing(tables)
    }
    most = max(numbers.values(), default=0)
    text = f"{most:,} entries in the log after its newest checkpoint"
    return Measure(most, text, "writes a checkpoint", numbers)


def _list_existing(tables: StreamTables) -> Iterator[tuple[str | None, Table]]:
    """Yield the stream's table and its companions, each with its kind."""
    for kind, table in ((None, tables.main), *tables.companions.items()):
        if table.exists:
            yield kind, table


def _get_name(table: Table) -> str:
    return table.uri.rpartition("/")[2]
