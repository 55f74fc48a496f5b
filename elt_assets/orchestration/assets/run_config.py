"""The run config of a stream's op: options that change how one run syncs the stream."""

from __future__ import annotations

import enum
from typing import Any

import dagster as dg
from pydantic import Field

from elt_assets.errors import ConfigError
from elt_assets.lake.write.sync_columns import RefreshMode
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline import shared_start
from elt_assets.pipeline.stream_plan import as_message, refuse_stateless
from elt_assets.protocol.catalog import APPEND_DEDUP


class Refresh(enum.Enum):
    """Kinds of refresh: `retain` keeps the rows of the table, `truncate` replaces them at the end.

    Spec: Airbyte, Refreshes.
    """

    none = "none"
    retain = "retain"
    truncate = "truncate"

    @property
    def mode(self) -> RefreshMode:
        return self.value


class WindowConfig(dg.Config):
    """A past period of the source data; times in ISO 8601."""

    start: str = Field(
        description='Start of the period (inclusive): "2026-01-01" or "2026-01-01T06:00:00Z".'
    )
    end: str = Field(description="End of the period (exclusive).")


class SyncConfig(dg.Config):
    """Options that change how this run syncs the stream; at most one of them may be set."""

    refresh: Refresh = Field(
        default=Refresh.none,
        description="Read the stream from the beginning: `truncate` replaces the rows of the table at the "
        "end, `retain` keeps them and appends or merges the records.",
    )
    state: dict[str, Any] | None = Field(
        default=None,
        description="Start from this state instead of the state of the table: a STATE message, or only the "
        'state of this stream: {updated_at: "2026-01-01"}. For incremental streams, one partition at a time.',
    )
    window: WindowConfig | None = Field(
        default=None,
        description='Read this period again: {start: "2026-01-01", end: "2026-01-08"}. The cursor does not '
        "change. For append_dedup streams whose YAML has a `window`.",
    )


CONFIG_SCHEMA = SyncConfig.to_fields_dict()
"""The config schema of every stream's op."""


def validate(asset: StreamAsset, config: SyncConfig) -> None:
    """Validate the run config of a stream before a connector starts.

    Raises:
        ConfigError: options cannot be combined, or the stream does not support an option.
    """
    name, refreshes = str(asset.stream.id), config.refresh is not Refresh.none
    options = [refreshes, config.state is not None, config.window is not None]
    if sum(options) > 1:
        raise ConfigError(
            f"stream {name!r}: `refresh`, `state` and `window` cannot be combined",
            guidance="set only one of them",
        )
    if asset.settings.partitions is not None and (refreshes or config.window is not None):
        option = "refresh" if refreshes else "window"
        raise ConfigError(
            f"stream {name!r} has partitions; `{option}` is for streams without partitions",
            guidance="materialise the partitions that you want to read again; an incremental one goes on "
            f"from its state, so reset that first: `elt state reset {asset.key.to_user_string()} --partition "
            "KEY`",
        )
    if asset.connection.read_together:
        if config.state is not None:
            shared_start.as_shared(config.state)
    elif config.state is not None:
        refuse_stateless(asset)
        as_message(config.state, asset.stream)
    if config.window is not None:
        _validate_window(asset, config.window)


def _validate_window(asset: StreamAsset, window: WindowConfig) -> None:
    name = str(asset.stream.id)
    partitions.parse_window(window.start, window.end)
    if asset.settings.window is None:
        raise ConfigError(
            f"stream {name!r}: defs.yaml does not declare which config fields of the source a window sets",
            guidance="add `window: {bind: {start: <field>, end: <field>}}` to the stream in defs.yaml",
        )
    if asset.stream.destination_sync_mode != APPEND_DEDUP:
        raise ConfigError(
            f"stream {name!r}: a window is merged into the table, which requires "
            f"`destination_sync_mode: append_dedup`; it is {asset.stream.destination_sync_mode}",
            guidance="run a `refresh` instead",
        )
