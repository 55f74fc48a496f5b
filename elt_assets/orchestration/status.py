"""Where each stream of a connection stands: its last materialisation, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets import paths
from elt_assets.orchestration.events.metadata import figures_of
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.pipeline.given_state import blob
from elt_assets.protocol.airbyte.catalog import stream_names
from elt_assets.storage.directories import make_private

_PAGE = 1000


@dataclass(frozen=True)
class StreamStatus:
    """One stream. Figures are of its last materialisation, None if it has none; `rows` and `state`
    are the table's own; `state` is the source's blob alone, as JSON. `rows` of a stream that goes to another
    destination: how many that destination has committed in all syncs."""

    stream: str
    policy: str
    figures: SyncFigures | None
    rows: int
    state: str | None
    path: str


def open_instance() -> dg.DagsterInstance:
    """The instance of the home directory, which need not be in the environment for a look at it."""
    make_private(paths.home())
    return dg.DagsterInstance.from_config(str(paths.home()))


def stream_statuses(
    assets: Sequence[StreamAsset], lake_uri: str, instance: dg.DagsterInstance
) -> list[StreamStatus]:
    """The status of each stream of a connection, in the order given."""
    names = stream_names([asset.stream.id for asset in assets])
    return [_status(asset, names[asset.stream.id], lake_uri, instance) for asset in assets]


def _status(
    asset: StreamAsset, name: str, lake_uri: str, instance: dg.DagsterInstance
) -> StreamStatus:
    table, delivers = asset.tables(lake_uri).main, asset.connection.destination
    event = instance.get_latest_materialization_event(asset.key)
    materialization = event.asset_materialization if event else None
    return StreamStatus(
        stream=name,
        policy=f"{asset.stream.sync_mode} → {asset.stream.destination_sync_mode}",
        figures=figures_of(materialization.metadata) if materialization else None,
        rows=table.records if delivers is None else _delivered(instance, asset.key),
        state=blob(table.head.state),
        path=table.uri,
    )


def _delivered(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    """Return the sum over all materialisations that the event log holds."""
    total, cursor, has_more = 0, None, True
    while has_more:
        found = instance.fetch_materializations(key, limit=_PAGE, cursor=cursor)
        for record in found.records:
            event = record.asset_materialization
            total += figures_of(event.metadata).committed if event else 0
        cursor, has_more = found.cursor, found.has_more
    return total
