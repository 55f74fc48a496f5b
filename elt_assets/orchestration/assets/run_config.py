"""The run config of a stream's op: how a run syncs the stream, where it differs from an ordinary sync."""

from __future__ import annotations

import enum
from typing import Any

import dagster as dg
from pydantic import Field

from elt_assets.errors import ConfigError
from elt_assets.lake.write.write_spec import RefreshMode
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline import shared_state_start
from elt_assets.pipeline.given_state import as_message, refuse_stateless
from elt_assets.protocol.airbyte.sync_modes import APPEND_DEDUP


class Refresh(enum.Enum):
    """spec: Airbyte's refreshes: `retain` keeps what the table holds, `truncate` replaces it at the end."""

    none = "none"
    retain = "retain"
    truncate = "truncate"

    @property
    def mode(self) -> RefreshMode:
        return self.value


class WindowConfig(dg.Config):
    """A period of the source's past, in ISO 8601."""

    start: str = Field(
        description='The first moment to read, as "2026-01-01" or "2026-01-01T06:00:00Z".'
    )
    end: str = Field(description="The first moment not to read any more.")


class SyncConfig(dg.Config):
    """How this run syncs the stream, where it differs from an ordinary sync; at most one of these."""

    refresh: Refresh = Field(
        default=Refresh.none,
        description="Read the whole source again: `truncate` replaces the table's rows at the end, `retain` "
        "keeps them and adds to them or merges into them.",
    )
    state: dict[str, Any] | None = Field(
        default=None,
        description="Start from this state instead of the table's own: a STATE message, or what it says of "
        'this stream, as {updated_at: "2026-01-01"}. For incremental streams; of one partition at a time.',
    )
    window: WindowConfig | None = Field(
        default=None,
        description="Read this period again and leave the cursor where it is, as "
        '{start: "2026-01-01", end: "2026-01-08"}. For append_dedup streams whose YAML has a `window`.',
    )


CONFIG_SCHEMA = SyncConfig.to_fields_dict()
"""Of every stream's op."""


def refuse(asset: StreamAsset, config: SyncConfig) -> None:
    """Look at the run config before anything runs.

    Raises:
        ConfigError: what it asks for does not go together, or not with the stream.
    """
    name, refreshes = str(asset.stream.id), config.refresh is not Refresh.none
    given = [refreshes, config.state is not None, config.window is not None]
    if sum(given) > 1:
        raise ConfigError(
            f"stream {name!r}: `refresh`, `state` and `window` are each a way of their own to begin",
            guidance="give one of them",
        )
    if asset.wanted.partitions is not None and (refreshes or config.window is not None):
        what = "refresh" if refreshes else "window"
        raise ConfigError(
            f"stream {name!r} has partitions, each of which is replaced when it is materialised; "
            f"`{what}` is for streams without",
            guidance="materialise the partitions that you want to read anew",
        )
    if asset.connection.read_together:
        if config.state is not None:
            shared_state_start.as_shared(config.state)
    elif config.state is not None:
        refuse_stateless(asset)
        as_message(config.state, asset.stream)
    if config.window is not None:
        _refuse_window(asset, config.window)


def _refuse_window(asset: StreamAsset, window: WindowConfig) -> None:
    name = str(asset.stream.id)
    partitions.parse_window(window.start, window.end)
    if asset.wanted.window is None:
        raise ConfigError(
            f"stream {name!r}: which config fields of the source a window sets is not said",
            guidance="write `window: {bind: {start: <field>, end: <field>}}` for the stream in defs.yaml",
        )
    if asset.stream.destination_sync_mode != APPEND_DEDUP:
        raise ConfigError(
            f"stream {name!r}: a window is read into what the table holds, which needs "
            f"`destination_sync_mode: append_dedup`; it is {asset.stream.destination_sync_mode}",
            guidance="run a `refresh` instead",
        )
