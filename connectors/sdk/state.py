"""The state that a source is called with.

spec: State & Checkpointing; Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.arguments import content, decoded
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import State

States = dict[StreamId, "dict[str, Any] | None"]


def load_states(path: str | None) -> dict[StreamId, dict[str, Any]]:
    """Where each stream's last read ended. Streams with a null state, or none, are not in it.

    spec: State & Checkpointing: a list of states, or else what a LEGACY one holds: an object that has
    the state of each stream under its name.

    Raises:
        ConfigError: unreadable, or neither of these.
    """
    if path is None:
        return {}
    data = content(path, "state")
    states: States = {}
    if data.lstrip().startswith(b"{"):
        states = _by_name(data)
    else:
        for item in decoded(data, list[Raw], "state"):
            states |= _states(item)
    return {stream: state for stream, state in states.items() if state is not None}


def _states(item: Raw) -> States:
    try:
        message = State.from_json(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the state file holds something that is no state: {error}") from error
    if message.stream is not None:
        stream, blob = message.stream.stream_descriptor.id, message.stream.stream_state
        what = f"state of {stream}"
        return {stream: None if blob is None else decoded(blob, dict[str, Any], what)}
    if message.data is not None:
        return _by_name(message.data)
    raise ConfigError(
        f"the state file holds a state of type {message.type or 'LEGACY'}, not STREAM",
        guidance="this source keeps its state per stream: reset the state",
    )


def _by_name(legacy: bytes | Raw) -> States:
    states = decoded(legacy, dict[str, dict[str, Any] | None], "state")
    return {StreamId(name): state for name, state in states.items()}
