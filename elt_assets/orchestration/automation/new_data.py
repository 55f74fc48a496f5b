"""Whether a connection's source has anything that its tables have not: asked, not read."""

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
"""Seconds that a source may take to answer; ending it may take a few more."""


@dataclass(frozen=True)
class Found:
    """`news`: the streams that have some. `told`: what is said if there are none."""

    news: list[dg.AssetKey]
    told: str


def can_be_asked(asset: StreamAsset) -> bool:
    """Whether the stream has one state that says what is old."""
    return asset.stream.sync_mode == INCREMENTAL and asset.wanted.partitions is None


def streams_with_news(
    connection: Connection, assets: Sequence[StreamAsset], lake: LakeResource
) -> Found:
    """Ask the source, from the state that each stream's table holds.

    Raises:
        EltError: it could not be asked, or not in time.
    """
    states = [_state(asset, lake) for asset in assets]
    news = connect(connection, lake.staging_path).probe(
        ConfiguredCatalog(streams=[asset.asked() for asset in assets]),
        [State.from_json(state) for state in states if state is not None],
        seconds=TIMEOUT,
    )
    told = {each.stream_descriptor.id: each.has_news for each in news.streams}
    unknown = [asset.key.to_user_string() for asset in assets if told.get(asset.stream.id) is None]
    return Found(
        news=[asset.key for asset in assets if told.get(asset.stream.id)],
        told=f"the source cannot tell of {', '.join(unknown)}"
        if unknown
        else "there is nothing new",
    )


def _state(asset: StreamAsset, lake: LakeResource) -> str | None:
    """Where the next sync would start."""
    head = asset.tables(lake.uri).head
    return starting_state(asset.landed(), head, salt=asset.salt_fingerprint)
