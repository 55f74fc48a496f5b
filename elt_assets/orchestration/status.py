"""The status of each stream of a connection: its last materialisation and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.orchestration.events.metadata import figures_of
from elt_assets.orchestration.events.table_events import TableEvents
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.pipeline.given_state import source_state
from elt_assets.protocol.airbyte.catalog import stream_names
from elt_assets.storage.location import Location


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream.

    `figures`: those of the last materialisation; None if there is none. `rows`: number of rows of the table;
    with another destination than the lake, the number of records that it committed in all syncs. `state`: the
    state in the table, without the protocol envelope, as JSON. `path`: the URI of the table.
    """

    stream: str
    policy: str
    figures: SyncFigures | None
    rows: int
    state: str | None
    path: str


def stream_statuses(
    assets: Sequence[StreamAsset], lake: Location | str, instance: dg.DagsterInstance
) -> list[StreamStatus]:
    """Return the status of each stream of a connection, in the given order."""
    names = stream_names([asset.stream.id for asset in assets])
    return [_status(asset, names[asset.stream.id], lake, instance) for asset in assets]


def _status(
    asset: StreamAsset, name: str, lake: Location | str, instance: dg.DagsterInstance
) -> StreamStatus:
    table, destination = asset.tables(lake).main, asset.connection.destination
    events = TableEvents(instance, asset.key, table)
    materialization = events.newest_materialization()
    return StreamStatus(
        stream=name,
        policy=f"{asset.stream.sync_mode} → {asset.stream.destination_sync_mode}",
        figures=figures_of(materialization.metadata) if materialization else None,
        rows=table.records if destination is None else _count_committed(events),
        state=source_state(table.metadata.state),
        path=table.uri,
    )


def _count_committed(events: TableEvents) -> int:
    """Return the number of committed records in all materialisations of a table in the event log."""
    return sum(figures_of(event.metadata).committed for event in events.all_materializations())
