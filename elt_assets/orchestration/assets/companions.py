"""Events of a sync for the companion tables of its stream (history, dead letter) and for the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.stream_tables import SUFFIXES
from elt_assets.orchestration.assets.translator import companion_key, companion_specs
from elt_assets.orchestration.events.metadata import RECORDS_READ, companion_metadata
from elt_assets.orchestration.stream_sync import SyncResult
from elt_assets.orchestration.streams import StreamAsset


def results(
    sync: SyncResult, source: dg.AssetKey, context: dg.AssetExecutionContext
) -> Iterator[dg.MaterializeResult[Any]]:
    """Report the companion tables of a stream after a sync, even if empty, and the read of the source.

    Companion tables that the run did not select get an event too.
    """
    asset, spark = sync.asset, context.resources.elt_spark.provider
    for read in sync.reads:
        count = {RECORDS_READ: read.metadata[RECORDS_READ]}
        metadata = {"elt/stream": asset.key.to_user_string(), **count}
        context.log_event(dg.AssetObservation(source, metadata=metadata))
    for key, (table, name) in _tables(sync).items():
        is_selected = key in context.selected_asset_keys
        for read in sync.reads:
            metadata = _metadata(table, name, read.partition, spark)
            if is_selected:
                context.add_asset_metadata(metadata, key, read.partition)
            else:
                event = dg.AssetMaterialization(key, metadata=metadata, partition=read.partition)
                context.log_event(event)
        if is_selected:
            yield dg.MaterializeResult(asset_key=key)


def log_unread(assets: Iterable[StreamAsset], context: dg.AssetExecutionContext) -> None:
    """Log that companion tables that are selected without their stream need no work."""
    for asset in assets:
        for spec in companion_specs(asset):
            if spec.key in context.selected_asset_keys:
                context.log.info(
                    f"{spec.key.to_user_string()} is skipped: it is written when "
                    f"{asset.key.to_user_string()} is materialised"
                )


def _tables(sync: SyncResult) -> dict[dg.AssetKey, tuple[Table, str]]:
    """Return the companion tables and their names by asset key."""
    asset = sync.asset
    if sync.tables is None or asset.connection.destination is not None:
        return {}
    return {
        companion_key(asset.key, SUFFIXES[kind]): (table, asset.table_name + SUFFIXES[kind])
        for kind, table in sync.tables.companions.items()
    }


def _metadata(
    table: Table, name: str, partition: str | None, spark: SparkProvider
) -> dict[str, Any]:
    if partition is None:
        return companion_metadata(table, name)
    rows = partition_files.count(spark, table, partition)
    return companion_metadata(table, name, partition_rows=rows)
