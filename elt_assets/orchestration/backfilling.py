"""The backfill of columns of a stream, with an event in Dagster: `elt backfill`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import dagster as dg

from elt_assets.lake.admin.backfill import ColumnRequest, FilledRows
from elt_assets.orchestration.metadata import commit_metadata
from elt_assets.orchestration.resources import AnySparkResource, LakeResource, spark_provider
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.backfill import find_columns, plan_backfill, refuse_absent
from elt_assets.pipeline.connection_read import RunResources
from elt_assets.pipeline.read import run_read
from elt_assets.sync.events import Logged

BACKFILLED = "elt/backfilled_columns"
"""The columns that were filled, and how many rows of the source have a value of each."""
BACKFILLED_ROWS = "elt/backfilled_rows"
"""Number of rows of the table that got a value."""
BACKFILLED_VERSIONS = "elt/backfilled_versions"
"""Number of rows of the history that got a value; absent without a history."""

Log = Callable[[str, str], None]


def backfill_columns(
    asset: StreamAsset,
    names: Sequence[str],
    resources: tuple[LakeResource, AnySparkResource, dg.DagsterInstance],
    log: Log,
    *,
    all_versions: bool = False,
) -> tuple[FilledRows, list[str]]:
    """Fill columns of a stream's rows from its source, and report an AssetObservation.

    Args:
        log: receives levels and lines.
        all_versions: every version in a history gets the values, and not the current one alone.

    Returns:
        what was done, and the columns of which the source gave no value.

    Raises:
        ConfigError: the columns cannot be filled, or the source does not have them.
        EltError: the source cannot be read; nothing was changed.
    """
    lake, spark, instance = resources
    tables = asset.tables(lake.location)
    columns = find_columns(asset, tables, names)
    run_id = str(uuid.uuid4())
    run_resources = RunResources(run_id, spark_provider(spark), lake.sync_staging, log)
    request = ColumnRequest(columns, all_versions)
    read = plan_backfill(asset, tables, request, run_resources)
    for event in run_read(read):
        if isinstance(event, Logged):
            log(event.level, event.message)
    assert read.sink is not None
    done, absent = read.sink.done, refuse_absent(read)
    tables = asset.tables(lake.location)
    metadata = {
        **commit_metadata(tables.main),
        BACKFILLED: {name: done.values.get(name, 0) for name in columns},
        BACKFILLED_ROWS: done.rows,
        **({BACKFILLED_VERSIONS: done.versions} if asset.settings.history else {}),
    }
    instance.report_runless_asset_event(dg.AssetObservation(asset.key, metadata=metadata))
    return done, absent
