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


def kind_of(state: State) -> str:
    """Return STREAM, GLOBAL or LEGACY. A state that is neither of a stream nor GLOBAL is LEGACY."""
    if state.stream is not None:
        return STREAM
    return GLOBAL if state.global_ is not None or state.type == GLOBAL else LEGACY


def stream_of(
    state: State, streams: Collection[StreamId], *, is_only_stream: bool = False
) -> StreamId | None:
    """Return the stream of a state; None if it is not among `streams`.

    A LEGACY state belongs to the whole source. It belongs to a stream only if one stream is read.

    Args:
        is_only_stream: whether no other stream of the source is synced; a GLOBAL state then belongs to this
            stream.

    Raises:
        ConfigError: several streams share the state, but they are read one by one.
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
    """Raise SystemFailure if a state is of type GLOBAL or STREAM, but has no contents of that type."""
    contents = {STREAM: state.stream, GLOBAL: state.global_}
    if state.type in contents and contents[state.type] is None:
        raise SystemFailure(
            f"the connector sent a state of type {state.type} without its contents",
            guidance="this is a defect of the connector; the sync stops so that no data is lost",
        )
