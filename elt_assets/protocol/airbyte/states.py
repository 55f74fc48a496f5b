"""The kind of a STATE message, and the stream that it belongs to.

Spec: Airbyte Protocol, State & Checkpointing, V2.
"""

from __future__ import annotations

from collections.abc import Collection

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import State

STREAM = "STREAM"
GLOBAL = "GLOBAL"
LEGACY = "LEGACY"
_MAX_TYPE = 100
"""Maximum number of characters of an unknown type that are shown."""


def kind_of(state: State) -> str:
    """Return STREAM if the state has a `stream`, GLOBAL if it has a `global` or that type, else LEGACY."""
    if state.stream is not None:
        return STREAM
    return GLOBAL if state.global_ is not None or state.type == GLOBAL else LEGACY


def stream_of(
    state: State, streams: Collection[StreamId], *, is_only_stream: bool = False
) -> StreamId | None:
    """Return the stream that a state belongs to; None if that stream is not among `streams`.

    A LEGACY or GLOBAL state belongs to the whole source. If this process reads a single stream, a LEGACY
    state belongs to that stream.

    Args:
        streams: the streams that this process reads.
        is_only_stream: whether the connection has no other stream, which another process would read. A GLOBAL
            state then belongs to the single stream too.

    Raises:
        ConfigError: the state belongs to several streams, which are read by separate processes.
    """
    if state.stream is not None:
        stream = state.stream.stream_descriptor.id
        return stream if stream in streams else None
    if (kind_of(state) == GLOBAL and not is_only_stream) or len(streams) != 1:
        raise ConfigError(
            "the source keeps one state for all of its streams "
            f"({kind_of(state)}), but its streams are read one by one",
            guidance="set `read_together: true` on the connection",
        )
    return next(iter(streams))


def check_contents(state: State) -> None:
    """Raise SystemFailure if a state has no contents of its type, or if its type is unknown.

    A LEGACY state, which may have no type, has `data`; null resets the state.
    """
    kind = kind_of(state) if state.type is None else state.type
    data = state.extra.get("data") if state.data is None else state.data  # a null that was sent
    contents = {STREAM: state.stream, GLOBAL: state.global_, LEGACY: data}
    if contents.get(kind) is None:
        unknown = "" if kind in contents else ", which is unknown,"
        raise SystemFailure(
            f"the connector sent a state of type {kind[:_MAX_TYPE]}{unknown} without its contents",
            guidance="this is a defect of the connector; the sync stops so that no data is lost",
        )
