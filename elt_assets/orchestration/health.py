"""The checks of the health of a stream's tables, and their evaluation after maintenance.

`checks` evaluates them after each sync, and `table_jobs` after the maintenance of a stream, so that what
maintenance has done shows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from elt_assets.connection.checks import Check, Limit, Share
from elt_assets.lake.admin.health import (
    Measure,
    measure_log_length,
    measure_small_files,
    measure_unsorted,
    measure_vacuum_debt,
)
from elt_assets.lake.write.companions import StreamTables
from elt_assets.orchestration.metadata import cluster_columns_of
from elt_assets.orchestration.streams import StreamAsset

DESCRIPTIONS = MappingProxyType(
    {
        "small_files": "Few files of the table are so small that maintenance would combine them.",
        "unsorted": "Most rows of the table are sorted by `cluster_by`.",
        "vacuum_debt": "Files that no version within the retention needs take less space than the table.",
        "log_length": "Few entries of the table's log have to be read to open it.",
    }
)
"""What each check demands, by its name."""


def assess(
    name: str, asset: StreamAsset, tables: StreamTables, check: Check
) -> tuple[bool, str, Mapping[str, Any]]:
    """Return whether a check of the tables' health passes, the reason, and the number of each table."""
    assert isinstance(check, Limit | Share)
    measure = _measure(name, asset, tables, check.max)
    if measure.value <= check.max:
        return True, measure.text, measure.numbers
    limit = f"{check.max:.0%}" if isinstance(check, Share) else f"{check.max:g}"
    text = f"{measure.text} (limit: {limit}); maintenance (`elt_maintenance`) {measure.remedy}"
    return False, text, measure.numbers


def _measure(name: str, asset: StreamAsset, tables: StreamTables, limit: float) -> Measure:
    cluster_by = cluster_columns_of(asset.spec.metadata)
    if name == "small_files":
        return measure_small_files(tables, cluster_by, limit)
    if name == "unsorted":
        return measure_unsorted(tables, cluster_by)
    return measure_vacuum_debt(tables) if name == "vacuum_debt" else measure_log_length(tables)
