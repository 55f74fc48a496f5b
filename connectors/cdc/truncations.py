"""Records of truncated tables: a log says that all rows are gone, but not which rows there were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from connectors.cdc.fields import UPDATED_AT
from connectors.sdk.arrow_records import list_changes, report_changes
from elt_assets.protocol.airbyte.catalog import DELETED_AT
from elt_assets.protocol.airbyte.messages import TRUNCATED


def make_truncation(
    columns: Sequence[str], key: Sequence[str], cursor: str, number: int, time: int
) -> pa.RecordBatch:
    """Return a delete of all rows that a table had, as a batch of one row.

    Args:
        columns, key: the names of the table's columns, and of those of its key.
        cursor: the field of the number of a change.
        time: of the change, in microseconds since 1970.
    """
    nulls = pa.nulls(1)
    moment = pa.array([time], pa.int64()).cast(pa.timestamp("us", "UTC"))
    reasons = {(name, TRUNCATED): pa.array([True]) for name in key or columns}
    batch = pa.RecordBatch.from_arrays(
        [*(nulls for _ in columns), pa.array([number], pa.int64()), moment, moment],
        names=[*columns, cursor, UPDATED_AT, DELETED_AT],
    )
    return report_changes(batch, list_changes(reasons, 1))


def read_truncation(columns: Sequence[str], cursor: str, data: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the row of a slice that is a truncation. `data`: of `fields.make_truncation_slice`."""
    return make_truncation(columns, data["key"], cursor, data["truncation"], data["time"])
