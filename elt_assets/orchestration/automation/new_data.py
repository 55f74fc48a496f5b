"""Check for new data in a source with the `probe` command of its connector, without a read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.lake.write.write_spec import starting_state
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect
from elt_assets.protocol.airbyte.catalog import INCREMENTAL, ConfiguredCatalog
from elt_assets.protocol.airbyte.messages import State

TIMEOUT = 25.0
"""Seconds that a probe may take; stopping the connector may take a few more."""


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe. `new_data`: the streams with new data. `skip_reason`: applies if there are none."""

    new_data: list[dg.AssetKey]
    skip_reason: str


def can_probe(asset: StreamAsset) -> bool:
    """Return whether the stream can be probed: it is incremental and has one state, not one per partition."""
    return asset.stream.sync_mode == INCREMENTAL and asset.settings.partitions is None


def probe_streams(
    connection: Connection, assets: Sequence[StreamAsset], lake: LakeResource
) -> ProbeResult:
    """Probe the source for data after the state of each stream's table.

    Raises:
        EltError: the source cannot be probed, or does not answer in time.
    """
    states = [_starting_state(asset, lake) for asset in assets]
    answer = connect(connection, lake.staging_path).probe(
        ConfiguredCatalog(streams=[asset.narrowed() for asset in assets]),
        [State.from_json(state) for state in states if state is not None],
        seconds=TIMEOUT,
    )
    has_news = {each.stream_descriptor.id: each.has_news for each in answer.streams}
    unknown = [a.key.to_user_string() for a in assets if has_news.get(a.stream.id) is None]
    return ProbeResult(
        new_data=[asset.key for asset in assets if has_news.get(asset.stream.id)],
        skip_reason=f"the source cannot report new data of {', '.join(unknown)}"
        if unknown
        else "there is no new data",
    )


def _starting_state(asset: StreamAsset, lake: LakeResource) -> str | None:
    """Return the state that the next sync would start from."""
    metadata = asset.tables(lake.uri).metadata
    return starting_state(asset.landed(), metadata, salt=asset.salt_fingerprint)
