"""Reader for the state file that a source gets as an argument.

Spec: State & Checkpointing; Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.arguments import decode_json, read_file
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import State

States = dict[StreamId, "dict[str, Any] | None"]


def load_states(path: str | None) -> dict[StreamId, dict[str, Any]]:
    """Return the state of each stream after its last read. Streams with no state or a null state are omitted.

    Spec: State & Checkpointing: the file contains a list of states, or the content of a LEGACY state: an
    object with the state of each stream by its name.

    Raises:
        ConfigError: the file is not readable, or contains neither of these.
    """
    if path is None:
        return {}
    data = read_file(path, "state")
    states: States = {}
    if data.lstrip().startswith(b"{"):
        states = _group_by_name(data)
    else:
        for item in decode_json(data, list[Raw], "state"):
            states |= _states(item)
    return {stream: state for stream, state in states.items() if state is not None}


def _states(item: Raw) -> States:
    try:
        message = State.from_json(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the state file contains an invalid state: {error}") from error
    if message.stream is not None:
        stream, blob = message.stream.stream_descriptor.id, message.stream.stream_state
        what = f"state of {stream}"
        return {stream: None if blob is None else decode_json(blob, dict[str, Any], what)}
    if message.data is not None:
        return _group_by_name(message.data)
    raise ConfigError(
        f"the state file contains a state of type {message.type or 'LEGACY'}, not STREAM",
        guidance="reset the state: this source has one state per stream",
    )


def _group_by_name(legacy: bytes | Raw) -> States:
    states = decode_json(legacy, dict[str, dict[str, Any] | None], "state")
    return {StreamId(name): state for name, state in states.items()}
