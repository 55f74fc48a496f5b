"""States that a user gives: their conversion to the STATE messages that a source gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from elt_assets.errors import ConfigError
from elt_assets.pipeline.connection_stream import ConnectionStream
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.protocol.message_rules import stream_of
from elt_assets.protocol.messages import State
from elt_assets.protocol.wire import loads

KINDS = ("STREAM", "LEGACY", "GLOBAL")


def as_message(state: Any, stream: ConfiguredStream) -> dict[str, Any]:
    """Return the STATE message that the source gets for a state that a user gives.

    Args:
        state: a JSON object: a STATE message, with or without its envelope, or only the stream's part of one.

    Raises:
        ConfigError: the state is not valid, or belongs to another stream.
    """
    name = str(stream.id)
    if not isinstance(state, Mapping) or not state:
        raise ConfigError(
            f"the state of stream {name!r} must be a JSON object, not {json.dumps(state, default=str)}",
            guidance='write the state as the source sends it, for example {"updated_at": "2026-01-01"}, or a '
            "whole STATE message; to read from the beginning, use `elt state reset` or `refresh`",
        )
    if state.get("type") == "STATE" and isinstance(state.get("state"), Mapping):
        state = {"type": "LEGACY", **state["state"]}  # a state without a type is LEGACY
    if state.get("type") not in KINDS:
        descriptor = {"name": stream.stream.name}
        if stream.stream.namespace is not None:
            descriptor["namespace"] = stream.stream.namespace
        source_state = {"stream_descriptor": descriptor, "stream_state": dict(state)}
        return {"type": "STREAM", "stream": source_state}
    try:
        message = State.from_json(json.dumps(state))
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the state of stream {name!r} is not a valid STATE message: {error}",
            guidance="write the whole STATE message of the source, or only the content of its `stream_state`",
        ) from error
    if message.type == "GLOBAL" or (message.stream is None and message.data is None):
        raise ConfigError(
            f"the state of stream {name!r} is a STATE message of type {message.type} that "
            "is not the state of one stream",
            guidance="write the content of this stream's `stream_state`, which a GLOBAL message has in "
            "`global.stream_states`; or write a STATE message of type STREAM",
        )
    if stream_of(message, [stream.id]) is None:
        raise ConfigError(
            f"the state belongs to another stream, not to {name!r}",
            guidance="give the state of this stream; its name and its namespace must be those in "
            "catalog.json",
        )
    return dict(state)


def source_state(state: str | None) -> str | None:
    """Return the source's own JSON, without the envelope of the protocol; None if `state` is None."""
    if state is None:
        return None
    message: dict[str, Any] = loads(state)
    if stream := message.get("stream"):
        return json.dumps(stream.get("stream_state"))
    return json.dumps(message.get("data", message))


def refuse_stateless(stream: ConnectionStream) -> None:
    """Check that a sync of the stream can start from a state.

    Raises:
        ConfigError: each sync reads the stream, or each of its partitions, from the beginning.
    """
    landed = stream.make_stored_stream()
    if landed.sync_mode != INCREMENTAL or landed.overwrites:
        what = "each partition of it" if stream.settings.partitions is not None else "it"
        raise ConfigError(
            f"{stream.name} cannot start from a state: each sync reads {what} from the beginning",
            guidance="only streams with `sync_mode: incremental` start from a state; their windows do not",
        )
