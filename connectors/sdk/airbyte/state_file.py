"""Reader for the state file that a source gets as an argument.

Spec: State & Checkpointing; Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId, decode_json, read_file
from elt_assets.protocol.messages import State, StreamState

States = dict[StreamId, "dict[str, Any] | None"]


class SavedStates(dict[StreamId, dict[str, Any]]):
    """The state of each stream after its last read, and what streams share (see `groups`).

    Attributes:
        shared: the shared part of a GLOBAL state, whose streams are among the keys; None without one.
        sharing: the states of the streams of the GLOBAL state.
    """

    shared: dict[str, Any] | None = None
    sharing: Mapping[StreamId, dict[str, Any]] = MappingProxyType({})


def load_states(path: str | None) -> SavedStates:
    """Return the states after the last read. Streams with no state or a null state are omitted.

    Spec: State & Checkpointing: the file contains a list of states, or the content of a LEGACY state: an
    object with the state of each stream by its name.

    Raises:
        ConfigError: the file is not readable, or contains neither of these.
    """
    saved = SavedStates()
    if path is None:
        return saved
    data = read_file(path, "state")
    states: States = {}
    if data.lstrip().startswith(b"{"):
        states = _group_by_name(data)
    else:
        for item in decode_json(data, list[Raw], "state"):
            message = _decode(item)
            entries = _states(message)
            states |= entries
            if message.global_ is not None:
                saved.shared = _decode_object(message.global_.shared_state, "shared state") or {}
                saved.sharing = {n: state for n, state in entries.items() if state is not None}
    saved.update({stream: state for stream, state in states.items() if state is not None})
    return saved


def _decode(item: Raw) -> State:
    try:
        return State.from_json(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the state file contains an invalid state: {error}") from error


def _states(message: State) -> States:
    if message.global_ is not None:
        return dict(map(_state_of, message.global_.stream_states))
    if message.stream is not None:
        return dict([_state_of(message.stream)])
    if message.data is not None:
        return _group_by_name(message.data)
    raise ConfigError(
        f"the state file contains a state of type {message.type or 'LEGACY'} without a value",
        guidance="give the states that this source has sent",
    )


def _state_of(part: StreamState) -> tuple[StreamId, dict[str, Any] | None]:
    stream, blob = part.stream_descriptor.id, part.stream_state
    what = f"state of {stream}"
    return stream, _decode_object(blob, what)


def _decode_object(blob: Raw | None, what: str) -> dict[str, Any] | None:
    if blob is None or bytes(blob).strip() == b"null":
        return None
    return decode_json(blob, dict[str, Any], what)


def _group_by_name(legacy: bytes | Raw) -> States:
    states = decode_json(legacy, dict[str, dict[str, Any] | None], "state")
    return {StreamId(name): state for name, state in states.items()}
