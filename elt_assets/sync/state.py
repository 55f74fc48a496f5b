"""What a STATE message is about.

spec: Airbyte Protocol, State & Checkpointing, V2.
"""

from __future__ import annotations

from collections.abc import Collection

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import State

STREAM = "STREAM"
GLOBAL = "GLOBAL"
LEGACY = "LEGACY"


def stream_of(state: State, streams: Collection[StreamId]) -> StreamId | None:
    """The stream whose checkpoint this is; None if it is not among `streams`.

    A LEGACY state is the whole source's: it is one stream's only where one stream is read.

    Raises:
        ConfigError: the state is shared by several streams, but they are read one by one.
    """
    if state.stream is not None:
        stream = state.stream.stream_descriptor.id
        return stream if stream in streams else None
    if state.global_ is not None or state.type == GLOBAL or len(streams) != 1:
        raise ConfigError(
            "this source keeps one state for all of its streams "
            f"({state.type or LEGACY}), but its streams are read one by one",
            guidance="set `read_together: true` on the connection",
        )
    return next(iter(streams))
